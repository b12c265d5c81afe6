"""Serve each configured channel: learn the bot's identity, and keep the channel's own connection open if it has one.
A failure is logged and retried; other channels are not affected."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeAlias

import structlog

from channels.abilities import Listens, MarksMessages
from channels.channel import Channel, DeliveryError, NotReady, NotStored, Receipt
from gateway.commands.catalog import menu
from gateway.config.channels import configured
from gateway.inbox.intake import Intake
from gateway.state.runtime import Runtime, Setup
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import inbound_of

MARKS_SECONDS, MARKS_MAX = 900.0, 20
"""The age and number of messages that are checked for leftover marks at startup."""
IDENTITY_RETRY_SECONDS = 15.0
IDENTITY_TIMEOUT_SECONDS = 10.0
RECONNECT_SECONDS = 5.0

Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
log = structlog.get_logger()


class ChannelLinks:
    def __init__(self, runtime: Runtime, intake: Intake, spawn: Spawn) -> None:
        self._runtime = runtime
        self._intake = intake
        self._spawn = spawn
        self._begun: dict[Channel, tuple[Any, list[asyncio.Task[None]]]] = {}
        """The settings that each channel was started with, and its tasks."""

    async def begin(self, setup: Setup) -> None:
        """Start the channels that are not running. Restart a connection whose settings have changed."""
        public_url, entries = setup.config.server.public_url, menu(setup)
        for account in configured(setup.config.channels):
            channel = setup.channels[account.kind.name, account.name]
            facts = account.kind.told(account.config, public_url, (entries, self._owners(channel)))
            if isinstance(channel, Listens) and channel in self._begun and self._begun[channel][0] != facts:
                await self.end([channel])
            if channel not in self._begun:
                tasks = [self._spawn(self._learn_identity(channel))]
                if isinstance(channel, Listens):
                    tasks.append(self._spawn(self._keep_connected(channel)))
                self._begun[channel] = facts, tasks

    async def end(self, channels: Iterable[Channel]) -> None:
        begun = [self._begun.pop(channel) for channel in channels if channel in self._begun]
        leaving = [task for _, tasks in begun for task in tasks]
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)

    async def unmark(self) -> None:
        """Remove the marks left by a process that died between an answer and the end of its turn."""
        with suppress(StoreUnavailable):
            for body in await self._runtime.store.lately_done(self._runtime.now() - MARKS_SECONDS, MARKS_MAX):
                context = inbound_of(body).context
                channel = self._runtime.setup.channel(context)
                if isinstance(channel, MarksMessages):
                    await channel.unmark(context)

    async def _learn_identity(self, channel: Channel) -> None:
        while True:
            try:
                return await channel.learn_identity(IDENTITY_TIMEOUT_SECONDS)
            except DeliveryError as error:
                facts = {"error": type(error).__name__, "reason": str(error), "code": error.code}
                log.error("identity_unknown", channel=channel.name, account=channel.account, **facts)
            except Exception as error:  # the channel's edge, as below
                log.error("identity_unknown", channel=channel.name, account=channel.account, exc_info=error)
            await asyncio.sleep(IDENTITY_RETRY_SECONDS)

    async def _keep_connected(self, channel: Listens) -> None:
        while True:
            setup = self._runtime.setup
            try:
                await channel.connect(
                    public_url=setup.config.server.public_url,
                    commands=menu(setup),
                    owners=self._owners(channel),
                    deliver=partial(self._deliver, channel),
                )
            except Exception as error:  # the connection's edge: the other channels go on
                log.error("connection_failed", channel=channel.name, account=channel.account, exc_info=error)
            await asyncio.sleep(RECONNECT_SECONDS)

    def _owners(self, channel: Channel) -> tuple[str, ...]:
        named = (it.partition(":") for it in self._runtime.setup.owners)
        return tuple(person for platform, _, person in named if platform == channel.name)

    async def _deliver(self, channel: Channel, receipt: Receipt) -> None:
        """Store what a channel has fetched. Raises NotStored, after which the channel fetches it again, without
        limit."""
        try:
            outcome = await self._intake.receive(channel, receipt)
        except (StoreUnavailable, NotReady) as error:
            raise NotStored from error
        self._runtime.metrics.deliveries.labels(channel.name, outcome).inc()
