"""An owner's acts: claiming the bot, switching a group on and off, and the buttons under notices.

Each may run twice, when its process dies before its reply is stored: what it changes names the message that it was.
"""

import structlog

from channels.abilities import LeavesGroups
from channels.access import GROUP_DISABLED, Switch, group_refusal
from channels.channel import DeliveryError
from channels.message import MessageContext
from gateway.approvals.display import value
from gateway.approvals.notices import OWN, Choice, Notice, Notices, buttons, notice_json
from gateway.commands.command import CommandContext, Reply
from gateway.commands.pair import let_in
from gateway.records.inbound import inbound_of
from gateway.records.sessions import LOCAL_PERSON
from gateway.state.owners import OWNERS_NOTICE

ONLY_OWNERS = "owners"
TOOLS = "mcp"
"""The act of a button that accepts a server's tools: `own:mcp:SERVER:DIGEST`."""
log = structlog.get_logger()


async def tell(context: CommandContext) -> Reply:
    """A notice: with buttons if the channel has them, otherwise with the line to type."""
    notice = notice_json.validate_json(context.arguments)
    text = context.say(notice.en, notice.zh)
    if context.has_buttons:
        return Reply(text=text, buttons=buttons(notice.choices, zh=context.language == "zh"))
    return Reply(text=f"{text} `{notice.typed}`" if notice.typed else text)


async def claim(context: CommandContext) -> str | None:
    """`/claim XXXX-XXXX`: the first person with the code becomes the owner. Nothing tells a wrong code from a spent one, or
    from one that came too late; wrong ones count as those of `/pair` do."""
    if not context.arguments:
        return context.say(
            "Send it with the code that the start of the gateway prints: `/claim XXXX-XXXX`.",
            "请附上网关启动时显示的认领码：`/claim XXXX-XXXX`。",
        )
    if context.message.chat.kind == "group":
        return context.say(
            "Send it to me in a direct chat: who reads a code here could use it.",
            "请在私聊中发送：群里的人都能看到认领码。",
        )
    setup, runtime, owners = context.setup, context.runtime, context.setup.owners
    code = "" if setup.config.owners else context.arguments
    channel, message = setup.channel(context.message), context.message
    name = (await channel.enrich(message)).sender.name if channel else None
    place = message.channel, message.account, message.sender.id
    found = await runtime.store.owners.claim(code, place, name, turn=context.turn, at=runtime.now())
    if found != "claimed":
        log.warning(f"claim_{found}", by=context.person)
        return None if found == "muted" else _no_such_code(context)
    await owners.claimed.load()
    await runtime.store.notify(OWNERS_NOTICE)
    log.info("bot_claimed", by=context.person)
    return _yours(context)


def _no_such_code(context: CommandContext) -> str:
    return context.say(
        "There is no such code: it may be wrong, used, or older than a day.",
        "没有这个认领码：可能有误、已使用，或已超过一天。",
    )


def _yours(context: CommandContext) -> str:
    text = context.say(
        "This bot is yours now: you are its owner. I will write to you here when a person waits or something breaks.",
        "这个机器人现在归你所有。有人等待批准或出现故障时，我会在这里通知你。",
    )
    if context.person == LOCAL_PERSON or ("web", "default") not in context.setup.channels:
        return text
    return text + context.say(
        f' The web page is no owner any more; `owners: ["{LOCAL_PERSON}"]` in the config makes it one again.',
        f'网页不再是所有者；在配置中写入 `owners: ["{LOCAL_PERSON}"]` 可恢复。',
    )


async def listen(context: CommandContext) -> str:
    """`/listen` switches the bot on in a group, `/listen owners` for owners alone."""
    word = context.arguments.strip().lower()
    if word not in ("", ONLY_OWNERS):
        return context.say("It is `/listen` or `/listen owners`.", "用法：`/listen` 或 `/listen owners`。")
    return await _switch(context, context.message, "owners" if word else "on")


async def unlisten(context: CommandContext) -> str:
    return await _switch(context, context.message, "off")


async def _switch(context: CommandContext, there: MessageContext, switch: Switch) -> str:
    channel = context.setup.channel(there)
    if there.chat.kind != "group" or channel is None:
        return context.say("Send it in the group.", "请在群里发送。")
    if channel.access.group_policy == "disabled":
        return _disabled(context)
    choices, now = context.runtime.choices, context.runtime.now()
    await choices.choose_listening(there, switch, turn=context.turn, at=now)
    log.info("group_switched", channel=there.channel, account=there.account, chat=there.chat.id, to=switch)
    match switch:
        case "on":
            return context.say("I listen in this group now.", "我现在会回应本群的消息。")
        case "owners":
            return context.say("I listen to owners alone in this group now.", "我现在只回应本群中的所有者。")
        case "off":
            return context.say("I do not listen in this group any more.", "我不再回应本群的消息。")


def _disabled(context: CommandContext) -> str:
    return context.say(
        "The config switches all groups off (`groupPolicy: disabled`).",
        "配置已关闭所有群聊（`groupPolicy: disabled`）。",
    )


async def unheard(context: CommandContext) -> str:
    """The line to an owner who mentions the bot in a group that it does not listen in."""
    if context.arguments == GROUP_DISABLED:
        return _disabled(context)
    return context.say(
        "I do not listen in this group yet. Send `/listen` here to switch me on.",
        "我还没有在本群启用。在这里发送 `/listen` 即可启用。",
    )


async def join(context: CommandContext) -> str | None:
    """The bot was added to a group: the owners hear of it, and if it listens there it introduces itself."""
    message, channel = context.message, context.setup.channel(context.message)
    if channel is None:
        return None
    there = await channel.enrich(message)
    refused = group_refusal(channel.access, message.chat.id, context.runtime.choices.listens(message))
    await Notices(context.runtime).tell(_joined(context, there, refused))
    return None if refused else channel.access.introduction or None


def _joined(context: CommandContext, there: MessageContext, refused: str | None) -> Notice:
    """A notice to the owners. Each group that an owner adds is a separate cause; any other person is one cause."""
    group, by = f"`{there.channel}:{there.chat.id}`", f"{there.channel}:{there.sender.id}"
    title = f"{value(there.chat.title)} ({group})" if there.chat.title else group
    who = f"{value(there.sender.name)} (`{by}`)" if there.sender.name else f"`{by}`"
    states = {
        None: ("I listen there, as the config says.", "按配置，我会回应该群的消息。"),
        "group-disabled": ("All groups are switched off (`groupPolicy`).", "所有群聊已关闭（`groupPolicy`）。"),
    }
    en, zh = states.get(refused, ("I do not listen there yet.", "我还没有在该群启用。"))
    acts = {None: ("owners", "leave"), "group-disabled": ("leave",)}.get(refused, ("listen", "owners", "leave"))
    return Notice(
        cause=f"added {there.account} {there.chat.id if context.is_owner else by}",
        once=f"added {context.turn}",
        en=f"{who} added me to the group {title}. {en}",
        zh=f"{who} 把我加入了群 {title}。{zh}",
        choices=tuple(_GROUP_CHOICES[act](f"{OWN}{act}:{context.turn}") for act in acts),
    )


_GROUP_CHOICES = {
    "listen": lambda token: Choice(token=token, en="Listen here", zh="在此启用"),
    "owners": lambda token: Choice(token=token, en="Only owners", zh="仅所有者"),
    "leave": lambda token: Choice(token=token, en="Leave", zh="退出群聊", danger=True),
}


async def press(context: CommandContext, token: str) -> Reply | str:
    """A button under a notice; the notice is replaced by the outcome."""
    act, _, number = token.removeprefix(OWN).partition(":")
    if act == TOOLS and context.message.press is not None:
        server, _, digest = number.partition(":")
        text = await accept_tools(context, server, digest)
        return Reply(text=text, replaces=context.message.press.message_id if context.is_owner else None)
    body = await context.runtime.store.owners.message(int(number)) if number.isdecimal() else None
    if not context.is_owner or body is None or context.message.press is None:
        return context.not_your_button
    about, replaces = inbound_of(body).context, context.message.press.message_id
    match act:
        case "in" | "refuse":
            text = await let_in(context, int(number), "let in" if act == "in" else "refuse")
        case "listen" | "owners":
            text = await _switch(context, about, "on" if act == "listen" else "owners")
        case "leave":
            text = await _leave(context, about)
        case _:
            return context.say("This button is too old.", "此按钮已失效。")
    where = value(about.chat.title or about.chat.id)
    return Reply(text=text if act in ("in", "refuse") else f"{where}: {text}", replaces=replaces)


async def settle(context: CommandContext) -> None:
    """Do what the button does, except for leaving a group: the platform does that when the lane asks it to."""
    if not context.arguments.startswith(f"{OWN}leave:"):
        await press(context, context.arguments)


async def accept_tools(context: CommandContext, server: str, digest: str) -> str:
    """Offers the tools of a server as they are now, if they are still what the notice was about."""
    if not context.is_owner:
        return context.say("Only an owner of the bot can do that.", "只有机器人的所有者可以这样做。")
    by, at = context.person, context.runtime.now()
    tools = await context.runtime.store.reviews.accept(server, by=by, at=at, digest=digest)
    if not tools:
        return context.say(
            f"Nothing of `{server}` waits as it was shown: it was accepted already, or has changed again.",
            f"`{server}` 没有与所示一致的待确认工具：可能已确认，或又有变化。",
        )
    log.info("mcp_tools_accepted", server=server, tools=tools, by=by)
    shown = ", ".join(map(value, tools))
    return context.say(f"Accepted of `{server}`: {shown}.", f"已接受 `{server}` 的工具：{shown}。")


async def _leave(context: CommandContext, there: MessageContext) -> str:
    channel = context.setup.channel(there)
    await context.runtime.choices.choose_listening(there, "off", turn=context.turn, at=context.runtime.now())
    try:
        if not isinstance(channel, LeavesGroups):
            raise DeliveryError("the channel cannot leave groups")
        await channel.leave(there.chat.id)
    except DeliveryError as error:
        log.warning("group_not_left", channel=there.channel, chat=there.chat.id, error=str(error), code=error.code)
        return context.say(
            "I could not leave; I do not listen there. Remove me in the group's settings.",
            "无法退出，但我不会回应该群。请在群设置中移除我。",
        )
    log.info("group_left", channel=there.channel, account=there.account, chat=there.chat.id)
    return context.say("I have left the group.", "我已退出该群。")
