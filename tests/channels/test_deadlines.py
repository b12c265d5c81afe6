"""Every call of a platform has one deadline for all of it, however its answer comes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from pydantic import SecretStr

from agents.transcription import TranscriptionConfig, transcribe
from channels.channel import DeliveryError, Unreachable
from channels.download import download
from channels.feishu import doctor as feishu_doctor
from channels.feishu.channel import FeishuChannel
from channels.feishu.config import FeishuAccount
from channels.feishu.connection import LongConnection
from channels.message import Attachment, File, Outbound, Target
from channels.telegram import doctor as telegram_doctor
from channels.telegram.channel import TelegramChannel
from channels.telegram.config import TelegramAccount
from channels.telegram.connection import Polling, Registration
from channels.telegram.timing import Timing
from tests.dripping import Part, dripping
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.waiting import PATIENCE_SECONDS

SOON = 0.6
TOKEN = "/tenant_access_token/internal"
TOKENS = {TOKEN: json.dumps({"code": 0, "tenant_access_token": "t", "expire": 7200}).encode()}
PICTURE = File(name="a.png", type="image/png", data=b"\x89PNG" + bytes(100))
PARTS = pytest.mark.parametrize("part", ["headers", "body"])


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("feishu.api.UPLOAD_SECONDS", "feishu.api.DOWNLOAD_SECONDS", "telegram.api.UPLOAD_SECONDS"):
        monkeypatch.setattr(f"channels.{place}", SOON)
    monkeypatch.setitem(download.__kwdefaults__ or {}, "seconds", SOON)
    for platform in ("feishu", "telegram"):
        monkeypatch.setattr(f"channels.{platform}.doctor.CALL_SECONDS", SOON)


async def _nothing(*_: object) -> Any:
    return None


def part_of(text: str = "hello", **more: Any) -> Outbound:
    return Outbound(target=Target(chat="oc_1", reply_to="om_1"), text=text, **more)


def feishu(url: str) -> tuple[FeishuAccount, FeishuChannel]:
    account = FeishuAccount(appId="cli_x", appSecret=SecretStr("s"), baseUrl=url, timeoutSeconds=SOON)

    async def stored(_: str) -> Any:
        return PICTURE, PICTURE.data

    return account, FeishuChannel(account, "default", stored)


FEISHU: dict[str, Callable[[FeishuChannel, FeishuAccount], Awaitable[object]]] = {
    "who the bot is": lambda it, _: it.learn_identity(PATIENCE_SECONDS),
    "a reply": lambda it, _: it.send(part_of(), "key"),
    "a card opened": lambda it, _: it.open_draft(part_of(), "key"),
    "a card updated": lambda it, _: it.update_draft(part_of(replaces="card:c1:1"), "key"),
    "a card finished": lambda it, _: it.send(part_of(replaces="card:c1:1"), "key"),
    "a message changed": lambda it, _: it.send(part_of(replaces="om_2"), "key"),
    "a message taken back": lambda it, _: it.delete("oc_1", "om_2"),
    "a reaction": lambda it, _: it.react("oc_1", "om_2", "OK"),
    "an upload": lambda it, _: it._api.upload("/open-apis/im/v1/images", {"image_type": "message"}, "image", PICTURE),
    "a file": lambda it, _: it.fetch(Attachment(kind="file", key="om_1/f_1"), bytes_max=2_000_000),
    "where to connect": lambda it, _: it._api.endpoint(),
}


@PARTS
@pytest.mark.parametrize("call", FEISHU)
async def test_timeout_of_a_dripping_feishu(call: str, part: Part) -> None:
    async with dripping(part, but=TOKENS) as (url, dripped), asyncio.timeout(PATIENCE_SECONDS):
        account, channel = feishu(url)
        await channel._api._current_token(float("inf"))
        with pytest.raises(Unreachable) as error:
            await FEISHU[call](channel, account)
        assert error.value.maybe_arrived
        assert dripped
        await channel.close()


@PARTS
@pytest.mark.parametrize("call", [it for it in FEISHU if it != "where to connect"])
async def test_token_timeout_of_a_dripping_answer_sends_nothing(call: str, part: Part) -> None:
    async with dripping(part) as (url, dripped), asyncio.timeout(PATIENCE_SECONDS):
        account, channel = feishu(url)
        with pytest.raises(Unreachable) as error:
            await FEISHU[call](channel, account)
        assert not error.value.maybe_arrived
        assert all(path.endswith(TOKEN) for path in dripped)
        await channel.close()


@PARTS
async def test_timeout_covers_the_renewal_of_an_expired_token(part: Part) -> None:
    stale = {"/bot/v3/info": b'{"code":99991663}', TOKEN: TOKENS[TOKEN]}
    async with dripping(part, but=stale) as (url, _), asyncio.timeout(PATIENCE_SECONDS):
        _, channel = feishu(url)
        await channel._api._current_token(float("inf"))
        stale.pop(TOKEN)
        with pytest.raises(DeliveryError):
            await channel._api.call("/open-apis/bot/v3/info")
        await channel.close()


def telegram(url: str) -> tuple[TelegramAccount, TelegramChannel]:
    token = SecretStr(TelegramEmulator().token)
    account = TelegramAccount(botToken=token, apiRoot=url, timeoutSeconds=SOON, mode="polling")

    async def stored(_: str) -> Any:
        return PICTURE, PICTURE.data

    return account, TelegramChannel(account, "default", stored)


def to_telegram(text: str = "hello", **more: Any) -> Outbound:
    return Outbound(target=Target(chat="4711"), text=text, **more)


TELEGRAM: dict[str, Callable[[TelegramChannel], Awaitable[object]]] = {
    "who the bot is": lambda it: it.learn_identity(PATIENCE_SECONDS),
    "a message": lambda it: it.send(to_telegram(), "key"),
    "a draft opened": lambda it: it.open_draft(to_telegram(), "key"),
    "a draft finished": lambda it: it.send(to_telegram(replaces="draft:7"), "key"),
    "a message changed": lambda it: it.send(to_telegram(replaces="7"), "key"),
    "a message taken back": lambda it: it.delete("4711", "7"),
    "a reaction": lambda it: it.react("4711", "7", "👍"),
    "an upload": lambda it: it._api.upload("sendPhoto", {"chat_id": "4711"}, {"photo": PICTURE}),
    "a file": lambda it: it.fetch(Attachment(kind="file", key="f_1"), bytes_max=2_000_000),
    "a poll": lambda it: _polling(it)._fetch(0),
    "the webhook": lambda it: Registration(
        api=it._api,
        account="default",
        url="https://bot.example.com",
        secret="s",
        timing=Timing(),
        condition=it.condition,
    )._check(),
}


def _polling(channel: TelegramChannel) -> Polling:
    timing = Timing(poll_seconds=0, margin_seconds=SOON)
    shared = {"api": channel._api, "account": "default", "condition": channel.condition, "timing": timing}
    return Polling(read=_nothing, deliver=_nothing, **shared)  # type: ignore[arg-type]


@PARTS
@pytest.mark.parametrize("call", TELEGRAM)
async def test_timeout_of_a_dripping_telegram(call: str, part: Part) -> None:
    async with dripping(part) as (url, dripped), asyncio.timeout(PATIENCE_SECONDS):
        _, channel = telegram(url)
        with pytest.raises(Unreachable):
            await TELEGRAM[call](channel)
        assert dripped
        await channel.close()


@PARTS
async def test_timeout_of_other_calls_to_a_dripping_server(part: Part) -> None:
    async with dripping(part) as (url, dripped), asyncio.timeout(PATIENCE_SECONDS):
        account, channel = feishu(url)
        shared = {"api": channel._api, "account": "default", "condition": channel.condition}
        connection = LongConnection(read=_nothing, deliver=_nothing, **shared)  # type: ignore[arg-type]
        with pytest.raises(Unreachable):
            await connection._once()
        await channel.close()
        findings = await feishu_doctor.probe(account, "default", None)
        findings += await telegram_doctor.probe(telegram(url)[0], "default", None, 0.0)
        assert {it.status for it in findings} & {"error"}
        sound = File(name="a.ogg", type="audio/ogg", data=b"OggS" + bytes(100))
        config = TranscriptionConfig(baseUrl=url, model="whisper-1", timeoutSeconds=SOON)
        transcript = await transcribe(config, sound)
        assert transcript is not None
        assert "in time" in transcript.problem
        assert len(dripped) >= 4
