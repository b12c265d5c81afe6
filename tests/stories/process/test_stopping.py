"""Ctrl-C in a terminal, and a signal from a supervisor: what stops, what is said, and what a second one does."""

import asyncio
import os
import pty
import re
from pathlib import Path

from tests import warm
from tests.running import SECRETS, WITHOUT_EXEC
from tests.stories.at_work import NEVER
from tests.stories.process.test_process import GATEWAY, Process, platforms, say
from tests.waiting import PATIENCE_SECONDS, until

CTRL_C = b"\x03"


class Terminal:
    """`gateway serve` in a terminal of its own."""

    def __init__(self, config: Path) -> None:
        self.keyboard, self._screen = pty.openpty()
        self._config = config
        self.shown = ""

    async def start(self) -> warm.Child:
        env = {"PATH": os.environ["PATH"], "HOME": str(self._config.parent), **SECRETS}
        words, screen = ("serve", "--config", str(self._config), "--port", "0"), self._screen
        process = await warm.start(GATEWAY, *words, env=env, stdin=screen, stdout=screen, stderr=screen, terminal=True)
        os.close(self._screen)
        os.set_blocking(self.keyboard, False)
        asyncio.get_running_loop().add_reader(self.keyboard, self._read)
        return process

    def _read(self) -> None:
        try:
            self.shown += os.read(self.keyboard, 65_536).decode(errors="replace")
        except OSError:  # the other side is closed
            asyncio.get_running_loop().remove_reader(self.keyboard)

    async def shows(self, pattern: str) -> re.Match[str]:
        await until(lambda: re.search(pattern, self.shown))
        return re.search(pattern, self.shown)  # type: ignore[return-value]


async def test_shutdown_by_ctrl_c_and_a_second_one_immediately(tmp_path: Path) -> None:
    more = "limits: { graceSeconds: 300 }"
    async with platforms(tmp_path, level="warning", agents=WITHOUT_EXEC, more=more) as (feishu, anthropic, config):
        anthropic.script = [NEVER]
        terminal = Terminal(config)
        process = await terminal.start()
        url = (await terminal.shows(r"listens on (http://[\w.:]+)"))[1]
        await say(Process(process, url=url), feishu, "hello")
        await until(lambda: anthropic.requests)
        os.write(terminal.keyboard, CTRL_C)
        await terminal.shows(r"Stopping: .* at most 300 seconds.* Ctrl-C again stops at once\.")
        async with asyncio.timeout(PATIENCE_SECONDS):
            while process.returncode is None:
                os.write(terminal.keyboard, CTRL_C)  # pressed until it counts: twice at once is meant once
                await asyncio.sleep(0.1)
        assert process.returncode == 1
        assert terminal.shown.count("Stopping: ") == 1
        os.close(terminal.keyboard)
