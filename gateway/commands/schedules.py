"""`/schedules`: a person's reminders and schedules, and in a group an owner's view of everybody's. Alone it lists them;
`cancel ID` ends one, however often it is run."""

import re
from collections.abc import Sequence

from gateway.approvals.display import value
from gateway.commands.command import CommandContext
from gateway.later.schedule import line_of
from gateway.later.stored import theirs
from gateway.store.later import Later
from gateway.store.sessions import chat_of, sender_of

_CANCEL = re.compile(r"(?:cancel|delete|取消|删除)\s+(\S{1,64})", re.IGNORECASE)


async def schedules(context: CommandContext) -> str:
    say, words = context.say, context.arguments.strip()
    if match := _CANCEL.fullmatch(words):
        return await _cancelled(context, match[1].strip("`"))
    rows = await shown_schedules(context)
    if not rows and _is_everybodys(context):
        return say("This group has no reminders or schedules.", "这个群没有提醒或定时任务。")
    if not rows:
        return say(
            "You have no reminders here. If this agent can set them, just ask for one.",
            "你在这里还没有提醒。如果智能体有这项功能，直接告诉它即可。",
        )
    head = say(
        f"Your reminders and schedules, in {_zone(context)} (cancel one: /schedules cancel ID):",
        f"你的提醒和定时任务，时区 {_zone(context)}（取消：/schedules cancel 编号）：",
    )
    if _is_everybodys(context):
        head = say(
            f"The reminders and schedules of this group, in {_zone(context)} (cancel one: /schedules cancel ID):",
            f"这个群的提醒和定时任务，时区 {_zone(context)}（取消：/schedules cancel 编号）：",
        )
    return "\n".join((head, *(f"- {_line(it, context)}" for it in rows)))


async def _cancelled(context: CommandContext, id_: str) -> str:
    say = context.say
    found = next((it for it in await shown_schedules(context, ended=id_) if it.id.upper() == id_.upper()), None)
    if found is None and _is_everybodys(context):
        return say(
            f"This group has no {id_}. /schedules lists what it has.", f"这个群没有 {id_}。/schedules 可查看全部。"
        )
    if found is None:
        return say(
            f"You have no {id_.upper()} here. /schedules lists what you have.",
            f"这里没有你的 {id_.upper()}。/schedules 可查看全部。",
        )
    if found.owner is None:
        return say(
            f"{found.id} comes from the config. The operator can remove it there, or pause it with "
            f"`schedules pause {found.id}`.",
            f"{found.id} 来自配置文件：管理员可在配置中删除，或用 `schedules pause {found.id}` 暂停。",
        )
    await context.runtime.store.later.end(found.id, "cancelled")
    return say(f"{found.id} is cancelled.", f"{found.id} 已取消。")


async def shown_schedules(context: CommandContext, *, ended: str = "") -> Sequence[Later]:
    """The schedules that the sender may see there. A group that has another id now may have some under its first."""
    store, choices, message = context.runtime.store, context.runtime.choices, context.message
    ids = {it.chat.id: it for it in (choices.after_migration(message), choices.before_migration(message))}
    if _is_everybodys(context):
        found = [await store.later.of_place(chat_of(it), also=ended.upper()) for it in ids.values()]
    else:
        found = [await theirs(store, it, ended=ended.upper()) for it in ids.values()]
    return [*{it.id: it for rows in found for it in rows}.values()]


def _is_everybodys(context: CommandContext) -> bool:
    """True if the sender sees what others have asked for, too: an owner of the bot in a group."""
    return context.message.chat.kind == "group" and context.is_owner


def _line(later: Later, context: CommandContext) -> str:
    id_, _, rest = line_of(later, context.setup.config.server.zone).partition(": ")
    rest = rest.replace("`", "'")
    if later.owner == sender_of(context.message):
        return f"`{id_}` {rest}"
    by = value(later.owner.rpartition(":")[2]) if later.owner else context.say("from the config", "来自配置")
    return f"`{id_}` {value(rest)}{context.aside(by)}"


def _zone(context: CommandContext) -> str:
    return context.setup.config.server.timezone or "UTC"
