"""The composition root: everything is built here, in the order in which a message passes it: what lasts once, and what one
config builds whenever there is a new one."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

from agents.turn import Emit, silent
from channels.channel import Channel
from channels.web.channel import WebChannel
from gateway.api.door import ApiDoor
from gateway.choices import CHOICES_NOTICE
from gateway.config.channels import sandboxed
from gateway.config.report import VERSION
from gateway.config.root import Config
from gateway.connections import Connections
from gateway.door import Door, build_app
from gateway.intake import Intake
from gateway.lanes import Lanes
from gateway.listening import Listening
from gateway.metrics import Metrics
from gateway.outbox import Outbox
from gateway.readiness import Readiness
from gateway.replicas import LIVE_NOTICE, Replicas
from gateway.request import Guesses, Peers
from gateway.runtime import ConfigState, Control, Runtime, Setup
from gateway.scrubber import Scrubber
from gateway.setup import adopt, build_setup, version_of
from gateway.store.archive import WEB_NOTICE
from gateway.store.store import Store, StoreUnavailable
from gateway.sweep import Sweep
from gateway.tracing import Tracing
from gateway.turns import Turns
from gateway.web import WebDoor
from tools.sandbox.sandbox import Sandbox

DEDUPE_SECONDS = 7 * 24 * 3600
PRUNE_EVERY_SECONDS = 3600
LAG_EVERY_SECONDS = 1.0
CHOICES_RETRY_SECONDS = 5.0
RETIRE_SECONDS = 0.5

log = structlog.get_logger()


class Gateway:
    """One running gateway on an opened store, which it closes. `app` is what a server serves between `start` and `close`,
    over `connections`."""

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
        self._replicas: Replicas | None = None
        self._retiring: list[Setup] = []
        """Replaced, and still at work for a turn."""
        self._loading: set[asyncio.Task[None]] = set()
        """Short calls of the database, which are waited for: one that is cancelled in the middle can hang in its driver."""
        scrubber = scrubber or Scrubber()
        file = config.database.path
        sandbox = Sandbox([Path(file)] if file else [])
        metrics = Metrics()
        self._build = partial(build_setup, store=store, scrubber=scrubber, now=now, sandbox=sandbox, metrics=metrics)
        self.runtime = Runtime(
            setup=self._build(config, environment),
            scrubber=scrubber,
            sandbox=sandbox,
            config_state=ConfigState(version=version_of(config)),
            store=store,
            control=Control(store),
            metrics=metrics,
            emit=emit,
            now=now,
            tracing=Tracing(config.tracing, VERSION) if config.tracing.endpoint else None,
        )
        self.lanes = Lanes(self.runtime, turns=Turns(self.runtime), outbox=Outbox(self.runtime))
        self.sweep = Sweep(self.runtime, self.lanes)
        self._readiness = Readiness(self.runtime, self.sweep)
        self._intake = Intake(self.runtime, self.lanes)
        self._listening = Listening(self.runtime, self._intake, self.spawn)
        self._peers = Peers(config.server.trusted_proxies)
        self._guesses = Guesses(self._peers, per_minute=config.server.wrong_tokens_per_minute, now=now)
        self.connections = Connections(config.server, self._peers, self.runtime.metrics)
        self._web, self._served = self._doors()

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            """The doors of the config that holds when a request arrives."""
            await self._served(scope, receive, send)

        self.app: ASGIApp = app

    @property
    def config(self) -> Config:
        return self.runtime.setup.config

    def _doors(self) -> tuple[WebChannel | None, ASGIApp]:
        setup = self.runtime.setup
        door = Door(self.runtime, self._intake, self._guesses, ready=self._readiness.failing)
        api = ApiDoor(runtime=self.runtime, intake=self._intake, guesses=self._guesses)
        web = setup.channels.get((WebChannel.name, WebChannel.account))
        if not isinstance(web, WebChannel):
            return None, build_app(door, None, api, setup.config.server, self._peers)
        self._replicas = Replicas(web.live, self.runtime.store, self._soon) if self.runtime.store.shared else None
        web_door = WebDoor(self.runtime, web, self._peers, self._guesses)
        return web, build_app(door, web_door, api, setup.config.server, self._peers)

    async def start_for_one(self) -> None:
        """For a person at this machine alone: nothing that others wait for is taken up, and no platform is listened to.

        Raises StoreUnavailable where a shared database does not let this worker in."""
        await self.runtime.store.start(self._notified)
        await self._load_choices()
        self._readiness.started = True
        self.warming = self.spawn(self._warm_up())
        self.spawn(self._try_sandbox())

    async def start(self) -> None:
        """Take up what an earlier process left, and get ready in the background: identities, model clients.

        Raises StoreUnavailable where a shared database does not let this worker in."""
        await self.start_for_one()
        taken_up = 0
        try:
            taken_up = await self.sweep.once()
        except StoreUnavailable as error:  # a full or busy disk: not ready, and the sweep goes on trying
            log.error("store_unavailable", error=repr(error))
        channels, agents = self.runtime.setup.channels, self.runtime.setup.runners
        log.info("gateway_started", chats_taken_up=taken_up, channels=len(channels), agents=len(agents))
        self._listening.begin(channels.values())
        self.spawn(self._prune())
        self.spawn(self._listening.unmark())
        self.spawn(self._watch_loop())
        self.spawn(self.sweep.run())
        self.spawn(self.runtime.approvals.run())

    async def apply(self, config: Config, environment: Mapping[str, str], state: ConfigState) -> None:
        """From here on `config` holds: for whatever begins, and for the next model request of what runs. What is gone from
        it is closed when the last turn that began with it is over. Raises OSError where a workspace cannot be opened;
        then the old one holds."""
        before, runtime = self.runtime.setup, self.runtime
        setup = self._build(config, environment, before=before)
        gone = [channel for channel in before.channels.values() if channel not in setup.channels.values()]
        await self._listening.end(gone)  # of two pollers of one bot none would get anything
        adopt(setup, before)
        runtime.setup, runtime.config_state = setup, state
        self.lanes.resize(before.limits.parallel_turns, setup.limits.parallel_turns)
        if config.server != before.config.server:
            self._peers = Peers(config.server.trusted_proxies)
            self._guesses = Guesses(self._peers, per_minute=config.server.wrong_tokens_per_minute, now=runtime.now)
            self.connections.adopt(config.server, self._peers)
        web = self._web
        self._web, self._served = self._doors()
        if web is not None and web is not self._web:
            web.live.close()  # its pages come back, to the new one
        self._listening.begin(setup.channels.values())
        self.warming = self.spawn(self._warm_up())
        self.spawn(self._try_sandbox())
        self.spawn(self._retire(before, gone))

    def report(self, state: ConfigState) -> None:
        """What became of the newest config, where an operator looks."""
        self.runtime.config_state = state
        self.runtime.metrics.config_refused.set(state.error is not None)
        if self._web is not None:
            self._web.report(state.error or "")

    async def _retire(self, setup: Setup, channels: Sequence[Channel]) -> None:
        self._retiring.append(setup)
        while self.runtime.turns[setup]:  # noqa: ASYNC110 - nobody waits for it
            await asyncio.sleep(RETIRE_SECONDS)
        del self.runtime.turns[setup]
        self._retiring.remove(setup)
        for runner in setup.runners.values():
            runner.close()
        for channel in channels:
            await channel.close()

    async def _try_sandbox(self) -> None:
        """Where some agent's commands need one: whoever starts the gateway reads whether they will run."""
        agents = sandboxed(self.config)
        if agents and self.runtime.sandbox.report is None:
            report = await self.runtime.sandbox.probe()
            if report.wall:
                log.info("sandbox_ready", sandbox=str(report), agents=agents)
            else:
                hint = "exec refuses every command (EXEC_SANDBOX_UNAVAILABLE): see docs/sandbox.md"
                log.error("no_sandbox", reason=str(report), agents=agents, hint=hint)

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
        if self._web is not None:
            self._web.live.close()  # lets the pages go: their streams would hold the server open

    async def close(self) -> None:
        """After `drain`, and after the door has closed."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, *self._loading, return_exceptions=True)
        await self.runtime.setup.processes.close()
        for setup in (self.runtime.setup, *self._retiring):
            for runner in setup.runners.values():
                runner.close()
        for provider in self.runtime.setup.providers.values():
            await provider.close()
        for channel in self.runtime.setup.channels.values():
            await channel.close()
        await self.runtime.store.close()
        if self.runtime.tracing:
            await self.runtime.tracing.close()
        log.info("gateway_stopped")

    def offer_link(self) -> str | None:
        """A code that signs in to the web chat once, for whoever sees the start; None where there is no need."""
        return self._web.admission.offer_link() if self._web else None

    def _notified(self, what: str | None) -> None:
        """Another worker of the same database has something to tell: of a session, of any, or of the web chat."""
        # None also where this worker has come back: it may have missed one.
        if what in (CHOICES_NOTICE, None) and not self.runtime.control.draining:
            self._soon(self._load_choices())
        if what is not None and what.startswith(LIVE_NOTICE):
            if self._replicas:
                self._replicas.take(what)
        elif what == WEB_NOTICE and self._web:
            self._web.live.announce(None)
        elif what not in (WEB_NOTICE, CHOICES_NOTICE):
            self.lanes.notified(what)

    def _soon(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)

    async def _load_choices(self) -> None:
        try:
            await self.runtime.choices.load()
        except StoreUnavailable as error:
            log.error("choices_not_loaded", error=repr(error))
            asyncio.get_running_loop().call_later(CHOICES_RETRY_SECONDS, self._notified, CHOICES_NOTICE)

    async def _watch_loop(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            self.runtime.metrics.loop_lag.observe(max(0.0, clock() - due))

    async def _prune(self) -> None:
        while True:
            try:
                await self.runtime.store.prune(self.runtime.now() - DEDUPE_SECONDS)
                await self.runtime.store.archive.prune(self.runtime.now())
                await self.runtime.store.chatter.prune(self.runtime.now() - DEDUPE_SECONDS)
            except StoreUnavailable as error:
                log.error("prune_failed", exc_info=error)
            await asyncio.sleep(PRUNE_EVERY_SECONDS)

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
