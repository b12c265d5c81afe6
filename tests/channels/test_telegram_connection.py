"""Staying in touch with Telegram: what is fetched is confirmed only once it is stored, and nothing ends the connection."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from channels.channel import Receipt
from tests.channels.telegram_bot import SILENCE, Body, Telegram, connected, refusal
from tests.channels.telegram_polled import MENU, Gateway, Waits, polls, running, update
from tests.channels.telegram_samples import WEBHOOK_SECRET

URL = "https://bot.example.com/webhooks/telegram/default"
ALLOWED = ["message", "edited_message", "callback_query", "my_chat_member"]
SET = {"url": URL, "allowed_updates": ALLOWED}


async def test_a_bot_that_polls_learns_its_name_offers_its_menu_and_keeps_what_waits() -> None:
    waits, gateway = Waits(), Gateway()
    async with (
        connected(timing=waits.timing(), known=False, mode="polling") as (telegram, channel),
        running(channel, gateway),
    ):
        await telegram.until(lambda: polls(telegram) and telegram.of("setMyCommands"))
    assert telegram.calls[0][0] == "getMe"
    assert telegram.of("deleteWebhook") == [{"drop_pending_updates": False}]
    assert telegram.of("setMyCommands") == [{"commands": [{"command": "stop", "description": MENU[0].description}]}]
    assert polls(telegram)[0] == {"timeout": 0, "limit": 100, "allowed_updates": ALLOWED}


async def test_what_is_stored_is_confirmed_by_the_next_poll() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [[update(5, "a"), {"update_id": 6, "poll": {}}, update(7, "c")]]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 2)
    assert gateway.stored == ["a", "poll", "c"]
    assert [poll.get("offset") for poll in polls(telegram)[:2]] == [None, 8]


async def test_what_could_not_be_stored_is_fetched_again_and_nothing_behind_it_overtakes() -> None:
    waits, gateway = Waits(), Gateway()
    backlog = [update(5, "a"), update(6, "b"), update(7, "c")]

    def waiting(body: Body) -> list[Body]:
        if len(polls(telegram)) == 1:
            gateway.failures = 2
            gateway.stored.clear()
        return [one for one in backlog if one["update_id"] >= body.get("offset", 0)]

    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [waiting] * 4
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 4)
    assert gateway.stored == ["a", "b", "c"]
    assert [poll.get("offset") for poll in polls(telegram)[:4]] == [None, None, None, 8]
    assert waits.slept[:2] == [2.0, 4.0]


async def test_a_failure_in_the_middle_leaves_the_rest_unconfirmed() -> None:
    waits, gateway = Waits(), Gateway()

    class Picky(Gateway):
        async def deliver(self, receipt: Receipt) -> None:
            if self.attempts == 1:
                self.failures = 1
            await Gateway.deliver(self, receipt)

    gateway = Picky()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [[update(5, "a"), update(6, "b")], [update(6, "b")]]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 3)
    assert gateway.stored == ["a", "b"]
    assert [poll.get("offset") for poll in polls(telegram)[:3]] == [None, 6, 7]


async def test_an_update_that_cannot_be_read_does_not_stand_in_the_way() -> None:
    waits, gateway = Waits(), Gateway()
    odd = b'{"ok": true, "result": [{"update_id": 5, "message": 7}, null, {"update_id": 6, "poll": {}}, ' + (
        b'{"update_id": 7, "message": {"message_id": 7, "from": {"id": 1}, "chat": {"id": 1, "type": "private"}, '
        b'"text": "half \\ud83d"}}]}'
    )
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [(200, odd)]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 2)
    assert gateway.stored == ["message", "poll", "half ?"]
    assert polls(telegram)[1]["offset"] == 8


@pytest.mark.parametrize(
    ("description", "fix"),
    [
        (
            "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
            "stop it",
        ),
        ("Conflict: can't use getUpdates method while webhook is active; use deleteWebhook", "mode: webhook"),
    ],
)
async def test_a_rival_is_named_and_outlasted(description: str, fix: str) -> None:
    waits, gateway = Waits(), Gateway()
    with capture_logs() as logs:
        async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
            telegram.answers["getUpdates"] = [refusal(409, description)] * 8 + [[update(5, "a")]]
            async with running(channel, gateway):
                await telegram.until(lambda: len(polls(telegram)) >= 10)
    assert gateway.stored == ["a"]
    reported = [line for line in logs if line["event"] == "telegram_conflict"]
    assert [line["log_level"] for line in reported[:3]] == ["warning", "warning", "error"]
    assert all(fix in line["reason"] for line in reported)
    assert waits.slept[:8] == [2, 4, 8, 16, 30, 30, 30, 30]
    assert len(telegram.of("deleteWebhook")) == 1


async def test_a_poll_that_falls_silent_is_given_up_and_begun_anew() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(margin=0.2), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [SILENCE, [update(5, "a")]]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 3)
    assert gateway.stored == ["a"]
    assert waits.slept[0] == 2.0


async def test_after_a_broken_answer_the_next_poll_takes_a_new_connection() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [[update(5)], (502, b"<html>"), [update(6)], [update(7)]]
        async with running(channel, gateway, commands=()):
            await telegram.until(lambda: len(polls(telegram)) >= 4)
    ports = [port for method, port in telegram.ports if method == "getUpdates"]
    before, kept, new = set(ports[:2]), {port for method, port in telegram.ports if method != "getUpdates"}, ports[2:4]
    assert before <= kept
    assert new[0] == new[1] not in kept


@pytest.mark.parametrize(
    ("answer", "waited"),
    [
        (refusal(429, "Too Many Requests: retry after 7", retry_after=7), 7.0),
        (refusal(401, "Unauthorized"), 2.0),
        ((502, b"<html>"), 2.0),
        ({"no": "list"}, 2.0),
    ],
)
async def test_no_refusal_ends_the_polling(answer: Any, waited: float) -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [answer, [update(5, "a")]]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 3)
    assert gateway.stored == ["a"]
    assert waits.slept[0] == waited


async def test_a_server_that_does_not_hold_polls_is_not_asked_without_a_pause() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel), running(channel, gateway):
        await telegram.until(lambda: len(polls(telegram)) >= 4)
    assert waits.slept[:3] == [1.0, 1.0, 1.0]


async def test_ending_is_at_once_also_in_the_middle_of_a_poll() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(margin=600), mode="polling") as (telegram, channel):
        telegram.answers["getUpdates"] = [SILENCE]
        async with running(channel, gateway) as task:
            await telegram.until(lambda: polls(telegram))
            assert not task.done()


async def test_the_start_is_tried_until_telegram_is_there() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), known=False, mode="polling") as (telegram, channel):
        down = refusal(500, "Internal Server Error: restart")
        telegram.answers = {"getMe": [down, refusal(401, "Unauthorized")], "deleteWebhook": [down]}
        telegram.answers |= {"getUpdates": [[update(5, "a")]], "setMyCommands": [down]}
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 2 and len(telegram.of("setMyCommands")) == 2)
    assert gateway.stored == ["a"]


async def test_a_menu_that_telegram_does_not_want_is_left_out() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["setMyCommands"] = [refusal(400, "Bad Request: BOT_COMMAND_INVALID")]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 5)
    assert len(telegram.of("setMyCommands")) == 1


def looks(telegram: Telegram) -> int:
    return len(telegram.of("getWebhookInfo"))


async def test_the_webhook_is_set_with_secret_and_kinds_where_telegram_has_none() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing()) as (telegram, channel):
        telegram.answers["getWebhookInfo"] = [{"url": ""}, SET, SET]
        async with running(channel, gateway, url="https://bot.example.com/"):
            await telegram.until(lambda: looks(telegram) >= 3)
    assert telegram.of("setWebhook")[0] == {"url": URL, "secret_token": WEBHOOK_SECRET, "allowed_updates": ALLOWED}
    assert waits.slept[:2] == [300.0, 300.0]
    assert polls(telegram) == []


@pytest.mark.parametrize(
    ("info", "times"),
    [
        (SET, 0),
        (SET | {"allowed_updates": list(reversed(ALLOWED))}, 0),
        (SET | {"url": "https://other.example.com/hook"}, 1),
        (SET | {"allowed_updates": ["message"]}, 1),
        ({"url": URL}, 1),
        (SET | {"last_error_date": 9, "last_error_message": "Wrong response from the webhook: 500 Internal"}, 0),
        (SET | {"last_error_date": 9, "last_error_message": "Wrong response from the webhook: 401 Unauthorized"}, 1),
    ],
)
async def test_the_webhook_is_set_only_where_it_differs_or_the_secret_does(info: Body, times: int) -> None:
    waits, gateway = Waits(), Gateway()
    rest = info | {key: SET[key] for key in SET}
    async with connected(timing=waits.timing()) as (telegram, channel):
        telegram.answers["getWebhookInfo"] = [info, rest, rest, rest]
        async with running(channel, gateway, url="https://bot.example.com"):
            await telegram.until(lambda: looks(telegram) >= 4)
    assert len(telegram.of("setWebhook")) == times


async def test_what_telegram_reports_of_failed_deliveries_is_logged_once() -> None:
    waits, gateway = Waits(), Gateway()
    failed = SET | {"last_error_date": 9, "last_error_message": "Read timeout expired", "pending_update_count": 3}
    with capture_logs() as logs:
        async with connected(timing=waits.timing()) as (telegram, channel):
            telegram.answers["getWebhookInfo"] = [failed] * 3
            async with running(channel, gateway, url="https://bot.example.com"):
                await telegram.until(lambda: looks(telegram) >= 4)
    reported = [line for line in logs if line["event"] == "telegram_webhook_error"]
    assert [(line["reason"], line["waiting"]) for line in reported] == [("Read timeout expired", 3)]


async def test_setting_the_webhook_is_tried_again_as_told() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing()) as (telegram, channel):
        telegram.answers["setWebhook"] = [
            refusal(429, "Too Many Requests: retry after 1", retry_after=1),
            refusal(400, "Bad Request: bad webhook: An HTTPS URL must be provided for webhook"),
        ]
        async with running(channel, gateway, url="https://bot.example.com"):
            await telegram.until(lambda: len(telegram.of("setWebhook")) >= 3)
    assert waits.slept[:2] == [1.0, 4.0]


async def test_without_an_address_of_its_own_the_gateway_says_what_is_missing_and_sets_nothing() -> None:
    waits, gateway = Waits(), Gateway()
    with capture_logs() as logs:
        async with connected(timing=waits.timing()) as (telegram, channel), running(channel, gateway):
            await telegram.until(lambda: looks(telegram) >= 2)
    assert telegram.of("setWebhook") == []
    assert any("server.publicUrl" in line.get("reason", "") for line in logs)
