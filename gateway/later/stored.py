"""`tools.schedule.Schedules` over the database: a person's own reminders, made and cancelled in a chat."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from channels.api.channel import ApiChannel
from channels.message import MessageContext
from channels.moment import timestamp
from gateway.config.root import Config
from gateway.config.timing import timing_of
from gateway.later.schedule import Schedule, line_of, new_id, row_of, schedule_of
from gateway.store.later import Later
from gateway.store.sessions import agent_of, chat_of, sender_of
from gateway.store.store import Store
from tools.schedule import Planned, ScheduleArguments
from tools.tool import Call, ToolError, repeats, schedule_source


@dataclass(kw_only=True)
class StoredSchedules:
    """`wake` tells the watch that something may be due sooner."""

    store: Store
    config: Config
    now: Callable[[], float]
    wake: Callable[[], None]

    async def create(self, plan: ScheduleArguments, call: Call) -> str:
        limits, zone, now = self.config.limits, self.config.server.zone, float(int(self.now()))
        if call.message.channel == ApiChannel.name:
            raise ToolError("UNSUPPORTED", "a program asks here: nothing can be sent to it later")
        try:
            timing = timing_of(plan.at or "", zone)
        except ValueError as error:
            raise ToolError("INVALID_ARGUMENT", f"'at': {error}") from None
        if timing.next(now, now) is None:
            raise ToolError("INVALID_ARGUMENT", f"'at' lies in the past: it is {timestamp(now, zone)} now")
        if timing.shortest(now) < limits.schedule_min_minutes * 60:
            message = f"too often: at most once in {limits.schedule_min_minutes} minutes (limits.scheduleMinMinutes)"
            raise ToolError("INVALID_ARGUMENT", message)
        schedule = Schedule(
            agent=agent_of(call.session),
            at=timing.text,
            say=plan.say or "",
            task=plan.task or "",
            title=plan.title or "",
            context=_place_of(call.message),
            tainted=call.tainted,
        )
        owner, place = sender_of(call.message), chat_of(call.message)
        row = row_of(schedule, new_id(), place=place, owner=owner, now=now, default=zone)
        most, session = limits.schedules_per_person, call.session
        stored = await self.store.later.create(row, key=call.key, most=most, session=session)
        if stored is None:
            message = (
                f"this person has {limits.schedules_per_person} already; cancel one first (limits.schedulesPerPerson)"
            )
            raise ToolError("TOO_MANY", message)
        self.wake()
        return f"Scheduled. {line_of(stored, zone)}"

    async def listed(self, call: Call) -> Sequence[Planned]:
        found, zone = await theirs(self.store, call.message), self.config.server.zone
        repeats(*(schedule_source(it.id) for it in found))
        return [Planned(line=line_of(it, zone), external=schedule_of(it).tainted) for it in found]

    async def cancel(self, id_: str, call: Call) -> str:
        id_ = id_.strip().upper()
        if id_ not in [it.id for it in await theirs(self.store, call.message, ended=id_)]:
            raise ToolError("NOT_FOUND", "there is no such schedule of this person here; list shows them")
        await self.store.later.end(id_, "cancelled", owner=sender_of(call.message))
        return f"{id_} is cancelled."


def _place_of(message: MessageContext) -> MessageContext:
    """The chat and the person of a message. Of a topic also the message itself: on Feishu only a reply lands there."""
    answered = message.press.message_id if message.press else message.message_id
    id_ = answered if message.chat.thread is not None else ""
    return replace(message.wordless, message_id=id_, press=None, origin=None)


async def theirs(store: Store, message: MessageContext, *, ended: str = "") -> Sequence[Later]:
    """The sender's schedules that a chat may read: in a group those of that group. `ended`: one that is over, too."""
    rows = await store.later.of_owner(sender_of(message), also=ended)
    here = chat_of(message)
    return [it for it in rows if message.chat.kind == "direct" or it.place == here]
