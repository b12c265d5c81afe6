"""Queues: which waiting messages form a turn, whether one is late, and the config's settings for both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from agents.config import AgentConfig
from channels.channel import Channel
from channels.message import MessageContext
from channels.section import QueueConfig, QueueMode, StalePolicy
from gateway.store.records import WaitingMessage

BUTTON = "bt:"
"""The prefix of an agent button's token; its message's key and its position follow."""
ATTEMPTS_MAX = 3
"""Attempts before a message that crashes its process is closed with an apology. The last attempt runs in isolation:
one message alone, and no other session's last attempt at the same time."""
BATCH_MAX = 20
"""Most messages that one collected turn answers."""
MORE_SECONDS = 1.5
"""Seconds to wait for the next part: platforms send the parts of one message together, in separate deliveries."""
REDELIVERY_SECONDS_MAX = 24 * 3600.0
"""No platform redelivers after more than a day: an older date is a wrong clock or a recorded sample, not lateness."""


def is_last_attempt(message: WaitingMessage) -> bool:
    return message.attempts >= ATTEMPTS_MAX - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """The queue settings of one chat."""

    mode: QueueMode = "collect"
    debounce_seconds: float = 0.5
    stale_after_seconds: float = 900.0
    stale: StalePolicy = "label"

    def batch(self, waiting: Sequence[WaitingMessage], *, begun: bool) -> Sequence[WaitingMessage]:
        """Return the messages of the next turn, oldest first; a begun turn gets no more messages here."""
        return waiting[:1] if begun or self.mode == "followup" else waiting

    def hold(self, context: MessageContext, waiting: Sequence[WaitingMessage], now: float) -> float:
        """Return how many seconds to wait for the other parts of an album or a split paste that `context`, the last
        message, belongs to."""
        if not context.more or len(waiting) >= BATCH_MAX:
            return 0.0
        return max(0.0, min(waiting[-1].at + MORE_SECONDS - now, MORE_SECONDS))

    def debounce(self, waiting: Sequence[WaitingMessage], now: float) -> float:
        """Return how many seconds to wait until the chat has been quiet long enough."""
        if self.mode != "collect" or len(waiting) >= BATCH_MAX:
            return 0.0
        return max(0.0, min(waiting[-1].at + self.debounce_seconds - now, self.debounce_seconds))

    def lateness(self, context: MessageContext, accepted: float, now: float) -> float | None:
        """Return the age of a late message in seconds, else None."""
        age = now - accepted
        if 0 < (since_sent := now - context.sent_at.timestamp()) < REDELIVERY_SECONDS_MAX:
            age = max(age, since_sent)
        return age if age > self.stale_after_seconds else None


class Queues:
    """The queue settings by agent and channel account."""

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
