"""What the parts of a running gateway share: the store, the control of turns, the clock, and what one config builds.

`Control` is how the end of the process and a person's stop reach a running turn, whoever runs it. A drain lets each turn
come to its next step border; a stop is a mark in the database, which cancels the turn at once where it runs in this
process and is seen by its next journal write anywhere else.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace

from agents.config import SessionConfig
from agents.providers.provider import Provider
from agents.runner import AgentRunner
from agents.turn import Emit
from channels.channel import Channel
from channels.message import MessageContext
from gateway.approvals.approvals import Approvals
from gateway.choices import Choices
from gateway.config.root import Config, LimitsConfig
from gateway.layers import ToolLayers
from gateway.metrics import Metrics
from gateway.queue import Queue, Queues
from gateway.scrubber import Scrubber
from gateway.store.records import Acceptance, Delivery, Lease, Part
from gateway.store.store import Fenced, Store, StoreUnavailable
from gateway.tracing import Tracing
from tools.processes import Processes
from tools.sandbox.sandbox import Sandbox


class Drained(Exception):
    """The gateway is stopping: the turn ends at a step border and goes on after the next start."""


class Stopped(Exception):
    """Somebody stopped the turn: it ends here, without a reply."""


@dataclass(eq=False, slots=True)
class Lane:
    """One session that this process works for. `turn` is the task of its running turn, `number` that turn's; `ended` is
    when its last turn ended, 0 before the first. `awaiting_slot` until it has had one or something to send: it counts
    against the free slots meanwhile."""

    lease: Lease
    turn: asyncio.Task[Sequence[Part]] | None = None
    number: int = 0
    stopping: bool = False
    ended: float = 0.0
    awaiting_slot: bool = True


class Control:
    """`lanes` are the sessions that this process works for, by session id."""

    def __init__(self, store: Store) -> None:
        self.lanes: dict[str, Lane] = {}
        self._store = store
        self._draining = asyncio.Event()

    @property
    def draining(self) -> bool:
        return self._draining.is_set()

    def drain(self) -> None:
        """From here on nothing new begins."""
        self._draining.set()

    async def pause(self, seconds: float) -> None:
        """Sleep. Raises Drained as soon as the gateway stops."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._draining.wait()
            raise Drained

    async def stop(self, sid: str, before: int) -> int:
        """Stop every turn of a session below `before`, wherever it runs; returns how many messages that concerns."""
        concerned = await self._store.stop(sid, before)
        if concerned:
            await self.apply_stop(sid)
        return concerned

    async def apply_stop(self, sid: str) -> None:
        """Cancel the running turn of a session if it is marked as stopped; another worker is notified of its own."""
        lane = self.lanes.get(sid)
        if lane is None:
            await self._store.notify(sid)
            return
        with suppress(Fenced, StoreUnavailable):  # then the turn's next journal write notices
            state = await self._store.session_state(lane.lease)
            if lane.turn is not None and state.stopped > lane.number:
                lane.stopping = True
                lane.turn.cancel()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Setup:
    """What one config builds. It is replaced as a whole, never in part; whoever needs two things of it takes it once."""

    config: Config
    channels: Mapping[tuple[str, str], Channel]
    providers: Mapping[str, Provider]
    runners: Mapping[str, AgentRunner]
    queues: Queues
    layers: ToolLayers
    processes: Processes
    """The same one in every setup: it outlives them."""

    @property
    def limits(self) -> LimitsConfig:
        return self.config.limits

    def channel(self, context: MessageContext) -> Channel | None:
        """That a message came by; None where it is no longer configured."""
        return self.channels.get((context.channel, context.account))

    def session_rules(self, agent: str) -> SessionConfig:
        """The defaults for one that is no longer configured."""
        runner = self.runners.get(agent)
        return runner.config.session if runner else SessionConfig()


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigState:
    """Which config is in force; `error` is why a newer one is not, `restart` the keys that want a restart."""

    version: str
    error: str | None = None
    restart: tuple[str, ...] = ()


@dataclass(kw_only=True, slots=True)
class Runtime:
    """One running gateway. Only `setup` and what says which one it is ever change. `turns` counts the running ones of each
    setup. `accept` stores a message and starts its lane; the lanes are it."""

    setup: Setup
    config_state: ConfigState
    turns: Counter[Setup] = field(default_factory=Counter)
    store: Store
    sandbox: Sandbox
    control: Control
    metrics: Metrics
    emit: Emit
    now: Callable[[], float]
    scrubber: Scrubber
    tracing: Tracing | None = None
    choices: Choices = field(init=False)
    approvals: Approvals = field(init=False)
    accept: Callable[[Delivery], Awaitable[Acceptance]] = field(init=False)

    def __post_init__(self) -> None:
        self.choices = Choices(self.store)
        self.approvals = Approvals(self)

    def queue(self, sid: str, agent: str, context: MessageContext) -> Queue:
        """As the config says, in the mode that was chosen for the conversation."""
        queue, mode = self.setup.queues.of(agent, context), self.choices.queue(sid)
        return replace(queue, mode=mode) if mode else queue

    @contextmanager
    def using(self, setup: Setup) -> Iterator[None]:
        """A turn runs on it: it is not to be closed."""
        self.turns[setup] += 1
        try:
            yield
        finally:
            self.turns[setup] -= 1


class Gate:
    """One chat begins at a time, and between two the event loop answers what has arrived: a turn begins with some
    milliseconds of work in one piece, and fifty in a row would keep fifty webhooks waiting for their 200. Whoever is in it
    waits for nobody, so nobody can block it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def enter(self) -> None:
        """Wait for a turn of the event loop in which nobody else begins."""
        async with self._lock:
            await asyncio.sleep(0)
