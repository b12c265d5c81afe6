"""The chats in which a request is put: an approver reads it there. The message whose turn asked finds them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pydantic import TypeAdapter

from channels.message import Chat, MessageContext, Sender
from gateway.records.inbound import inbound_of
from gateway.state.runtime import Runtime
from gateway.store.approval_records import Approval

NEWEST_MAX = 50
"""Messages of a person in which his direct chat is looked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """A chat in which a request stands; `approver` is `channel:id` where it is that person's alone."""

    context: MessageContext
    approver: str = ""


surfaces_json: TypeAdapter[tuple[Surface, ...]] = TypeAdapter(tuple[Surface, ...])
message_json: TypeAdapter[MessageContext] = TypeAdapter(MessageContext)


def surfaces_of(approval: Approval) -> tuple[Surface, ...]:
    return surfaces_json.validate_json(approval.surfaces)


def message_of(approval: Approval) -> MessageContext:
    return message_json.validate_json(approval.origin)


def person_of(message: MessageContext) -> str:
    return f"{message.channel}:{message.sender.id}"


def is_approver(message: MessageContext, approvers: Sequence[str]) -> bool:
    """True if a message is an approver's; a bot decides nothing, whoever it is."""
    return not message.sender.is_bot and person_of(message) in approvers


async def find_surfaces(runtime: Runtime, origin: MessageContext, approvers: Sequence[str]) -> tuple[Surface, ...]:
    """Here, if an approver's direct chat or one that the config lists; else each approver's. Raises StoreUnavailable."""
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
    """The direct chat of a message that does not name it: the one that the sender wrote in last, or his own."""
    sender = f"{context.channel}:{context.account}:{context.sender.id}"
    chats = [inbound_of(it).context.chat for it in await runtime.store.approvals.newest_from(sender, NEWEST_MAX)]
    return next((it for it in chats if it.kind == "direct"), context.chat)


async def direct_with(runtime: Runtime, person: str, account: str = "") -> MessageContext | None:
    """The direct chat with somebody, as far as there is one: where they wrote last, or where their platform says. `account`
    is looked at first."""
    name, _, id_ = person.partition(":")
    channels = runtime.setup.channels
    accounts = sorted((it for channel, it in channels if channel == name), key=lambda it: it != account)
    for known in accounts:
        for body in await runtime.store.approvals.newest_from(f"{name}:{known}:{id_}", NEWEST_MAX):
            written = inbound_of(body).context
            if written.chat.kind == "direct" and written.press is None:
                return replace(written, message_id="", attachments=(), reply_to=None, more=False)
    platform_knows = name == "telegram" or (name == "feishu" and id_.startswith("ou_"))
    if not accounts or not platform_knows:
        return None
    return MessageContext(
        channel=name,
        account=accounts[0],
        chat=Chat(id=id_, kind="direct"),
        message_id="",
        sender=Sender(id=id_),
        text="",
        sent_at=datetime.fromtimestamp(runtime.now(), tz=UTC),
    )
