"""A Feishu bot without a public address: its events come through a long connection."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from gateway.store.errors import StoreUnavailable
from tests.emulators.models.script import says
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, APP_ID, BOB, BOB_CHAT, SECRETS, feishu_emulator, running

FEISHU = f"""
    appId: {APP_ID}
    appSecret: ${{FEISHU_APP_SECRET}}
    dmPolicy: open
"""


async def test_long_connection_reconnects_and_answers(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[says("first"), says("second")]) as bot:
        socket = bot.feishu.socket
        await socket.connected()
        first = bot.feishu.text_event("one", sender=ALICE, chat=ALICE_CHAT)
        await socket.push(first)
        assert (await socket.answered(1))[0].code == 200
        assert await bot.replies(1) == ["first"]
        await socket.push(first)  # acknowledged too late, it comes again
        await socket.answered(2)
        await socket.drop()
        await bot.until(lambda: socket.opened == 2)
        socket.split = 3
        await socket.push(bot.feishu.text_event("two " * 500, sender=BOB, chat=BOB_CHAT))
        assert await bot.replies(2) == ["first", "second"]
        await bot.idle()
        assert len(bot.anthropic.requests) == 2
        assert socket.faults == []


async def test_long_connection_event_not_stored_is_redelivered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[says("here")]) as bot:
        socket, event = bot.feishu.socket, bot.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)

        async def unavailable(*_: object) -> None:
            raise StoreUnavailable("the disk is full")

        await socket.connected()
        with monkeypatch.context() as broken:
            broken.setattr(bot.gateway.runtime.store, "accept", unavailable)
            await socket.push(event)
            assert [it.code for it in await socket.answered(1)] == [500]
        await socket.push(event)
        assert [it.code for it in await socket.answered(2)] == [500, 200]
        assert await bot.replies(1) == ["here"]


async def test_long_connection_ignores_other_apps_and_notices_a_dead_socket(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("channels.feishu.connection.PONG_SECONDS_MAX", 0.1)
    emulator = feishu_emulator()
    emulator.socket.ping_seconds, emulator.socket.mute = 1, True
    async with running(tmp_path, feishu=FEISHU, emulator=emulator, script=[says("mine")]) as bot:
        socket = emulator.socket
        await socket.connected()
        foreign = emulator.text_event("not mine", sender=ALICE, chat=ALICE_CHAT)
        foreign["header"]["app_id"] = "cli_another"
        await socket.push(foreign)
        await socket.answered(1)
        await bot.until(lambda: socket.opened >= 2)
        socket.mute = False
        await bot.until(lambda: len(socket._open) == 1)
        await socket.push(emulator.text_event("mine?", sender=ALICE, chat=ALICE_CHAT))
        assert await bot.replies(1) == ["mine"]


@pytest.mark.parametrize(
    ("endpoint", "handshake", "fix"),
    [
        (514, "", "the app id or secret is wrong"),
        (403, "", "使用长连接接收事件"),
        (0, "1000040350", "fifty connections"),
    ],
)
async def test_long_connection_refusal_is_logged_with_its_fix(
    tmp_path: Path, endpoint: int, handshake: str, fix: str
) -> None:
    emulator = feishu_emulator()
    emulator.socket.refusal, emulator.socket.handshake_refusal = endpoint, handshake
    with capture_logs() as logs:
        async with running(tmp_path, feishu=FEISHU, emulator=emulator) as bot:
            await bot.until(lambda: any(fix in str(line.get("reason")) for line in logs))
    assert SECRETS["FEISHU_APP_SECRET"] not in str(logs)


async def test_webhook_signature_is_required_unless_long_connection(tmp_path: Path) -> None:
    """A long connection needs no Encrypt Key: the door must not open for that."""
    token = FEISHU + "    verificationToken: ${FEISHU_VERIFICATION_TOKEN}\n"
    emulator = feishu_emulator()
    emulator.encrypt_key = ""
    async with running(tmp_path, feishu=token, emulator=emulator) as bot:
        response = await bot.say("forged")
        assert response.status_code == 401
        await bot.idle()
    assert bot.anthropic.requests == []


@pytest.mark.slow
async def test_long_connection_emulator_satisfies_the_official_client(tmp_path: Path) -> None:
    """It judges the emulator: the endpoint, the frames, and what counts as an answer."""
    emulator = feishu_emulator()
    emulator.socket.split = 2
    async with serve_on_loopback(emulator.app) as url:
        script = f"""
import tests.feishu_sdk
from lark_oapi.event.dispatcher_handler import EventDispatcherHandler
from lark_oapi.ws.client import Client
handler = EventDispatcherHandler.builder("", "").register_p2_im_message_receive_v1(
    lambda event: print(event.event.message.content, flush=True)).build()
Client({APP_ID!r}, {SECRETS["FEISHU_APP_SECRET"]!r}, event_handler=handler, domain={url!r}).start()
"""
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()}
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, env=environment) as client:
            try:
                await emulator.socket.connected()
                await emulator.socket.push(emulator.text_event("from the platform", sender=ALICE, chat=ALICE_CHAT))
                assert (await emulator.socket.answered(1))[0].code == 200
                assert client.stdout is not None
                lines = [await asyncio.to_thread(client.stdout.readline) for _ in range(2)]
                assert "connected to" in lines[0].decode()
                assert "from the platform" in lines[1].decode()
            finally:
                client.kill()
    assert emulator.socket.faults == []
