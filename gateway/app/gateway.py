"""Composition root: builds everything in the order in which a message passes it. Lasting parts are built once, the parts of
a config on each reload.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from functools import partial
from pathlib import Path

import structlog
from fastapi import FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from agents.turn import Emit, silent
from channels.channel import Channel
from channels.web.admission import OPERATOR
from channels.web.channel import WebChannel
from channels.web.views import event
from gateway.app.health import HealthWatch
from gateway.app.mcp import ServerWatch
from gateway.app.privacy import Erasures
from gateway.app.selfwatch import SelfWatch
from gateway.app.setup import Lasting, adopt, build_setup, version_of
from gateway.app.worker_notices import WorkerNotices
from gateway.approvals.approvals import Approvals
from gateway.approvals.display import value
from gateway.approvals.notices import Notice, Notices
from gateway.commands.catalog import Dispatch
from gateway.config.exposure import sandboxed
from gateway.config.root import Config
from gateway.config.server import ServerConfig
from gateway.http.api import ApiDoor, bytes_max
from gateway.http.bodies import Bodies
from gateway.http.connections import Connections, with_retry
from gateway.http.door import Door, Readiness, Webhooks
from gateway.http.hooks import Hooks
from gateway.http.request import Edge, Guesses, Peers, served
from gateway.inbox.intake import Intake
from gateway.inbox.links import ChannelLinks
from gateway.later.watch import DueWatch, GoneChats
from gateway.later.watched import has_told
from gateway.observe.logs import logged
from gateway.observe.secrets import Scrubber
from gateway.observe.tracing import Tracing
from gateway.operate.scan import AppScan
from gateway.outbox.outbox import Outbox
from gateway.program import VERSION
from gateway.state.runtime import ConfigState, Control, Runtime, Setup
from gateway.state.seal import Seal, key_file
from gateway.store.errors import StoreUnavailable
from gateway.store.later import FORGET, RETENTION, WATCH
from gateway.store.store import Store
from gateway.turns.lanes import Lanes, Sweep
from gateway.turns.tasks import Tasks
from gateway.turns.turns import Turns
from gateway.web.console import Console
from gateway.web.door import WebDoor
from tools.sandbox.sandbox import Sandbox

log = structlog.get_logger()

SCHEDULES_AGAIN_SECONDS = 5.0
RETIRE_SECONDS = 0.5
CANCEL_AGAIN_SECONDS = 5.0


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
        """Replaced setups that a turn or a send still uses, oldest first."""
        file, due = config.database.path, asyncio.Event()
        lasting = self._lasting = Lasting(
            store=store,
            scrubber=scrubber or Scrubber(),
            sandbox=Sandbox([key_file(config), *([Path(file)] if file else [])]),
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
        self.logins = lasting.logins
        self.logins.serve(self.runtime, Seal(environment, key_file(config)), due.set)
        lasting.questions.serve(self.runtime, self.approvals)
        lasting.handovers.serve(self.runtime)
        self.commands = Dispatch(
            runtime=self.runtime, approvals=self.approvals, tasks=self.tasks, ends=self.ends, logins=self.logins
        )
        turns = Turns(self.runtime, self.approvals, self.tasks, self.commands.run, self.commands.take_effect)
        outbox = Outbox(self.runtime, on_gone=GoneChats(self.runtime, self.tell_owners).note)
        self.lanes = Lanes(self.runtime, turns=turns, outbox=outbox)
        self.sweep = Sweep(self.runtime, self.lanes)
        self.privacy = Erasures(self.runtime, self.spawn)
        self.watch = SelfWatch(self.runtime, self.notices.tell, self.spawn)
        begins = {FORGET: self.privacy.begin, RETENTION: self.privacy.begin, WATCH: self.watch.begin}
        self.due = DueWatch(self.runtime, self.lanes, due, self.ends, self.logins, begins)
        self.others = WorkerNotices(self.runtime, self.lanes, lasting.live, due.set)
        self._readiness = Readiness(self.runtime, self.sweep)
        self._intake = Intake(self.runtime, self.approvals, self.lanes)
        self._links = ChannelLinks(self.runtime, self._intake, self.spawn)
        scan = AppScan(self.runtime, self.spawn)
        self.doors = Doors(self.runtime, self._intake, self.approvals, self.tasks, self._readiness, scan, self.wake)
        self.health = HealthWatch(self.runtime, lambda: self.doors.web, self.tell_owners)
        self._servers = ServerWatch(self.runtime, self.tell_owners)
        self.connections = Connections(config.server, self.doors.peers, self.runtime.metrics)
        self.app: ASGIApp = self.doors

    @property
    def config(self) -> Config:
        return self.runtime.setup.config

    async def join(self) -> None:
        """Join the database as a worker that takes over no other worker's messages. Raises StoreUnavailable."""
        await self.runtime.store.start(self.others.receive)
        await self.others.load_choices()
        self._readiness.started = True

    async def start_for_one(self) -> None:
        """Start for one person at this machine, without connecting to a platform. Raises StoreUnavailable."""
        await self.join()
        self.runtime.setup.mcp.start()
        self.warming = self.spawn(self._warm_up())
        self.spawn(self._try_sandbox())

    async def start(self) -> None:
        """Recover the work of earlier processes; connect channels and warm up clients in the background. Raises
        StoreUnavailable."""
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
        """Apply `config`, also to the next model requests of running turns.

        Removed parts are closed with the last turn or send that uses them. Raises OSError if a workspace cannot be opened;
        the old config then stays in force."""
        before, runtime = self.runtime.setup, self.runtime
        setup = build_setup(config, environment, self._lasting, before)
        gone = [channel for channel in before.channels.values() if channel not in setup.channels.values()]
        await self._links.end(gone)  # two pollers of one bot would get nothing
        adopt(setup, before)
        runtime.setup, runtime.config_state = setup, state
        self.lanes.resize(before.limits.parallel_turns, setup.limits.parallel_turns)
        if config.server != before.config.server:
            self.doors.adopt(config.server)
            self.connections.adopt(config.server, self.doors.peers)
        web = self.doors.web
        self.doors.build()
        if web is not self.doors.web:
            self._lasting.live.let_go()  # pages reconnect to the new channel
        self._retiring.append(before)
        setup.mcp.start()
        await self._links.begin(setup)
        self.spawn(self._adopt_schedules())
        self.warming = self.spawn(self._warm_up())
        self.spawn(self._try_sandbox())
        self.spawn(self._retire(before, gone))

    def report(self, state: ConfigState) -> None:
        self.runtime.config_state = state
        self.runtime.metrics.config_refused.set(state.error is not None)
        self.health.look()

    async def tell_owners(self, notice: Notice) -> None:
        """Notify the owners; log an error if the database is unavailable."""
        with logged("owners_not_told"):
            await self.notices.tell(notice)

    async def _retire(self, setup: Setup, channels: Sequence[Channel]) -> None:
        # A removed channel may also belong to an earlier setup, so setups retire in order. No request waits for this.
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
        stored = False
        while not stored:
            with logged("schedules_not_stored"):
                await self.due.configure()
                await self.due.end_refused()
                stored = True
            await asyncio.sleep(0 if stored else SCHEDULES_AGAIN_SECONDS)

    async def _warm_up(self) -> None:
        # Only providers that agents use: an SDK takes a second and tens of megabytes.
        named = {model.partition("/")[0] for agent in self.config.agents.list for model in agent.model}
        providers = [it for name, it in self.runtime.setup.providers.items() if name in named]
        for error in await asyncio.gather(*(it.warm_up() for it in providers), return_exceptions=True):
            if error is not None:
                log.error("warm_up_failed", exc_info=error)

    async def drain(self) -> None:
        """Fail readiness and suspend running turns at a step border; deliveries are still stored."""
        active, grace_seconds = len(self.runtime.control.lanes), self.config.limits.grace_seconds
        hint = "a second signal stops at once"
        log.info("gateway_stopping", chats_at_work=active, grace_seconds=grace_seconds, hint=hint)
        await self.lanes.drain(grace_seconds)
        self._lasting.live.close()  # disconnect pages: open streams would keep the server running

    async def close(self) -> None:
        """Stop everything, after `drain` and after the server has closed its port."""
        while self._background:  # before Python 3.12, a wait in the database pool may swallow a cancellation
            for task in self._background:
                task.cancel()
            await asyncio.wait(self._background, timeout=CANCEL_AGAIN_SECONDS)
        await self.others.close()
        await self.logins.close()
        await self.runtime.setup.processes.close()
        await self.runtime.setup.acp.close()
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
        """Look immediately for work that another process has stored."""
        self.lanes.wanted.set()
        self._lasting.wake()

    def offer_link(self) -> str | None:
        """Return a one-time sign-in code for the operator who sees the start; None if none is needed."""
        return self.doors.web.admission.offer_link() if self.doors.web else None

    def offer_first_link(self) -> str | None:
        """Return a sign-in code for the operator whose token was created at this start.

        None with replicas, since another one may get the request."""
        return self.doors.web.admission.new_link() if self.doors.web and not self.runtime.store.shared else None

    async def claim_code(self) -> str | None:
        """Return the code with which a person becomes the owner; None if there is an owner or no database."""
        with suppress(StoreUnavailable):
            return await self.runtime.setup.owners.claim_code(self.runtime.now())
        return None

    def _owners_changed(self) -> None:
        self.spawn(self._links.begin(self.runtime.setup))  # updates the owners' menus
        self._lasting.live.announce(event("owners", {}), OPERATOR)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        # An empty context: work started by /claim is not part of its turn and must not log its turn id.
        task = asyncio.create_task(work, context=Context())
        self._background.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._background.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("background_task_failed", task=getattr(task.get_coro(), "__qualname__", ""), exc_info=error)


CALLS_AT_ONCE = 2
"""Bodies of `/v1` in memory together are at most this many times the longest."""


class Doors:
    """The HTTP app of the config in force. `web` is its web chat, or None."""

    def __init__(
        self,
        runtime: Runtime,
        intake: Intake,
        approvals: Approvals,
        tasks: Tasks,
        readiness: Readiness,
        scan: AppScan,
        wake: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._intake = intake
        self._approvals = approvals
        self._tasks = tasks
        self._readiness = readiness
        self._scan = scan
        self._wake = wake
        self.adopt(runtime.setup.config.server)
        self.build()

    def adopt(self, config: ServerConfig) -> None:
        """Apply the server's new config; its counters restart."""
        self.peers = Peers(config.trusted_proxies)
        self.bodies = Bodies(config.max_unverified_bytes)
        self._guesses = Guesses(self.peers, per_minute=config.wrong_tokens_per_minute, now=self._runtime.now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with the app of the config in force when the request arrives."""
        await self._app(scope, receive, with_retry(send))

    def build(self) -> None:
        setup = self._runtime.setup
        found = setup.channels.get((WebChannel.name, WebChannel.account))
        self.web = found if isinstance(found, WebChannel) else None
        door = Door(self._runtime, self._intake, self._guesses, self.bodies, self._readiness, self._wake)
        routes: list[BaseRoute] = [
            served("/healthz", door.healthz, "GET"),
            served("/readyz", door.readyz, "GET"),
            served("/wake", door.wake, "POST"),
            served("/metrics", door.metrics, "GET"),
            served("/hooks/{name}", Hooks(self._runtime, self._guesses, self.bodies).post, "POST"),
        ]
        if self.web is not None:
            parts = self._approvals, self._tasks, self._readiness
            console = Console(self._runtime, self.web, *parts, self.bodies)
            edge = self.peers, self._guesses, self.bodies
            routes += WebDoor(self._runtime, self.web, *edge, console, self._scan).routes()
        if setup.config.server.api.open:
            calls = Bodies(CALLS_AT_ONCE * bytes_max(setup.config))
            api = ApiDoor(runtime=self._runtime, intake=self._intake, guesses=self._guesses, bodies=calls)
            routes += api.routes()
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, routes=routes)
        self._app: ASGIApp = Edge(Webhooks(app, door), setup.config.server, self.peers)


DAY_SECONDS = 24 * 3600
DEDUPE_SECONDS = 7 * DAY_SECONDS
PRUNE_EVERY_SECONDS = 3600
LAG_EVERY_SECONDS = 1.0
TROUBLE_EVERY_SECONDS = 5.0


class Upkeep:
    """Background jobs; each method runs until it is cancelled."""

    def __init__(self, runtime: Runtime, tell: Callable[[Notice], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._tell = tell

    async def prune(self) -> None:
        """Delete expired rows periodically. Rows that a turn's layers refer to are kept as long as the layers. A failing
        step does not stop the others."""
        store = self._runtime.store
        while True:
            now, kept = self._runtime.now(), self._runtime.setup.config.console.keep_days * DAY_SECONDS
            steps: Sequence[Callable[[], Awaitable[object]]] = (
                partial(store.prune, now - max(DEDUPE_SECONDS, kept)),
                partial(self._prune_layers, now - kept),
                store.layers.prune_texts,
                self._expire_lines,
                partial(store.files.prune, now),
                *(partial(it.prune, now - DEDUPE_SECONDS) for it in (store.chatter, store.tasks, store.later)),
            )
            for step in steps:
                with logged("prune_failed"):
                    await step()
            await asyncio.sleep(PRUNE_EVERY_SECONDS)

    async def _expire_lines(self) -> None:
        """Delete what remembered groups said too long ago, and everything of those that the config no longer has."""
        runtime, more = self._runtime, True
        while more:
            now = runtime.now()
            more = await runtime.store.chatter.expire(
                {chat: now - seconds for chat, seconds in runtime.setup.config.remembered.items()}
            )

    async def _prune_layers(self, before: float) -> None:
        while await self._runtime.store.layers.prune(before):
            pass

    async def measure_lag(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            with logged("lag_not_measured"):
                self._runtime.metrics.loop_lag.observe(max(0.0, clock() - due))

    async def watch_models(self) -> None:
        """Notify the owners of models that refuse every request."""
        while True:
            await asyncio.sleep(TROUBLE_EVERY_SECONDS)
            for model, fault, readers in self._runtime.trouble.untold():
                en = f"I cannot answer: {value(fault.message.en)}. To do: {fault.fix.en}."
                zh = f"我无法回答：{value(fault.message.zh)}。处理办法：{fault.fix.zh}。"
                if not await has_told(self._runtime, model):
                    await self._tell(Notice(cause=f"model {model}", en=en, zh=zh, known=tuple(readers)))
