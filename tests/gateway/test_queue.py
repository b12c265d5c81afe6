"""Which messages make one turn, and which are late. Pure: settings and times in, decisions out."""

import gc
import weakref
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from channels.message import MessageContext
from gateway.state.queues import MORE_SECONDS, Queue
from gateway.store.inbound import Inbound, LoadedBody, inbound_json, inbound_of
from gateway.store.records import WaitingMessage
from tests.tools.bench import CALL

NOW = 1_800_000_000.0


def waiting(*ages: float) -> list[WaitingMessage]:
    return [WaitingMessage(turn=n, body="", at=NOW - age, attempts=0) for n, age in enumerate(ages, 1)]


def context(age: float) -> MessageContext:
    return replace(CALL.message, sent_at=datetime.fromtimestamp(NOW - age, tz=UTC))


@pytest.mark.parametrize(
    ("mode", "ages", "wait"),
    [
        ("collect", [9.0, 0.1], 0.4),
        ("collect", [-5.0], 0.5),  # a clock that was set back must not hold a chat
        ("collect", [0.1] * 20, 0.0),
        ("followup", [0.1], 0.0),
        ("steer", [0.1], 0.0),
    ],
)
def test_debounce_in_collect_mode_is_limited(mode: str, ages: list[float], wait: float) -> None:
    assert Queue(mode=mode).debounce(waiting(*ages), NOW) == pytest.approx(wait)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("sent", "accepted", "late"),
    [
        (10, 10, None),
        (901, 1, 901),  # the platform delivered it late
        (901, 901, 901),  # it waited here
        (5, 7_200, 7_200),  # the sender's clock is not ours
        (3 * 86_400, 1, None),  # no platform is that late: a wrong clock, or a recorded sample
        (3 * 86_400, 2 * 86_400, 2 * 86_400),
        (-500, 1, None),
    ],
)
def test_stale_message_by_the_platforms_or_our_clock(sent: float, accepted: float, late: float | None) -> None:
    lateness = Queue().lateness(context(sent), NOW - accepted, NOW)
    assert lateness == (None if late is None else pytest.approx(late))


@pytest.mark.parametrize(
    ("more", "ages", "wait"),
    [
        (False, [0.1], 0.0),
        (True, [9.0, 0.5], MORE_SECONDS - 0.5),
        (True, [MORE_SECONDS + 0.1], 0.0),
        (True, [-5.0], MORE_SECONDS),
        (True, [0.1] * 20, 0.0),
    ],
)
def test_debounce_waits_for_the_rest_of_a_split_message(more: bool, ages: list[float], wait: float) -> None:
    assert Queue().hold(replace(context(0), more=more), waiting(*ages), NOW) == pytest.approx(wait)


def test_queue_parses_a_body_once() -> None:
    """A call of `/v1` carries its whole conversation: no cache of the process holds it, however many there were."""
    text = inbound_json.dump_json(Inbound(agent="helper", context=CALL.message)).decode()
    message = WaitingMessage(turn=1, body=LoadedBody(text), at=NOW, attempts=0)
    inbound = inbound_of(message.body)
    assert inbound_of(replace(message, attempts=1).body) is inbound
    assert inbound_of(text) is not inbound_of(text)
    held = weakref.ref(message.body)
    del message, inbound
    gc.collect()
    assert held() is None
