"""The composition root builds everything, in the order in which a message passes it: lasting parts once, and the parts of a
config with each new one."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from pathlib import Path

import structlog
from starlette.types import ASGIApp

from agents.turn import Emit, silent
from channels.channel import Channel
from channels.web.admission import OPERATOR
from channels.web.views import event
from gateway.app.doors import Doors
from gateway.app.health import HealthWatch
from gateway.app.mcp import ServerWatch
from gateway.app.setup import Lasting, adopt, build_setup, version_of
from gateway.app.upkeep import Upkeep
from gateway.app.worker_notices import WorkerNotices
from gateway.approvals.approvals import Approvals
from gateway.approvals.notices import Notice, Notices
from gateway.commands.catalog import run, take_effect
from gateway.config.exposure import sandboxed
from gateway.config.root import Config
from gateway.guard import VERSION
from gateway.http.connections import Connections
from gateway.http.door import Readiness
from gateway.inbox.intake import Intake
from gateway.inbox.links import ChannelLinks
from gateway.later.gone import GoneChats
from gateway.later.watch import DueWatch
from gateway.observe.logs import logged
from gateway.observe.secrets import Scrubber
from gateway.observe.tracing import Tracing
from gateway.outbox.outbox import Outbox
from gateway.state.runtime import ConfigState, Control, Runtime, Setup
from gateway.store.errors import StoreUnavailable
from gateway.store.store import Store
from gateway.turns.lanes import Lanes
from gateway.turns.sweep import Sweep
from gateway.turns.turns import Turns
from tools.sandbox.sandbox import Sandbox

SCHEDULES_AGAIN_SECONDS = 5.0
RETIRE_SECONDS = 0.5
CANCEL_AGAIN_SECONDS = 5.0

log = structlog.get_logger()


class Gateway:
    """One gateway on an opened store, which it closes. `app` is served between `start` and `close`, over `connections`."""

    def __init__(
        self,
        config: Config,
        environment: Mapping[str, str],
        *,
        store: Store,
        scrubber: Scrubber | None = None,
        emit: Emit = silent,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._background: set[asyncio.Task[None]] = set()
        self._retiring: list[Setup] = []
        """Replaced, and still held by a turn or a send; the oldest first."""
        file, due = config.database.path, asyncio.Event()
        lasting = self._lasting = Lasting(
            store=store,
            scrubber=scrubber or Scrubber(),
            sandbox=Sandbox([Path(file)] if file else []),
            now=now,
            wake=due.set,
        )
        self.tasks, self.ends = lasting.tasks, lasting.ends
        self.runtime = Runtime(
            setup=build_setup(config, environment, lasting),
            scrubber=lasting.scrubber,
            sandbox=lasting.sandbox,
            config_state=ConfigState(version=version_of(config)),
            store=store,
            control=Control(store),
            metrics=lasting.metrics,
            emit=emit,
            now=now,
            tracing=Tracing(config.tracing, VERSION) if config.tracing.endpoint else None,
        )
        self.approvals = Approvals(self.runtime)
        self.notices = Notices(self.runtime)
        self.tasks.serve(self.runtime, self.approvals)
        self.ends.serve(self.runtime, due.set)
        parts = self.runtime, self.approvals, self.tasks, self.ends
        turns = Turns(self.runtime, self.approvals, self.tasks, partial(run, *parts), partial(take_effect, *parts))
        outbox = Outbox(self.runtime, on_gone=GoneChats(self.runtime, self.tell_owners).note)
        self.lanes = Lanes(self.runtime, turns=turns, outbox=outbox)
        self.sweep = Sweep(self.runtime, self.lanes)
        self.due = DueWatch(self.runtime, self.lanes, due, self.ends)
        self.others = WorkerNotices(self.runtime, self.lanes, lasting.live, due.set)
        self._readiness = Readiness(self.runtime, self.sweep)
        self._intake = Intake(self.runtime, self.approvals, self.lanes)
        self._links = ChannelLinks(self.runtime, self._intake, self.spawn)
        self.doors = Doors(self.runtime, self._intake, self.approvals, self.tasks, self._readiness, self.wake)
        self.health = HealthWatch(self.runtime, lambda: self.doors.web, self.tell_owners)
        self._servers = ServerWatch(self.runtime, self.tell_owners)
        self.connections = Connections(config.server, self.doors.peers, self.runtime.metrics)
        self.app: ASGIApp = self.doors

    @property
    def config(self) -> Config:
        return self.runtime.setup.config

    async def join(self) -> None:
        """Becomes a worker of the database that takes up no work of others: what it accepts, it does. Raises
        StoreUnavailable if a shared database does not let it in."""
        await self.runtime.store.start(self.others.receive)
        await self.others.load_choices()
        self._readiness.started = True

    async def start_for_one(self) -> None:
        """Starts for a person at this machine alone: listens to no platform. Raises StoreUnavailable as `join` does."""
        await self.join()
        self.runtime.setup.mcp.start()
        self.warming = self.spawn(self._warm_up())
        self.spawn(self._try_sandbox())

    async def start(self) -> None:
        """Takes up what an earlier process left; readies identities and clients behind. Raises StoreUnavailable."""
        await self.start_for_one()
        taken_up = 0
        try:
            taken_up = await self.sweep.once()
        except StoreUnavailable as error:  # a full or busy disk: not ready, and the sweep keeps trying
            log.error("store_unavailable", error=repr(error))
        channels, agents = self.runtime.setup.channels, self.runtime.setup.runners
        log.info("gateway_started", chats_taken_up=taken_up, channels=len(channels), agents=len(agents))
        await self._links.begin(self.runtime.setup)
        self.runtime.setup.owners.claimed.changed = self._owners_changed
        upkeep = Upkeep(self.runtime, self.tell_owners)
        self.spawn(self.health.run())
        self.spawn(self.health.reach())
        self.spawn(upkeep.prune())
        self.spawn(self._links.unmark())
        self.spawn(upkeep.measure_lag())
        self.spawn(self.sweep.run())
        self.spawn(self._begin_schedules())
        self.spawn(self.approvals.run())
        self.spawn(upkeep.watch_models())
        self.spawn(self._servers.run())

    async def apply(self, config: Config, environment: Mapping[str, str], state: ConfigState) -> None:
        """Puts `config` in force, also for the next model request of running turns. What it no longer has is closed
        with the last turn or send that uses it. Raises OSError if a workspace cannot be opened: the old one holds."""
        before, runtime = self.runtime.setup, self.runtime
        setup = build_setup(config, environment, self._lasting, before)
        gone = [channel for channel in before.channels.values() if channel not in setup.channels.values()]
        await self._links.end(gone)  # of two pollers of one bot none would get anything
        adopt(setup, before)
        runtime.setup, runtime.config_state = setup, state
        self.lanes.resize(before.limits.parallel_turns, setup.limits.parallel_turns)
        if config.server != before.config.server:
            self.doors.adopt(config.server)
            self.connections.adopt(config.server, self.doors.peers)
        web = self.doors.web
        self.doors.build()
        if web is not self.doors.web:
            self._lasting.live.let_go()  # its pages reconnect, to the new one
        self._retiring.append(before)
        setup.mcp.start()
        await self._links.begin(setup)
        self.spawn(self._adopt_schedules())
        self.warming = self.spawn(self._warm_up())
        self.spawn(self._try_sandbox())
        self.spawn(self._retire(before, gone))

    def report(self, state: ConfigState) -> None:
        """Publishes the last reload's result."""
        self.runtime.config_state = state
        self.runtime.metrics.config_refused.set(state.error is not None)
        self.health.look()

    async def tell_owners(self, notice: Notice) -> None:
        """Tells the owners what they should know, as far as the database takes it."""
        with logged("owners_not_told"):
            await self.notices.tell(notice)

    async def _retire(self, setup: Setup, channels: Sequence[Channel]) -> None:
        """Channels that left with this setup may be an earlier one's as well, so setups retire in their order."""
        # No request waits for this.
        while any(self.runtime.uses[it] for it in self._retiring[: self._retiring.index(setup) + 1]):  # noqa: ASYNC110
            await asyncio.sleep(RETIRE_SECONDS)
        del self.runtime.uses[setup]
        self._retiring.remove(setup)
        for runner in setup.runners.values():
            runner.close()
        await setup.mcp.close_all_but(self.runtime.setup.mcp)
        for channel in channels:
            await channel.close()

    async def _try_sandbox(self) -> None:
        """Tries it if some agent's commands need one: the operator who starts the gateway reads whether they will run."""
        agents = sandboxed(self.config)
        if agents and self.runtime.sandbox.report is None:
            report = await self.runtime.sandbox.probe()
            if report.wall:
                log.info("sandbox_ready", sandbox=str(report), agents=agents)
            else:
                hint = "exec refuses every command (EXEC_SANDBOX_UNAVAILABLE): see docs/sandbox.md"
                log.error("no_sandbox", reason=str(report), agents=agents, hint=hint)

    async def _begin_schedules(self) -> None:
        await self._adopt_schedules()
        await self.due.run()

    async def _adopt_schedules(self) -> None:
        """Makes the stored schedules those of the config, however long the database needs to take them."""
        stored = False
        while not stored:
            with logged("schedules_not_stored"):
                await self.due.configure()
                await self.due.end_refused()
                stored = True
            await asyncio.sleep(0 if stored else SCHEDULES_AGAIN_SECONDS)

    async def _warm_up(self) -> None:
        """Each model's client and its SDK, beside the serving: the first reply should not wait for them. A provider that
        only `/model` offers is left alone: an SDK costs a second and tens of megabytes."""
        named = {model.partition("/")[0] for agent in self.config.agents.list for model in agent.model}
        providers = [it for name, it in self.runtime.setup.providers.items() if name in named]
        for error in await asyncio.gather(*(it.warm_up() for it in providers), return_exceptions=True):
            if error is not None:
                log.error("warm_up_failed", exc_info=error)

    async def drain(self) -> None:
        """Readiness turns red, running turns are laid down at a step border; deliveries are still stored."""
        active, grace_seconds = len(self.runtime.control.lanes), self.config.limits.grace_seconds
        hint = "a second signal stops at once"
        log.info("gateway_stopping", chats_at_work=active, grace_seconds=grace_seconds, hint=hint)
        await self.lanes.drain(grace_seconds)
        self._lasting.live.close()  # lets the pages go: their streams would hold the server open

    async def close(self) -> None:
        """Ends everything, after `drain` and after the door has closed."""
        while self._background:  # before Python 3.12 a wait in the database's pool may swallow a cancellation
            for task in self._background:
                task.cancel()
            await asyncio.wait(self._background, timeout=CANCEL_AGAIN_SECONDS)
        await self.others.close()
        await self.runtime.setup.processes.close()
        setups = (self.runtime.setup, *self._retiring)
        for setup in setups:
            await setup.mcp.close()
            for runner in setup.runners.values():
                runner.close()
        for provider in self.runtime.setup.providers.values():
            await provider.close()
        for channel in {channel for setup in setups for channel in setup.channels.values()}:
            await channel.close()
        await self.runtime.languages.close()
        await self.runtime.store.close()
        if self.runtime.tracing:
            await self.runtime.tracing.close()
        log.info("gateway_stopped")

    def wake(self) -> None:
        """Looks at once for what another process has written beside this one."""
        self.lanes.wanted.set()
        self._lasting.wake()

    def offer_link(self) -> str | None:
        """Makes a code that signs in to the web chat once, for the operator who sees the start; None if none is needed."""
        return self.doors.web.admission.offer_link() if self.doors.web else None

    def offer_first_link(self) -> str | None:
        """Make such a code for the operator whose token was made at this start; None with replicas, since another one may
        get the request."""
        return self.doors.web.admission.new_link() if self.doors.web and not self.runtime.store.shared else None

    async def claim_code(self) -> str | None:
        """The code with which a person becomes the owner; None if there is one, or if the database does not say."""
        with suppress(StoreUnavailable):
            return await self.runtime.setup.owners.claim_code(self.runtime.now())
        return None

    def _owners_changed(self) -> None:
        """A claimed owner has a separate menu, and the operator's pages say who owns the bot."""
        self.spawn(self._links.begin(self.runtime.setup))
        self._lasting.live.announce(event("owners", {}), OPERATOR)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        # An empty context: what a /claim starts is not part of its turn, and its log lines must not name that turn.
        task = asyncio.create_task(work, context=Context())
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background_task_failed", task=getattr(task.get_coro(), "__qualname__", ""), exc_info=error)
