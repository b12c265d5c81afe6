"""What follows from how a send ended. A unit test because no emulator can make an hour pass."""

import asyncio
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels.access import Quotes
from channels.channel import Capabilities, DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.message import Chat, MessageContext, Outbound, Press, Target
from gateway.config.root import LimitsConfig
from gateway.outbox.outbox import (
    Attempts,
    Delivered,
    GivenUp,
    Outbox,
    OutboxPayload,
    Postponed,
    RecordStart,
    Report,
    payload_json,
)
from gateway.outbox.reply import reply_parts
from gateway.state.ending import Reply
from gateway.store.records import Delivery, Entry, NewPart, OutboxPart
from gateway.store.sessions import chat_named, saying_session
from gateway.store.sqlite import SqliteStore
from tests.gateway.runtimes import runtime
from tests.tools.bench import CALL
from tests.waiting import PATIENCE_SECONDS

PAYLOAD = payload_json.dump_json(
    OutboxPayload(channel="x", account="default", part=Outbound(target=Target(chat="c"), text="hi"))
).decode()
PART = OutboxPart(
    id=1,
    turn=1,
    part=0,
    key="k",
    payload=PAYLOAD,
    attempts=0,
    ambiguous=0,
    attempt_started_at=1_000.0,
    created=1_000.0,
    begun=True,
)
DONE = Reply(text="done")
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
    error: DeliveryError | None,
    *,
    part: OutboxPart = PART,
    repeat: float = 0.0,
    resend: bool = True,
    now: float = 1_000.0,
) -> tuple[Report, Line, str]:
    line = Line(error, repeat_seconds=repeat, resend=resend)
    limits = LimitsConfig(deliverySeconds=10_000)
    store: Any = None  # an attempt stores nothing
    shared = runtime(store, now=lambda: now, limits=limits, channels={("x", "default"): line})
    return await Attempts(shared).make(part), line, shared.metrics.render().decode()


_REPLACING = Outbound(target=Target(chat="c"), text="hi", replaces="om")
REPLACING = replace(
    PART,
    begun=False,
    payload=payload_json.dump_json(OutboxPayload(channel="x", account="default", part=_REPLACING)).decode(),
)
COUNTED = 'clawgate_send_ambiguous_total{channel="x"} 1.0'
UNSENT = replace(PART, attempt_started_at=None, begun=False)
CLAIMED = replace(UNSENT, ambiguous=1)
"""Of a process that died: whether it had begun is on record only where the platform recognises no repetition."""
BEGUN = replace(CLAIMED, attempt_started_at=1_000.0)
HOURS_LATER = 1_000.0 + 7_200
GIVEN_UP_AFTER = 1_000.0 + 10_000


@pytest.mark.parametrize(
    ("part", "error", "setting", "expected", "sent", "counted"),
    [
        (PART, None, {}, Delivered, 1, False),
        (PART, Refused("no"), {}, GivenUp, 1, False),
        (PART, Gone("left"), {}, GivenUp, 1, False),
        (PART, RateLimited("slow", retry_after_seconds=7), {}, Postponed, 1, False),
        (PART, MAYBE, {}, Postponed, 1, True),
        (PART, SURELY_NOT, {}, Postponed, 1, False),
        (PART, MAYBE, {"now": GIVEN_UP_AFTER}, GivenUp, 1, True),
        (PART, MAYBE, {"resend": False}, GivenUp, 1, True),
        (PART, MAYBE, {"resend": False, "repeat": 3_600}, Postponed, 1, True),
        (CLAIMED, None, {"repeat": 3_600}, Delivered, 1, True),
        (CLAIMED, None, {"repeat": 3_600, "now": HOURS_LATER}, Delivered, 1, True),
        (replace(CLAIMED, attempts=1), None, {"repeat": 3_600}, Delivered, 1, False),  # counted by its attempt
        (CLAIMED, None, {"repeat": 3_600, "now": HOURS_LATER, "resend": False}, GivenUp, 0, True),
        # where the platform does not recognise a repetition
        (UNSENT, None, {}, RecordStart, 0, False),
        (CLAIMED, None, {"resend": False}, RecordStart, 0, False),
        (BEGUN, None, {"resend": False}, GivenUp, 0, True),
        (BEGUN, None, {}, RecordStart, 0, True),
        # what replaces a message does so once, however often it is sent
        (REPLACING, None, {"resend": False}, Delivered, 1, False),
        (replace(REPLACING, ambiguous=1), None, {"resend": False, "now": HOURS_LATER}, Delivered, 1, False),
        (REPLACING, Unreachable("no answer"), {"resend": False}, Postponed, 1, False),
        (REPLACING, Gone("deleted"), {}, GivenUp, 1, False),
    ],
)
async def test_outbox_outcome_of_every_send_failure_and_kill(
    part: OutboxPart, error: DeliveryError | None, setting: dict[str, Any], expected: type, sent: int, counted: bool
) -> None:
    result, line, metrics = await attempt(error, part=part, **setting)
    assert (type(result), line.sent, COUNTED in metrics) == (expected, sent, counted)
    if isinstance(result, Postponed | GivenUp):
        assert result.ambiguous == (error is MAYBE)
    if isinstance(error, RateLimited):
        assert result == Postponed(seconds=7)
    if isinstance(result, GivenUp):  # a message that is gone says nothing of its chat
        assert result.gone == (isinstance(error, Gone) and part is PART)
    assert ("clawgate_reply_parts_total{" in metrics) == (expected is not RecordStart)


def context(**changes: Any) -> MessageContext:
    ours: dict[str, Any] = {"chat": Chat(id="oc_1", kind="group", thread="omt_1"), "message_id": "om_1"}
    return replace(CALL.message, **ours | changes)


def test_outbox_idempotency_key_is_stable_and_unique() -> None:
    def keys(context: MessageContext, purpose: str = "reply") -> list[str]:
        return [part.key for part in reply_parts(context, [("one", ()), ("two", ())], DONE, purpose=purpose)]

    first = keys(context())
    assert first == keys(context())
    elsewhere = context(chat=Chat(id="oc_2", kind="group"))
    others = [context(message_id="om_2"), context(account="sales"), context(channel="telegram"), elsewhere]
    every = [*first, *keys(context(), "overflow"), *(key for other in others for key in keys(other))]
    assert len(set(every)) == len(every) == 12
    assert all(len(key) <= 50 for key in every)


@pytest.mark.parametrize(
    ("quotes", "replies"), [("all", ("om_1", "om_1")), ("first", ("om_1", None)), ("off", (None, None))]
)
def test_outbox_part_replies_in_its_chat_and_topic(quotes: Quotes, replies: tuple[str | None, str | None]) -> None:
    parts = reply_parts(context(), [("one", ()), ("two", ())], DONE, quotes=quotes)
    first, second = [payload_json.validate_json(part.payload) for part in parts]
    assert first.part.target == Target(chat="oc_1", thread="omt_1", reply_to=replies[0])
    assert second.part.target == replace(first.part.target, reply_to=replies[1])
    assert (first.channel, first.account, first.part.text, second.part.text) == ("feishu", "default", "one", "two")


def test_outbox_answer_to_a_press_is_under_its_button() -> None:
    pressed = [
        context(message_id=name, press=Press(token=token, message_id="om_card"))
        for name, token in (("event-1", "a"), ("event-2", "a"))
    ]
    parts = [reply_parts(it, [("done", ())], DONE, purpose="aside") for it in pressed]
    targets = {payload_json.validate_json(part.payload).part.target for (part,) in parts}
    assert targets == {Target(chat="oc_1", thread="omt_1", reply_to="om_card")}
    assert len({part.key for (part,) in parts}) == 2


@pytest.mark.parametrize("restarted", [False, True], ids=["at once", "after a restart"])
async def test_outbox_backoff_survives_a_clock_set_back(tmp_path: Path, restarted: bool) -> None:
    clock, attempts = [1_000_000.0], 0

    async def attempt(part: OutboxPart) -> Report:
        nonlocal attempts
        attempts += 1
        if attempts > 1:
            return Delivered(message_id="m")
        asyncio.get_running_loop().call_soon(lambda: clock.__setitem__(0, clock[0] - 3_600))
        return Postponed(seconds=0.05)

    store = SqliteStore(tmp_path / "x.db")
    outbox = Outbox(runtime(store, now=lambda: clock[0], limits=LimitsConfig(), channels={}), attempt=attempt)
    delivery = Delivery(sid="s", dedupe=("a",), body="b", at=clock[0])
    lease = (await store.accept(delivery, pending_max=9, sender_max=9, claim=True)).lease
    assert lease is not None
    entries = [Entry(turn=1, kind="final", content="{}")]
    (part,) = await store.finish(lease, entries, [NewPart(key="k", payload="p")], at=clock[0])
    if restarted:
        attempts = 1
        await store.postpone(lease, part, clock[0] + 0.05, ambiguous=False)
        (part,) = (await store.load(lease, history_turns=1, waiting_max=9)).parts
        clock[0] -= 3_600
    async with asyncio.timeout(PATIENCE_SECONDS):
        await outbox.deliver(lease, part)
    assert attempts == 2
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:  # the first is on record: a kill does not forget it
        assert database.execute("SELECT attempts FROM outbox").fetchall() == [(1,)]
    await store.close()


async def test_outbox_start_is_recorded_before_each_attempt(tmp_path: Path) -> None:
    """Where the platform recognises no repetition: a kill during the second attempt is in doubt as during the first."""
    made = list[str]()

    async def attempt(part: OutboxPart) -> Report:
        if not part.begun:
            made.append("start")
            return RecordStart()
        made.append("send")
        return Delivered(message_id="m") if "send" in made[:-1] else Postponed(seconds=0.0)

    store = SqliteStore(tmp_path / "x.db")
    outbox = Outbox(runtime(store, now=lambda: 1.0, limits=LimitsConfig(), channels={}), attempt=attempt)
    lease = (
        await store.accept(Delivery(sid="s", dedupe=("a",), body="b", at=1.0), pending_max=9, sender_max=9, claim=True)
    ).lease
    assert lease is not None
    entries = [Entry(turn=1, kind="final", content="{}")]
    (part,) = await store.finish(lease, entries, [NewPart(key="k", payload="p")], at=1.0)
    await outbox.deliver(lease, part)
    assert made == ["start", "send"] * 2
    await store.close()


async def test_outbox_part_recalled_behind_a_reply_is_not_sent(tmp_path: Path) -> None:
    """What an agent says beside a turn waits for the replies of its chat."""
    made = list[str]()

    async def attempt(part: OutboxPart) -> Report:
        made.append(part.key)
        return Delivered(message_id="m")

    store = SqliteStore(tmp_path / "x.db")
    outbox = Outbox(runtime(store, now=lambda: 1.0, limits=LimitsConfig(), channels={}), attempt=attempt)
    delivery = Delivery(sid=saying_session("s"), dedupe=("a",), body="b", at=1.0)
    lease = (await store.accept(delivery, pending_max=9, sender_max=9, claim=True)).lease
    assert lease is not None
    entries = [Entry(turn=1, kind="final", content="{}")]
    (part,) = await store.finish(lease, entries, [NewPart(key="k", payload="p")], at=1.0)
    outbox._urgent[chat_named(lease.sid)] = 1
    sending = asyncio.create_task(outbox.deliver(lease, part, queued=True))
    await store.failed(lease, part, "recalled")
    outbox._urgent.clear()
    assert not await sending
    assert made == []
    await store.close()
