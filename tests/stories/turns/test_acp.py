"""Agents that other programs run, over the Agent Client Protocol: text, tool lines, approvals, files, ends and kills."""

import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, BOB, SECRETS, Running, config_text, feishu_emulator, push, running
from tests.stories.operate.test_doctor import examined
from tests.stories.process.test_process import Process, started
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[3]
SCRIPTED = ROOT / "tests" / "emulators" / "acp_agent.py"
OWNED = f'owners: ["feishu:{ALICE}"]'
"""A decision needs somebody who may make it."""


def agents(*options: str, mode: str = "ask", **more: Any) -> str:
    runner = {"acp": [sys.executable, str(SCRIPTED), *options], "readable": [str(SCRIPTED.parent)], **more}
    return f"""
agents:
  list:
    - id: coder
      systemPrompt: Be brief.
      tools: {{ allow: [read, write, exec], exec: {{ mode: {mode} }} }}
      runner: {json.dumps(runner)}
"""


@asynccontextmanager
async def coding(
    folder: Path, *options: str, mode: str = "ask", more: str = OWNED, **runner: Any
) -> AsyncIterator[Running]:
    async with running(folder, agents=agents(*options, mode=mode, **runner), more=more) as house:
        yield house


async def answer(house: Running, text: str, **who: Any) -> str:
    """The text of the bot's next message."""
    before = len(house.feishu.messages)
    await house.say(text, **who)
    await house.until(lambda: len(house.feishu.messages) > before)
    await house.idle()
    return house.feishu.messages[before].text


async def pressed(house: Running, choice: str, expected: str) -> None:
    """Answer the newest approval by a command, and wait for what the agent says then."""
    text = next(it.text for it in reversed(house.feishu.messages) if "/approve" in it.text)
    await house.say(f"/approve {text.partition('/approve ')[2].split()[0]} {choice}")
    await house.until(lambda: any(expected in it.text for it in house.feishu.messages))
    await house.idle()


def workspace(house: Running) -> Path:
    return house.workspace("coder")


async def test_acp_agent_answers_and_keeps_its_session(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        assert "hello world" in await answer(house, "say hello world")
        first = await answer(house, "recall")
        assert first.startswith("1 before; told []")
        assert "Be brief." not in first  # the instructions came with the first prompt only
        assert house.anthropic.requests == []
        await house.say("/new")
        await house.idle()
        fresh = await answer(house, "recall")
        assert fresh.startswith("0 before")
        assert "Be brief." in fresh


async def test_acp_session_is_loaded_after_a_restart(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        await answer(house, "say hello")
        feishu = house.feishu
    async with running(tmp_path, agents=agents(), more=OWNED, emulator=feishu) as house:
        text = await answer(house, "recall")
        assert text.startswith("1 before")
        assert "an old answer" not in text  # what is replayed was said before


async def test_acp_agent_that_cannot_load_reads_the_conversation(tmp_path: Path) -> None:
    async with coding(tmp_path, "--forgets") as house:
        await answer(house, "say hello")
        feishu = house.feishu
    async with running(tmp_path, agents=agents("--forgets"), more=OWNED, emulator=feishu) as house:
        text = await answer(house, "recall")
        assert text.startswith("0 before")
        assert "The conversation so far" in text
        assert "You: hello" in text


async def test_acp_plan_is_a_list_and_thoughts_are_hidden(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        text = await answer(house, "plan")
        assert "look" in text
        assert "mend" in text
        assert "planned" in text
        assert "secret thought" not in text


async def test_acp_permission_is_an_approval_of_the_exact_call(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        await house.say("edit a.txt approved-words")
        await house.until(lambda: any("/approve" in it.text for it in house.feishu.messages))
        await house.idle()
        request = next(it.text for it in house.feishu.messages if "/approve" in it.text)
        assert "Edit a.txt" in request
        assert "approved-words" in request
        assert not (workspace(house) / "a.txt").exists()
        assert any("Waiting for approval: Edit a.txt" in it.text.replace("`", "") for it in house.feishu.messages)
        await pressed(house, "allow-once", "Edited a.txt.")
        assert (workspace(house) / "a.txt").read_text() == "approved-words\n"
        await house.say("edit a.txt more")  # allowed once is not allowed again
        await house.until(lambda: sum("/approve" in it.text for it in house.feishu.messages) == 2)
        await house.idle()
        assert (workspace(house) / "a.txt").read_text() == "approved-words\n"
        await pressed(house, "deny", "Then not.")
        assert (workspace(house) / "a.txt").read_text() == "approved-words\n"


async def test_acp_permission_is_decided_by_owners_only(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        await answer(house, "say hello")  # the owner's direct chat is known
        await house.say("edit a.txt x", sender=BOB, chat="oc_b0b00000000000000000000000000")
        await house.until(lambda: any("/approve" in it.text for it in house.feishu.messages))
        await house.idle()
        text = next(it.text for it in house.feishu.messages if "/approve" in it.text)
        id_ = text.partition("/approve ")[2].split()[0]
        await house.say(f"/approve {id_} allow-once", sender=BOB, chat="oc_b0b00000000000000000000000000")
        await house.idle()
        assert not (workspace(house) / "a.txt").exists()


@pytest.mark.parametrize(("mode", "edited"), [("allow", True), ("deny", False)])
async def test_acp_permission_follows_the_exec_mode(tmp_path: Path, mode: str, edited: bool) -> None:
    async with coding(tmp_path, mode=mode) as house:
        text = await answer(house, "edit a.txt x")
        assert ("Edited" in text) is edited
        assert (workspace(house) / "a.txt").exists() is edited


async def test_acp_requests_need_the_tool_that_does_the_same(tmp_path: Path) -> None:
    """Bob has no tool that changes files: the program's requests in his chat are rejected, in Alice's they are not."""
    more = f'{OWNED}\ntools: {{ senders: {{ "feishu:{BOB}": {{ deny: [write, edit, exec] }} }} }}'
    async with coding(tmp_path, mode="allow", more=more) as house:
        assert "Edited" in await answer(house, "edit a.txt x")
        bobs = {"sender": BOB, "chat": "oc_b0b00000000000000000000000000"}
        assert "rejected" in await answer(house, "edit b.txt x", **bobs)
        assert "Not written" in await answer(house, "write b.txt x", **bobs)
        assert "It says x" in await answer(house, "read a.txt", **bobs)
        assert not (workspace(house) / "b.txt").exists()


async def test_acp_files_stay_in_the_workspace(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        assert "Written." in await answer(house, "write notes/a.txt kept words")
        assert (workspace(house) / "notes" / "a.txt").read_text() == "kept words"
        assert "It says kept words" in await answer(house, "read notes/a.txt")
        assert await answer(house, f"read {workspace(house)}/new.txt") == "It says", "a file that it may create"
        for path in ("/etc/passwd", "../../config.yaml", "notes/../../../.env", f"{workspace(house)}/../x.txt"):
            assert "Not read" in await answer(house, f"read {path}")
        for path in ("/tmp/evil", "../evil", "skills/evil/SKILL.md", ".git/hooks/evil", ".env"):
            assert "Not written" in await answer(house, f"write {path} evil")
        assert not list(tmp_path.rglob("evil*"))


async def test_acp_program_runs_in_the_sandbox(tmp_path: Path) -> None:
    """Its own file access is confined, too: the config beside it is not readable."""
    async with coding(tmp_path) as house:
        await answer(house, "say hello")
        (program,) = list(house.gateway.runtime.setup.acp._live.values())
        assert program.process.is_alive
        (tmp_path / "secret.txt").write_text("x")
        assert "Not read" in await answer(house, f"read {tmp_path}/secret.txt")


FAILURES = [
    ("die", "code 3", "out of luck"),
    ("lines", "limit", ""),
]


@pytest.mark.parametrize(("command", "reason", "last"), FAILURES)
async def test_acp_program_that_dies_is_one_sentence_and_starts_again(
    tmp_path: Path, command: str, reason: str, last: str
) -> None:
    async with coding(tmp_path) as house:
        text = await answer(house, command)
        assert "the program behind me has failed" in text
        assert reason in text  # the owner reads why
        assert last in text
        assert "doctor" in text
        assert "back again" in await answer(house, "say back again")


async def test_acp_program_that_is_missing_or_lacks_its_login_says_so(tmp_path: Path) -> None:
    async with coding(tmp_path, "--login") as house:
        assert "it is not logged in" in await answer(house, "say hello")
    other = tmp_path / "other"
    other.mkdir()
    async with coding(other, "--login", env={"AGENT_KEY": "k"}) as house:
        assert "hello" in await answer(house, "say hello")
    third = tmp_path / "third"
    third.mkdir()
    async with running(third, agents=agents().replace(sys.executable, "no-such-agent"), more=OWNED) as house:
        assert "no program 'no-such-agent'" in await answer(house, "say hello")


async def test_acp_flood_and_garbage_are_contained(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        assert "still here" in await answer(house, "garbage")
        before = len(house.feishu.messages)
        await house.say("flood")
        await house.until(lambda: len(house.feishu.messages) > before)
        await house.idle()
        assert sum(len(it.text) for it in house.feishu.messages[before:]) < 250_000
    async with coding(tmp_path, mode="deny") as house:
        text = await answer(house, "lie")
        assert "a lie" not in text
        assert "cancelled cancelled" in text


async def test_acp_hang_ends_with_the_turns_time_limit(tmp_path: Path) -> None:
    async with coding(tmp_path, more=f"{OWNED}\nlimits: {{ turnSeconds: 2 }}") as house:
        assert "takes longer than one answer may take" in await answer(house, "hang")
        assert "still" in await answer(house, "say still")


async def test_acp_stop_cancels_the_prompt(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        await house.say("slow")
        await house.until(lambda: (workspace(house) / "begun").exists())
        await house.say("/stop")
        await house.until(lambda: (workspace(house) / "cancelled").exists())
        await house.idle()
        assert "after it" in await answer(house, "say after it")


async def test_acp_idle_program_is_ended_and_resumed(tmp_path: Path) -> None:
    async with coding(tmp_path, more=f"{OWNED}\nlimits: {{ acpIdleSeconds: 0.2 }}") as house:
        await answer(house, "say hello")
        await house.until(lambda: not house.gateway.runtime.setup.acp._live)
        assert (await answer(house, "recall")).startswith("1 before")


async def test_acp_two_chats_have_two_programs(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        await answer(house, "say hello")
        other = {"sender": BOB, "chat": "oc_b0b00000000000000000000000000"}
        assert (await answer(house, "recall", **other)).startswith("0 before")
        assert len(house.gateway.runtime.setup.acp._live) == 2


async def test_acp_program_dies_with_the_gateway(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        await answer(house, "say hello")
        (live,) = house.gateway.runtime.setup.acp._live.values()
        pid = live.process._command._process.pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_acp_secrets_of_the_gateway_are_not_in_the_program(tmp_path: Path) -> None:
    async with coding(tmp_path) as house:
        await answer(house, "say hello")
        (live,) = house.gateway.runtime.setup.acp._live.values()
        group = live.process._command._process.pid
        environments = b""
        for status in Path("/proc").glob("[0-9]*/environ"):
            try:
                if os.getpgid(int(status.parent.name)) == group:
                    environments += status.read_bytes()
            except OSError:
                continue
        assert not [name for name, value in SECRETS.items() if value.encode() in environments]


@pytest.mark.parametrize(
    ("runner", "path"),
    [
        ('{ acp: "claude" , mood: x }', "agents.list[0].runner.mood"),
        ("{ acp: [claude], network: 7 }", "agents.list[0].runner.network"),
        ("{ acp: [claude], sandbox: maybe }", "agents.list[0].runner.sandbox"),
    ],
)
def test_acp_settings_are_checked(tmp_path: Path, runner: str, path: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"channels: {{ web: {{}} }}\nagents: {{ list: [ {{ id: a, runner: {runner} }} ] }}\n")
    with pytest.raises(ConfigErrors) as errors:
        load(file, {})
    assert any(it.path.startswith(path) for it in errors.value.problems)


def programs(folder: Path) -> list[int]:
    """The processes whose HOME is in this folder."""
    found = []
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"HOME={folder}".encode() in environment.read_bytes():
                found.append(int(environment.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["prompt", "approval", "approved"])
async def test_acp_kill_runs_nothing_twice_and_says_so(tmp_path: Path, moment: str) -> None:
    """SIGKILL of the gateway while the program works, while a request waits, and right after the decision."""
    feishu = feishu_emulator()
    async with serve_on_loopback(feishu.app) as url:
        config = tmp_path / "config.yaml"
        config.write_text(config_text(feishu_url=url, anthropic_url=url, agents=agents(), more=OWNED), encoding="utf-8")
        folder = tmp_path / "data" / "workspaces" / "coder"

        async def said(run: Process, text: str) -> None:
            event = feishu.text_event(text, sender=ALICE, chat=ALICE_CHAT)

            async def taken() -> bool:  # a 503 until the bot knows its own id
                return (await push(feishu, run.url, event)).status_code == 200

            await until(taken)

        def told(text: str) -> bool:
            return any(text in it.text for it in feishu.messages)

        async with started(config, SECRETS) as run:
            if moment == "prompt":
                await said(run, "slow")
                await until(lambda: (folder / "begun").exists())
            else:
                await said(run, "edit a.txt once")
                await until(lambda: told("/approve"))
            if moment == "approved":
                request = next(it.text for it in feishu.messages if "/approve" in it.text)
                await said(run, f"/approve {request.partition('/approve ')[2].split()[0]} allow-once")
                await until(lambda: (folder / "a.txt").exists())
            await run.end(signal.SIGKILL)
        await until(lambda: not programs(folder))
        async with started(config, SECRETS) as run:
            if moment == "approval":
                assert not (folder / "a.txt").exists()
                request = next(it.text for it in feishu.messages if "/approve" in it.text)
                await said(run, f"/approve {request.partition('/approve ')[2].split()[0]} allow-once")
                await until(lambda: told("Edited a.txt."))
            else:
                await until(lambda: told("interrupted by a restart") or told("Edited a.txt."))
            await said(run, "say the next")
            await until(lambda: told("the next"))
        if moment != "prompt":
            assert (folder / "a.txt").read_text() == "once\n"
        assert sum("interrupted by a restart" in it.text for it in feishu.messages) <= 1


async def test_acp_doctor_tries_the_program(tmp_path: Path) -> None:
    def config(*options: str, **runner: Any) -> str:
        return f"channels: {{ web: {{}} }}\n{agents(*options, **runner)}"

    (good,) = await examined(tmp_path, config("--login", env={"AGENT_KEY": "k"}), "runner")
    assert (good.check, good.status, good.message.en) == ("runner coder", "ok", "Scripted agent 1.2 answers")
    (bad,) = await examined(tmp_path, config("--login"), "runner")
    assert (bad.status, bad.message.en) == ("error", "it is not logged in: set its API key in runner.env")
