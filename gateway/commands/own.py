"""Owner commands: claim the bot, add an account, pair users, switch groups on and off, and the buttons of notices.

Each may run twice if its process dies before its reply is stored. Its changes record the message, so the second run has
no effect.
"""

import secrets

import structlog

from agents.language import Language
from channels.abilities import LeavesGroups
from channels.access import GROUP_DISABLED, Switch, group_refusal
from channels.channel import Channel, DeliveryError
from channels.message import Folded, MessageContext
from channels.moment import clock
from channels.plain import plain
from gateway.approvals.display import name_of, person, value
from gateway.approvals.notices import OWN, Choice, Notice, Notices, buttons, called, notice_json
from gateway.approvals.pairing import CODE, code_of, tell_who_waits
from gateway.commands.command import CommandContext
from gateway.commands.privacy import FORGET, KEEP, decide
from gateway.state.ending import Reply
from gateway.state.owners import OWNERS_NOTICE
from gateway.store.contacts import Contact, Decision, hashed
from gateway.store.inbound import REMEMBERS, inbound_of
from gateway.store.owners import ADD_SECONDS
from gateway.store.records import Delivery
from gateway.store.sessions import LOCAL_CHANNEL, LOCAL_PERSON, chat_of, person_of
from gateway.store.statements import PAIRING_SECONDS

log = structlog.get_logger()


ONLY_OWNERS = "owners"
CLAIM_WORDS = ("page", "alone", "revoke")
"""Owners' arguments of `/claim`: this machine's page becomes an owner, stops being one, or an added account stops
being one."""
LANGUAGES: tuple[Language, ...] = ("en", "zh")
TOOLS = "mcp"
"""The action of a button that accepts a server's tools: `own:mcp:SERVER:DIGEST`."""


async def tell(context: CommandContext) -> Reply:
    """Render a notice: with buttons if the channel has them, otherwise with the line to type."""
    notice = notice_json.validate_json(context.arguments)
    text, ids = context.say(notice.en, notice.zh), "\n".join(f"- {value(it)}" for it in notice.ids)
    if context.has_buttons:
        folded = Folded(title=context.say("Details", "详情"), text=ids) if ids else None
        return Reply(text=text, buttons=buttons(notice.choices, zh=context.language == "zh"), folded=folded)
    text = f"{text} `{notice.typed}`" if notice.typed else text
    return Reply(text=text if all(it in text for it in notice.ids) else f"{text}\n{ids}")


async def claim(context: CommandContext) -> Reply | str | None:
    """Handle `/claim XXXX-XXXX`: the first user with the startup code becomes the owner; an account with an owner's
    code becomes another owner. A wrong, used and expired code get the same answer, and wrong codes count like those
    of `/pair`. Owners use `/claim` to get such a code, and the `CLAIM_WORDS`."""
    if context.message.chat.kind == "group":
        return context.say(
            "Send it to me in a direct chat: anyone who sees the code here could use it.",
            "请在私聊中发送：群里的人都能看到认领码。",
        )
    setup, runtime, owners = context.setup, context.runtime, context.setup.owners
    word, _, whom = context.arguments.partition(" ")
    if not word or word.lower() in CLAIM_WORDS:
        if not owners.is_owned:
            return context.say(
                "Send it with the code that the gateway printed at startup: `/claim XXXX-XXXX`.",
                "请附上网关启动时显示的认领码：`/claim XXXX-XXXX`。",
            )
        if not context.is_owner:
            return context.say("This bot already has an owner.", "这个机器人已有所有者。")
        if not word:
            return await _invite(context)
        if word.lower() == "revoke":
            return await _disown(context, whom.strip().strip("`"))
        return await _keep_page(context, kept=word.lower() == "page")
    channel, message = setup.channel(context.message), context.message
    name = (await channel.enrich(message)).sender.name if channel else None
    place, at = (message.channel, message.account, message.sender.id), runtime.now()
    found = await runtime.store.owners.claim(
        context.arguments, place, name, turn=context.turn, at=at, named=setup.config.owners
    )
    match found:
        case "claimed":
            await _changed(context)
            log.info("bot_claimed", by=context.person)
            await tell_who_waits(runtime)
            return _yours(context)
        case "added":
            await _changed(context)
            return await _added(context, name)
        case "known":
            return context.say(
                "You are already an owner. Send it from your other account; the code is still valid.",
                "你已经是所有者。请用你的另一个账号发送，认领码仍然有效。",
            )
    log.warning(f"claim_{found}", by=context.person)
    return None if found == "muted" else _no_such_code(context)


async def _changed(context: CommandContext) -> None:
    await context.setup.owners.claimed.load()
    await context.runtime.store.notify(OWNERS_NOTICE)


def _no_such_code(context: CommandContext) -> str:
    return context.say(
        "That code is not valid: it may be mistyped, already used, or more than a day old.",
        "没有这个认领码：可能有误、已使用，或已超过一天。",
    )


def _yours(context: CommandContext) -> Reply:
    """Welcome the new owner, and ask whether this machine's page remains an owner."""
    text = context.say(
        "This bot is yours. I will tell you here when someone asks to join or something breaks.",
        "这个机器人现在归你所有。有人申请加入或出现故障时，我会在这里通知你。",
    )
    if context.setup.config.approvers() is None:
        text += context.say(" Only you approve commands from now on.", "从现在起，只有你可以批准命令。")
    if context.person == LOCAL_PERSON or not _has_page(context):
        return Reply(text=text)
    if context.has_buttons:
        return Reply(text=text, buttons=buttons(_page_choices(context.turn), zh=context.language == "zh"))
    more = context.say(
        " `/claim page` keeps this machine's page as an owner too; `/claim alone` does not.",
        "发送 `/claim page` 可保留本机网页为所有者，`/claim alone` 则不保留。",
    )
    return Reply(text=text + more)


def _page_choices(turn: int) -> tuple[Choice, ...]:
    return (
        Choice(token=f"{OWN}page:{turn}", en="Keep this machine's page as an owner too", zh="也保留本机网页为所有者"),
        Choice(token=f"{OWN}alone:{turn}", en="Only me", zh="只有我"),
    )


def _has_page(context: CommandContext) -> bool:
    return (LOCAL_CHANNEL, "default") in context.setup.channels


async def _keep_page(context: CommandContext, *, kept: bool) -> str:
    """Make the page on this machine an owner too, or end that."""
    if not _has_page(context):
        return context.say("There is no page here: the web chat is off.", "没有网页：网页聊天未启用。")
    at, owners = context.runtime.now(), context.setup.owners
    await context.runtime.store.owners.keep_page(kept, by=context.person, at=at)
    await _changed(context)
    log.info("page_kept" if kept else "page_not_kept", by=context.person)
    if LOCAL_PERSON in owners.named:
        return context.say("The config makes this machine's page an owner.", "配置已把本机网页设为所有者。")
    if kept:
        return context.say(
            "This bot is yours. This machine's page is an owner too; `/claim alone` ends that.",
            "这个机器人归你所有。本机网页也是所有者；发送 `/claim alone` 可取消。",
        )
    return context.say(
        "This bot is yours. This machine's page is a guest; `/claim page` makes it an owner too.",
        "这个机器人归你所有。本机网页只是访客；发送 `/claim page` 可让它也成为所有者。",
    )


async def _invite(context: CommandContext) -> Reply | str:
    """Issue a code for another account of the owner. It replaces the previous code."""
    channel, seed = context.setup.channel(context.message), secrets.token_hex(16)
    if channel is None:
        return _no_such_code(context)
    code = hashed(code_of(channel.access, seed)) or ""
    await context.runtime.store.owners.invite(code, context.person, context.runtime.now())
    log.info("owner_invites", by=context.person)
    minutes = f"{ADD_SECONDS / 60:.0f}"
    text = context.say(
        f"Send me `/claim {CODE}` from your other account within {minutes} minutes. Anyone who sends it becomes an owner, "
        "so keep it secret. I will notify every owner when it is used.",
        f"请在 {minutes} 分钟内用你的另一个账号私聊发送 `/claim {CODE}`。发送的人会成为所有者，不要让别人看到；"
        "使用后我会通知每位所有者。",
    )
    return Reply(text=text, seed=seed)


async def _added(context: CommandContext, name: str | None) -> str:
    """Notify every owner of the new one: someone who only saw the code may have sent it."""
    who, listed = context.person, await context.runtime.store.owners.listed()
    by = next((it.source for it in listed if it.person == who), "")
    log.info("owner_added", person=who, by=by)
    names = await called(context.runtime, [by])
    shown = {it: (person(who, name, it), person(by, names.get(by), it)) for it in LANGUAGES}
    notice = Notice(
        cause=f"owner {who} {context.turn}",
        once=f"owner {context.turn}",
        en="{} is an owner now, by the code of {}. Not you? Cancel it.".format(*shown["en"]),
        zh="{} 现在是所有者，使用了 {} 的认领码。不是你本人？请立即取消。".format(*shown["zh"]),
        choices=(Choice(token=f"{OWN}disown:{context.turn}", en="Cancel it", zh="取消", danger=True),),
        typed=f"/claim revoke {who}",
        ids=(who, by),
        known=(who,),
        always=True,
    )
    await Notices(context.runtime).tell(notice)
    return context.say(
        f"You are an owner of this bot now, like {shown['en'][1]}. I have notified every owner.",
        f"你现在和 {shown['zh'][1]} 一样是所有者。我已通知每位所有者。",
    )


async def _disown(context: CommandContext, who: str) -> str:
    shown, store = await context.named(who), context.runtime.store.owners
    ended = await store.disown(who)
    await _changed(context)
    if not ended and who in context.setup.owners:
        return context.say(
            f"{shown} was not added by a code: the config or the command line ends that (`pairing revoke`).",
            f"{shown} 不是用所有者的认领码添加的：请用配置或命令行（`pairing revoke`）取消。",
        )
    if ended:
        log.warning("owner_disowned", person=who, by=context.person)
    lines = [context.say(f"{shown} is not an owner.", f"{shown} 已不是所有者。")]
    for other in [it.person for it in await store.listed() if it.source == who]:
        added = await context.named(other)
        lines.append(
            context.say(
                f"But {added} is one, added by them: `/claim revoke {other}` ends that.",
                f"但由其添加的 {added} 仍是所有者：发送 `/claim revoke {other}` 可取消。",
            )
        )
    return "\n".join(lines)


async def listen(context: CommandContext) -> str:
    """Handle `/listen`: switch the bot on in a group, with `owners` only for owners."""
    word = context.arguments.strip().lower()
    if word not in ("", ONLY_OWNERS):
        return context.say("Send `/listen` or `/listen owners`.", "用法：`/listen` 或 `/listen owners`。")
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
            return context.say("I am on. Mention me with a question.", "已启用，@我 即可提问。")
        case "owners":
            return context.say("I am on, for my owners only.", "已启用，仅回应所有者。")
        case "off":
            return context.say(
                "I am off in this group. `/listen` switches me on again.", "已在本群停用。发送 `/listen` 可重新启用。"
            )


def _disabled(context: CommandContext) -> str:
    return context.say(
        "I am off in all groups, because the config sets `groupPolicy: disabled`.",
        "所有群聊都已停用：配置中写着 `groupPolicy: disabled`。",
    )


async def unheard(context: CommandContext) -> str:
    """Answer an owner who mentions the bot in a group where it is off."""
    if context.arguments == GROUP_DISABLED:
        return _disabled(context)
    return context.say(
        "I stay silent in this group until you switch me on: send `/listen` here.",
        "我还没有在本群启用，发送 `/listen` 即可启用。",
    )


async def join(context: CommandContext) -> str | None:
    """The bot was added to a group: notify the owners, and introduce the bot if it is on there."""
    message, channel = context.message, context.setup.channel(context.message)
    if channel is None:
        return None
    refused = group_refusal(channel.access, message.chat.id, context.runtime.choices.listens(message))
    keeps = "" if refused else await _keeps(context, channel)
    if context.arguments == REMEMBERS:
        return keeps or None
    there = await channel.enrich(message)
    await Notices(context.runtime).tell(_joined(context, there, refused))
    introduction = "" if refused else channel.access.introduction
    return "\n\n".join(filter(None, (introduction, keeps))) or None


_UNITS = ((86_400, "day", "天"), (3_600, "hour", "小时"), (60, "minute", "分钟"))


async def _keeps(context: CommandContext, channel: Channel) -> str:
    """Return the sentence that a remembered group reads once."""
    if (kept := channel.access.remembered.get(context.message.chat.id)) is None:
        return ""
    store, now = context.runtime.store.chatter, context.runtime.now()
    if not await store.says(chat_of(context.message), context.turn, now):
        return ""
    seconds, unit, zh_unit = next(it for it in _UNITS if kept % it[0] == 0)
    count = int(kept // seconds)
    en, zh = f"{count} {unit}{'s' * (count != 1)}", f"{count} {zh_unit}"
    return context.say(
        f"I keep what is said in this group for {en}, to answer questions about it. Members can ask me about it here and in "
        "a direct chat; `/forget me` in a direct chat erases what you said.",
        f"我会保留本群的发言 {zh}，用于回答相关问题。群成员可以在这里或私聊中询问；"
        "在私聊中发送 `/forget me` 会删除你的发言。",
    )


def _joined(context: CommandContext, there: MessageContext, refused: str | None) -> Notice:
    """Build the notice to the owners. Each group that an owner adds is a separate cause; those added by anyone else
    share one."""
    group, by = f"{there.channel}:{there.chat.id}", person_of(there)
    title = person(group, there.chat.title, "en")
    who = {it: person(by, there.sender.name, it) for it in LANGUAGES}
    states = {
        None: ("The config switches me on there.", "按配置，我已在该群启用。"),
        "group-disabled": ("All groups are switched off (`groupPolicy`).", "所有群聊已关闭（`groupPolicy`）。"),
    }
    en, zh = states.get(refused, ("I stay silent there until you switch me on.", "启用之前，我不会在该群回应。"))
    acts = {None: ("owners", "leave"), "group-disabled": ("leave",)}.get(refused, ("listen", "owners", "leave"))
    return Notice(
        cause=f"added {there.account} {there.chat.id if context.is_owner else by}",
        once=f"added {context.turn}",
        en=f"{who['en']} added me to the group {title}. {en}",
        zh=f"{who['zh']} 把我加入了群 {title}。{zh}",
        ids=(by, group),
        choices=tuple(_GROUP_CHOICES[act](f"{OWN}{act}:{context.turn}") for act in acts),
    )


_GROUP_CHOICES = {
    "listen": lambda token: Choice(token=token, en="Listen here", zh="在此启用"),
    "owners": lambda token: Choice(token=token, en="Only owners", zh="仅所有者"),
    "leave": lambda token: Choice(token=token, en="Leave", zh="退出群聊", danger=True),
}


async def press(context: CommandContext, token: str) -> Reply | str:
    """Handle a button of a notice; the outcome replaces the notice."""
    act, _, number = token.removeprefix(OWN).partition(":")
    if act == TOOLS and context.message.press is not None:
        server, _, digest = number.partition(":")
        text = await accept_tools(context, server, digest)
        return Reply(text=text, replaces=context.message.press.message_id if context.is_owner else None)
    if act in (FORGET, KEEP):
        return await decide(context, act, number)
    body = await context.runtime.store.owners.message(int(number)) if number.isdecimal() else None
    if not context.is_owner or body is None or context.message.press is None:
        return context.not_your_button
    inbound, replaces = inbound_of(body), context.message.press.message_id
    about = inbound.context
    if act in ("page", "alone", "disown"):
        if inbound.command != "claim" or (act != "disown" and person_of(about) != context.person):
            return context.not_your_button
        settled = await (
            _disown(context, person_of(about)) if act == "disown" else _keep_page(context, kept=act == "page")
        )
        return Reply(text=settled, replaces=replaces)
    match act:
        case "in" | "refuse":
            text = await let_in(context, int(number), "let in" if act == "in" else "refuse")
        case "listen" | "owners":
            text = await _switch(context, about, "on" if act == "listen" else "owners")
        case "leave":
            text = await _leave(context, about)
        case _:
            return context.say("This button has expired.", "此按钮已失效。")
    where = value(about.chat.title or about.chat.id)
    return Reply(text=text if act in ("in", "refuse") else f"{where}: {text}", replaces=replaces)


async def settle(context: CommandContext) -> None:
    """Apply a button's effect, except leaving a group: that needs a platform request, which the lane makes."""
    if not context.arguments.startswith(f"{OWN}leave:"):
        await press(context, context.arguments)


async def accept_tools(context: CommandContext, server: str, digest: str) -> str:
    """Accept the tools of a server if they are still those of the notice."""
    if not context.is_owner:
        return context.say("Only an owner of the bot can do that.", "只有机器人的所有者可以这样做。")
    by, at = context.person, context.runtime.now()
    tools = await context.runtime.store.reviews.accept(server, by=by, at=at, digest=digest)
    if not tools:
        return context.say(
            f"`{server}` has no pending tools that match: they were accepted already, or have changed again.",
            f"`{server}` 没有与所示一致的待确认工具：可能已确认，或又有变化。",
        )
    log.info("mcp_tools_accepted", server=server, tools=tools, by=by)
    shown = ", ".join(map(value, tools))
    return context.say(f"Accepted tools of `{server}`: {shown}.", f"已接受 `{server}` 的工具：{shown}。")


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
            "I could not leave the group, so I will stay silent in it. Please remove me in its settings.",
            "我无法退出该群，但不会再回应。请在群设置中移除我。",
        )
    log.info("group_left", channel=there.channel, account=there.account, chat=there.chat.id)
    return context.say("I have left the group.", "我已退出该群。")


async def pair(context: CommandContext) -> str | None:
    code = context.arguments.split()[-1:]
    if not code:
        return await _waiting(context)
    contacts, at = context.runtime.store.contacts, context.runtime.now()
    if ":" in code[0]:
        known = await contacts.listed(at - PAIRING_SECONDS)  # also who was let in: the lane runs the command again
        asked = next((it.turn for it in known if it.name == code[0]), None)
        return await let_in(context, asked or 0, "let in")
    found = await contacts.redeem(hashed(code[0]) or "", by=context.person, turn=context.turn, at=at)
    if found == "muted":
        log.warning("pairing_muted", by=context.person)
        return None
    if found == "wrong":
        log.warning("pairing_refused", by=context.person)
        return context.say(
            "That code is not valid: it may be mistyped, or more than an hour old.",
            "配对码无效：可能有误，或已超过一小时。",
        )
    return await _approved(context, *found)


async def let_in(context: CommandContext, asked: int, decision: Decision) -> str:
    """Approve or deny the pairing request of message `asked`."""
    store, at = context.runtime.store.contacts, context.runtime.now()
    found = await store.decide(asked, decision, by=context.person, turn=context.turn, at=at)
    if found is None:
        return context.say(
            "This person is no longer waiting. /pair lists who is.", "对方已不在等待。发送 /pair 可查看等待名单。"
        )
    contact, notice = found
    if decision == "let in":
        return await _approved(context, contact, notice)
    log.info("pairing_turned_away", channel=contact.channel, sender=contact.person, by=context.person)
    shown = _shown(contact, context.language)
    return context.say(f"{shown} was refused.", f"已拒绝 {shown}。")


async def _approved(context: CommandContext, contact: Contact, notice: Delivery | None) -> str:
    log.info(
        "pairing_approved", channel=contact.channel, account=contact.account, sender=contact.person, by=context.person
    )
    if notice is not None:
        await context.runtime.accept(notice)
    shown = _shown(contact, context.language)
    return context.say(f"{shown} can write to me now.", f"{shown} 现在可以给我发消息了。")


def _shown(contact: Contact, language: Language) -> str:
    return person(f"{contact.channel}:{contact.person}", contact.called, language)


async def _waiting(context: CommandContext) -> str:
    """List who is waiting, except in a group: the list is for owners only."""
    people = await context.runtime.store.contacts.waiting(context.runtime.now() - PAIRING_SECONDS)
    if context.message.chat.kind == "group" or not people:
        return context.say(
            "To let someone in, send the code that I gave them: /pair CODE",
            "要批准某人，请发送我给对方的配对码：/pair 配对码",
        )
    zone = context.setup.config.server.zone
    called = (plain(name_of(it.called)) for it in people)
    lines = [
        " ".join(filter(None, ("-", name, clock(it.asked or 0, zone), f"`/pair {it.name}`")))
        for it, name in zip(people, called, strict=True)
    ]
    head = context.say("Waiting to be let in:", "等待批准：")
    return "\n".join((head, *lines))
