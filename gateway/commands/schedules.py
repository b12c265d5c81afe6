"""`/schedules`: a person's reminders and schedules. Alone it lists them; `cancel ID` ends one, however often it is run."""

import re

from gateway.commands.command import CommandContext
from gateway.later.schedule import line_of
from gateway.later.stored import theirs
from gateway.records.sessions import sender_of
from gateway.store.later import Later

_CANCEL = re.compile(r"(?:cancel|delete|取消|删除)\s+(\S{1,64})", re.IGNORECASE)


async def schedules(context: CommandContext) -> str:
    store, say, words = context.runtime.store, context.say, context.arguments.strip()
    if match := _CANCEL.fullmatch(words):
        id_ = match[1].strip("`").upper()
        if id_ not in [it.id for it in await theirs(store, context.message, ended=id_)]:
            return say(
                f"There is no {id_} of yours here. /schedules lists yours.",
                f"这里没有你的 {id_}。/schedules 可查看全部。",
            )
        await store.later.end(id_, "cancelled", owner=sender_of(context.message))
        return say(f"{id_} is cancelled.", f"{id_} 已取消。")
    lines = [f"- {_line(it, context)}" for it in await theirs(store, context.message)]
    if not lines:
        return say(
            "You have no reminders here. Ask for one in your own words, if this assistant has the tool.",
            "这里还没有你的提醒。如果助手有这个工具，直接用自己的话提出即可。",
        )
    head = say(
        f"Your reminders and schedules, in {_zone(context)} (cancel one: /schedules cancel ID):",
        f"你的提醒和定时任务，时区 {_zone(context)}（取消：/schedules cancel 编号）：",
    )
    return "\n".join((head, *lines))


def _line(later: Later, context: CommandContext) -> str:
    id_, _, rest = line_of(later, context.setup.config.server.zone).partition(": ")
    return f"`{id_}` {rest.replace('`', chr(39))}"


def _zone(context: CommandContext) -> str:
    return context.setup.config.server.timezone or "UTC"
