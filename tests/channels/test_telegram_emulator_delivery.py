"""What people do in the emulated Telegram, and how a bot hears of it: by webhook, in order and again, or by polling."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.channels.contexts import Clock
from tests.channels.telegram_calls import ALICE, BEGAN, BOB, SMALL, TEAM, ask, call, emulator, refusal
from tests.emulators.telegram.delivery import Pending
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.formatted import covered_by
from tests.loopback import serve_on_loopback

SECRET = "fixture_Secret-token_01"


@dataclass
class Bot:
    """Somebody who listens to a webhook. It answers what it was told to, and 200 after that."""

    answers: list[Response] = field(default_factory=list)
    got: list[tuple[bytes, dict[str, str]]] = field(default_factory=list)
    gate: Callable[[dict[str, Any]], Any] | None = None

    async def receive(self, request: Request) -> Response:
        body = await request.body()
        self.got.append((body, dict(request.headers)))
        if self.gate is not None:
            await self.gate(orjson.loads(body))
        return self.answers.pop(0) if self.answers else Response(b"{}")

    @property
    def ids(self) -> list[int]:
        return [orjson.loads(body)["update_id"] for body, _ in self.got]


@pytest.fixture
def waits() -> list[float]:
    return []


@pytest.fixture
def telegram(waits: list[float]) -> TelegramEmulator:
    clock = Clock(BEGAN)

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.now += seconds

    return emulator(now=clock, sleep=sleep, local=True)


@asynccontextmanager
async def listening(telegram: TelegramEmulator, *answers: Response, **settings: Any) -> AsyncIterator[Bot]:
    bot = Bot(answers=list(answers))
    app = Starlette(routes=[Route("/hook", bot.receive, methods=["POST"])])
    async with serve_on_loopback(app) as url:
        await call(telegram, "setWebhook", url=f"{url}/hook", secret_token=SECRET, **settings)
        yield bot


async def test_an_update_is_one_post_with_the_secret_where_there_is_one(telegram: TelegramEmulator) -> None:
    update = telegram.text_update("hi", chat=ALICE)
    async with listening(telegram) as bot:
        answer = await telegram.push(update)
        await telegram.deliver_once(telegram.webhook.url, update)
    assert answer is not None
    assert (answer.status_code, telegram.pending) == (200, [])
    (body, headers), (again, bare) = bot.got
    assert orjson.loads(body) == orjson.loads(again) == update
    assert headers["x-telegram-bot-api-secret-token"] == SECRET
    assert "x-telegram-bot-api-secret-token" not in bare


async def test_what_is_not_taken_comes_again_word_for_word_after_ever_longer_waits(
    telegram: TelegramEmulator, waits: list[float]
) -> None:
    failures = [Response(status_code=status) for status in (500, 404, 302, 503, 500, 500, 500, 500, 500)]
    failures.append(Response(status_code=503, headers={"retry-after": "9999"}))
    async with listening(telegram, *failures) as bot:
        await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert len({body for body, _ in bot.got}) == 1
    assert waits == [0, 2, 4, 8, 16, 32, 64, 120, 120, 3600]
    assert [delivery.status for delivery in telegram.deliveries][:4] == [500, 404, 302, 503]


@pytest.mark.parametrize(("status", "left"), [(500, 0), (410, 1)])
async def test_after_a_day_an_update_is_given_up_or_a_webhook_that_is_gone(
    telegram: TelegramEmulator, status: int, left: int
) -> None:
    async with listening(telegram, *[Response(status_code=status, headers={"retry-after": "3600"})] * 30) as bot:
        assert await telegram.push(telegram.text_update("hi", chat=ALICE)) is None
    assert (len(bot.got), len(telegram.pending), bool(telegram.webhook.url)) == (24, left, status == 500)


async def test_nobody_there_is_told_in_the_webhook_info(telegram: TelegramEmulator) -> None:
    async with listening(telegram):
        pass
    told = []

    async def sleep(seconds: float) -> None:
        told.append((await call(telegram, "getWebhookInfo"))["last_error_message"])
        if len(told) == 3:
            await call(telegram, "deleteWebhook")

    telegram.sleep = sleep
    await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert told == ["Webhook connection closed"] * 3
    assert [delivery.status for delivery in telegram.deliveries] == [None] * 3
    assert len(telegram.pending) == 1


async def test_a_chat_waits_for_its_first_update_and_other_chats_do_not(telegram: TelegramEmulator) -> None:
    first, second = (telegram.text_update(text, chat=ALICE) for text in ("first", "second"))
    others = [telegram.text_update("hi", chat=BOB), telegram.press_update(1, "a", chat=ALICE)]
    opened = asyncio.Event()

    async def gate(update: dict[str, Any]) -> None:
        if update["update_id"] == first["update_id"]:
            await opened.wait()

    async with listening(telegram) as bot:
        bot.gate = gate
        slow = [asyncio.create_task(telegram.push(update)) for update in (first, second)]
        for other in others:
            await telegram.push(other)
        assert second["update_id"] not in bot.ids
        opened.set()
        await asyncio.gather(*slow)
    assert bot.ids[-1] == second["update_id"]


async def test_in_a_chat_a_failure_never_lets_the_next_update_pass(telegram: TelegramEmulator) -> None:
    waiting = telegram.text_update("from before the webhook", chat=ALICE)
    assert await telegram.push(waiting) is None
    updates = [telegram.text_update(str(number), chat=ALICE) for number in range(2)]
    elsewhere = telegram.text_update("hi", chat=BOB)
    await telegram.push(elsewhere)
    async with listening(telegram, *[Response(status_code=500)] * 3) as bot:
        await asyncio.gather(*(telegram.push(update) for update in updates))
        await telegram.deliver_pending()
    assert bot.ids == [waiting["update_id"]] * 4 + [update["update_id"] for update in (*updates, elsewhere)]


@pytest.mark.parametrize(
    ("content", "media_type", "methods"),
    [
        (b'{"method":"sendMessage","chat_id":1,"text":"hi"}', "application/json", ["sendMessage"]),
        (b"method=sendMessage&chat_id=1", "application/x-www-form-urlencoded", ["sendMessage"]),
        (b"{}", "application/json", []),
        (b"ok", "text/plain", []),
    ],
)
async def test_a_method_in_the_answer_is_held_against_the_bot(
    telegram: TelegramEmulator, content: bytes, media_type: str, methods: list[str]
) -> None:
    async with listening(telegram, Response(content, media_type=media_type)):
        await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert (telegram.misuses, telegram.messages) == (methods, [])


async def test_updates_that_the_bot_did_not_ask_for_do_not_come(telegram: TelegramEmulator) -> None:
    seen = []
    subscriptions: list[dict[str, Any]] = [{}, {"allowed_updates": ["message_reaction"]}, {}, {"allowed_updates": []}]
    for settings in subscriptions:
        async with listening(telegram, **settings) as bot:
            update = telegram.text_update("hi", chat=ALICE)
            number = update["message"]["message_id"]
            await telegram.push(update)
            await telegram.push(telegram.reaction_update(number, "👍", chat=ALICE, sender=ALICE))
            await telegram.push(telegram.press_update(1, "a", chat=ALICE))
        seen.append([kind for body, _ in bot.got for kind in orjson.loads(body) if kind != "update_id"])
    default, reactions = ["message", "callback_query"], ["message_reaction"]
    assert seen == [default, reactions, reactions, default]


def test_the_presses_of_each_person_are_a_queue_of_their_own(telegram: TelegramEmulator) -> None:
    updates = [telegram.text_update("hi", chat=TEAM, sender=ALICE)]
    updates += [telegram.press_update(1001, "a", chat=TEAM, sender=sender) for sender in (ALICE, BOB)]
    assert len({Pending(update=update, since=0).queue for update in updates}) == 3


# what the bot asks for


async def test_a_webhook_is_set_changed_told_of_and_deleted() -> None:
    telegram = emulator(limit_rates=True)

    async def answer(method: str, **parameters: Any) -> str:
        return str((await ask(telegram, f"/bot{{token}}/{method}", json=parameters)).json()["description"])

    url = "https://bot.example.com:8443/hook"
    await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert await answer("setWebhook", url=url, allowed_updates=["message"]) == "Webhook was set"
    assert await answer("setWebhook", url=url) == "Too Many Requests: retry after 1"
    assert isinstance(telegram.now, Clock)
    telegram.now.now += 1
    assert await answer("setWebhook", url=url) == "Webhook is already set"
    info = await call(telegram, "getWebhookInfo")
    assert (info["url"], info["pending_update_count"], info["allowed_updates"]) == (url, 1, ["message"])
    assert await answer("deleteWebhook", drop_pending_updates=True) == "Webhook was deleted"
    info = await call(telegram, "getWebhookInfo")
    assert (info["url"], info["pending_update_count"]) == ("", 0)


async def test_updates_are_given_until_they_are_confirmed_or_a_day_old(telegram: TelegramEmulator) -> None:
    updates = [telegram.text_update(str(number), chat=ALICE) for number in range(5)]
    for update in updates:
        await telegram.push(update)
    first = updates[0]["update_id"]
    assert await call(telegram, "getUpdates", limit=2) == updates[:2]
    assert await call(telegram, "getUpdates", limit=2) == updates[:2]
    assert await call(telegram, "getUpdates", offset=first + 2, limit=1) == updates[2:3]
    assert await call(telegram, "getUpdates", offset=-1) == updates[4:]
    assert isinstance(telegram.now, Clock)
    telegram.now.now += 24 * 3600
    assert await call(telegram, "getUpdates") == []


async def poll(telegram: TelegramEmulator) -> asyncio.Task[httpx.Response]:
    """A long poll that is under way."""
    before = telegram.polls
    task = asyncio.create_task(ask(telegram, "/bot{token}/getUpdates", json={"timeout": 50}))
    async with asyncio.timeout(10):
        while telegram.polls == before:
            await asyncio.sleep(0)
    return task


async def test_of_two_pollers_the_later_gets_the_first_update(telegram: TelegramEmulator) -> None:
    earlier = await poll(telegram)
    later = await poll(telegram)
    assert (await earlier).status_code == 409
    update = telegram.text_update("hi", chat=ALICE)
    await telegram.push(update)
    assert (await later).json()["result"] == [update]


async def test_a_webhook_ends_polling(telegram: TelegramEmulator) -> None:
    polling = await poll(telegram)
    await call(telegram, "setWebhook", url="https://bot.example.com/hook")
    assert (await polling).status_code == 409
    assert "webhook" in (await refusal(telegram, "getUpdates")).lower()  # our log tells a webhook from a rival
    await call(telegram, "setWebhook", url="")
    assert await call(telegram, "getUpdates") == []


# what people do


def test_a_message_in_a_group_has_its_sender_its_numbers_and_its_marks(telegram: TelegramEmulator) -> None:
    updates = [telegram.text_update("hi", chat=chat) for chat in (ALICE, BOB, ALICE)]
    assert [update["update_id"] - updates[0]["update_id"] for update in updates] == [0, 1, 2]
    assert [update["message"]["message_id"] for update in updates] == [1001, 1001, 1002]
    text = "🔥🔥 @fixture_helper_bot /ask@fixture_helper_bot"
    message = telegram.text_update(text, chat=TEAM, sender=ALICE)["message"]
    assert message["from"] == {"id": ALICE, "is_bot": False, "first_name": "Alice", "username": "alice_fixture"}
    assert message["chat"] == {"id": TEAM, "type": "supergroup", "title": "Team chat", "username": "team_chat"}
    assert [(entity["type"], covered_by(text, entity)) for entity in message["entities"]] == [
        ("mention", "@fixture_helper_bot"),
        ("bot_command", "/ask@fixture_helper_bot"),
    ]


async def test_a_reply_shows_what_it_replies_to_and_its_chain_in_supergroups(telegram: TelegramEmulator) -> None:
    for chat, chained in ((TEAM, True), (SMALL, False), (ALICE, False)):
        sent = await call(telegram, "sendMessage", chat_id=chat, text="Here is the plan")
        reply = telegram.text_update("shorter", chat=chat, sender=ALICE, reply_to=sent["message_id"])["message"]
        assert reply["reply_to_message"]["from"] == telegram.bot
        assert reply.get("message_thread_id") == (sent["message_id"] if chained else None)
        assert "is_topic_message" not in reply


def test_an_edit_keeps_the_message_and_brings_new_words(telegram: TelegramEmulator) -> None:
    before = telegram.text_update("/whats 2+2", chat=ALICE)["message"]
    after = telegram.edit_update(before["message_id"], "what's 2+3?", chat=ALICE)["edited_message"]
    assert (after["message_id"], after["text"], "entities" in after) == (before["message_id"], "what's 2+3?", False)
    assert after["edit_date"] == BEGAN
