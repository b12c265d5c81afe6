"""The erasures that a serving gateway does by itself: of a person who asked for it, and of turns that are too old.

Both are the operator's (`gateway.operate.sessions`), in a thread, beside the turns of others. Each begins by a row of
`later`, which one worker takes. A person's row stays until they are answered: killed before, the erasure runs again and
finds less. The answer is sent past the outbox, which would keep it, and the row is deleted last, so nothing of the person
is left.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import structlog

from channels.channel import DeliveryError, RateLimited, Unreachable
from channels.message import Outbound, Target
from gateway.commands.privacy import Erasure, erased_text, erasure_json
from gateway.observe.logs import logged
from gateway.operate import sessions
from gateway.operate.sessions import StillAnswered
from gateway.outbox.outbox import idempotency_key
from gateway.state.runtime import Runtime
from gateway.store.erasure import scrub
from gateway.store.later import RETENTION, Later

AGAIN_SECONDS = 30.0
"""Seconds until an erasure or an answer that could not be done is tried again."""
log = structlog.get_logger()


class Erasures:
    """`spawn` runs work in the background until the gateway closes."""

    def __init__(self, runtime: Runtime, spawn: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        self._runtime = runtime
        self._spawn = spawn
        self._busy: set[str] = set()

    def begin(self, row: Later) -> None:
        """Begin the erasure of a row that this worker has taken."""
        if row.id not in self._busy:
            self._busy.add(row.id)
            self._spawn(self._run(row))

    async def _run(self, row: Later) -> None:
        try:
            with logged("erasure_failed"):
                await (self.age() if row.kind == RETENTION else self._forget(row))
        finally:
            self._busy.discard(row.id)

    async def age(self) -> None:
        """Erase the turns that are older than the config says. A conversation that is in use waits for the next night."""
        removed = await asyncio.to_thread(sessions.age, self._runtime.setup.config, self._runtime.now())
        log.info("retention_done", **removed)

    async def _forget(self, row: Later) -> None:
        wish = erasure_json.validate_json(row.body)
        if wish.removed is None:
            config, context = self._runtime.setup.config, wish.context
            who = context.channel, context.sender.id
            try:
                erased = await asyncio.to_thread(sessions.erase, config, person=who)
            except StillAnswered:
                await self._again(row)
                return
            wish = replace(wish, removed=erased.removed)
            log.info("person_forgotten", channel=context.channel, **erased.removed)
            await self._runtime.store.later.rewrite(row.id, erasure_json.dump_json(wish).decode())
        try:
            await self._answer(row, wish)
        except (RateLimited, Unreachable):
            await self._again(row)
            return
        except DeliveryError as error:  # such as a conversation of the page, which went along
            log.info("erasure_not_answered", code=error.code)
        await self._runtime.store.later.drop(row.id)
        if self._runtime.setup.config.database.path is not None:  # the row is in SQLite's log
            await asyncio.to_thread(scrub, self._runtime.setup.config.database)

    async def _answer(self, row: Later, wish: Erasure) -> None:
        channel, chat = self._runtime.setup.channel(wish.context), wish.context.chat
        if channel is not None and wish.removed is not None:
            target = Target(chat=chat.id, thread=chat.thread, reply_to=None)
            part = Outbound(target=target, text=erased_text(wish.removed, wish.language))
            await channel.send(part, idempotency_key(row.id, "0"))

    async def _again(self, row: Later) -> None:
        await self._runtime.store.later.hasten(row.id, self._runtime.now() + AGAIN_SECONDS)
