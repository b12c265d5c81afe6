"""The gateway as a process: started from the command line, killed, stopped, started again."""

import asyncio
import json
import os
import re
import signal
import struct
import sys
import zlib
from asyncio.subprocess import Process as RealProcess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests import warm
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.processes import processes_of
from tests.running import AGENTS, ALICE, ALICE_CHAT, SECRETS, client, config_text, feishu_emulator, push
from tests.stories.at_work import NEVER, RUNS
from tests.stories.channels.test_telegram import PIXEL
from tests.stories.web.test_web_branches import instead, shown
from tests.waiting import PATIENCE_SECONDS, until
from tests.warm import Child
from tests.web_page import opened

pytestmark = pytest.mark.slow  # it starts processes

ROOT = Path(__file__).resolve().parents[3]
GATEWAY = "gateway.__main__"
BOTH: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
"""Both streams are read as one."""


@dataclass
class Process:
    """`python -m gateway serve`, and everything it wrote."""

    process: RealProcess | Child
    url: str = ""
    output: list[str] = field(default_factory=list)
    _reading: asyncio.Task[None] | None = None

    async def ready(self) -> None:
        self._reading = asyncio.create_task(self._read())
        await until(lambda: self.url)
        async with client() as http:

            async def is_ready() -> bool:
                with suppress(httpx.TransportError):
                    return (await http.get(f"{self.url}/readyz")).status_code == 200
                return False

            await until(is_ready)

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := (await self.process.stdout.readline()).decode():
            self.output.append(line)
            if found := re.search(r"listens on (http://\S+)", line):
                self.url = found[1]

    async def wrote(self, text: str) -> None:
        await until(lambda: any(text in line for line in self.output))

    async def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE_SECONDS):
            code = await self.process.wait()
        if self._reading is not None:
            await self._reading
        return code


async def real(words: Sequence[str], env: Mapping[str, str], *, cwd: Path = ROOT, shell: str = ":") -> RealProcess:
    command = ("sh", "-c", f'{shell}; exec "$@"', "sh", sys.executable, "-m", "gateway", *words)
    return await asyncio.create_subprocess_exec(*command, cwd=cwd, env=env, **BOTH)


@asynccontextmanager
async def started(config: Path, env: Mapping[str, str] = SECRETS, *, shell: str = "") -> AsyncIterator[Process]:
    """`shell` is done before it, a umask or a limit: then it is a real Python, and else a child of the warm parent."""
    words = ("serve", "--config", str(config), "--host", "127.0.0.1", "--port", "0")
    env = {"PATH": os.environ["PATH"], "HOME": str(config.parent), "UNRELATED": "canary-unrelated-91827", **env}
    process = await (real(words, env, shell=shell) if shell else warm.start(GATEWAY, *words, env=env, **BOTH))
    run = Process(process)
    try:
        await run.ready()
        yield run
    finally:
        if process.returncode is None:
            await run.end(signal.SIGKILL)
        if run._reading is not None:
            await run._reading


@asynccontextmanager
async def platforms(
    folder: Path,
    *,
    level: str = "info",
    more: str = "",
    line: Line | None = None,
    channels: str = "",
    agents: str = AGENTS,
) -> AsyncIterator[tuple[FeishuEmulator, AnthropicEmulator, Path]]:
    """`line` is between the gateway and the model, `channels` stands beside Feishu."""
    feishu, anthropic = feishu_emulator(), AnthropicEmulator(api_key=SECRETS["ANTHROPIC_API_KEY"])
    app = line.to(anthropic.app) if line else anthropic.app
    async with serve_on_loopback(feishu.app) as feishu_url, serve_on_loopback(app) as anthropic_url:
        text = config_text(feishu_url=feishu_url, anthropic_url=anthropic_url, agents=agents, more=more)
        config = folder / "config.yaml"
        text = text.replace("level: warning", f"level: {level}").replace("channels:", f"channels:\n  {channels}", 1)
        config.write_text(text, encoding="utf-8")
        yield feishu, anthropic, config


@asynccontextmanager
async def polled(folder: Path, telegram: TelegramEmulator) -> AsyncIterator[tuple[AnthropicEmulator, Path]]:
    """With a Telegram bot beside Feishu."""
    async with serve_on_loopback(telegram.app) as url:
        channels = f'telegram: {{ botToken: "{telegram.token}", apiRoot: "{url}", dmPolicy: open, streaming: off }}'
        async with platforms(folder, channels=channels) as (_, anthropic, config):
            yield anthropic, config


async def say(run: Process, feishu: FeishuEmulator, text: str) -> None:
    event = feishu.text_event(text, sender=ALICE, chat=ALICE_CHAT)
    assert (await push(feishu, run.url, event)).status_code == 200


async def test_killed_mid_turn_resumes_from_the_journal(tmp_path: Path) -> None:
    async with platforms(tmp_path) as (feishu, anthropic, config):
        anthropic.script = [calls(("write", {"file_path": "a.txt", "content": "one"})), NEVER]
        async with started(config) as run:
            await say(run, feishu, "write it")
            await until(lambda: len(anthropic.requests) == 2)
            assert await run.end(signal.SIGKILL) == -signal.SIGKILL
        anthropic.script = [says("written")]
        async with started(config):
            (reply,) = await feishu.sent(1)
        assert reply.text == "written"
        assert len(anthropic.requests) == 3
        again = anthropic.requests[2].body["messages"]
        assert [message["role"] for message in again] == ["user", "assistant", "user"]
        assert "Wrote a.txt" in json.dumps(again)
        assert again == anthropic.requests[1].body["messages"]


@pytest.mark.parametrize("asked", [1, 2])
async def test_killed_after_an_edit_on_the_page_answers_once_on_its_branch(tmp_path: Path, asked: int) -> None:
    """Killed at once, or while the model answers; the page has not heard of it, and sends it again."""
    async with platforms(tmp_path, channels="web: {}") as (_, anthropic, config):
        anthropic.script = [says("one"), NEVER]
        async with started(config) as run, opened(run.url) as page:
            await page.say("a", message="m_first_of_all")
            await page.answers(1)
            assert await instead(page, "A", "m_first_of_all", message="m_second_one") == (200, "")
            await until(lambda: len(anthropic.requests) >= asked)
            assert await run.end(signal.SIGKILL) == -signal.SIGKILL
        anthropic.script = [says("other one"), says("last")]
        async with started(config) as run, opened(run.url) as page:
            assert await instead(page, "A", "m_first_of_all", message="m_second_one") == (200, "")
            await page.answers(2)
            await page.say("b")
            assert await page.answers(3) == ["one", "other one", "last"]
            assert await shown(page) == ["A", "other one", "b", "last"]
        roles = [[it["role"] for it in request.body["messages"]] for request in anthropic.requests[-2:]]
        assert roles == [["user"], ["user", "assistant", "user"]]


async def test_killed_gateway_kills_its_command_and_never_reruns_it(tmp_path: Path) -> None:
    async with platforms(tmp_path, more=RUNS) as (feishu, anthropic, config):
        command = f"echo ran >> ran.txt; sleep 60; : {tmp_path}"
        anthropic.script = [calls(("exec", {"command": command}))]
        ran = tmp_path / "data" / "workspaces" / "helper" / "ran.txt"
        async with started(config) as run:
            await say(run, feishu, "run it")
            await until(ran.exists)
            await run.end(signal.SIGKILL)
            await until(lambda: not processes_of(command))
        anthropic.script = [says("I was interrupted")]
        async with started(config):
            (reply,) = await feishu.sent(1)
        assert reply.text == "I was interrupted"
        assert "INTERRUPTED" in json.dumps(anthropic.requests[-1].body["messages"])
        assert ran.read_text() == "ran\n"


async def test_shutdown_exits_zero_and_the_turn_resumes_at_the_next_start(
    tmp_path: Path,
) -> None:
    """A signal that comes twice at once is meant once."""
    async with platforms(tmp_path, more="limits: { graceSeconds: 0.2 }") as (feishu, anthropic, config):
        anthropic.script = [NEVER]
        async with started(config) as run:
            await say(run, feishu, "hello")
            await until(lambda: anthropic.requests)
            run.process.send_signal(signal.SIGTERM)
            assert await run.end(signal.SIGTERM) == 0
            (line,) = [json.loads(line) for line in run.output if '"gateway_stopping"' in line]
            assert line["hint"] == "a second signal stops at once"
            assert "gateway_stopped" in run.output[-1]
        anthropic.script = [says("here I am")]
        async with started(config) as run:
            (reply,) = await feishu.sent(1)
            assert await run.end(signal.SIGINT) == 0
        assert reply.text == "here I am"


async def test_shutdown_between_two_calls_runs_only_the_second_later(
    tmp_path: Path,
) -> None:
    async with platforms(tmp_path, more=RUNS) as (feishu, anthropic, config):
        first = "echo one >> ran.txt; until [ -e go ]; do sleep 0.02; done"
        anthropic.script = [calls(("exec", {"command": first}), ("exec", {"command": "echo two >> ran.txt"}))]
        ran = tmp_path / "data" / "workspaces" / "helper" / "ran.txt"
        async with started(config) as run:
            await say(run, feishu, "run them")
            await until(ran.exists)
            run.process.send_signal(signal.SIGTERM)
            await run.wrote("gateway_stopping")
            ran.with_name("go").touch()
            assert await run.ended() == 0
        assert ran.read_text() == "one\n"
        anthropic.script = [says("both ran")]
        async with started(config):
            await feishu.sent(1)
        assert ran.read_text() == "one\ntwo\n"
        assert "INTERRUPTED" not in json.dumps(anthropic.requests[-1].body["messages"])


async def test_log_and_data_files_hold_no_secret_or_message_text(tmp_path: Path) -> None:
    async with platforms(tmp_path, level="debug") as (feishu, anthropic, config):
        feishu.fail_next("/reply", status=503, code=1)
        anthropic.script = [calls(("ls", {}), ("read", {"file_path": "../x"})), says("my-own-words-91827")]
        async with started(config) as run:
            await say(run, feishu, "their-words-91827")
            await feishu.sent(1)
            await feishu.deliver(f"{run.url}/webhooks/feishu/default", {}, b'{"encrypt": "their-words-91827"}')
            await run.end(signal.SIGTERM)
        written = "".join(run.output)
        assert "turn_finished" in written
        assert re.findall(r"\S*91827\S*", written) == []
        for line in run.output:
            if line.startswith("{"):
                json.loads(line)


async def ask(*arguments: str, cwd: Path | None = None, more: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit code and everything a command wrote. In another folder a real Python runs it."""
    env = {"PATH": os.environ["PATH"], "HOME": str(cwd or ROOT), **(more or {})}
    process = await (real(arguments, env, cwd=cwd) if cwd else warm.start(GATEWAY, *arguments, env=env, **BOTH))
    output, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, output.decode()


async def test_second_gateway_on_the_same_database_refuses_to_start(tmp_path: Path) -> None:
    async with platforms(tmp_path) as (_, _, config), started(config):
        code, output = await ask("serve", "--config", str(config), "--port", "0", more=SECRETS)
        assert code == 1
        assert "database.url" in output
        assert "Traceback" not in output


def limit_of(run: Process, name: str) -> tuple[str, ...]:
    (line,) = [it for it in Path(f"/proc/{run.process.pid}/limits").read_text().splitlines() if it.startswith(name)]
    return tuple(line.removeprefix(name).split()[:2])


async def test_file_permissions_are_owner_only_on_every_run(tmp_path: Path) -> None:
    folder = tmp_path / "data"

    def modes() -> dict[str, int]:
        files = (path for path in folder.iterdir() if path.is_file())
        return {re.sub("-[0-9a-f]+.json", "", path.name): path.stat().st_mode & 0o777 for path in files}

    private = dict.fromkeys(("clawgate.db", "clawgate.db-wal", "clawgate.db-shm", "clawgate.db.lock", "serving"), 0o600)
    async with platforms(tmp_path) as (_, _, config):
        async with started(config, shell="umask 022") as run:
            assert modes() == private
            assert folder.stat().st_mode & 0o066 == 0
            assert limit_of(run, "Max core file size") == ("0", "0")
            await run.end(signal.SIGKILL)
        for path in folder.iterdir():
            path.chmod(path.stat().st_mode | 0o044)
        async with started(config, shell="umask 022"):
            assert modes() == private


async def test_short_token_open_to_the_network_refuses_to_start(tmp_path: Path) -> None:
    for token, code in (("sixteen-or-more-91827", 2), ("x" * 31, 2)):
        async with platforms(tmp_path, more=f"server: {{ adminToken: {token} }}") as (_, _, config):
            found = await ask("serve", "--config", str(config), "--host", "0.0.0.0", "--port", "0", more=SECRETS)
            assert found[0] == code
            assert "server.adminToken: too short for a server that is open to the network (0.0.0.0)" in found[1]
            assert "91827" not in found[1]
            assert (await ask("check", "--config", str(config), more=SECRETS))[0] == 0
            config.write_text(config.read_text().replace("adminToken", "host: '::', adminToken"))
            assert (await ask("check", "--config", str(config), more=SECRETS))[0] == code


async def test_foreign_package_of_our_name_is_refused_before_import(tmp_path: Path) -> None:
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "__init__.py").write_text("raise SystemExit('foreign code ran')")
    code, output = await ask("check", cwd=tmp_path, more={"PYTHONPATH": str(ROOT)})
    assert code == 1
    assert "'tools' would come from" in output
    assert "foreign code ran" not in output


async def test_shutdown_is_not_ready_but_still_accepts_messages(tmp_path: Path) -> None:
    line = Line()
    async with platforms(tmp_path, line=line) as (feishu, anthropic, config):
        anthropic.script = [says("one"), says("two")]
        async with started(config) as run, client() as http:
            line.hold()
            await say(run, feishu, "first")
            await until(lambda: anthropic.requests)
            run.process.send_signal(signal.SIGTERM)
            await run.wrote("gateway_stopping")
            assert (await http.get(f"{run.url}/readyz")).json()["failing"] == {"drain": "stopping"}
            assert (await http.get(f"{run.url}/healthz")).status_code == 200
            await say(run, feishu, "second")
            line.release()
            assert await run.ended() == 0
            assert len(feishu.messages) == 1
        async with started(config):
            assert [sent.text for sent in await feishu.sent(2)] == ["one", "two"]


async def test_killed_polling_bot_answers_everything_once(tmp_path: Path) -> None:
    """Killed while it answers the first message, the update not yet confirmed to Telegram for sure; the second is
    written while it is down."""
    telegram = TelegramEmulator()
    alice = telegram.private()
    async with polled(tmp_path, telegram) as (anthropic, config):
        for _ in range(2):
            anthropic.script = [NEVER]
            before = len(anthropic.requests)
            async with started(config) as run:
                if not before:
                    await telegram.push(telegram.text_update("first", chat=alice))
                await until(lambda: len(anthropic.requests) > before)  # noqa: B023
                await run.end(signal.SIGKILL)
        await telegram.push(telegram.text_update("second", chat=alice))
        anthropic.script = [says("one"), says("two")]
        async with started(config):
            replies = await telegram.sent(2)
        assert [reply.text for reply in replies] == ["one", "two"]


def huge_picture() -> bytes:
    """150 KB, 39 million pixels with transparency: the most that is decoded at all."""
    side = 6_240
    packed = zlib.compress((b"\0" + bytes(4 * side)) * side, 1)
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 6, 0, 0, 0)), (b"IDAT", packed), (b"IEND", b""))
    written = (struct.pack(">I", len(it)) + kind + it + struct.pack(">I", zlib.crc32(kind + it)) for kind, it in chunks)
    return b"\x89PNG\r\n\x1a\n" + b"".join(written)


async def test_memory_of_large_pictures_is_released(tmp_path: Path) -> None:
    """Four at once, each in a chat of its own: four threads decode one after the other."""
    async with platforms(tmp_path) as (feishu, anthropic, config), started(config) as run:

        async def resident() -> int:
            status = await asyncio.to_thread(Path(f"/proc/{run.process.pid}/status").read_text)
            return int(re.findall(r"VmRSS:\s+(\d+)", status)[0])

        async def looked_at(data: bytes, chats: int) -> None:
            asked = len(anthropic.requests) + chats
            anthropic.script = [says("seen")] * chats
            for number in range(chats):
                event = feishu.image_event(data, sender=ALICE, chat=f"oc_{asked:08}{number:024}")
                assert (await push(feishu, run.url, event)).status_code == 200
            await until(lambda: len(anthropic.requests) == asked)
            await feishu.sent(asked)

        await looked_at(PIXEL, 4)  # what is loaded with the first ones stays
        before = await resident()
        await looked_at(huge_picture(), 4)
        told = [json.dumps(request.body) for request in anthropic.requests[4:]]
        assert all("scaled from 6240x6240 to 2000x2000" in it for it in told)
        assert await resident() <= 1.3 * before
