"""The shared parts of a running gateway: store, turn control, clock, and the setup built from one config.

`Control` carries shutdowns and users' stops to running turns, in any process. A drain lets each turn reach its next
step boundary. A stop is a mark in the database: it cancels a turn of this process immediately, and any other at its
next journal write.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field, replace

from agents.acp.agent import AcpAgents
from agents.config import SessionConfig
from agents.messages import ErrorKind
from agents.providers.provider import Provider
from agents.runner import AgentRunner
from agents.turn import Emit
from channels.abilities import HasCondition, can
from channels.access import ANYBODY, NOT_PAIRED, refusal
from channels.bilingual import Finding
from channels.channel import Channel
from channels.condition import ChannelState
from channels.message import MessageContext, Sender
from channels.web.admission import OPERATOR
from gateway.config.channels import configured
from gateway.config.load import ConfigFile
from gateway.config.problems import Problem
from gateway.config.root import Config, LimitsConfig, route
from gateway.config.server import filled
from gateway.observe.metrics import Metrics
from gateway.observe.secrets import Scrubber
from gateway.observe.tracing import Tracing
from gateway.state.choices import Choices, Languages
from gateway.state.owners import Owners
from gateway.state.queues import Queue, Queues
from gateway.state.reasons import ToolLayers
from gateway.store.errors import Fenced, StoreUnavailable
from gateway.store.inbound import inbound_of
from gateway.store.records import Acceptance, Delivery, Lease, OutboxPart
from gateway.store.sessions import (
    LOCAL_CHANNEL,
    control_session,
    conversation,
    is_open,
    is_owner,
    person_of,
    sees_private,
    session_key,
)
from gateway.store.store import Store
from tools.mcp.server import McpServers
from tools.policy import foreign, holds, permitted
from tools.process import Processes
from tools.sandbox.sandbox import Sandbox

AGENT_CLOSED = "agent-closed"
"""The refusal reason for an agent that bindings now reserve for other users."""


class Drained(Exception):
    """The gateway is stopping: the turn ends at a step boundary and continues after the next start."""


class Stopped(Exception):
    """A user stopped the turn: it ends here, without a reply."""


@dataclass(eq=False, slots=True)
class Lane:
    """A session that this process works on. `turn` is the task of its running turn, `number` that turn's number,
    `revision` the conversation's revision as read; `calling` is set while a tool runs. `ended` is when its last turn
    ended, 0 before the first. `waited_for` is the newest message that was already debounced. `awaiting_slot` is set
    until it gets a slot or has something to send; it then counts against the free slots. `asks_beside` is set while
    a command runs that calls a model. Commands up to `effective` have taken effect."""

    lease: Lease
    turn: asyncio.Task[Sequence[OutboxPart]] | None = None
    number: int = 0
    revision: int = 0
    calling: bool = False
    stopping: bool = False
    ended: float = 0.0
    waited_for: int = 0
    awaiting_slot: bool = True
    asks_beside: bool = False
    effective: int = 0


class Control:
    """`lanes` are the sessions that this process works on, by session id."""

    def __init__(self, store: Store) -> None:
        self.lanes: dict[str, Lane] = {}
        self._store = store
        self._draining = asyncio.Event()

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    def drain(self) -> None:
        """Start nothing new from now on."""
        self._draining.set()

    async def pause(self, seconds: float) -> None:
        """Sleep. Raises Drained as soon as the gateway stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._draining.wait()
            raise Drained

    async def stop(self, sid: str, before: int) -> int:
        """Stop every turn of a session below `before`, on any worker. Return how many messages that affects."""
        concerned = await self._store.stop(sid, before)
        await self.apply_here(sid)
        if not {sid, control_session(sid)} <= self.lanes.keys():
            await self._store.notify(sid)
        return concerned

    async def apply_stop(self, sid: str) -> None:
        """Cancel the running turn of a session if it is stopped, answers a recalled message, or has read content
        that was since recalled; in the last case it continues from its journal. On another worker, send a notice
        instead."""
        if (lane := self.lanes.get(sid)) is None:
            await self._store.notify(sid)
        else:
            await self._apply(lane)

    async def apply_here(self, sid: str) -> None:
        """Apply a stop to a session's turn and to its command that calls a model, if this worker runs them."""
        for it in (sid, control_session(sid)):
            if lane := self.lanes.get(it):
                await self._apply(lane)

    async def _apply(self, lane: Lane) -> None:
        sid = lane.lease.sid
        with suppress(Fenced, StoreUnavailable):  # then the turn's next journal write notices
            state = await self._store.session_state(lane.lease)
            stopped = await self._store.stopped_at(conversation(sid)) if lane.asks_beside else state.stopped
            ends = stopped > lane.number
            if state.revision != lane.revision and not ends:
                bodies = await self._store.bodies(sid, lane.number) if lane.calling else {}
                ends = not lane.calling or any(inbound_of(it).recalled for it in bodies.values())
            if lane.turn is not None and ends:
                lane.stopping = True
                lane.turn.cancel()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Setup:
    """Everything that one config builds. It is replaced as a whole, never in part, so read it once for related
    values."""

    config: Config
    channels: Mapping[tuple[str, str], Channel]
    providers: Mapping[str, Provider]
    runners: Mapping[str, AgentRunner]
    queues: Queues
    layers: ToolLayers
    owners: Owners
    processes: Processes
    """Shared by all setups, which it outlives."""
    acp: AcpAgents
    """The programs that run agents, shared by all setups."""
    mcp: McpServers
    """A server whose config is unchanged continues in the next setup."""

    @property
    def limits(self) -> LimitsConfig:
        return self.config.limits

    @property
    def failing_models(self) -> Mapping[str, ErrorKind]:
        """The models whose last request failed, with the kind of error. Agents share this knowledge."""
        return next(iter(self.runners.values())).models.health.failing

    def channel(self, context: MessageContext) -> Channel | None:
        """Return the channel of a message; None if it is no longer configured."""
        return self.channels.get((context.channel, context.account))

    def outranks(self, agent: str, context: MessageContext, people: Iterable[str]) -> bool:
        """Return whether a turn that answers `context` has a `tools.taint` tool that one of these users
        (`channel:id`) does not have. Their text in its request must then not trigger it without approval."""
        if (runner := self.runners.get(agent)) is None:
            return False
        _, tainted = runner.approval
        of_servers = foreign(runner.config.tools, [name for names in self.mcp.names.values() for name in names])
        names = tuple(it for it in (*runner.names, *of_servers) if holds(tainted, it))
        own = permitted(self.layers.of(context), names)
        senders = (Sender(id=it.partition(":")[2]) for it in people if it != person_of(context))
        others = (replace(context, sender=it, origin=None) for it in senders)
        return any(permitted(self.layers.of(it), own) != own for it in others)

    def has_ranks(self, agent: str, context: MessageContext) -> bool:
        """Return whether a turn that answers `context` may outrank someone. If not, no user needs to be looked up."""
        return bool(self.config.tools.senders) or self.outranks(agent, context, [f"{context.channel}:{ANYBODY}"])

    def session_rules(self, agent: str) -> SessionConfig:
        """Return the agent's session rules, or the defaults if it is no longer configured."""
        runner = self.runners.get(agent)
        return runner.config.session if runner else SessionConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigState:
    """The current config. `problems` are why a newer one was rejected; `restart` lists the keys that need a restart."""

    version: str
    problems: tuple[Problem, ...] = ()
    restart: tuple[str, ...] = ()

    @property
    def error(self) -> str | None:
        return str(self.problems[0]) if self.problems else None


class MemoryQuota:
    """Limit the memory that files use. A file without room waits; smaller ones may overtake it."""

    def __init__(self) -> None:
        self._held = 0
        self._freed = asyncio.Event()

    @asynccontextmanager
    async def hold(self, size: int, most: int) -> AsyncIterator[Callable[[int], None]]:
        """Reserve `size` of `most` bytes. Yield a function that reduces the reservation."""
        while self._held + size > most:
            self._freed.clear()
            await self._freed.wait()
        mine, self._held = size, self._held + size

        def keep(less: int) -> None:
            nonlocal mine
            mine, self._held = less, self._held + less - mine
            self._freed.set()

        try:
            yield keep
        finally:
            keep(0)


REFUSALS: frozenset[ErrorKind] = frozenset(("auth", "billing", "not_found", "unconfigured"))
"""The failures that only a person can resolve."""


@dataclass(eq=False, slots=True)
class ModelTrouble:
    """Model failures that need the operator, in memory only: a new process learns of one when it ends a turn."""

    _untold: dict[str, Finding] = field(default_factory=dict)
    _readers: dict[str, set[str]] = field(default_factory=dict)
    """The owners who have read a model's failure in their own answer."""
    told: set[str] = field(default_factory=set)
    """The models whose failure was passed on, until they answer."""

    def failed(self, model: str, fault: Finding) -> None:
        """Record a failure that ended a turn whose user is not an owner."""
        self._untold.setdefault(model, fault)

    def read(self, model: str, owner: str) -> None:
        self._readers.setdefault(model, set()).add(owner)

    def answered(self, model: str) -> None:
        self._untold.pop(model, None)
        self._readers.pop(model, None)
        self.told.discard(model)

    def untold(self) -> Iterator[tuple[str, Finding, Collection[str]]]:
        """Yield each model with its failure and the owners who know of it; once per failure."""
        while self._untold:
            model, fault = self._untold.popitem()
            self.told.add(model)
            yield model, fault, self._readers.get(model, ())


@dataclass(kw_only=True, slots=True)
class Runtime:
    """One running gateway. Only `setup`, `config_state` and `config_file` ever change. `uses` counts the turns and
    sends that hold each setup. `accept` is set by `Lanes`: it stores a message and starts its lane."""

    setup: Setup
    config_state: ConfigState
    config_file: ConfigFile | None = None
    """The file that the config is reloaded from; None if it never is."""
    uses: Counter[Setup] = field(default_factory=Counter)
    store: Store
    sandbox: Sandbox
    control: Control
    metrics: Metrics
    emit: Emit
    now: Callable[[], float]
    scrubber: Scrubber
    trouble: ModelTrouble = field(default_factory=ModelTrouble)
    memory: MemoryQuota = field(default_factory=MemoryQuota)
    tracing: Tracing | None = None
    choices: Choices = field(init=False)
    languages: Languages = field(init=False)
    accept: Callable[[Delivery], Awaitable[Acceptance]] = field(init=False)
    expect: Callable[[str], None] = field(init=False)
    """Set by `Lanes`: picks up a session that a commit has just added a message to."""
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.choices = Choices(self.store)
        self.languages = Languages(self.store, self.now)
        self.began = self.now()

    def channel_states(self) -> dict[tuple[str, str], ChannelState]:
        """Return the state of each configured account. One that depends on no platform has been ok since the start."""
        own, found = ChannelState(state="ok", since=self.began), {}
        for account in configured(self.setup.config.channels):
            key = account.kind.name, account.name
            channel = self.setup.channels[key]
            found[key] = channel.condition.state if can(channel, HasCondition) else own
        return found

    def queue(self, sid: str, agent: str, context: MessageContext) -> Queue:
        """Return the configured queue, in the mode that was chosen for the conversation."""
        queue, mode = self.setup.queues.of(agent, context), self.choices.queue(sid)
        return replace(queue, mode=mode) if mode else queue

    def agent(self, context: MessageContext, named: str = "") -> str:
        """Return the agent that answers the message: the chosen one, else the `named` one, if they are open to the
        sender now; else the one that the bindings select."""
        setup, chosen = self.setup, self.choices.agent(context)
        if chosen in setup.runners and self.is_open(chosen, context):
            return chosen
        if named and self.is_open(named, context):
            return named
        return route(setup.config.routes, setup.config.agents, context)

    def is_open(self, agent: str, context: MessageContext) -> bool:
        """Return whether the sender may talk to the agent there, by the current config."""
        setup, chosen = self.setup, self.choices.agent(context)
        return is_open(setup.config, setup.owners, agent, context, chosen=chosen)

    async def refusal(self, context: MessageContext, agent: str = "") -> str | None:
        """Return why the sender of an accepted message may no longer write there, or not to `agent`
        (`AGENT_CLOSED`). None if they may, if there is no sender, or if the account is not configured. Raises
        StoreUnavailable."""
        setup, sender = self.setup, context.sender.id
        channel, owners = setup.channel(context), setup.owners
        if channel is None or not sender:
            return None
        if context.channel == LOCAL_CHANNEL and sender not in (OPERATOR, *filled(setup.config.server.users)):
            return "no-user"
        await owners.claimed.verify(context)
        switch, owns = self.choices.listens(context), is_owner(owners, context)
        ids = self.choices.after_migration(context), self.choices.before_migration(context)
        # The old id counts until the operator puts the new one into groupAllowFrom.
        reasons = [refusal(channel.access, replace(it, mentioned=True), is_owner=owns, switch=switch) for it in ids]
        reason = None if None in reasons else reasons[0]
        place = context.channel, context.account, sender
        if reason == NOT_PAIRED and await self.store.contact_state(*place, self.now()) == "paired":
            reason = None
        return AGENT_CLOSED if reason is None and agent and not self.is_open(agent, context) else reason

    def channel(self, context: MessageContext) -> Channel | None:
        """Return the configured channel, or the one that a turn still holds after an edit removed it."""
        channels = (setup.channel(context) for setup in (self.setup, *self.uses))
        return next((channel for channel in channels if channel), None)

    async def sees_private(self, setup: Setup, context: MessageContext) -> bool:
        """Return whether a turn may see the workspace's private files. The database is queried only for users whom
        neither `owners` nor `allowFrom` names, and for the reader of the operator's own turn. Raises
        StoreUnavailable."""
        channel = setup.channel(context)
        if not context.sender.id and context.chat.kind == "direct":
            there = self.choices.before_migration(context)
            reader = await self.store.later.reader([session_key(it, there, "chat") for it in setup.runners])
            context = replace(context, sender=Sender(id=reader or context.chat.id))
        access = channel.access if channel else None
        if sees_private(setup.owners, context, access, is_paired=False):
            return True
        if not sees_private(setup.owners, context, access, is_paired=True):
            return False
        place = context.channel, context.account, context.sender.id
        return await self.store.contact_state(*place, self.now()) == "paired"

    @contextmanager
    def using(self, setup: Setup) -> Iterator[None]:
        """Hold the setup during a turn or a send, so that its channels stay open."""
        self.uses[setup] += 1
        try:
            yield
        finally:
            self.uses[setup] -= 1


class StartGate:
    """Yield to the event loop between turn starts so that webhooks are not starved: a turn begins with several
    milliseconds of blocking work, and fifty in a row would delay fifty webhooks' 200. Its holder waits for nothing
    else, so it cannot block."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        """Wait for an event loop iteration in which no other turn starts."""
        async with self._lock:
            await asyncio.sleep(0)
