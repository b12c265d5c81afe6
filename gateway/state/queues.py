"""Turns from messages that wait: which belong together, which one is late, and what the config says of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from agents.config import AgentConfig
from channels.channel import Channel
from channels.message import MessageContext
from channels.section import QueueConfig, QueueMode, StalePolicy
from gateway.store.records import WaitingMessage

BUTTON = "bt:"
"""The beginning of an agent's button's token; the key of its message and its place there follow."""
ATTEMPTS_MAX = 3
"""A message whose turn has crashed its process this often is closed with an apology. The last attempt runs without other
suspects: one message alone, and no other chat's last attempt beside it."""
BATCH_MAX = 20
"""The messages that one collected turn answers at most."""
MORE_SECONDS = 1.5
"""Seconds from the arrival of one part to that of the next: platforms send them at once, in separate deliveries."""
REDELIVERY_SECONDS_MAX = 24 * 3600.0
"""No platform redelivers after more than a day: an older date is a wrong clock or a recorded sample, not lateness."""


def is_last_attempt(message: WaitingMessage) -> bool:
    return message.attempts >= ATTEMPTS_MAX - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """The settings that hold for one chat."""

    mode: QueueMode = "collect"
    debounce_seconds: float = 0.5
    stale_after_seconds: float = 900.0
    stale: StalePolicy = "label"

    def batch(self, waiting: Sequence[WaitingMessage], *, begun: bool) -> Sequence[WaitingMessage]:
        """The messages of the next turn, from the oldest; a turn that has begun is not added to here."""
        return waiting[:1] if begun or self.mode == "followup" else waiting

    def hold(self, context: MessageContext, waiting: Sequence[WaitingMessage], now: float) -> float:
        """Seconds to wait for the rest of what `context`, the last one, is a part of: an album, a paste that was cut."""
        if not context.more or len(waiting) >= BATCH_MAX:
            return 0.0
        return max(0.0, min(waiting[-1].at + MORE_SECONDS - now, MORE_SECONDS))

    def debounce(self, waiting: Sequence[WaitingMessage], now: float) -> float:
        """Seconds to wait until the chat has been quiet for long enough."""
        if self.mode != "collect" or len(waiting) >= BATCH_MAX:
            return 0.0
        return max(0.0, min(waiting[-1].at + self.debounce_seconds - now, self.debounce_seconds))

    def lateness(self, context: MessageContext, accepted: float, now: float) -> float | None:
        """Returns the age in seconds of a late message, else None."""
        age = now - accepted
        if 0 < (since_sent := now - context.sent_at.timestamp()) < REDELIVERY_SECONDS_MAX:
            age = max(age, since_sent)
        return age if age > self.stale_after_seconds else None


class Queues:
    """The settings by agent and channel account."""

    def __init__(
        self, base: QueueConfig, channels: Mapping[tuple[str, str], Channel], agents: Sequence[AgentConfig]
    ) -> None:
        self._base = base
        self._channels = channels
        self._agents = {agent.id: agent.queue for agent in agents}
        self._cached = cache(self._merge)

    def of(self, agent: str, context: MessageContext) -> Queue:
        return self._cached(agent, context.channel, context.account)

    def _merge(self, agent: str, channel: str, account: str) -> Queue:
        carrier = self._channels.get((channel, account))
        if carrier and carrier.capabilities.programs:
            return Queue(mode="followup", stale="answer")
        levels = (self._base, carrier.queue if carrier else None, self._agents.get(agent))
        return Queue(**{key: value for level in levels if level for key, value in level if value is not None})
