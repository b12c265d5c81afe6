"""The chats where a request is posted: an approver reads it there."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pydantic import TypeAdapter

from channels.message import Chat, MessageContext
from gateway.approvals.display import Called
from gateway.state.runtime import Runtime
from gateway.store.approvals import Approval
from gateway.store.inbound import inbound_of
from gateway.store.sessions import message_in, person_of, sender_of

NEWEST_MAX = 50
"""Messages of a person among which their direct chat is searched."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """A chat where the request is posted; `approver` is `channel:id` if it is that person's alone."""

    context: MessageContext
    approver: str = ""


surfaces_json: TypeAdapter[tuple[Surface, ...]] = TypeAdapter(tuple[Surface, ...])
message_json: TypeAdapter[MessageContext] = TypeAdapter(MessageContext)


def surfaces_of(approval: Approval) -> tuple[Surface, ...]:
    return surfaces_json.validate_json(approval.surfaces)


def message_of(approval: Approval) -> MessageContext:
    return message_json.validate_json(approval.origin)


def is_approver(message: MessageContext, approvers: Sequence[str]) -> bool:
    """Returns True if a message is an approver's; a bot decides nothing."""
    return not message.sender.is_bot and person_of(message) in approvers


async def find_surfaces(runtime: Runtime, origin: MessageContext, approvers: Sequence[str]) -> tuple[Surface, ...]:
    """Returns this chat if it is an approver's direct chat or listed in the config; else each approver's chat. Raises
    StoreUnavailable."""
    listed = runtime.setup.config.approvals.surfaces
    here = replace(origin, message_id="", attachments=(), reply_to=None, press=None, more=False)
    if origin.chat.kind == "direct" and is_approver(origin, approvers):
        return (Surface(context=here, approver=person_of(origin)),)
    if f"{origin.channel}:{origin.chat.id}" in listed:
        return (Surface(context=here),)
    if "dm" not in listed:
        return ()
    found = [(person, await direct_with(runtime, person, origin.account)) for person in approvers]
    return tuple(
        Surface(context=replace(it, text=it.text or origin.text), approver=person)
        for person, it in found
        if it is not None
    )


async def direct_chat(runtime: Runtime, context: MessageContext) -> Chat:
    """Returns the sender's newest direct chat, or the message's own."""
    newest = await runtime.store.approvals.newest_from(sender_of(context), NEWEST_MAX)
    chats = [inbound_of(it).context.chat for it in newest]
    return next((it for it in chats if it.kind == "direct"), context.chat)


async def direct_with(runtime: Runtime, person: str, account: str = "") -> MessageContext | None:
    """Returns the direct chat with a person: the one of their newest message, first at `account`, or the one that their
    platform derives from their id."""
    name, _, id_ = person.partition(":")
    channels = runtime.setup.channels
    accounts = sorted((it for channel, it in channels if channel == name), key=lambda it: it != account)
    for known in accounts:
        for body in await runtime.store.approvals.newest_from(f"{name}:{known}:{id_}", NEWEST_MAX):
            written = inbound_of(body).context
            if written.chat.kind == "direct" and written.press is None:
                return replace(written, message_id="", attachments=(), reply_to=None, more=False)
    kind = runtime.setup.config.channels.kinds.get(name)
    if not accounts or kind is None or not kind.can_write_first(id_):
        return None
    message = message_in(name, accounts[0], Chat(id=id_, kind="direct"), id_)
    return replace(message, sent_at=datetime.fromtimestamp(runtime.now(), tz=UTC))


async def called(runtime: Runtime, people: Sequence[str]) -> Called:
    """Map people (`channel:id`) to their names: as they were last called here, else as their platform says now. Raises
    StoreUnavailable."""
    found = dict(await runtime.store.contacts.called(people))
    for who in people:
        if who in found or ":" not in who or (chat := await direct_with(runtime, who)) is None:
            continue
        if channel := runtime.setup.channel(chat):
            found[who] = (await channel.enrich(replace(chat, text="", mark=""))).sender.name or ""
    return found
