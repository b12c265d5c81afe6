"""How a bot asks the emulated Telegram for its updates: what a webhook must be, and whom a poll goes to."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.channels.telegram_calls import ALICE, Clock, ask, call, emulator, refusal
from tests.emulators.telegram.emulator import TelegramEmulator

URL = "https://bot.example.com/hook"


@pytest.fixture
def telegram() -> TelegramEmulator:
    return emulator()


async def test_a_webhook_is_set_changed_told_of_and_deleted() -> None:
    telegram = emulator(limit_rates=True)

    async def say(method: str, **parameters: Any) -> str:
        answer = await ask(telegram, f"/bot{telegram.token}/{method}", json=parameters)
        return str(answer.json()["description"])

    url = "https://bot.example.com:8443/hook"
    assert (await call(telegram, "getWebhookInfo")) == {"url": "", "has_custom_certificate": False, "pending_update_count": 0}  # fmt: skip  # noqa: E501
    await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert await say("setWebhook", url=url, allowed_updates=["message"]) == "Webhook was set"
    assert await say("setWebhook", url=url) == "Too Many Requests: retry after 1"
    assert isinstance(telegram.now, Clock)
    telegram.now.seconds += 1
    assert await say("setWebhook", url=url) == "Webhook is already set"
    info = await call(telegram, "getWebhookInfo")
    assert (info["url"], info["pending_update_count"], info["allowed_updates"]) == (url, 1, ["message"])
    assert await say("deleteWebhook", drop_pending_updates=True) == "Webhook was deleted"
    assert await say("deleteWebhook") == "Webhook is already deleted"
    assert telegram.pending == []


async def test_updates_are_given_until_they_are_confirmed(telegram: TelegramEmulator) -> None:
    updates = [telegram.text_update(str(number), chat=ALICE) for number in range(5)]
    for update in updates:
        await telegram.push(update)
    first = updates[0]["update_id"]
    assert await call(telegram, "getUpdates", limit=2) == updates[:2]
    assert await call(telegram, "getUpdates", limit=2) == updates[:2]
    assert await call(telegram, "getUpdates", offset=first + 2, limit=1) == updates[2:3]
    assert await call(telegram, "getUpdates", offset=-1) == updates[4:]
    assert await call(telegram, "getUpdates") == updates[4:]
    assert await call(telegram, "getUpdates", offset=first + 5) == []


async def test_updates_of_yesterday_are_gone(telegram: TelegramEmulator) -> None:
    await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert isinstance(telegram.now, Clock)
    telegram.now.seconds += 24 * 3600
    assert await call(telegram, "getUpdates") == []


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


async def poll(telegram: TelegramEmulator) -> asyncio.Task[httpx.Response]:
    """A long poll that is under way."""
    before = telegram._polls
    path = f"/bot{telegram.token}/getUpdates"
    task = asyncio.create_task(ask(telegram, path, json={"timeout": 50}))
    await until(lambda: telegram._polls > before)
    return task


async def test_a_long_poll_ends_with_the_first_update(telegram: TelegramEmulator) -> None:
    polling = await poll(telegram)
    update = telegram.text_update("hi", chat=ALICE)
    await telegram.push(update)
    assert (await polling).json()["result"] == [update]


async def test_of_two_pollers_the_earlier_is_sent_away(telegram: TelegramEmulator) -> None:
    earlier = await poll(telegram)
    later = await poll(telegram)
    assert (await earlier).status_code == 409
    await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert (await later).status_code == 200


async def test_a_webhook_ends_polling(telegram: TelegramEmulator) -> None:
    polling = await poll(telegram)
    await call(telegram, "setWebhook", url=URL)
    assert (await polling).status_code == 409
    assert "webhook" in (await refusal(telegram, "getUpdates")).lower()  # our log tells a webhook from a rival
    await call(telegram, "setWebhook", url="")
    assert await call(telegram, "getUpdates") == []
