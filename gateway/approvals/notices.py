"""Notices to the owners: what the operator should know, one line in each owner's direct chat.

A notice is an internal message of the inbox, so it is stored once, whichever replica asks for it, also after a kill,
and goes out by the outbox like a reply. Of one cause the owners hear once an hour. A caller of `tell` after a crash
calls it again with the same cause, and nothing is said twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import structlog
from pydantic import TypeAdapter

from channels.message import Button, MessageContext
from gateway.approvals.surfaces import direct_with
from gateway.config.bindings import route
from gateway.state.runtime import Runtime
from gateway.store.inbound import NOTICE, Inbound
from gateway.store.records import Delivery
from gateway.store.sessions import saying_session, session_key

OWN = "own:"
"""The tokens of buttons under notices begin with it: `own:ACT:MESSAGE`."""

log = structlog.get_logger()


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
