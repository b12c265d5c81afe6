"""Staying in touch with Telegram: what is fetched is confirmed only once it is stored, and nothing ends the connection."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from channels.abilities import MenuEntry
from channels.channel import Arrived, NotStored, Receipt, WebhookRequest
from channels.condition import Condition
from channels.message import Outbound, Target
from channels.telegram.channel import SECRET_HEADER
from channels.telegram.timing import Timing
from tests.channels.telegram_bot import SILENCE, Body, Telegram, connected, refusal
from tests.channels.telegram_samples import WEBHOOK_SECRET, load_samples

PUBLIC = "https://bot.example.com"
URL = f"{PUBLIC}/webhooks/telegram/default"
ALLOWED = ["message", "edited_message", "callback_query", "my_chat_member", "message_reaction", "poll_answer"]
SET = {"url": URL, "allowed_updates": ALLOWED}
DOWN = refusal(500, "Internal Server Error: restart")
MENU = (
    MenuEntry(name="stop", en="Stop the running answer", zh="停止当前处理"),
    MenuEntry(name="not-one", en="left out", zh="不列出"),
    MenuEntry(name="reset", en="Another name", zh="别名", hidden=True),
    MenuEntry(name="pair", en="Let a person write", zh="允许某人发消息", for_owners=True),
    MenuEntry(name="claim", en="Become the owner", zh="成为所有者", only="direct"),
    MenuEntry(name="listen", en="Switch it on", zh="启用", for_owners=True, only="group"),
)


def update(number: int, text: str = "hi") -> Body:
    person = {"id": 500000011, "is_bot": False, "first_name": "Alice"}
    chat = {"id": 500000011, "type": "private"}
    message = {"message_id": number, "from": person, "chat": chat, "date": 1790000000, "text": text}
    return {"update_id": number, "message": message}


@dataclass(slots=True)
class Connected:
    """A bot, its Telegram and its gateway. Waiting takes no time here, and is written down."""

    telegram: Telegram
    slept: list[float]
    condition: Condition
    stored: list[str] = field(default_factory=list)
    failing: list[bool] = field(default_factory=list)
    """Whether the gateway fails to store the next receipts."""

    @property
    def polls(self) -> list[Body]:
        return self.telegram.of("getUpdates")

    async def calls(self, method: str, count: int) -> list[Body]:
        """Return when there are so many of a method."""
        await self.telegram.until(lambda: len(self.telegram.of(method)) >= count)
        return self.telegram.of(method)

    async def deliver(self, receipt: Receipt) -> None:
        if self.failing and self.failing.pop(0):
            raise NotStored("the database is away")
        self.stored.append(receipt.context.text if isinstance(receipt, Arrived) else str(getattr(receipt, "kind", "")))


@asynccontextmanager
async def in_touch(
    *,
    margin: float = 10.0,
    url: str | None = None,
    commands: Sequence[MenuEntry] = MENU,
    answers: dict[str, list[Any]] | None = None,
    **settings: Any,
) -> AsyncIterator[Connected]:
    """By polling where no `url` is given and no mode. `answers` are those of Telegram, by method."""
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await asyncio.sleep(0)

    timing = Timing(poll_seconds=0, margin_seconds=margin, sleep=sleep, random=lambda: 0.5, clock=lambda: 0.0)
    settings = {"mode": "polling" if url is None else "webhook"} | settings
    async with connected(timing=timing, **settings) as (telegram, channel):
        telegram.answers |= answers or {}
        made = Connected(telegram, slept, channel.condition)
        task = asyncio.create_task(
            channel.connect(public_url=url, commands=commands, owners=["500000011"], deliver=made.deliver)
        )
        try:
            yield made
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task


async def test_telegram_polling_start_keeps_pending_updates() -> None:
    async with in_touch(known=False) as it:
        await it.calls("getUpdates", 4)
        menus = await it.calls("setMyCommands", 6)
    assert it.telegram.calls[0][0] == "getMe"
    assert it.telegram.of("deleteWebhook") == [{"drop_pending_updates": False}]
    stop, _, _, pair, claim, _ = MENU
    shown = [
        ({"type": "default"}, (stop, claim)),
        ({"type": "all_group_chats"}, (stop,)),
        ({"type": "chat", "chat_id": 500000011}, (stop, pair, claim)),
    ]
    assert menus == [
        {"commands": [{"command": it.name, "description": text(it)} for it in entries], "scope": scope} | more
        for scope, entries in shown
        for text, more in ((attrgetter("en"), {}), (attrgetter("zh"), {"language_code": "zh"}))
    ]
    assert it.polls[0] == {"timeout": 0, "limit": 100, "allowed_updates": ALLOWED}
    assert it.slept[:3] == [1.0] * 3  # a server that does not hold polls is not asked without a pause


async def test_telegram_polling_redelivers_what_was_not_stored_in_order() -> None:
    backlog = [update(5, "a"), update(6, "b"), update(7, "c")]

    def waiting(body: Body) -> list[Body]:
        return [one for one in backlog if one["update_id"] >= body.get("offset", 0)]

    async with in_touch(answers={"getUpdates": [waiting] * 4}) as it:
        it.failing[:] = [True, True, False, True]
        await it.calls("getUpdates", 5)
    assert it.stored == ["a", "b", "c"]
    assert [poll.get("offset") for poll in it.polls[:5]] == [None, None, None, 6, 8]
    assert it.slept[:3] == [2.0, 4.0, 8.0]


async def test_telegram_polling_backoff_ends_soon_after_a_long_outage() -> None:
    async with in_touch(answers={"getUpdates": [[update(5, "a")]] * 9}) as it:
        it.failing[:] = [True] * 8
        await it.telegram.until(lambda: bool(it.stored))
    assert (it.stored, max(it.slept)) == (["a"], 10.0)


async def test_telegram_polling_skips_an_unreadable_update() -> None:
    odd = b'{"ok": true, "result": [{"update_id": 7, "message": {"message_id": 7, "from": {"id": 1}, ' + (
        b'"chat": {"id": 1, "type": "private"}, "text": "half \\ud83d"}}, {"update_id": 5, "message": 7}, null, '
        b'{"update_id": 6, "poll": {}}]}'
    )
    async with in_touch(answers={"getUpdates": [(200, odd)]}) as it:
        await it.calls("getUpdates", 2)
    assert it.stored == ["message", "poll", "half ?"]  # in the order of their numbers
    assert it.polls[1]["offset"] == 8


@pytest.mark.parametrize(
    ("description", "fix"),
    [
        ("Conflict: terminated by other getUpdates request; make sure that only one is running", "stop it"),
        ("Conflict: can't use getUpdates method while webhook is active; use deleteWebhook", "mode: webhook"),
    ],
)
async def test_telegram_polling_rival_is_named_and_outlasted(description: str, fix: str) -> None:
    with capture_logs() as logs:
        async with in_touch(answers={"getUpdates": [refusal(409, description)] * 8 + [[update(5, "a")]]}) as it:
            await it.calls("getUpdates", 10)
    assert it.stored == ["a"]
    reported = [line for line in logs if line["event"] == "telegram_conflict"]
    assert [line["log_level"] for line in reported[:3]] == ["warning", "warning", "error"]
    assert all(fix in line["reason"] for line in reported)
    assert it.slept[:8] == [2, 4, 8, 16, 30, 30, 30, 30]
    assert len(it.telegram.of("deleteWebhook")) == 1


async def test_telegram_polling_reconnects_after_a_broken_answer() -> None:
    answers = [[update(5)], (502, b"<html>"), [update(6)], [update(7)]]
    async with in_touch(answers={"getUpdates": answers}, commands=()) as it:
        await it.calls("getUpdates", 4)
    ports = [port for method, port in it.telegram.ports if method == "getUpdates"]
    assert not set(ports[:2]) & set(ports[2:4])


@pytest.mark.parametrize(
    ("answer", "waited"),
    [
        (refusal(429, "Too Many Requests: retry after 7", retry_after=7), 7.0),
        (refusal(401, "Unauthorized"), 2.0),
        ((502, b"<html>"), 2.0),
        ({"no": "list"}, 2.0),
        (SILENCE, 2.0),
    ],
)
async def test_telegram_polling_survives_refusals_and_timeouts(answer: Any, waited: float) -> None:
    margin = 0.2 if answer is SILENCE else 10.0
    async with in_touch(margin=margin, answers={"getUpdates": [answer, [update(5, "a")]]}) as it:
        await it.calls("getUpdates", 3)
    assert (it.stored, it.slept[0]) == (["a"], waited)


async def test_ending_is_at_once_also_in_the_middle_of_a_poll() -> None:
    async with in_touch(margin=600, answers={"getUpdates": [SILENCE]}) as it:
        await it.calls("getUpdates", 1)


async def test_telegram_start_is_retried_until_reachable() -> None:
    answers = {"getMe": [DOWN, refusal(401, "Unauthorized")], "deleteWebhook": [DOWN], "setMyCommands": [DOWN]}
    async with in_touch(known=False, answers=answers | {"getUpdates": [[update(5, "a")]]}) as it:
        await it.calls("getUpdates", 2)
        await it.calls("setMyCommands", 5)
    assert it.stored == ["a"]


async def test_telegram_menu_refused_is_left_out() -> None:
    async with in_touch(answers={"setMyCommands": [refusal(400, "Bad Request: BOT_COMMAND_INVALID")]}) as it:
        await it.calls("getUpdates", 5)
    assert len(it.telegram.of("setMyCommands")) == 6  # each is tried once


# by webhook


@pytest.mark.parametrize(
    ("info", "times"),
    [
        ({"url": ""}, 1),
        (SET, 0),
        (SET | {"allowed_updates": list(reversed(ALLOWED))}, 0),
        (SET | {"url": "https://other.example.com/hook"}, 1),
        (SET | {"allowed_updates": ["message"]}, 1),
        ({"url": URL}, 1),
        (SET | {"last_error_date": 9, "last_error_message": "Wrong response from the webhook: 500 Internal"}, 0),
        (SET | {"last_error_date": 9, "last_error_message": "Wrong response from the webhook: 401 Unauthorized"}, 1),
    ],
)
async def test_telegram_webhook_is_set_only_when_changed(info: Body, times: int) -> None:
    async with in_touch(url=f"{PUBLIC}/", answers={"getWebhookInfo": [info, *[info | SET] * 3]}) as it:
        await it.calls("getWebhookInfo", 4)
    wanted = {"url": URL, "secret_token": WEBHOOK_SECRET, "allowed_updates": ALLOWED}
    assert it.telegram.of("setWebhook") == [wanted] * times
    assert (it.slept[:2], it.polls) == ([300.0, 300.0], [])


async def test_telegram_webhook_failure_report_is_logged_once() -> None:
    failed = SET | {"last_error_date": 9, "last_error_message": "Read timeout expired", "pending_update_count": 3}
    with capture_logs() as logs:
        async with in_touch(url=PUBLIC, answers={"getWebhookInfo": [failed] * 3}) as it:
            await it.calls("getWebhookInfo", 4)
    reported = [line for line in logs if line["event"] == "telegram_webhook_error"]
    assert [(line["reason"], line["waiting"]) for line in reported] == [("Read timeout expired", 3)]


@pytest.mark.parametrize("ends", ["nothing waits any more", "a delivery"])
async def test_telegram_webhook_failures_reported_make_the_bot_silent(ends: str) -> None:
    old = SET | {"last_error_date": 9, "last_error_message": "From before our start", "pending_update_count": 3}
    new = old | {"last_error_date": 10, "last_error_message": "Connection refused"}
    states: list[tuple[str, str]] = []

    def reports(info: Body) -> Callable[[Body], Body]:
        def report(_: Body) -> Body:
            states.append((it.condition.state.state, it.condition.state.reason.en))
            return info

        return report

    later = SET if ends == "nothing waits any more" else new
    async with in_touch(url=PUBLIC, answers={"getWebhookInfo": [*map(reports, (old, new, *[later] * 500))]}) as it:
        await it.calls("getWebhookInfo", 5)
        assert [state for state, _ in states[1:3]] == ["ok", "silent"]
        assert states[2][1] == "Telegram's last delivery failed: Connection refused"
        assert it.condition.state.state == ("ok" if later == SET else "silent")
        it.condition.genuine()
        await it.calls("getWebhookInfo", 8)
        assert it.condition.state.state == "ok"


async def test_setting_the_webhook_is_tried_again_as_told() -> None:
    slower = refusal(429, "Too Many Requests: retry after 1", retry_after=1)
    bad = refusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook")
    async with in_touch(url=PUBLIC, answers={"setWebhook": [slower, bad]}) as it:
        await it.calls("setWebhook", 3)
    assert it.slept[:2] == [1.0, 4.0]


async def test_telegram_webhook_without_a_public_url_is_not_set() -> None:
    with capture_logs() as logs:
        async with in_touch(mode="webhook") as it:
            await it.calls("getWebhookInfo", 2)
    assert it.telegram.of("setWebhook") == []
    assert any("server.publicUrl" in line.get("reason", "") for line in logs)


# what an update asks for besides a turn


def press(update_id: int, query: str) -> Body:
    return {"update_id": update_id, "callback_query": {"id": query, "from": {"id": 500000011}, "data": "ap:1"}}


@pytest.mark.parametrize("answer", [SILENCE, (502, b"<html>"), refusal(400, "Bad Request: query is too old")])
async def test_telegram_press_answer_failure_is_not_retried(answer: Any) -> None:
    updates = [[press(5, "p5"), update(6, "b")], [press(5, "p5"), update(7, "c")]]
    async with in_touch(answers={"answerCallbackQuery": [answer], "getUpdates": updates}) as it:
        await it.calls("getUpdates", 4)
        assert await it.calls("answerCallbackQuery", 1) == [{"callback_query_id": "p5"}]
    assert it.stored == ["callback_query", "b", "callback_query", "c"]


async def test_telegram_press_flood_keeps_the_latest_and_messages() -> None:
    flood = [*(press(number, f"p{number}") for number in range(1, 500)), press(500, "x" * 100), update(501, "words")]
    async with in_touch(answers={"answerCallbackQuery": [SILENCE], "getUpdates": [flood]}) as it:
        await it.calls("getUpdates", 2)
    assert it.stored == [*["callback_query"] * 500, "words"]


@pytest.mark.parametrize("name", ["46_group_migrated_away", "47_group_migrated_here"])
async def test_telegram_supergroup_move_is_followed_from_the_first_send(name: str) -> None:
    (moved,) = [sample.update for sample in load_samples() if sample.name == name]
    async with connected() as (telegram, channel):
        request = WebhookRequest(headers=[(SECRET_HEADER, WEBHOOK_SECRET)], body=orjson.dumps(moved))
        channel.receive(request, datetime.now(UTC))
        await channel.send(Outbound(target=Target(chat="-4000000031"), text="hi"), "key-1")
        assert [sent["chat_id"] for sent in telegram.sent] == [-1002000000041]
