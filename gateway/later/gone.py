"""A chat that is gone: what happens by itself there is paused, and the owners are told once.

A person who blocks the bot, or a group that removes it, would else cost a request to a model at each due time, for ever.
The message that could not be sent names its cause. A schedule is paused until the operator lets it go on; a hook refuses
events for a day, or until its `to` is another chat.
"""

from collections.abc import Awaitable, Callable, Sequence

import structlog

from gateway.approvals.display import value
from gateway.approvals.notices import Notice
from gateway.config.places import place_in
from gateway.later.schedule import UNREADABLE, schedule_of
from gateway.observe.logs import logged
from gateway.outbox.outbox import payload_json
from gateway.program import program
from gateway.state.runtime import Runtime
from gateway.store.inbound import inbound_of
from gateway.store.later import Later
from gateway.store.records import OutboxPart

NAMED_MAX = 5
"""Schedules that the line to the owners names."""

log = structlog.get_logger()


class GoneChats:
    """`tell` tells the owners."""

    def __init__(self, runtime: Runtime, tell: Callable[[Notice], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._tell = tell

    async def note(self, part: OutboxPart, reason: str) -> None:
        """Pause what sent this part, and what else would come to the same chat. Idempotent, and repeated after a crash:
        the owners are told first."""
        with logged("gone_chat_not_noted"):
            body = await self._runtime.store.owners.message(part.turn)
            origin = inbound_of(body).context.origin if body else None
            if origin is None:
                return
            payload = payload_json.validate_json(part.payload)
            target = payload.part.target
            place = f"{payload.channel}:{payload.account}:{target.chat}"
            cause = origin.id if origin.kind == "schedule" else ""
            rows = {it.id: it for it in await self._rows(place, cause) if it.state == "active"}
            ids = [id_ for id_, it in rows.items() if id_ == cause or self._thread(it) == target.thread]
            hook = origin.id if origin.kind == "hook" and not self._rests(origin.id) else ""
            if not ids and not hook:
                return
            log.warning("gone_chat_rests", schedules=ids, hook=hook or None, chat=target.chat)
            await self._tell(_notice(place, reason, ids, hook, part.turn))
            await self._runtime.store.later.rest(ids)
            if hook and (known := self._runtime.setup.config.hooks.get(hook)):
                now = self._runtime.now()
                await self._runtime.choices.rest(hook, known.to, turn=part.turn, at=now)

    async def _rows(self, place: str, cause: str) -> list[Later]:
        """The schedules of the chat, and the one that is the message's cause: the config may name a person instead."""
        later = self._runtime.store.later
        return [*await later.of_place(place), *await later.of_id(cause)]

    def _thread(self, row: Later) -> str | None:
        """The topic that a schedule is for; empty, and so no topic's, if it cannot be read."""
        try:
            schedule = schedule_of(row)
            if schedule.context is not None:
                return schedule.context.chat.thread
            return place_in(self._runtime.setup.config.channels, schedule.to).thread
        except UNREADABLE:
            return ""

    def _rests(self, hook: str) -> bool:
        known = self._runtime.setup.config.hooks.get(hook)
        return known is None or self._runtime.choices.rests(hook, known.to, self._runtime.now())


def _notice(place: str, reason: str, ids: Sequence[str], hook: str, turn: int) -> Notice:
    chat, why, name = value(place), value(reason), program()
    named = ", ".join(value(it) for it in ids[:NAMED_MAX]) + (" …" if len(ids) > NAMED_MAX else "")
    en, zh = f"I cannot reach {chat} any more: {why}.", f"无法再联系 {chat}：{why}。"
    if ids:
        en += f" What I do there by itself is paused ({named}). `{name} schedules pause ID` lets one go on."
        zh += f"那里的定时任务已暂停（{named}）。可用 `{name} schedules pause 编号` 恢复。"
    if hook:
        en += f" The hook {value(hook)} refuses events for a day, or until its `to` is changed."
        zh += f"钩子 {value(hook)} 在一天内拒绝事件，修改其 `to` 后立即恢复。"
    return Notice(cause=f"gone {place}", once=f"gone {turn}", en=en, zh=zh)
