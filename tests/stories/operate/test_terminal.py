"""`python -m gateway chat`: one message for scripts, and a conversation in a real terminal."""

import asyncio
import os
import pty
import re
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gateway.cli import terminal as cli
from gateway.config.load import load
from gateway.observe.secrets import Scrubber
from gateway.program import OperatorError
from tests import warm
from tests.emulators.models.script import Fault, calls, says
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.running import SECRETS, WITHOUT_EXEC, Running, running
from tests.stories.at_work import results
from tests.stories.process.test_process import GATEWAY, platforms
from tests.waiting import PATIENCE_SECONDS, until
from tests.web_page import WEB, opened

pytestmark = pytest.mark.slow  # it starts processes


async def run(config: Path, *words: str, typed: str | None = None) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    env = {"PATH": os.environ["PATH"], "HOME": str(config.parent), **SECRETS}
    words = ("chat", "--config", str(config), *words)
    process = await warm.start(GATEWAY, *words, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            output, errors = await process.communicate(typed.encode() if typed is not None else None)
    finally:
        if process.returncode is None:
            process.kill()
    return process.returncode or 0, output.decode(), errors.decode()


@dataclass
class Tty:
    """A person's terminal. `screen` is all that was printed."""

    process: warm.Child
    master: int
    screen: str = field(default="")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    async def shows(self, *words: str, after: str = "") -> None:
        """All of them, behind the last `after`."""
        await until(
            lambda: (
                all(it in self.screen[self.screen.rfind(after) if after else 0 :] for it in words) or self._ended(words)
            )
        )

    def _ended(self, words: tuple[str, ...]) -> bool:
        assert self.process.returncode is None, (words, self.screen)
        return False

    async def ends(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await self.process.wait()


@asynccontextmanager
async def terminal(config: Path, *words: str) -> AsyncIterator[Tty]:
    master, slave = pty.openpty()
    env = {"PATH": os.environ["PATH"], "HOME": str(config.parent), "TERM": "xterm", **SECRETS}
    words = ("chat", "--config", str(config), *words)
    process = await warm.start(GATEWAY, *words, env=env, stdin=slave, stdout=slave, stderr=slave, terminal=True)
    tty = Tty(process, master)

    def read() -> None:
        with suppress(OSError):
            tty.screen += os.read(master, 65_536).decode(errors="replace")

    asyncio.get_running_loop().add_reader(master, read)
    try:
        await tty.shows("> ")
        yield tty
    finally:
        asyncio.get_running_loop().remove_reader(master)
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)
        os.close(slave)


async def test_chat_command_prints_only_the_answer_on_stdout(tmp_path: Path, database_url: str) -> None:
    more = f'database: {{ url: "{database_url}" }}'
    async with platforms(tmp_path, agents=WITHOUT_EXEC, more=more) as (feishu, anthropic, config):
        anthropic.script = [says("four")]
        assert await run(config, "two and two?") == (0, "four\n", "")
        anthropic.script = [says("at once")] * 2
        both = await asyncio.gather(run(config, "one"), run(config, "two"))  # each in a process of its own
        assert [*both] == [(0, "at once\n", "")] * 2
        assert not feishu.messages


async def test_chat_command_errors_go_to_stderr(tmp_path: Path) -> None:
    async with platforms(tmp_path, agents=WITHOUT_EXEC) as (_, anthropic, config):
        anthropic.script = [says("five")]
        assert await run(config, typed="two and three?\n") == (0, "five\n", "")
        words = anthropic.requests[0].body["messages"][-1]["content"][-1]["text"]
        assert words.strip().endswith("two and three?")
        anthropic.script = [Fault(status=400, message="Unsupported parameter: max_tokens")]
        code, output, errors = await run(config, "and now?")
        assert (code, output) == (1, "")
        assert "Unsupported parameter: max_tokens" in errors
        code, output, errors = await run(config, "hi", "--agent", "helpr")
        assert (code, output, errors) == (1, "", '--agent: no agent "helpr" — did you mean "helper"?\n')
        code, output, errors = await run(config, typed=" ")
        assert (code, output, errors) == (1, "", "the message is empty\n")


@asynccontextmanager
async def slow_to_confirm(house: Running) -> AsyncIterator[str]:
    """The house's address behind a proxy that confirms a message when its answer has been told already."""

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        async def sent(part: Any) -> None:
            if scope["path"].startswith("/webhooks/"):
                await house.idle()
            await send(part)

        await house.gateway.app(scope, receive, sent)

    async with serve_on_loopback(proxy) as url:
        yield url


@pytest.mark.parametrize(
    "more",
    ["", "server: { adminToken: a-token-of-sixteen }", "tools: { exec: { mode: allow } }"],
    ids=["open", "token", "link"],
)
async def test_chat_command_uses_the_running_gateway(tmp_path: Path, more: str) -> None:
    """Whatever that door wants: whoever may read config and database may come in."""
    async with running(tmp_path, feishu=WEB, more=more) as house, slow_to_confirm(house) as url:
        house.anthropic.script = [calls(("ls", {"path": "."})), says("a long file")]
        (tmp_path / "notes.txt").write_text("all of it", encoding="utf-8")
        config = tmp_path / "config.yaml"
        words = ("what is it?", "--file", str(tmp_path / "notes.txt"), "--url", url)
        assert await run(config, *words) == (0, "a long file\n", "")
        assert [*house.uploads().values()] == [b"all of it"]
        if more:
            return
        async with opened(house.url) as page:
            (kept,) = await page.chats()
            assert kept["title"].startswith("what is it?")


async def test_chat_command_needs_the_url_of_a_moved_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "BUSY_SECONDS", 1)  # another command could be done with the database
    async with running(tmp_path, feishu=WEB, more="server: { port: 9 }"):
        loaded = load(tmp_path / "config.yaml", SECRETS)

        def begin() -> None:
            with cli.door(loaded, None, Scrubber(), "en") as http:
                cli.Conversation(http, loaded.config.database, None)

        with pytest.raises(OperatorError, match=r"no gateway answers at .*:9 .* --url"):
            await asyncio.to_thread(begin)


async def test_chat_command_conversation_in_a_terminal(tmp_path: Path) -> None:
    line = Line()
    async with platforms(tmp_path, line=line, more="tools: { exec: { mode: ask } }") as (_, anthropic, config):
        async with terminal(config) as tty:
            anthropic.script = [
                says(it) for it in ("It grows and grows and grows.", "It has begun and goes on.", "Well.")
            ]
            line.hold(after_pieces=1)
            tty.type("grow\n")
            await tty.shows("It grows and")
            assert "and grows." not in tty.screen
            line.release()
            await tty.shows("and grows.\r\n> ")
            line.hold(after_pieces=1)
            tty.type("never\n")
            await tty.shows("It has begun")
            tty.type("\x03")
            await tty.shows("topped", "\n> ", after="never")
            line.release()
            tty.type("/new\n")
            await tty.shows("\n> ", after="/new")
            assert tty.screen.count("It has begun") == 1, "what was read is not printed again"
            tty.type("again\n")
            await tty.shows("Well.", "\n> ", after="again")
            assert len(anthropic.requests[-1].body["messages"]) == 1
            anthropic.script = [calls(("exec", {"command": "echo ran-it"})), says("It waits."), says("It ran.")]
            tty.type("run it\n")
            await tty.shows("It waits.", "[exec: waits for approval]", "allow-once", "\n> ", after="run it")
            (id_,) = {*re.findall(r"/approve (\S+) allow-once", tty.screen)}
            tty.type(f"/approve {id_} allow-once\n")
            await tty.shows("It ran.")
            assert "ran-it" in results(anthropic.requests[-1].body)[-1]
            tty.type("\x03")
            await tty.shows("Ctrl-C again leaves")
            tty.type("\x03")
            assert await tty.ends() == 130
        async with terminal(config) as tty:
            tty.type("\x04")
            assert await tty.ends() == 0
