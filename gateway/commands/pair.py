"""`/pair CODE`: an owner lets in the person who was given the code; alone, it lists who waits.

Nothing tells a wrong code from one that is unknown, too old or the owner's own, and after ten of them in an hour nothing is
said at all: they are counted in the database, for all replicas and over restarts.
"""

import structlog

from channels.moment import clock
from gateway.approvals.pairing import hashed
from gateway.commands.command import CommandContext
from gateway.store.statements import PAIRING_SECONDS

log = structlog.get_logger()


async def pair(context: CommandContext) -> str | None:
    code = context.arguments.split()[-1:]
    if not code:
        return await _waiting(context)
    contacts, at = context.runtime.store.contacts, context.runtime.now()
    found = await contacts.redeem(hashed(code[0]) or "", by=context.person, turn=context.turn, at=at)
    if found == "muted":
        log.warning("pairing_muted", by=context.person)
        return None
    if found == "wrong":
        log.warning("pairing_refused", by=context.person)
        return context.say(
            "There is no such code: it may be wrong, or older than an hour.",
            "没有这个配对码：可能有误，或已超过一小时。",
        )
    contact, notice = found
    log.info(
        "pairing_approved", channel=contact.channel, account=contact.account, sender=contact.person, by=context.person
    )
    if notice is not None:
        await context.runtime.accept(notice)
    return context.say(f"`{contact.name}` may write to me now.", f"`{contact.name}` 现在可以给我发消息了。")


async def _waiting(context: CommandContext) -> str:
    """Lists who waits, except in a group: the list is for owners only."""
    found = await context.runtime.store.contacts.waiting(context.runtime.now() - PAIRING_SECONDS)
    if context.message.chat.kind == "group" or not found:
        return context.say(
            "Let a person in with the code that I gave them: /pair CODE", "用我发给对方的配对码批准：/pair 配对码"
        )
    zone = context.setup.config.server.zone
    lines = [f"- `{it.name}` {clock(it.asked or 0, zone)}" for it in found]
    head = context.say("Waiting to be let in, with /pair CODE:", "等待批准（用 /pair 配对码）：")
    return "\n".join((head, *lines))
