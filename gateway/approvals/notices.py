"""Notices to the owners: what the operator should know, one line in each owner's direct chat.

A notice is an internal message of the inbox, so it is stored once, whichever replica asks for it, also after a kill,
and goes out by the outbox like a reply. Of one cause the owners hear once an hour. A caller of `tell` after a crash
calls it again with the same cause, and nothing is said twice. A `Surface` is a chat where a request for approval is posted.
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
"""The tokens of buttons under notices begin with it: `own:ACT:MESSAGE`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """A button under a notice. Its token says what to do and to what; that the presser is an owner is judged again."""

    token: str
    en: str
    zh: str
    danger: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Notice:
    """One line in both languages, in Markdown: `approvals.display.value` makes foreign words harmless in it. `cause` is what
    it is about, such as `config` or `channel feishu:default`; `once` names the single event that it tells of, if it does.
    `typed` is added if a channel has no buttons; the owners who `known` it already do not get it. `ids` are those of the
    people and chats in the line, shown whole under Details. `always`: also if the config has switched notices off."""

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
        """Tells every owner whose direct chat is known; True if one of them has it, now or within the last hour.
        Raises StoreUnavailable."""
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
        """Return whether the bot has an owner who hears of what is told now. Raises StoreUnavailable."""
        setup = self._runtime.setup
        return setup.config.notify_owners and bool(setup.owners) and any((await self._chats()).values())

    async def _chats(self, known: Sequence[str] = ()) -> Mapping[str, MessageContext | None]:
        """The direct chats of the owners, but for those who know it already."""
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
