"""What an update asks for besides a turn, noted where it is read and done elsewhere: an answer to a press, a new address."""

from datetime import UTC, datetime
from typing import Any

import orjson
import pytest

from channels.channel import WebhookRequest
from channels.message import Outbound, Target
from tests.channels.telegram_bot import SILENCE, Body, connected, refusal
from tests.channels.telegram_polled import Gateway, Waits, polls, running, update
from tests.channels.telegram_samples import WEBHOOK_SECRET, load_samples


def press(update_id: int, query: str) -> Body:
    return {"update_id": update_id, "callback_query": {"id": query, "from": {"id": 500000011}, "data": "ap:1"}}


@pytest.mark.parametrize("answer", [SILENCE, (502, b"<html>"), refusal(400, "Bad Request: query is too old")])
async def test_a_press_that_cannot_be_answered_holds_nothing_up_and_is_not_answered_again(answer: Any) -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["answerCallbackQuery"] = [answer]
        telegram.answers["getUpdates"] = [[press(5, "p5"), update(6, "b")], [press(5, "p5"), update(7, "c")]]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 4 and telegram.of("answerCallbackQuery"))
    assert gateway.stored == ["callback_query", "b", "callback_query", "c"]
    assert telegram.of("answerCallbackQuery") == [{"callback_query_id": "p5"}]


async def test_of_presses_without_end_the_latest_are_left_and_messages_come_through() -> None:
    waits, gateway = Waits(), Gateway()
    async with connected(timing=waits.timing(), mode="polling") as (telegram, channel):
        telegram.answers["answerCallbackQuery"] = [SILENCE]
        flood = [press(number, f"p{number}") for number in range(1, 500)]
        telegram.answers["getUpdates"] = [[*flood, press(500, "x" * 100), update(501, "words")]]
        async with running(channel, gateway):
            await telegram.until(lambda: len(polls(telegram)) >= 2 and telegram.of("answerCallbackQuery"))
    assert gateway.stored == [*["callback_query"] * 500, "words"]


@pytest.mark.parametrize("name", ["46_group_migrated_away", "47_group_migrated_here"])
async def test_where_an_update_says_that_a_group_moved_it_is_followed_from_the_first_send(name: str) -> None:
    (moved,) = [sample.update for sample in load_samples() if sample.name == name]
    async with connected() as (telegram, channel):
        secret = [("x-telegram-bot-api-secret-token", WEBHOOK_SECRET)]
        channel.receive(WebhookRequest(headers=secret, body=orjson.dumps(moved)), datetime.now(UTC))
        await channel.send(Outbound(target=Target(chat="-4000000031"), text="hi"), "key-1")
        assert [sent["chat_id"] for sent in telegram.sent] == [-1002000000041]
