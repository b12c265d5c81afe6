"""The outbox: each reply part is attempted until it is sent or given up, and its outcome is stored.

The four delivery errors decide: rate-limited and unreachable are attempted again with the same key, later and later;
refused and gone are not. A send's outcome is recorded even if the database is away for long. Nothing is sent for a
session that another worker may own by now.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import TypeAlias
from uuid import NAMESPACE_URL, uuid5

import structlog
from pydantic import TypeAdapter

from channels.access import Quotes
from channels.channel import Channel, DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.message import PICTURES, Button, MessageContext, Outbound, StoredFile, Target, TurnFacts
from gateway.pairing import with_code
from gateway.runtime import Runtime
from gateway.store.records import Lease, NewPart, Part
from gateway.store.store import Fenced, StoreUnavailable

BACKOFF_SECONDS_MAX = 60.0
UNRECORDED_SECONDS = 0.25
UNRECORDED_SECONDS_MAX = 30.0

log = structlog.get_logger()

_KEYS = uuid5(NAMESPACE_URL, "clawgate:outbox")


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivered:
    message_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    reason: str
    ambiguous: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Postponed:
    """`ambiguous`: the attempt may have arrived all the same."""

    seconds: float
    ambiguous: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Begin:
    """Nothing was sent yet: where the platform does not recognise a repetition, the start of an attempt is recorded first,
    so that a process that dies in the middle leaves the part in doubt, and one that died before leaves none."""


Report: TypeAlias = Delivered | GivenUp | Postponed | Begin


class Outbox:
    """`attempt` makes one attempt at one part; by default through the part's channel."""

    def __init__(self, runtime: Runtime, *, attempt: Callable[[Part], Awaitable[Report]] | None = None) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._attempt = attempt or Attempts(runtime).make

    async def deliver(self, lease: Lease, part: Part) -> bool:
        """True where that was the session's last work and it was released. Its later parts wait behind this one."""
        now = self._runtime.now
        while True:
            if (wait := part.next_at - now()) > 0:
                await self._runtime.control.pause(wait)
            if not self._store.lease_valid():
                raise StoreUnavailable("the lease cannot be verified now: nothing is sent")
            match await self._attempted(lease, part):
                case Begin():
                    mark = -now()
                    await self._store.begin(lease, part, mark)
                    part = replace(part, next_at=mark, begun=True)
                case Delivered(message_id=message_id):
                    return await _recorded(partial(self._store.sent, lease, part, message_id))
                case GivenUp(reason=reason):
                    self._runtime.metrics.dead.labels("part").inc()
                    return await _recorded(partial(self._store.failed, lease, part, reason))
                case Postponed(seconds=seconds, ambiguous=ambiguous):
                    due = now() + seconds
                    await self._store.postpone(lease, part, due, ambiguous=ambiguous)
                    counted = part.ambiguous + ambiguous
                    part = replace(part, attempts=part.attempts + 1, ambiguous=counted, next_at=due, begun=False)

    async def _attempted(self, lease: Lease, part: Part) -> Report:
        """A send that our own end cuts off may have arrived, and whoever takes the session over must know."""
        try:
            return await self._attempt(part)
        except asyncio.CancelledError:
            with suppress(Fenced, StoreUnavailable):
                await self._store.postpone(lease, part, min(part.next_at, self._runtime.now()), ambiguous=True)
            raise


class Attempts:
    """Single attempts through the configured channel accounts. A part older than `limits.deliverySeconds` gets no other."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def make(self, part: Part) -> Report:
        """Never raises for the platform's trouble."""
        payload = payload_json.validate_json(part.payload)
        channel = self._runtime.setup.channels.get((payload.channel, payload.account))
        facts: dict[str, object] = {"channel": payload.channel, "account": payload.account}
        facts |= {"turn": part.turn, "part": part.part}
        repeatable = payload.part.replaces is not None
        report = self._beforehand(channel, part, facts, repeatable=repeatable)
        if report is None and channel is not None:
            try:
                outbound = with_code(payload.part, channel.access, payload.seed) if payload.seed else payload.part
                report = Delivered(message_id=await channel.send(outbound, part.key))
            except DeliveryError as error:
                report = self._after(error, part, channel, repeatable=repeatable)
                facts |= {"error": type(error).__name__, "code": error.code, "attempt": part.attempts + 1}
        if report is None:
            report = GivenUp(reason="the channel account is no longer configured")
        self._log(report, payload.channel, facts)
        return report

    def _beforehand(
        self, channel: Channel | None, part: Part, facts: dict[str, object], *, repeatable: bool
    ) -> Report | None:
        """What to do before an attempt, or instead of one: a process may have died in the middle of it. `repeatable`: what
        replaces a message does so once, however often it is sent."""
        if channel is None or repeatable:
            return None
        recognised = channel.capabilities.repeat_seconds > 0
        in_doubt = part.ambiguous > 0 if recognised else part.next_at < 0 and not part.begun
        if in_doubt and (not recognised or not part.attempts):
            self._runtime.metrics.ambiguous.labels(channel.name).inc()
        if in_doubt and not may_repeat(channel, self._runtime.now() - part.created):
            return GivenUp(reason="it may have arrived, and the platform would not recognise a repetition")
        if in_doubt:
            log.warning("part_repeated", **facts)
        return None if recognised or part.begun else Begin()

    def _after(self, error: DeliveryError, part: Part, channel: Channel, *, repeatable: bool) -> Report:
        if isinstance(error, Refused | Gone):
            return GivenUp(reason=str(error))
        ambiguous = isinstance(error, Unreachable) and error.maybe_arrived and not repeatable
        give_up_seconds = self._runtime.setup.limits.delivery_seconds
        if self._runtime.now() - part.created >= give_up_seconds:
            return GivenUp(reason=f"not delivered within {give_up_seconds:.0f} s: {error}", ambiguous=ambiguous)
        if ambiguous and not may_repeat(channel, self._runtime.now() - part.created):
            return GivenUp(reason=f"it may have arrived: {error}", ambiguous=True)
        if isinstance(error, RateLimited) and error.retry_after_seconds is not None:
            return Postponed(seconds=error.retry_after_seconds)
        backoff = min(2.0 ** min(part.attempts, 10), BACKOFF_SECONDS_MAX)
        return Postponed(seconds=backoff * (0.75 + random.random() / 2), ambiguous=ambiguous)

    def _log(self, report: Report, channel: str, facts: dict[str, object]) -> None:
        match report:
            case Begin():
                return
            case Delivered(message_id=message_id):
                log.info("part_sent", message_id=message_id, **facts)
            case Postponed(seconds=seconds, ambiguous=ambiguous):
                log.warning("part_postponed", seconds=round(seconds, 1), may_have_arrived=ambiguous, **facts)
            case GivenUp(reason=reason):
                log.error("part_given_up", reason=reason, **facts)
        self._runtime.metrics.parts.labels(channel, type(report).__name__.lower()).inc()
        if not isinstance(report, Delivered) and report.ambiguous:
            self._runtime.metrics.ambiguous.labels(channel).inc()


def may_repeat(channel: Channel, age_seconds: float) -> bool:
    """Whether a send that may have arrived, so long ago, is made again under the same key."""
    return channel.resend_ambiguous or age_seconds < channel.capabilities.repeat_seconds


async def _recorded(write: Callable[[], Awaitable[bool]]) -> bool:
    """Retries until the outcome is stored; otherwise the part would be sent twice."""
    failures = 0
    while True:
        try:
            return await write()
        except StoreUnavailable as error:
            failures += 1
            log.error("outcome_unrecorded", failures=failures, error=repr(error))
            await asyncio.sleep(min(UNRECORDED_SECONDS * 2.0 ** min(failures, 10), UNRECORDED_SECONDS_MAX))


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxPayload:
    """One part and the channel account that carries it. `seed`: a pairing code belongs into it, which is not kept."""

    channel: str
    account: str
    part: Outbound
    seed: str = ""


payload_json: TypeAdapter[OutboxPayload] = TypeAdapter(OutboxPayload)


def idempotency_key(*names: str) -> str:
    """36 characters, the same for the same names."""
    return str(uuid5(_KEYS, "\x1f".join(names)))


def reply_parts(
    context: MessageContext,
    messages: Sequence[tuple[str, tuple[StoredFile, ...]]],
    *,
    voice: bool = False,
    purpose: str = "reply",
    quotes: Quotes = "all",
    dropped: bool = False,
    replaces: str | None = None,
    seed: str = "",
    buttons: tuple[Button, ...] = (),
    answers_to: str | None = None,
    turn: TurnFacts | None = None,
) -> list[NewPart]:
    """The parts of a reply to `context`, in order, each a text with its files; the last one has the buttons, the first one
    `replaces`. `purpose` keeps the keys of a note and of a reply apart; `quotes` says which of them show what they answer;
    with `dropped` there is no answer. What answers a press stands under the message with the button; `answers_to`
    is another message of the chat to stand under."""
    answered = answers_to or (context.press.message_id if context.press else context.message_id or None)
    if quotes == "off" and not answers_to and context.press is None:
        answered = None
    target = Target(chat=context.chat.id, thread=context.chat.thread, reply_to=answered)
    parts = []
    if replaces is not None and (not messages or messages[0][1] or answers_to):
        messages = [("", ()), *messages]  # what was begun to be said is taken away
    for number, (text, files) in enumerate(messages):
        if number and quotes == "first":
            target = replace(target, reply_to=None)
        part = Outbound(target=target, text=text, files=files, voice=voice and bool(files), dropped=dropped, turn=turn)
        part = part if number else replace(part, replaces=replaces)
        part = replace(part, buttons=buttons) if number == len(messages) - 1 else part
        payload = OutboxPayload(channel=context.channel, account=context.account, part=part, seed=seed)
        names = (context.channel, context.account, context.chat.id, context.message_id)
        key = idempotency_key(purpose, *names, str(number))
        parts.append(NewPart(key=key, payload=payload_json.dump_json(payload).decode()))
    return parts


def arranged(
    texts: Sequence[str], files: tuple[StoredFile, ...], channel: Channel | None, *, captions: bool = True
) -> list[tuple[str, tuple[StoredFile, ...]]]:
    """Which message of a reply brings which files. Without `captions` a text stands for itself."""
    rules = channel.capabilities.file_messages if channel else None
    if not files or rules is None:
        return [(text, files if number == len(texts) - 1 else ()) for number, text in enumerate(texts)]
    said = [text for text in texts if text.strip()]
    caption = said.pop() if captions and said and len(said[-1]) <= rules.caption_chars else ""
    first, *others = _albums(files, rules.album)
    return [*((text, ()) for text in said), (caption, first), *(("", group) for group in others)]


def _albums(files: Sequence[StoredFile], most: int) -> Iterator[tuple[StoredFile, ...]]:
    """Pictures in a row together, as many as go; every other file alone."""
    for pictures, group in groupby(files, key=lambda file: file.type in PICTURES):
        row = list(group)
        step = most if pictures else 1
        yield from (tuple(row[at : at + step]) for at in range(0, len(row), step))
