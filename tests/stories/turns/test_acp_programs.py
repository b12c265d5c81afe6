"""Agents from npm that nobody here wrote, behind the chat: Claude Code and Gemini CLI, each against its model's emulator.

They answer, edit after a pressed approval, stop, and survive SIGKILL of the gateway and of themselves.
"""

import json
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.script import Turn, calls, says
from tests.emulators.models.server import ModelEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, SECRETS, config_text, feishu_emulator, push, running
from tests.stories.process.test_process import Process, started
from tests.stories.turns.test_acp import OWNED, answer, pressed, programs
from tests.waiting import until

NPM = Path(__file__).resolve().parents[3] / ".venv" / "npm" / "node_modules"
KEY = "AIzaSyTest0123456789"
SLOW_SECONDS = 20.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (NPM / ".bin" / "gemini").exists(), reason="no npm on this machine: .venv/npm was not made"),
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Program:
    """`write` and `shell` are the names of its tools."""

    command: Sequence[str]
    emulator: type[ModelEmulator]
    key: str
    address: str
    write: str
    shell: str
    env: dict[str, str] = field(default_factory=dict)

    def agents(self, url: str) -> str:
        binary, *options = self.command
        runner = {
            "acp": [str(NPM / ".bin" / binary), *options],
            "env": {self.key: KEY, self.address: url, **self.env},
            "readable": [str(NPM)],
            "allowPrivate": [f"127.0.0.1:{url.rpartition(':')[2]}"],
        }
        return f"""
agents:
  list:
    - id: coder
      tools: {{ allow: [read, write, edit, ls, exec], exec: {{ mode: ask }} }}
      runner: {json.dumps(runner)}
"""


PROGRAMS = {
    "claude": Program(
        command=["claude-agent-acp"],
        emulator=AnthropicEmulator,
        key="ANTHROPIC_API_KEY",
        address="ANTHROPIC_BASE_URL",
        write="Write",
        shell="Bash",
        env={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"},
    ),
    "gemini": Program(  # without `--model` it asks another model which one to use
        command=["gemini", "--acp", "--model", "gemini-2.5-pro"],
        emulator=GeminiEmulator,
        key="GEMINI_API_KEY",
        address="GOOGLE_GEMINI_BASE_URL",
        write="write_file",
        shell="run_shell_command",
    ),
}
each = pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)


@asynccontextmanager
async def model_of(program: Program, script: Sequence[Turn]) -> AsyncIterator[tuple[ModelEmulator, str]]:
    model = program.emulator(script, api_key=KEY)
    async with serve_on_loopback(model.app) as url:
        yield model, url


@each
async def test_acp_program_edits_after_a_pressed_approval_and_stops(tmp_path: Path, program: Program) -> None:
    file = tmp_path / "data" / "workspaces" / "coder" / "notes.txt"
    write = calls((program.write, {"file_path": str(file), "content": "bread\n"}))
    script = [says("Hello."), write, write, says("Written."), says("Slow.", pause_seconds=SLOW_SECONDS), says("Next.")]
    async with (
        model_of(program, script) as (model, url),
        running(tmp_path, agents=program.agents(url), more=OWNED) as house,
    ):
        assert await answer(house, "hi") == "Hello."
        await house.say("write my list")
        await house.until(lambda: any("/approve" in it.text and str(file) in it.text for it in house.feishu.messages))
        await house.idle()
        assert not file.exists()
        await pressed(house, "allow-once", "Written.")
        assert file.is_file(), str(model.requests[-1].body.get("contents"))[-900:]
        assert file.read_text() == "bread\n"

        before = len(model.requests)
        await house.say("take your time")
        await house.until(lambda: len(model.requests) > before)
        await house.say("/stop")
        await house.idle()
        assert await answer(house, "and now?") == "Next."
        assert not any(it.refusal for it in model.requests)


@pytest.mark.long
@pytest.mark.parametrize("victim", ["gateway", "program"])
@pytest.mark.parametrize("moment", ["prompt", "approval", "approved"])
@each
async def test_acp_program_kill_runs_nothing_twice(tmp_path: Path, program: Program, moment: str, victim: str) -> None:
    """SIGKILL while the model answers, while a request waits, and right after the approved command has run."""
    feishu, folder = feishu_emulator(), tmp_path / "data" / "workspaces" / "coder"
    append = calls((program.shell, {"command": "echo once >> a.txt", "description": "Append a line"}))
    script = [append, append, says("Appended.", pause_seconds=SLOW_SECONDS if moment == "approved" else 0.0)]
    if moment == "prompt":
        script = [says("Slow.", pause_seconds=SLOW_SECONDS)]

    def told(text: str) -> bool:
        return any(text in it.text for it in feishu.messages)

    async def kill(run: Process) -> None:
        if victim == "gateway":
            await run.end(signal.SIGKILL)
        else:
            for pid in programs(folder):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        await until(lambda: not programs(folder))

    async def say(run: Process, text: str) -> None:
        event = feishu.text_event(text, sender=ALICE, chat=ALICE_CHAT)

        async def taken() -> bool:  # a 503 until the bot knows its own id
            return (await push(feishu, run.url, event)).status_code == 200

        await until(taken)

    async def approve(run: Process) -> None:
        request = next(it.text for it in feishu.messages if "/approve" in it.text)
        await say(run, f"/approve {request.partition('/approve ')[2].split()[0]} allow-once")

    async with (
        model_of(program, [*script, *[says("The next.")] * 9]) as (model, url),
        serve_on_loopback(feishu.app) as at,
    ):
        config = tmp_path / "config.yaml"
        text = config_text(feishu_url=at, anthropic_url=at, agents=program.agents(url), more=OWNED)
        config.write_text(text, encoding="utf-8")
        async with started(config, SECRETS) as run:
            await say(run, "work")
            await until(lambda: model.requests if moment == "prompt" else told("/approve"))
            if moment == "approved":
                await approve(run)
                await until(lambda: (folder / "a.txt").exists() and len(model.requests) == len(script))
            await kill(run)
            if victim == "program":
                await go_on(run, moment, told, say, approve)
        if victim == "gateway":
            async with started(config, SECRETS) as run:
                await go_on(run, moment, told, say, approve)
        assert moment == "prompt" or (folder / "a.txt").read_text() == "once\n"
        assert sum("interrupted by a restart" in it.text for it in feishu.messages) <= 1


async def go_on(run: Process, moment: str, told: Any, say: Any, approve: Any) -> None:
    """The waiting request is decided, a turn that was cut off says so, and the next message is answered."""
    if moment == "approval":
        assert not told("Appended.")
        await approve(run)
        await until(lambda: told("Appended."))
    else:
        await until(lambda: told("interrupted by a restart") or told("its program has ended"))
    await say(run, "and now?")
    await until(lambda: told("The next."))
