"""The inbox of one chat: what it holds of a message, and how messages become turns: which wait together, which is late, and
what the config says of it. Tokens and raw bodies are not kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

from pydantic import TypeAdapter

from agents.config import AgentConfig
from channels.channel import Channel
from channels.message import MessageContext
from channels.queue import QueueConfig, QueueMode, StalePolicy
from gateway.api.caller import Caller
from gateway.store.records import Waiting


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """`command` is the name of the gateway's command that the message is, None for what an agent answers; `arguments` what
    stands behind it. `replays` is another number each time that the message gets another chance: its reply then is another
    reply, with keys of its own. `together` are all messages that a `/retry` answers anew, in order; empty for this one.
    `approval` is the id of what was decided, where the gateway itself takes the conversation up again. `asked` is what a
    program sends along. `recalled`: its person has taken it back, and it says nothing any more."""

    agent: str
    context: MessageContext
    command: str | None = None
    arguments: str = ""
    replays: int = 0
    together: tuple[MessageContext, ...] = ()
    approval: str = ""
    asked: Caller | None = None
    recalled: bool = False

    @property
    def contexts(self) -> tuple[MessageContext, ...]:
        return self.together or (self.context,)


inbound_json: TypeAdapter[Inbound] = TypeAdapter(Inbound)


@lru_cache(maxsize=1_024)
def inbound_of(body: str) -> Inbound:
    """The message in an inbox row's body; parsed once, since a waiting message is looked at several times."""
    return inbound_json.validate_json(body)


BUTTON = "bt:"
"""What the token of an agent's button begins with; the key of its message and its place there follow."""
BATCH_MAX = 20
"""The messages that one collected turn answers at most."""
MORE_SECONDS = 1.5
"""From the arrival of one part to that of the next: platforms send them at once, each in a delivery of its own."""
REDELIVERY_SECONDS_MAX = 24 * 3600.0
"""No platform delivers anew for longer than a day: an older date is a wrong clock or a recorded sample, not lateness."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Queue:
    """The settings that hold for one chat."""

    mode: QueueMode = "collect"
    debounce_seconds: float = 0.5
    stale_after_seconds: float = 900.0
    stale: StalePolicy = "label"

    def batch(self, waiting: Sequence[Waiting], *, begun: bool) -> Sequence[Waiting]:
        """The messages of the next turn, from the oldest; a turn that has begun is not added to here."""
        return waiting[:1] if begun or self.mode == "followup" else waiting

    def hold(self, context: MessageContext, waiting: Sequence[Waiting], now: float) -> float:
        """How long to wait for the rest of what `context`, the last one, is a part of: an album, a paste that was cut."""
        if not context.more or len(waiting) >= BATCH_MAX:
            return 0.0
        return max(0.0, min(waiting[-1].at + MORE_SECONDS - now, MORE_SECONDS))

    def debounce(self, waiting: Sequence[Waiting], now: float) -> float:
        """How long to wait until the chat has been quiet for long enough."""
        if self.mode != "collect" or len(waiting) >= BATCH_MAX:
            return 0.0
        return max(0.0, min(waiting[-1].at + self.debounce_seconds - now, self.debounce_seconds))

    def lateness(self, context: MessageContext, accepted: float, now: float) -> float | None:
        """The age in seconds of a message that is late; None where it is not."""
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
        self._settled = cache(self._settle)

    def of(self, agent: str, context: MessageContext) -> Queue:
        return self._settled(agent, context.channel, context.account)

    def _settle(self, agent: str, channel: str, account: str) -> Queue:
        carrier = self._channels.get((channel, account))
        if carrier and carrier.capabilities.programs:
            return Queue(mode="followup", stale="answer")
        levels = (self._base, carrier.queue if carrier else None, self._agents.get(agent))
        return Queue(**{key: value for level in levels if level for key, value in level if value is not None})
