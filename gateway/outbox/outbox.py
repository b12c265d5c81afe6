"""Outbox: attempt each reply part until it is sent or failed for good, and store the outcome.

Rate-limited and unreachable parts are retried under the same key with backoff; rejected and gone ones are not. The
outcome is recorded even after a long database outage. Nothing is sent for a session that another worker may own.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import TypeAlias
from uuid import NAMESPACE_URL, uuid5

import structlog
from pydantic import TypeAdapter

from agents.providers.catalog import wire_of
from agents.speech import synthesize
from channels.channel import Channel, DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.message import Chat, MessageContext, Outbound, Sender, StoredFile
from gateway.approvals.pairing import with_code
from gateway.state.runtime import Runtime
from gateway.store.chatter import line_of
from gateway.store.errors import Fenced, StoreUnavailable
from gateway.store.records import KeptLine, Lease, OutboxPart
from gateway.store.sessions import chat_named, conversation, is_saying
from tools.tool import turn_source

BACKOFF_SECONDS_MAX = 60.0
AWAY_SECONDS = 1.0
URGENT_SECONDS = 0.2
"""Seconds between checks while a part yields to more urgent ones."""
UNRECORDED_SECONDS = 0.25
UNRECORDED_SECONDS_MAX = 30.0

log = structlog.get_logger()

_KEYS = uuid5(NAMESPACE_URL, "clawgate:outbox")


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivered:
    message_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class GivenUp:
    """`gone`: the chat, topic or user is permanently unreachable."""

    reason: str
    ambiguous: bool = False
    gone: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Postponed:
    """`ambiguous`: the attempt may have arrived."""

    seconds: float
    ambiguous: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordStart:
    """Record the start of an attempt first, on a platform that does not deduplicate sends: a crash during the attempt
    leaves the part ambiguous, a crash before it does not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Away:
    """The config has no such account. Nothing is attempted or recorded; an ambiguous part stays ambiguous."""


Report: TypeAlias = Delivered | GivenUp | Postponed | RecordStart | Away


OnGone: TypeAlias = Callable[[OutboxPart, str], Awaitable[None]]


class Outbox:
    """`attempt` sends one part once, by default through its channel. `on_gone` is called before a gone chat is
    recorded, so a crash may repeat it."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        attempt: Callable[[OutboxPart], Awaitable[Report]] | None = None,
        on_gone: OnGone | None = None,
    ) -> None:
        self._runtime = runtime
        self._store = runtime.store
        self._attempt = attempt or Attempts(runtime).make
        self._on_gone = on_gone
        self._urgent: Counter[str] = Counter()
        """Urgent parts in flight, by chat."""

    async def deliver(self, lease: Lease, part: OutboxPart, *, queued: bool = False) -> bool:
        """Deliver a part. Return True if that was the session's last work and released it. Later parts of the session wait.
        `queued`: the latest commit confirmed that it is queued. A saying session's part yields to replies in its chat."""
        chat = chat_named(lease.sid)
        if is_saying(lease.sid):
            return await self._deliver(lease, part, queued=queued, behind=chat)
        self._urgent[chat] += 1
        try:
            return await self._deliver(lease, part, queued=queued)
        finally:
            self._urgent[chat] -= 1
            if not self._urgent[chat]:
                del self._urgent[chat]

    async def _deliver(self, lease: Lease, part: OutboxPart, *, queued: bool, behind: str | None = None) -> bool:
        now, away = self._runtime.now, False
        asked = part.next_at - part.created
        """Caps the wait, in case the wall clock was set back."""
        while True:
            if (wait := min(part.next_at - now(), asked)) > 0:
                await self._runtime.control.pause(wait)
            while behind in self._urgent:
                queued = False
                await self._runtime.control.pause(URGENT_SECONDS)
            if not self._store.lease_valid():
                raise StoreUnavailable("the lease cannot be verified now: nothing is sent")
            if not queued and not await self._store.is_queued(part):  # the message that it answers was recalled
                return False
            queued = False
            match await self._attempted(lease, part):
                case RecordStart():
                    started_at = now()
                    if not (queued := await self._store.begin(lease, part, started_at)):
                        return False
                    part = replace(part, attempt_started_at=started_at, begun=True)
                case Away():
                    if not away:
                        log.warning("part_waits_for_its_account", session=lease.sid, turn=part.turn, part=part.part)
                    away = True
                    await self._runtime.control.pause(AWAY_SECONDS)
                case Delivered(message_id=message_id):
                    line = self._kept_line(lease, part, message_id)
                    return await _recorded(partial(self._store.sent, lease, part, message_id, line))
                case GivenUp(reason=reason, gone=gone):
                    if gone and self._on_gone is not None:
                        await self._on_gone(part, reason)
                    self._runtime.metrics.dead.labels("part").inc()
                    self._runtime.metrics.lose(part.turn)
                    return await _recorded(partial(self._store.failed, lease, part, reason))
                case Postponed(seconds=seconds, ambiguous=ambiguous):
                    due, asked = now() + seconds, seconds
                    await self._store.postpone(lease, part, due, ambiguous=ambiguous)
                    part = replace(part, attempts=part.attempts + 1, ambiguous=part.ambiguous + ambiguous)
                    part = replace(part, next_at=due, attempt_started_at=None, begun=False)

    def _kept_line(self, lease: Lease, part: OutboxPart, message_id: str) -> KeptLine | None:
        """Return a part of an agent's answer as a remembered group keeps it."""
        remembered = self._runtime.setup.config.remembered
        if not (message_id and remembered) or conversation(lease.sid) != lease.sid:
            return None
        payload = payload_json.validate_json(part.payload)
        target, text = payload.part.target, payload.part.whole
        if f"{payload.channel}:{payload.account}:{target.chat}" not in remembered or not text.strip():
            return None
        said = MessageContext(
            channel=payload.channel,
            account=payload.account,
            chat=Chat(id=target.chat, kind="group", thread=target.thread),
            message_id=message_id,
            sender=Sender(id="", is_bot=True),
            text=text,
            sent_at=datetime.fromtimestamp(part.created, UTC),
        )
        return line_of(said, sender=turn_source(part.turn))

    async def _attempted(self, lease: Lease, part: OutboxPart) -> Report:
        try:
            return await self._attempt(part)
        except asyncio.CancelledError:
            with suppress(Fenced, StoreUnavailable):  # it may have arrived: tell the session's next owner
                await self._store.cut_off(lease, part)
            raise


class Attempts:
    """Single attempts through the configured channel accounts. A part older than `limits.deliverySeconds` is not retried."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._spoken_files: dict[str, StoredFile] = {}
        """Speech that is being sent, by the part's key: an attempt that is repeated does not speak again."""

    async def make(self, part: OutboxPart) -> Report:
        """Attempt once; report every delivery error as a value."""
        payload = payload_json.validate_json(part.payload)
        setup = self._runtime.setup
        channel = setup.channels.get((payload.channel, payload.account))
        facts: dict[str, object] = {"channel": payload.channel, "account": payload.account}
        facts |= {"turn": part.turn, "part": part.part}
        if payload.speech:
            if (file := await self._spoken(part.key, payload.speech)) is None:
                return Delivered(message_id="")  # the text was sent, which is the answer
            payload = replace(payload, part=replace(payload.part, files=(file,), voice=True))
        repeatable = payload.part.replaces is not None
        report = self._beforehand(channel, part, facts, repeatable=repeatable)
        if report is None and channel is not None:
            try:
                outbound = with_code(payload.part, channel.access, payload.seed) if payload.seed else payload.part
                with self._runtime.using(setup):
                    report = Delivered(message_id=await channel.send(outbound, part.key))
            except DeliveryError as error:
                report = self._after(error, part, channel, repeatable=repeatable)
                facts |= {"error": type(error).__name__, "code": error.code, "attempt": part.attempts + 1}
        if report is None:
            is_young = self._runtime.now() - part.created < setup.limits.delivery_seconds
            report = Away() if is_young else GivenUp(reason="the channel account is no longer configured")
        self._log(report, payload.channel, facts)
        if isinstance(report, Delivered | GivenUp):
            self._spoken_files.pop(part.key, None)
        return report

    async def _spoken(self, key: str, speech: "Speech") -> StoredFile | None:
        if key in self._spoken_files:
            return self._spoken_files[key]
        runtime, config = self._runtime, self._runtime.setup.config
        agent = next((it for it in config.agents.list if it.id == speech.agent), config.agents.defaults)
        settings = agent.speech.over(config.speech)
        name = settings.model.partition("/")[0]
        if not name:
            return None
        provider = config.provider(name)
        address = wire_of(name, provider).models_url.removesuffix("/models") + "/audio/speech"
        key_of_server = next(iter(provider.keys), "")
        file = await synthesize(settings, address, key_of_server, runtime.scrubber.scrub(speech.text))
        if file is None:
            return None
        stored = self._spoken_files[key] = await runtime.store.files.put(file, runtime.now())
        return stored

    def _beforehand(
        self, channel: Channel | None, part: OutboxPart, facts: dict[str, object], *, repeatable: bool
    ) -> Report | None:
        """Return what to record before or instead of an attempt: a crash may have interrupted the last one.
        `repeatable`: an edit is idempotent."""
        if channel is None or repeatable:
            return None
        recognised = channel.capabilities.repeat_seconds > 0
        in_doubt = part.ambiguous > 0 if recognised else part.attempt_started_at is not None and not part.begun
        if in_doubt and (not recognised or not part.attempts):
            self._runtime.metrics.ambiguous.labels(channel.name).inc()
        if in_doubt and not may_repeat(channel, self._runtime.now() - part.created):
            return GivenUp(reason="it may have arrived, and the platform would not recognise a repetition")
        if in_doubt:
            log.warning("part_repeated", **facts)
        return None if recognised or part.begun else RecordStart()

    def _after(self, error: DeliveryError, part: OutboxPart, channel: Channel, *, repeatable: bool) -> Report:
        if isinstance(error, Refused | Gone):  # a failed edit tells nothing about the chat
            return GivenUp(reason=str(error), gone=isinstance(error, Gone) and not repeatable)
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
            case RecordStart() | Away():
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
    """Return whether to retry an ambiguous send that was made `age_seconds` ago, under the same key."""
    return channel.resend_ambiguous or age_seconds < channel.capabilities.repeat_seconds


async def _recorded(write: Callable[[], Awaitable[bool]]) -> bool:
    failures = 0
    while True:  # without a stored outcome the part would be sent twice
        try:
            return await write()
        except StoreUnavailable as error:
            failures += 1
            log.error("outcome_unrecorded", failures=failures, error=repr(error))
            await asyncio.sleep(min(UNRECORDED_SECONDS * 2.0 ** min(failures, 10), UNRECORDED_SECONDS_MAX))


@dataclass(frozen=True, kw_only=True, slots=True)
class Speech:
    """A text that the agent's speech model speaks when the part is sent."""

    agent: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class OutboxPayload:
    """One part and its channel account. `seed` derives the pairing code to insert; the code is not stored. A part with
    `speech` has no text: its file is made at the time of sending."""

    channel: str
    account: str
    part: Outbound
    seed: str = ""
    speech: Speech | None = None


payload_json: TypeAdapter[OutboxPayload] = TypeAdapter(OutboxPayload)


def idempotency_key(*names: str) -> str:
    """Return a key of 36 characters that depends only on the names."""
    return str(uuid5(_KEYS, "\x1f".join(names)))
