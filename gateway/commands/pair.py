"""`/pair CODE`: an owner lets in the person who was given the code; alone, it lists who waits.

Nothing tells a wrong code from an unknown, an old or the owner's own one, and after ten of them in an hour nothing is
said at all: they are counted in the database, for all replicas and over restarts.
"""

import structlog

from agents.language import Language
from channels.moment import clock
from channels.plain import plain
from gateway.approvals.display import name_of, person
from gateway.commands.command import CommandContext
from gateway.store.contacts import Contact, Decision, hashed
from gateway.store.records import Delivery
from gateway.store.statements import PAIRING_SECONDS

log = structlog.get_logger()


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
            "That code does not work: it is wrong, or older than an hour.",
            "配对码无效：可能有误，或已超过一小时。",
        )
    return await _approved(context, *found)


async def let_in(context: CommandContext, asked: int, decision: Decision) -> str:
    """Lets in or refuses the person whose request is message `asked`."""
    store, at = context.runtime.store.contacts, context.runtime.now()
    found = await store.decide(asked, decision, by=context.person, turn=context.turn, at=at)
    if found is None:
        return context.say(
            "They are no longer waiting. /pair shows who is.", "对方已不在等待。发送 /pair 可查看等待名单。"
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
    return context.say(f"{shown} may write to me now.", f"{shown} 现在可以给我发消息了。")


def _shown(contact: Contact, language: Language) -> str:
    return person(f"{contact.channel}:{contact.person}", contact.called, language)


async def _waiting(context: CommandContext) -> str:
    """Lists who waits, except in a group: the list is for owners only."""
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
