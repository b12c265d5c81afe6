"""Chats that a colleague answers: `/human` and `/back`, the buttons of the notice, and the gateway's own messages about it.

A press and a command decide nothing by what they carry: the platform says who sent them and where, and the row says what is
left to decide. Everything is idempotent per message number.
"""

from collections.abc import Mapping, Sequence

from channels.bilingual import Bilingual
from channels.message import Button
from channels.plain import plain
from gateway.approvals.display import value
from gateway.commands.command import CommandContext, Perform
from gateway.state.ending import Reply
from gateway.store.inbound import HANDOVER_LINE, HANDOVER_NOTICE, HANDOVER_REPLY
from gateway.store.sessions import agent_of, chat_of
from gateway.turns.handovers import Handover, HandoverEnd, Handovers, event_json, notice_key, row_id

TOKEN = "hand:"
"""The tokens of a notice's buttons begin with it: `hand:ACT:ID:NUMBER`."""
TAKE, NEEDLESS, BACK = "take", "no", "back"


def handovers(context: CommandContext) -> Handovers:
    return Handovers().serve(context.runtime)


async def human(context: CommandContext) -> str | None:
    """Handle `/human [why]`. The sentence about it is sent with the commit that hands the chat over."""
    chats = handovers(context)
    if chats.place() is None:
        text = context.say("No colleague is on call here.", "目前没有可转接的同事。")
        set_key = context.say(
            " Set `handover.to` in the config to the chat of those who answer.",
            "请在配置的 `handover.to` 中填写负责接待的聊天。",
        )
        return text + set_key if context.is_owner else text
    if chats.is_there(context.message):
        return context.say("This is the colleagues' own chat.", "这里就是接待同事所在的聊天。")
    work = await context.conversation()
    if await chats.of(context.session) is None and work.so_far:  # nobody answers beside the colleague
        await context.runtime.control.stop(context.session, work.waiting[0].turn + 1)
    await context.approvals.cancel(context.session, context.turn)
    if await chats.ask(context.session, context.turn, context.message, context.arguments):
        return None
    known = await chats.of(context.session)
    if known is None or known.number == context.turn:
        return None
    return whose(context, known)


async def back(context: CommandContext) -> str | None:
    """Handle `/back`: in the chat that was handed over, and in the on-call chat."""
    chats, message = handovers(context), context.message
    here = await chats.get(row_id(context.session))
    if here is not None and (here.state != "over" or here.ended_turn == context.turn):
        is_asker = message.chat.kind == "direct" or message.sender.id == here.context.sender.id
        if not (is_asker or context.is_owner or here.by == context.person):
            return context.say(
                "Only the one who asked for a colleague, the colleague or an owner can end it.",
                "只有请求转接的人、接手的同事或所有者可以结束。",
            )
        end: HandoverEnd = "person" if is_asker else "colleague" if here.by == context.person else "owner"
        await chats.end(here.id, here.number, end, message, context.turn)
        return None
    if not chats.is_there(message):
        return context.say("No colleague has this chat.", "这个聊天没有转接给同事。")
    found = await _meant(context, chats)
    if isinstance(found, str):
        return found
    if not (found.by == context.person or context.is_owner):
        return _not_yours(context, found)
    await chats.end(
        found.id, found.number, "colleague" if found.by == context.person else "owner", message, context.turn
    )
    return None


async def _meant(context: CommandContext, chats: Handovers) -> Handover | str:
    """Return the handover that `/back` in the on-call chat means: that of the message it replies to, else the only one."""
    if (replied := await chats.of_reply(context.message)) is not None:
        found = await chats.get(replied[0])
        if found is None or found.number != replied[1] or found.state == "over":
            return _is_over(context)
        return found
    known = [it for it in await chats.open() if it.by == context.person]
    known = known or (list(await chats.open()) if context.is_owner else [])
    if len(known) == 1:
        return known[0]
    if not known:
        return context.say("You have taken over no chat.", "你没有接手任何聊天。")
    return context.say(
        "You have several chats: send /back as a reply to a message of the one that you mean.",
        "你接手了多个聊天：请在回复其中某条消息时发送 /back。",
    )


async def reply(context: CommandContext) -> str | None:
    """Relay a colleague's reply to a notice or to a relayed message. The replies of others get one line."""
    chats, (id_, _, number) = handovers(context), context.arguments.partition(" ")
    if await context.runtime.refusal(context.message):
        return None
    found = await chats.get(id_)
    if found is None or found.number != int(number) or found.state == "over":
        return _is_over(context)
    if found.state == "asked":
        return context.say("Nothing was sent: press Take over first.", "未发送：请先点击“接手”。")
    if found.by != context.person:
        return context.say("Nothing was sent. ", "未发送。") + _not_yours(context, found)
    await chats.answer(found, context.message, context.turn)
    return None


async def settle(context: CommandContext) -> None:
    """Apply a press under a notice."""
    await _pressed(context)


async def press(context: CommandContext) -> str | None:
    """Answer a press under a notice: nothing if it counts, because the notice shows it."""
    act, found = await _pressed(context)
    if found is None:
        return context.not_your_button
    if act == TAKE:
        counts = found.state == "taken" and found.by == context.person
    else:
        counts = found.state == "over" and found.ended_by == context.person
    if counts:
        return None
    return _is_over(context) if found.state == "over" else _not_yours(context, found)


async def _pressed(context: CommandContext) -> tuple[str, Handover | None]:
    """Take the step of a pressed button, if its presser may. Return the handover afterwards; None if it is not theirs."""
    act, _, rest = context.arguments.removeprefix(TOKEN).partition(":")
    id_, _, number = rest.partition(":")
    chats, message = handovers(context), context.message
    is_person = not message.sender.is_bot and bool(message.sender.id)
    if not number.isdecimal() or not is_person or not chats.is_there(message):
        return act, None
    if await context.runtime.refusal(message):
        return act, None
    if act == TAKE:
        return act, await chats.take(id_, int(number), message)
    found = await chats.get(id_)
    if found is None or found.number != int(number):
        return act, None
    if act == NEEDLESS:
        return act, await chats.end(id_, int(number), "needless", message, context.turn)
    if found.by == context.person or context.is_owner:
        end: HandoverEnd = "colleague" if found.by == context.person else "owner"
        return act, await chats.end(id_, int(number), end, message, context.turn)
    return act, found


async def notice(context: CommandContext) -> Reply | None:
    """Render the notice, or replace it by its newest state."""
    event = event_json.validate_json(context.arguments)
    it, id_ = event.handover, f"{event.handover.id}:{event.handover.number}"
    name, chat = plain(it.name), value(chat_of(it.context))
    text = context.say(f"**{name}** needs a person in {chat}.", f"**{name}** 需要人工接待（{chat}）。")
    if it.reason:
        reason = plain(it.reason)
        text += "\n" + context.say(f"Reason: {reason}", f"原因：{reason}")
    if it.state == "asked":
        how = context.say(
            "Take over, then answer by replying to this message or to the ones that follow.",
            "点击“接手”后，回复本条或后续消息即可回答对方。",
        )
        return Reply(
            text="\n\n".join(filter(None, (text, event.recent, how))),
            buttons=(
                Button(label=context.say("Take over", "接手"), token=f"{TOKEN}{TAKE}:{id_}", style="primary"),
                Button(label=context.say("Not needed", "无需接手"), token=f"{TOKEN}{NEEDLESS}:{id_}"),
            ),
        )
    sent = await context.runtime.store.approvals.sent(notice_key(it.number))
    if not sent:
        return None
    buttons = (Button(label=context.say("Give back", "交还"), token=f"{TOKEN}{BACK}:{id_}"),)
    line = _taken(context, it) if it.state == "taken" else f"✓ {_ended(context, it, there=True)}"
    return Reply(text=f"{text}\n\n{line}", buttons=buttons if it.state == "taken" else (), replaces=sent[-1])


async def line(context: CommandContext) -> str:
    """Render the sentence about a handover, for the person or for the on-call chat."""
    it = event_json.validate_json(context.arguments).handover
    if it.state == "asked":
        return context.say(
            "I have called a colleague. I am silent until this chat is given back to me, and what you write here reaches "
            "them. /back ends it.",
            "已为你请同事来接待。在交还之前我不再回答，你在这里发送的内容会转给同事。发送 /back 可结束。",
        )
    if it.state == "taken":
        name = plain(it.by_name)
        return context.say(f"{name} has taken over and answers you here.", f"{name} 已接手，将在这里回答你。")
    return _ended(context, it, there=context.message.origin is not None)  # the person's sentences have none


def _ended(context: CommandContext, it: Handover, *, there: bool) -> str:
    name, person, agent = plain(it.ended_name), plain(it.name), plain(agent_of(it.session))
    given = {
        "needless": Bilingual(f"{name} says that nobody is needed.", f"{name} 表示无需人工接待。"),
        "colleague": Bilingual(f"{name} has given the chat back.", f"{name} 已交还聊天。"),
        "owner": Bilingual(f"{name} has given the chat back.", f"{name} 已交还聊天。"),
        "person": Bilingual(f"{person} has ended it.", f"{person} 已结束转接。"),
        "unanswered": Bilingual("Nobody has taken over in time.", "无人及时接手。"),
        "idle": Bilingual("Nobody has written for a while.", "已有一段时间没有新消息。"),
        "config": Bilingual("Nobody is on call any more.", "已不再有同事值班。"),
    }[it.end or "idle"](context.language)
    if there:
        answers = context.say(f" {agent} answers {person} again.", f"{agent} 将继续回答 {person}。")
    else:
        answers = context.say(" I answer here again.", "由我继续在这里回答。")
    return given + answers


def _taken(context: CommandContext, it: Handover) -> str:
    name = plain(it.by_name)
    return context.say(f"✓ {name} has taken over.", f"✓ {name} 已接手。")


def _not_yours(context: CommandContext, it: Handover) -> str:
    name = plain(it.by_name)
    if it.state == "asked":
        return context.say("Nobody has taken over yet.", "尚未有人接手。")
    return context.say(
        f"{name} has taken over this chat, and gives it back by /back.", f"{name} 已接手此聊天，可用 /back 交还。"
    )


def _is_over(context: CommandContext) -> str:
    return context.say("This chat has been given back already. Nothing was sent.", "此聊天已经交还，未发送任何内容。")


async def handed_over(context: CommandContext) -> Sequence[tuple[str, str]]:
    """Return the line of `/status` about a chat that is handed over; none otherwise."""
    it = await handovers(context).of(context.session)
    if it is None:
        return ()
    name = plain(it.by_name) or context.say("nobody yet", "尚无人接手")
    return ((context.say("Handed over", "转接"), context.say(f"to {name}", name)),)


def whose(context: CommandContext, it: Handover) -> str:
    """Return the sentence about a chat that is handed over, for its person."""
    if it.state == "asked":
        return context.say("A colleague has been called already.", "已经请过同事，请稍候。")
    name = plain(it.by_name)
    return context.say(f"{name} has this chat.", f"此聊天由 {name} 接待。")


HANDOVER_RUNS: Mapping[str, Perform] = {HANDOVER_NOTICE: notice, HANDOVER_LINE: line, HANDOVER_REPLY: reply}
"""The gateway's own messages about handovers, by internal command."""
