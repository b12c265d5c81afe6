"""`send`: a message to a chat from the command line, beside a serving gateway or without one, once whatever dies."""

import asyncio
import signal
import time
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.config.channels import place_in
from gateway.config.load import load
from gateway.outbox.messenger import sending
from gateway.store.opening import offline
from gateway.store.sends import DatabaseSends
from tests import warm
from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import GROUP, SECRETS, WITHOUT_EXEC, client, running
from tests.stories.at_work import users
from tests.stories.operate.test_status import SERVER, TOKEN, beside
from tests.stories.process.test_process import GATEWAY, platforms, polled, started
from tests.web_page import CHAT, WEB, opened

pytestmark = pytest.mark.slow  # it starts processes


async def send(config: Path, *words: str, typed: str = "") -> tuple[int, list[str], str]:
    """The exit code, the lines of standard output, and standard error."""
    arguments = ("send", "--config", str(config), *words)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(config.parent), **SECRETS}
    process = await warm.start(GATEWAY, *arguments, env=env, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    output, errors = await process.communicate(typed.encode())
    assert process.returncode is not None
    return process.returncode, output.decode().splitlines(), errors.decode()


def found_at(config: Path, url: str) -> Path:
    """The config with the address at which the gateway serves: `send` does not wait for the database, but wakes it."""
    file = config.with_name("found.yaml")
    port = url.rpartition(":")[2]
    file.write_text(f"{config.read_text(encoding='utf-8')}\nserver: {{ port: {port} }}\n", encoding="utf-8")
    return file


@pytest.fixture
def woken_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep finds nothing by itself."""
    monkeypatch.setattr("gateway.turns.lanes.ALONE_SECONDS", 3600)


@pytest.mark.usefixtures("woken_only")
async def test_send_command_wakes_the_gateway_and_prints_the_id(tmp_path: Path) -> None:
    async with running(tmp_path, more=SERVER, script=[says("I see")]) as house:
        for headers in ({}, {"authorization": "Proof"}, {"authorization": "Proof wrong"}):
            async with client(house.url) as http:
                assert (await http.post("/wake", headers=headers)).status_code == 404
        assert not house.gateway.lanes.wanted.is_set()
        code, ids, errors = await send(beside(house), "--to", f"feishu:{GROUP}", "**Deploy** is done")
        (message,) = house.feishu.messages
        assert (code, ids, errors) == (0, [message.message_id], "")
        assert (message.chat_id, message.text, message.reply_to) == (GROUP, "**Deploy** is done", None)

        code, (answer,), _ = await send(beside(house), "--to", f"feishu:{GROUP}", "--reply-to", ids[0], "and tested")
        assert (house.feishu.messages[1].message_id, house.feishu.messages[1].reply_to) == (answer, ids[0])

        await house.say("what was that?", chat=GROUP, chat_type="group", mention_bot=True)
        await house.replies(3)
        assert "Deploy" not in "".join(users(house.anthropic.requests[0].body)), "it is in no history"


async def test_send_command_without_a_gateway_and_from_a_pipe(tmp_path: Path, database_url: str) -> None:
    more = f'database: {{ url: "{database_url}" }}'
    async with platforms(tmp_path, agents=WITHOUT_EXEC, more=more) as (feishu, anthropic, config):
        code, ids, errors = await send(config, "--to", f"feishu:{GROUP}", typed="from a\npipe\n")
        assert (code, ids, errors) == (0, [it.message_id for it in feishu.messages], "")
        assert [it.text for it in feishu.messages] == ["from a\npipe"]
        assert anthropic.requests == []
        async with started(config):
            code, ids, errors = await send(config, "--to", f"feishu:{GROUP}", "beside a process that serves")
            assert (code, errors) == (0, "")
        assert [it.message_id for it in feishu.messages[1:]] == ids


async def test_send_command_topic_file_and_long_text_on_telegram(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    group = telegram.supergroup(forum=True)
    topic = telegram.topic(group, "Builds")
    (tmp_path / "report.txt").write_text("all green", encoding="utf-8")
    async with polled(tmp_path, telegram) as (_, config):
        code, ids, errors = await send(
            config, "--to", f"telegram:{group}#{topic}", "--file", str(tmp_path / "report.txt"), "*the* report"
        )
        assert (code, len(ids), errors) == (0, 1, "")
        (message,) = telegram.messages
        assert (message.chat_id, message.thread, message.text) == (group, topic, "the report")
        assert telegram.files.stored[message.file_id or ""].facts["file_name"] == "report.txt"

        code, ids, _ = await send(config, "--to", f"telegram:{group}", typed="word " * 2_000)
        assert code == 0
        assert ids == [str(it.message_id) for it in telegram.messages[1:]]
        assert len(ids) == 3


async def test_send_command_into_the_web_chat(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    async with (
        running(tmp_path, feishu=WEB, more=SERVER, script=[says("hello")]) as house,
        opened(house.url, authorization=f"Bearer {TOKEN}") as page,
    ):
        await page.say("hello")
        await page.until(lambda: bool(house.anthropic.requests))
        await house.idle()
        code, _, errors = await send(beside(house), "--to", f"web:{CHAT}", "--file", str(tmp_path / "a.txt"))
        assert (code, errors) == (0, "")
        *_, last = (await page.conversation())["messages"]
        assert [it["name"] for it in last["files"]] == ["a.txt"]


async def test_send_command_failure_has_a_reason_and_exit_code(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    stranger = telegram.private(started=False)
    (tmp_path / "empty").touch()
    async with polled(tmp_path, telegram) as (_, config):
        code, ids, errors = await send(config, "--to", f"telegram:{stranger}", "hello")
        assert (code, ids) == (1, [])
        assert errors.startswith("not sent: ")
        assert "out of reach (403)" in errors
        for words, fix in (
            (["--to", "slack:C1", "x"], "no channel 'slack' is configured; there is: feishu, telegram"),
            (["--to", "telegram:family:1", "x"], "telegram has no account 'family'"),
            (["--to", "feishu:team", "x"], "'team' is no chat of feishu"),
            (["x"], "--to"),
            (["--to", f"feishu:{GROUP}"], "the message is empty"),
            (["--to", f"feishu:{GROUP}", "--file", "/no/such/file"], "No such file"),
            (["--to", f"feishu:{GROUP}", "--file", str(tmp_path / "empty")], "it is empty"),
        ):
            ran = await asyncio.to_thread(
                CliRunner().invoke, app, ["send", "--config", str(config), *words], env=SECRETS
            )
            assert (ran.exit_code, ran.stdout) == (2, ""), (words, ran.stderr)
            assert fix in ran.stderr


async def test_send_command_killed_after_commit_is_sent_once(tmp_path: Path) -> None:
    async with platforms(tmp_path, agents=WITHOUT_EXEC) as (feishu, _, config):
        async with started(config):
            pass  # makes the database
        loaded = load(config, SECRETS).config
        database = offline(loaded.database)
        said = sending(place_in(loaded.channels, f"feishu:{GROUP}"), "once", "a-key")
        for _again in range(2):
            await DatabaseSends(read=database, write=database).queue(said.delivery(loaded, time.time()))
        async with started(config) as run:
            await feishu.sent(1)
            code, _, errors = await send(found_at(config, run.url), "--to", f"feishu:{GROUP}", "behind it")
            assert code == 0, errors
        assert [it.text for it in feishu.messages] == ["once", "behind it"]


async def test_send_command_killed_during_the_send_is_deduped(tmp_path: Path) -> None:
    async with platforms(tmp_path, agents=WITHOUT_EXEC) as (feishu, _, config):
        feishu.fail_next("/im/v1/messages", times=1, lose_answer=True)
        env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), **SECRETS}
        words = ("send", "--config", str(config), "--to", f"feishu:{GROUP}", "once")
        process = await warm.start(GATEWAY, *words, env=env, stdout=PIPE, stderr=PIPE)
        await feishu.sent(1)
        process.send_signal(signal.SIGKILL)
        await process.communicate()
        async with started(config) as run:
            code, _, errors = await send(found_at(config, run.url), "--to", f"feishu:{GROUP}", "behind it")
            assert code == 0, errors
        assert [it.text for it in feishu.messages] == ["once", "behind it"]
