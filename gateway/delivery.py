"""One attempt at one reply part, and what follows from how it ended.

The four delivery errors decide: rate-limited and unreachable are tried again with the same key, later and later;
refused and gone are not. Who waits, and what is sent next, is the lane's business.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from channels.channel import Channel, DeliveryError, Gone, RateLimited, Refused, Unreachable
from gateway.metrics import Metrics
from gateway.outbound import parcel_json
from gateway.store.store import Part

BACKOFF_SECONDS_MAX = 60.0

log = structlog.get_logger()


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
    """Nothing was done yet: the platform would not recognise a repetition, so it must be on record that an attempt begins
    before one does. A process that dies then leaves a doubt; one that died before leaves none."""


Report: TypeAlias = Delivered | GivenUp | Postponed | Begin


class PartSender:
    """Sends parts through the channel accounts there are. A part older than `give_up_seconds` is not tried again."""

    def __init__(
        self,
        channels: Mapping[tuple[str, str], Channel],
        *,
        give_up_seconds: float,
        now: Callable[[], float],
        metrics: Metrics,
    ) -> None:
        self._channels = channels
        self._give_up_seconds = give_up_seconds
        self._now = now
        self._metrics = metrics

    async def send(self, part: Part) -> Report:
        """One attempt. Never raises for the platform's trouble."""
        parcel = parcel_json.validate_json(part.payload)
        channel = self._channels.get((parcel.channel, parcel.account))
        facts: dict[str, object] = {"channel": parcel.channel, "account": parcel.account}
        facts |= {"turn": part.turn, "part": part.part}
        report = self._beforehand(channel, part, facts)
        if report is None and channel is not None:
            try:
                report = Delivered(message_id=await channel.send(parcel.part, part.key))
            except DeliveryError as error:
                report = self._after(error, part, channel)
                facts |= {"error": type(error).__name__, "code": error.code, "attempt": part.attempts + 1}
        if report is None:
            report = GivenUp(reason="the channel account is no longer configured")
        self._tell(report, facts)
        return report

    def _beforehand(self, channel: Channel | None, part: Part, facts: dict[str, object]) -> Report | None:
        """What is to be done before an attempt, or instead of one: a process may have ended in the middle of it."""
        if channel is None:
            return None
        recognised = channel.capabilities.repeat_seconds > 0
        in_doubt = part.ambiguous > 0 if recognised else part.next_at < 0 and not part.begun
        if in_doubt and (not recognised or not part.attempts):
            self._metrics.ambiguous(channel.name)
        if in_doubt and not self._may_repeat(channel, part):
            return GivenUp(reason="it may have arrived, and the platform would not recognise a repetition")
        if in_doubt:
            log.warning("part_repeated", **facts)
        return None if recognised or part.begun else Begin()

    def _tell(self, report: Report, facts: dict[str, object]) -> None:
        if not isinstance(report, Begin):
            self._metrics.part(str(facts["channel"]), type(report).__name__.lower())
        match report:
            case Delivered(message_id=message_id):
                log.info("part_sent", message_id=message_id, **facts)
            case Postponed(seconds=seconds, ambiguous=ambiguous):
                log.warning("part_postponed", seconds=round(seconds, 1), may_have_arrived=ambiguous, **facts)
            case GivenUp(reason=reason):
                log.error("part_given_up", reason=reason, **facts)
            case Begin():
                return
        if not isinstance(report, Delivered) and report.ambiguous:
            self._metrics.ambiguous(str(facts["channel"]))

    def _may_repeat(self, channel: Channel, part: Part) -> bool:
        return may_repeat(channel, self._now() - part.created)

    def _after(self, error: DeliveryError, part: Part, channel: Channel) -> Report:
        if isinstance(error, Refused | Gone):
            return GivenUp(reason=str(error))
        ambiguous = isinstance(error, Unreachable) and error.maybe_arrived
        if self._now() - part.created >= self._give_up_seconds:
            reason = f"not delivered within {self._give_up_seconds:.0f} s: {error}"
            return GivenUp(reason=reason, ambiguous=ambiguous)
        if ambiguous and not self._may_repeat(channel, part):
            return GivenUp(reason=f"it may have arrived: {error}", ambiguous=True)
        told = error.retry_after_seconds if isinstance(error, RateLimited) else None
        if told is not None:
            return Postponed(seconds=told)
        backoff = min(2.0 ** min(part.attempts, 10), BACKOFF_SECONDS_MAX)
        return Postponed(seconds=backoff * (0.75 + random.random() / 2), ambiguous=ambiguous)


def may_repeat(channel: Channel, age_seconds: float) -> bool:
    """Whether a send that may have arrived, so long ago, is tried again under the same key."""
    return channel.resend_ambiguous or age_seconds < channel.capabilities.repeat_seconds
