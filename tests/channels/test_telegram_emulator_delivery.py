"""How the emulated Telegram gets updates to a bot: by webhook, in order and again until it is taken, or by polling."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.channels.telegram_calls import ALICE, TEAM, Clock, call, emulator, refusal
from tests.emulators.telegram.delivery import Pending, retry_seconds
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback

BOB = 5000000022
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
    clock = Clock()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        clock.seconds += seconds

    telegram = emulator(now=clock, sleep=sleep, local=True)
    telegram.private(BOB, "Boris 🦊")
    return telegram


@asynccontextmanager
async def listening(telegram: TelegramEmulator, *answers: Response, **settings: Any) -> AsyncIterator[Bot]:
    bot = Bot(answers=list(answers))
    app = Starlette(routes=[Route("/hook", bot.receive, methods=["POST"])])
    async with serve_on_loopback(app) as url:
        await call(telegram, "setWebhook", url=f"{url}/hook", secret_token=SECRET, **settings)
        yield bot


async def test_a_recorded_update_is_pushed_as_it_is_and_can_be_answered(telegram: TelegramEmulator) -> None:
    chat = {"id": -1002000000777, "title": "Recorded", "is_forum": True, "type": "supergroup"}
    voice = {"duration": 4, "mime_type": "audio/ogg", "file_id": "AwACrec", "file_unique_id": "AgAD", "file_size": 5}
    message = {"message_id": 116, "message_thread_id": 12, "is_topic_message": True, "chat": chat, "date": 1}
    message |= {"from": {"id": 42, "is_bot": False, "first_name": "Carol"}, "voice": voice}
    recorded = {"update_id": 910000015, "message": message}
    async with listening(telegram) as bot:
        await telegram.push(recorded)
        assert orjson.loads(bot.got[0][0]) == recorded
    reply = {"message_id": 116}
    answer = await call(telegram, "sendMessage", chat_id=chat["id"], text="heard", reply_parameters=reply)
    assert (answer["message_thread_id"], answer["message_id"]) == (12, 1001)
    file = await call(telegram, "getFile", file_id="AwACrec")
    assert telegram.files.download(file["file_path"]) == bytes(5)


async def test_an_update_is_one_post_with_the_secret(telegram: TelegramEmulator) -> None:
    update = telegram.text_update("hi", chat=ALICE)
    async with listening(telegram) as bot:
        answer = await telegram.push(update)
    assert answer is not None
    assert answer.status_code == 200
    ((body, headers),) = bot.got
    assert orjson.loads(body) == update
    assert headers["x-telegram-bot-api-secret-token"] == SECRET
    assert headers["content-type"] == "application/json"
    assert telegram.pending == []


async def test_without_a_secret_there_is_no_header(telegram: TelegramEmulator) -> None:
    async with listening(telegram) as bot:
        await telegram.deliver_once(telegram.webhook.url, telegram.text_update("hi", chat=ALICE))
    assert "x-telegram-bot-api-secret-token" not in bot.got[0][1]


async def test_what_is_not_taken_comes_again_word_for_word_after_ever_longer_waits(
    telegram: TelegramEmulator, waits: list[float]
) -> None:
    failures = [Response(status_code=status) for status in (500, 404, 302, 503)]
    async with listening(telegram, *failures) as bot:
        await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert len({body for body, _ in bot.got}) == 1
    assert waits == [0, 2, 4, 8]
    assert [delivery.status for delivery in telegram.deliveries] == [500, 404, 302, 503, 200]


def test_waits_double_up_to_two_minutes() -> None:
    waits = retry_seconds()
    assert [next(waits) for _ in range(10)] == [0, 2, 4, 8, 16, 32, 64, 120, 120, 120]


async def test_the_bot_may_say_how_long_to_wait(telegram: TelegramEmulator, waits: list[float]) -> None:
    answers = [Response(status_code=503, headers={"retry-after": seconds}) for seconds in ("7", "9999")]
    async with listening(telegram, *answers):
        await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert waits == [7, 3600]


async def test_after_a_day_an_update_is_given_up(telegram: TelegramEmulator, waits: list[float]) -> None:
    async with listening(telegram, *[Response(status_code=500, headers={"retry-after": "3600"})] * 30) as bot:
        assert await telegram.push(telegram.text_update("hi", chat=ALICE)) is None
    assert (len(bot.got), len(waits), telegram.pending) == (24, 24, [])


async def test_a_webhook_that_is_gone_for_a_day_is_removed_and_the_update_waits(telegram: TelegramEmulator) -> None:
    async with listening(telegram, *[Response(status_code=410, headers={"retry-after": "3600"})] * 30) as bot:
        await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert (len(bot.got), telegram.webhook.url, len(telegram.pending)) == (24, "", 1)


async def test_nobody_there_is_told_in_the_webhook_info(telegram: TelegramEmulator) -> None:
    async with listening(telegram):
        pass
    tries = 0

    async def sleep(seconds: float) -> None:
        nonlocal tries
        tries += 1
        if tries == 3:
            await call(telegram, "deleteWebhook")

    telegram.sleep = sleep
    webhook = telegram.webhook
    await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert webhook.last_error_message == "Webhook connection closed"
    assert [delivery.status for delivery in telegram.deliveries] == [None] * 3
    assert len(telegram.pending) == 1


async def test_a_chat_waits_for_its_first_update_and_other_chats_do_not(telegram: TelegramEmulator) -> None:
    first, second = (telegram.text_update(text, chat=ALICE) for text in ("first", "second"))
    other = telegram.text_update("hi", chat=BOB)
    press = telegram.press_update(1, "a", chat=ALICE)
    opened = asyncio.Event()

    async def gate(update: dict[str, Any]) -> None:
        if update["update_id"] == first["update_id"]:
            await opened.wait()

    async with listening(telegram, Response(status_code=500)) as bot:
        bot.gate = gate
        bot.answers.clear()
        slow = [asyncio.create_task(telegram.push(update)) for update in (first, second)]
        await telegram.push(other)
        await telegram.push(press)
        assert second["update_id"] not in bot.ids
        opened.set()
        await asyncio.gather(*slow)
    assert [update_id for update_id in bot.ids if update_id in (first["update_id"], second["update_id"])] == [
        first["update_id"],
        second["update_id"],
    ]
    assert {other["update_id"], press["update_id"]} < set(bot.ids)


async def test_in_a_chat_a_failure_never_lets_the_next_update_pass(telegram: TelegramEmulator) -> None:
    updates = [telegram.text_update(str(number), chat=ALICE) for number in range(3)]
    async with listening(telegram, *[Response(status_code=500)] * 3) as bot:
        await asyncio.gather(*(telegram.push(update) for update in updates))
    first, second, third = (update["update_id"] for update in updates)
    assert bot.ids == [first] * 4 + [second, third]


async def test_what_waited_before_the_webhook_is_delivered_first(telegram: TelegramEmulator) -> None:
    early = [telegram.text_update(str(number), chat=ALICE) for number in range(2)]
    for update in early:
        assert await telegram.push(update) is None
    elsewhere = telegram.text_update("hi", chat=BOB)
    await telegram.push(elsewhere)
    late = telegram.text_update("late", chat=ALICE)
    async with listening(telegram) as bot:
        await telegram.push(late)
        assert bot.ids == [update["update_id"] for update in [*early, late]]
        await telegram.deliver_pending()
    assert bot.ids[3:] == [elsewhere["update_id"]]


@pytest.mark.parametrize(
    ("content", "media_type", "methods"),
    [
        (b'{"method":"sendMessage","chat_id":1,"text":"hi"}', "application/json", ["sendMessage"]),
        (b"method=sendMessage&chat_id=1", "application/x-www-form-urlencoded", ["sendMessage"]),
        (b"{}", "application/json", []),
        (b"", "text/plain", []),
        (b"ok", "text/plain", []),
    ],
)
async def test_a_method_in_the_answer_is_held_against_the_bot(
    telegram: TelegramEmulator, content: bytes, media_type: str, methods: list[str]
) -> None:
    async with listening(telegram, Response(content, media_type=media_type)):
        await telegram.push(telegram.text_update("hi", chat=ALICE))
    assert telegram.misuses == methods
    assert telegram.messages == []


async def test_updates_that_the_bot_did_not_ask_for_do_not_come(telegram: TelegramEmulator) -> None:
    def doings() -> list[dict[str, Any]]:
        update = telegram.text_update("hi", chat=ALICE)
        reaction = telegram.reaction_update(update["message"]["message_id"], "👍", chat=ALICE, sender=ALICE)
        return [update, reaction, telegram.press_update(1, "a", chat=ALICE)]

    seen = []
    subscriptions: list[dict[str, Any]] = [{}, {"allowed_updates": ["message_reaction"]}, {}, {"allowed_updates": []}]
    for settings in subscriptions:
        async with listening(telegram, **settings) as bot:
            for update in doings():
                await telegram.push(update)
        seen.append([kind for body, _ in bot.got for kind in orjson.loads(body) if kind != "update_id"])
    default, reactions = ["message", "callback_query"], ["message_reaction"]
    assert seen == [default, reactions, reactions, default]


def test_the_presses_of_each_person_are_a_queue_of_their_own(telegram: TelegramEmulator) -> None:
    updates = [telegram.text_update("hi", chat=TEAM, sender=ALICE)]
    updates += [telegram.press_update(1001, "a", chat=TEAM, sender=sender) for sender in (ALICE, BOB)]
    assert len({Pending(update=update, since=0).queue for update in updates}) == 3


async def test_an_update_that_comes_late_does_not_bring_a_deleted_message_back(telegram: TelegramEmulator) -> None:
    update = telegram.text_update("hi", chat=ALICE)
    telegram.forget(ALICE, update["message"]["message_id"])
    await telegram.push(update)
    reply = {"message_id": update["message"]["message_id"]}
    words = "Bad Request: message to be replied not found"
    assert await refusal(telegram, "sendMessage", chat_id=ALICE, text="hi", reply_parameters=reply) == words
