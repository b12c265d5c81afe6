"""What follows from how a send ended. A unit test because no emulator can make an hour pass."""

from dataclasses import replace
from typing import Any

import pytest

from channels.channel import Capabilities, DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.message import Chat, MessageContext, Outbound, Target
from gateway.config.root import LimitsConfig
from gateway.outbox import (
    Attempts,
    Begin,
    Delivered,
    GivenUp,
    OutboxPayload,
    Postponed,
    Report,
    payload_json,
    reply_parts,
)
from gateway.store.store import Part
from tests.gateway.runtimes import runtime
from tests.tools.bench import CALL

PAYLOAD = payload_json.dump_json(
    OutboxPayload(channel="x", account="default", part=Outbound(target=Target(chat="c"), text="hi"))
).decode()
PART = Part(
    id=1,
    turn=1,
    part=0,
    key="k",
    payload=PAYLOAD,
    attempts=0,
    ambiguous=0,
    next_at=-1_000.0,
    created=1_000.0,
    begun=True,
)
MAYBE, SURELY_NOT = Unreachable("no answer"), Unreachable("refused", maybe_arrived=False)


class Line:
    """A channel whose sends end as they are told to."""

    name, account = "x", "default"

    def __init__(self, error: DeliveryError | None, *, repeat_seconds: float, resend: bool) -> None:
        self.error = error
        self.capabilities = Capabilities(names=(), repeat_seconds=repeat_seconds)
        self.resend_ambiguous = resend
        self.sent = 0

    async def send(self, part: Outbound, key: str) -> str:
        self.sent += 1
        if self.error is not None:
            raise self.error
        return "om"


async def attempt(
    error: DeliveryError | None, *, part: Part = PART, repeat: float = 0.0, resend: bool = True, now: float = 1_000.0
) -> tuple[Report, Line, str]:
    line = Line(error, repeat_seconds=repeat, resend=resend)
    limits = LimitsConfig(deliverySeconds=10_000)
    store: Any = None  # an attempt stores nothing
    shared = runtime(store, now=lambda: now, limits=limits, channels={("x", "default"): line})
    return await Attempts(shared).make(part), line, shared.metrics.render().decode()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, Delivered),
        (Refused("no"), GivenUp),
        (Gone("left"), GivenUp),
        (RateLimited("slow", retry_after_seconds=7), Postponed),
        (MAYBE, Postponed),
        (SURELY_NOT, Postponed),
    ],
)
async def test_each_way_to_fail_has_its_consequence(error: DeliveryError | None, expected: type) -> None:
    result, _, _ = await attempt(error)
    assert isinstance(result, expected)
    if isinstance(error, RateLimited):
        assert result == Postponed(seconds=7)


async def test_a_send_that_may_have_arrived_is_counted_and_one_that_cannot_have_is_not() -> None:
    result, _, metrics = await attempt(MAYBE)
    assert isinstance(result, Postponed)
    assert result.ambiguous
    assert 'clawgate_send_ambiguous_total{channel="x"} 1.0' in metrics
    result, _, metrics = await attempt(SURELY_NOT)
    assert isinstance(result, Postponed)
    assert not result.ambiguous
    assert "send_ambiguous_total{" not in metrics


async def test_where_config_says_so_it_is_repeated_only_where_the_platform_recognises_it() -> None:
    result, _, _ = await attempt(MAYBE, resend=False)
    assert isinstance(result, GivenUp)
    result, _, _ = await attempt(MAYBE, resend=False, repeat=3_600)
    assert isinstance(result, Postponed)


COUNTED = 'clawgate_send_ambiguous_total{channel="x"} 1.0'


async def test_where_a_repetition_is_recognised_what_a_dead_process_was_about_to_send_is_repeated_and_counted() -> None:
    doubtful = replace(PART, ambiguous=1, next_at=0.0, begun=False)
    result, line, metrics = await attempt(None, part=doubtful, repeat=3_600)
    assert (result, line.sent) == (Delivered(message_id="om"), 1)
    assert COUNTED in metrics
    hours_later = 1_000.0 + 7_200
    result, line, metrics = await attempt(None, part=doubtful, resend=False, repeat=3_600, now=hours_later)
    assert (isinstance(result, GivenUp), line.sent) == (True, 0)
    assert COUNTED in metrics
    result, line, _ = await attempt(None, part=doubtful, repeat=3_600, now=hours_later)
    assert line.sent == 1


async def test_where_it_is_not_an_attempt_is_put_on_record_before_it_is_made() -> None:
    result, line, metrics = await attempt(None, part=replace(PART, next_at=0.0, begun=False))
    assert (result, line.sent) == (Begin(), 0)
    assert "clawgate_reply_parts_total{" not in metrics


@pytest.mark.parametrize("resend", [True, False])
async def test_what_a_dead_process_had_not_begun_is_in_no_doubt(resend: bool) -> None:
    unsent = replace(PART, ambiguous=1, next_at=0.0, begun=False)
    result, _, metrics = await attempt(None, part=unsent, resend=resend)
    assert result == Begin()
    assert COUNTED not in metrics


async def test_what_it_had_begun_is_counted_and_given_up_or_repeated_as_the_config_says() -> None:
    begun = replace(PART, ambiguous=1, next_at=-1_000.0, begun=False)
    result, line, metrics = await attempt(None, part=begun, resend=False)
    assert (isinstance(result, GivenUp), line.sent) == (True, 0)
    assert COUNTED in metrics
    result, _, metrics = await attempt(None, part=begun, resend=True)
    assert result == Begin()
    assert COUNTED in metrics


async def test_after_the_last_chance_it_is_a_dead_letter() -> None:
    result, _, _ = await attempt(MAYBE, now=1_000.0 + 10_001)
    assert isinstance(result, GivenUp)
    assert result.ambiguous


def context(**changes: Any) -> MessageContext:
    ours: dict[str, Any] = {"chat": Chat(id="oc_1", kind="group", thread="omt_1"), "message_id": "om_1"}
    return replace(CALL.message, **ours | changes)


def test_a_part_has_the_same_key_whenever_it_is_made_and_no_two_share_one() -> None:
    def keys(context: MessageContext, purpose: str = "reply") -> list[str]:
        return [part.key for part in reply_parts(context, ["one", "two"], purpose=purpose)]

    first = keys(context())
    assert first == keys(context())
    elsewhere = context(chat=Chat(id="oc_2", kind="group"))
    others = [context(message_id="om_2"), context(account="sales"), context(channel="telegram"), elsewhere]
    every = [*first, *keys(context(), "overflow"), *(key for other in others for key in keys(other))]
    assert len(set(every)) == len(every) == 12
    assert all(len(key) <= 50 for key in every)


def test_a_part_is_a_reply_to_the_message_in_its_chat_and_topic() -> None:
    (part,) = reply_parts(context(), ["one"])
    payload = payload_json.validate_json(part.payload)
    assert payload.part.target == Target(chat="oc_1", thread="omt_1", reply_to="om_1")
    assert (payload.channel, payload.account, payload.part.text) == ("feishu", "default", "one")


def test_where_a_platform_shows_the_question_with_each_part_only_the_first_is_a_reply() -> None:
    parts = reply_parts(context(), ["one", "two", "three"], quotes_once=True)
    targets = [payload_json.validate_json(part.payload).part.target for part in parts]
    assert [target.reply_to for target in targets] == ["om_1", None, None]
    assert {(target.chat, target.thread) for target in targets} == {("oc_1", "omt_1")}
