"""Notices to the owners: one line in each owner's direct chat about what the operator should know.

A notice is an internal message of the inbox, so it is stored once on any replica, also after a kill, and is sent by the
outbox like a reply. Each cause is reported at most once an hour. Calling `tell` again after a crash with the same cause
is idempotent. A `Surface` is a chat where an approval request is posted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog
from pydantic import TypeAdapter

from channels.message import Button, Chat, MessageContext
from gateway.approvals.display import Called
from gateway.config.root import route
from gateway.state.runtime import Runtime
from gateway.store.approvals import Approval
from gateway.store.inbound import NOTICE, Inbound, inbound_of
from gateway.store.records import Delivery
from gateway.store.sessions import message_in, person_of, saying_session, sender_of, session_key

log = structlog.get_logger()


OWN = "own:"
"""The prefix of tokens of notice buttons: `own:ACT:MESSAGE`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A button of a notice. Its token holds the action and its target; the presser's rights are checked again."""

    token: str
    en: str
    zh: str
    danger: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One line in both languages, in Markdown; `approvals.display.value` sanitises untrusted text in it. `cause` is
    its subject, such as `config` or `channel feishu:default`; `once` identifies the single event, if there is one.
    `typed` is appended if a channel has no buttons. Owners in `known` do not get it. `ids` are those of the users
    and chats in the line, shown in full under Details. `always`: sent even if the config has switched notices off."""

    cause: str
    en: str
    zh: str
    once: str = ""
    choices: tuple[Choice, ...] = ()
    typed: str = ""
    known: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    always: bool = False
    at: float = 0.0


notice_json: TypeAdapter[Notice] = TypeAdapter(Notice)


class Notices:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def tell(self, notice: Notice) -> bool:
        """Notify every owner with a known direct chat. Return whether one of them has the notice, now or within the
        last hour. Raises StoreUnavailable."""
        runtime, now = self._runtime, self._runtime.now()
        if not runtime.setup.config.notify_owners and not notice.always:
            return False
        await runtime.setup.owners.claimed.load()
        chats = await self._chats(notice.known)
        if not any(chats.values()):
            return False
        at = await runtime.store.owners.occasion(notice.cause, now)
        for owner, chat in chats.items():
            if chat is not None:
                acceptance = await runtime.accept(self._delivery(replace(notice, at=at), owner, chat))
                if acceptance.turn is not None:
                    log.info("owner_told", cause=notice.cause, owner=owner)
        return True

    async def reaches_owners(self) -> bool:
        """Return whether notices reach any owner now. Raises StoreUnavailable."""
        setup = self._runtime.setup
        return setup.config.notify_owners and bool(setup.owners) and any((await self._chats()).values())

    async def _chats(self, known: Sequence[str] = ()) -> Mapping[str, MessageContext | None]:
        """Return the direct chats of the owners, without those in `known`."""
        people = [it for it in self._runtime.setup.owners.reachable if it not in known]
        return {it: await direct_with(self._runtime, it) for it in people}

    def _delivery(self, notice: Notice, owner: str, chat: MessageContext) -> Delivery:
        setup, now = self._runtime.setup, self._runtime.now()
        context = replace(chat, text="", mark="", sent_at=datetime.fromtimestamp(now, tz=UTC))
        agent = route(setup.config.routes, setup.config.agents, context)
        inbound = Inbound(
            agent=agent, context=context, command=NOTICE, arguments=notice_json.dump_json(notice).decode()
        )
        names = [f"{notice.cause} {notice.at}", *([notice.once] if notice.once else [])]
        sid = saying_session(session_key(agent, context, setup.session_rules(agent).scope))
        return Delivery.own(inbound, *(f"gateway:notice:{owner}:{name}" for name in names), sid=sid, at=now)


def buttons(choices: Sequence[Choice], *, zh: bool) -> tuple[Button, ...]:
    return tuple(
        Button(label=it.zh if zh else it.en, token=it.token, style="danger" if it.danger else "default")
        for it in choices
    )


NEWEST_MAX = 50
"""Recent messages of a user that are searched for their direct chat."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Surface:
    """A chat where the request is posted; `approver` is `channel:id` if it is that approver's direct chat."""

    context: MessageContext
    approver: str = ""


surfaces_json: TypeAdapter[tuple[Surface, ...]] = TypeAdapter(tuple[Surface, ...])
message_json: TypeAdapter[MessageContext] = TypeAdapter(MessageContext)


def surfaces_of(approval: Approval) -> tuple[Surface, ...]:
    return surfaces_json.validate_json(approval.surfaces)


def message_of(approval: Approval) -> MessageContext:
    return message_json.validate_json(approval.origin)


def is_approver(message: MessageContext, approvers: Sequence[str]) -> bool:
    """Return whether an approver sent the message; a bot never decides."""
    return not message.sender.is_bot and person_of(message) in approvers


async def find_surfaces(runtime: Runtime, origin: MessageContext, approvers: Sequence[str]) -> tuple[Surface, ...]:
    """Return this chat if it is an approver's direct chat or listed in the config, else each approver's direct chat.
    Raises StoreUnavailable."""
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
    """Return the sender's most recent direct chat, or the message's own chat."""
    newest = await runtime.store.approvals.newest_from(sender_of(context), NEWEST_MAX)
    chats = [inbound_of(it).context.chat for it in newest]
    return next((it for it in chats if it.kind == "direct"), context.chat)


async def direct_with(runtime: Runtime, person: str, account: str = "") -> MessageContext | None:
    """Return the direct chat with a user: that of their newest message, preferably at `account`, or the one that the
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
    """Map users (`channel:id`) to their names: the last one seen here, else the platform's current one. Raises
    StoreUnavailable."""
    found = dict(await runtime.store.contacts.called(people))
    for who in people:
        if who in found or ":" not in who or (chat := await direct_with(runtime, who)) is None:
            continue
        if channel := runtime.setup.channel(chat):
            found[who] = (await channel.enrich(replace(chat, text="", mark=""))).sender.name or ""
    return found
