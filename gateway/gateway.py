"""The composition root: everything is built here, once, in the order in which a message passes it."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial

import structlog
from fastapi import FastAPI

from agents.events import Emit, silent
from agents.model import Models
from agents.providers.catalog import build_provider
from agents.providers.provider import Provider
from channels.channel import Arrived, Channel, Connected, DeliveryError, Ignored, Receipt
from channels.web.archive import Archive
from channels.web.channel import WebChannel
from gateway.attachments import Attachments
from gateway.config.channels import Ground, configured
from gateway.config.root import Config
from gateway.connections import Connections
from gateway.delivery import PartSender
from gateway.door import Door, build_app
from gateway.inbound import MENU
from gateway.intake import Intake
from gateway.lanes import Lanes
from gateway.metrics import Metrics
from gateway.queue import Queues
from gateway.routing import aside, chat_session
from gateway.runners import build_runners
from gateway.store.archive import WEB_POKE
from gateway.store.store import Store, StoreUnavailable
from gateway.sweep import Sweep
from gateway.turns import TurnService
from gateway.web import WebDoor

DEDUPE_SECONDS = 7 * 24 * 3600
PRUNE_EVERY_SECONDS = 3600
PROBE_SECONDS = 0.5
PROBE_EVERY_SECONDS = 0.25
IDENTITY_RETRY_SECONDS = 15.0
IDENTITY_TIMEOUT_SECONDS = 10.0
RECONNECT_SECONDS = 5.0
STOP_SECONDS = 5.0
STOP_POLL_SECONDS = 0.05

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
        emit: Emit = silent,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.config = config
        self._now = now
        self._background: set[asyncio.Task[None]] = set()
        self.metrics = Metrics()
        self.store = store
        self.channels = build_channels(config, store.archive, now)
        self.providers = build_providers(config)
        self.models = Models(self.providers, config.providers, config.models)
        self.runners = build_runners(config, self.models, self.channels, environment, now)
        queues = Queues(config.queue, self.channels, config.agents.list)
        limits = config.limits
        self.lanes = Lanes(
            store=store,
            turns=TurnService(
                store=store,
                runners=self.runners,
                channels=self.channels,
                queues=queues,
                attachments=Attachments(archive=store.archive, bytes_max=limits.file_bytes, now=now),
                reply_parts_max=limits.reply_parts,
                draining=lambda: self.lanes.draining,
                stop=lambda sid, before: self.lanes.stop(sid, before),
                emit=emit,
                metrics=self.metrics,
                now=now,
            ),
            send=PartSender(self.channels, give_up_seconds=limits.delivery_seconds, now=now, metrics=self.metrics).send,
            parallel_turns=limits.parallel_turns,
            pending_max=limits.pending_per_session,
            sender_max=limits.pending_per_sender,
            history_turns=max(agent.history_turns for agent in config.agents.list),
            turn_seconds=limits.turn_seconds,
            metrics=self.metrics,
            now=now,
        )
        self.sweep = Sweep(store=store, lanes=self.lanes, metrics=self.metrics, now=now)
        self._intake = Intake(config=config, queues=queues, lanes=self.lanes, now=now)
        door = Door(
            config=config.server,
            channels=self.channels,
            intake=self._intake,
            metrics=self.metrics,
            ready=self._amiss,
            now=now,
        )
        self.connections = Connections(config.server, self.metrics)
        self._web = self._web_door()
        self.app: FastAPI = build_app(door, self._web, config.server)
        self._started = False
        self._probed, self._writes = float("-inf"), False

    async def start(self) -> None:
        """Take up what an earlier process left, and get ready in the background: identities, model clients.

        Raises StoreUnavailable where a shared database does not let this worker in."""
        await self.store.start(self._poked)
        taken_up = 0
        try:
            taken_up = await self.sweep.once()
        except StoreUnavailable as error:  # a full or busy disk: not ready, and the sweep goes on trying
            log.error("store_unavailable", error=repr(error))
        self._started = True
        log.info("gateway_started", chats_taken_up=taken_up, channels=len(self.channels), agents=len(self.runners))
        for channel in self.channels.values():
            self._spawn(self._learn_identity(channel))
            if isinstance(channel, Connected):
                self._spawn(self._keep_connected(channel))
        for provider in self.providers.values():
            self._spawn(provider.warm_up())
        self._spawn(self._prune())
        self._spawn(self.sweep.run())

    async def drain(self) -> None:
        """Readiness turns red, running turns are laid down at a step border; deliveries are still stored."""
        log.info(
            "gateway_stopping", chats_at_work=len(self.lanes.at_work), grace_seconds=self.config.limits.grace_seconds
        )
        await self.lanes.drain(self.config.limits.grace_seconds)
        if self._web is not None:
            self._web.close()

    async def close(self) -> None:
        """After `drain`, and after the door has closed."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for runner in self.runners.values():
            runner.close()
        for provider in self.providers.values():
            await provider.close()
        for channel in self.channels.values():
            await channel.close()
        await self.store.close()
        log.info("gateway_stopped")

    def _web_door(self) -> WebDoor | None:
        channel = self.channels.get((WebChannel.name, WebChannel.account))
        if not isinstance(channel, WebChannel):
            return None
        agents = self.config.agents.list

        def sessions(chat: str, asked: Sequence[str]) -> Sequence[str]:
            known = sorted({*asked, *(it.id for it in agents)})
            main = [chat_session(it, channel.name, channel.account, chat) for it in known]
            return [*main, *map(aside, main)]

        return WebDoor(
            channel,
            agents=agents,
            limits=self.config.limits,
            sessions=sessions,
            stop=self._end_session,
            now=self._now,
        )

    async def _end_session(self, session: str) -> None:
        """Stop what runs there, at whichever worker, and wait for it to have ended, for a while."""
        before = await self.store.archive.newest_turn(session) + 1
        if await self.lanes.stop(session, before):
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    while session in self.lanes.at_work or await self.store.stop(session, before):  # noqa: ASYNC110
                        await asyncio.sleep(STOP_POLL_SECONDS)

    def _poked(self, what: str | None) -> None:
        """Another worker of the same database has something to tell: of a session, of any, or of the web chat."""
        if what != WEB_POKE:
            self.lanes.poked(what)
        elif isinstance(channel := self.channels.get((WebChannel.name, WebChannel.account)), WebChannel):
            channel.live.wake()

    async def _amiss(self) -> Mapping[str, str]:
        if not self._started:
            return {"start": "not started"}
        if self.lanes.draining:
            return {"drain": "stopping"}
        if not await self._takes_writes():
            return {"database": "takes no writes"}
        if not self.store.held():
            return {"lease": "not renewed in time"}
        if (waited := self.sweep.oldest_seconds) > self.config.limits.unanswered_seconds:
            return {"unanswered": f"the oldest message has waited {waited:.0f} s"}
        return {}

    async def _takes_writes(self) -> bool:
        """Asked at most once in a while: whoever may ask for readiness must not make us write at will."""
        if (now := time.monotonic()) - self._probed >= PROBE_EVERY_SECONDS:
            self._probed = now
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self.store.probe()
                self._writes = True
            except (StoreUnavailable, TimeoutError):
                self._writes = False
        return self._writes

    async def _learn_identity(self, channel: Channel) -> None:
        while True:
            try:
                await channel.learn_identity(IDENTITY_TIMEOUT_SECONDS)
            except DeliveryError as error:
                facts = {"channel": channel.name, "account": channel.account, "code": error.code}
                log.error("identity_unknown", error=type(error).__name__, reason=str(error), **facts)
                await asyncio.sleep(IDENTITY_RETRY_SECONDS)
            else:
                return

    async def _keep_connected(self, channel: Connected) -> None:
        """Whatever breaks a channel's connection is logged, and it is made anew."""
        while True:
            try:
                await channel.connect(
                    public_url=self.config.server.public_url, commands=MENU, deliver=partial(self._deliver, channel)
                )
            except Exception as error:  # the connection's edge: the other channels go on
                log.error("connection_failed", channel=channel.name, account=channel.account, exc_info=error)
            await asyncio.sleep(RECONNECT_SECONDS)

    async def _deliver(self, channel: Channel, receipt: Receipt) -> None:
        """Store what a channel has fetched. Raises StoreUnavailable: then it is fetched again."""
        if isinstance(receipt, Arrived):
            outcome = await self._intake.take(channel, receipt)
        elif isinstance(receipt, Ignored):
            facts = {"channel": channel.name, "account": channel.account, "kind": receipt.kind}
            log.info("event_ignored", reason=receipt.reason, **facts)
            outcome = f"ignored: {receipt.reason}"
        else:
            outcome = "answered"
        self.metrics.delivery(channel.name, outcome)

    async def _prune(self) -> None:
        while True:
            try:
                await self.store.prune(self._now() - DEDUPE_SECONDS)
            except StoreUnavailable as error:
                log.error("prune_failed", exc_info=error)
            await asyncio.sleep(PRUNE_EVERY_SECONDS)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def build_channels(config: Config, archive: Archive, now: Callable[[], float]) -> dict[tuple[str, str], Channel]:
    """Every configured account, by channel and account name."""
    ground = Ground(server=config.server, archive=archive, now=now)
    return {
        (account.kind.name, account.name): account.kind.channel(account.config, account.name, ground)
        for account in configured(config.channels)
    }


def build_providers(config: Config) -> dict[str, Provider]:
    """Only those that an agent names: a model SDK costs a second and tens of megabytes."""
    names = {model.partition("/")[0] for agent in config.agents.list for model in agent.model}
    return {name: build_provider(name, config.provider(name)) for name in sorted(names)}
