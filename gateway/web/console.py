"""The routes of the operator's console: what its rooms ask, and its acts. `gateway.web.door` serves the page, and
lets nobody but the operator reach a route of this table.

What a view shows is asked for when it is opened, and again while it is: nothing here is kept or pushed. A decision is made
in the name of the person at the page, so who may not approve in the chat may not approve here.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import tzinfo
from typing import Any, Literal, TypeAlias

import orjson
import structlog
from fastapi import Request, Response
from pydantic import BaseModel, Field

from channels.moment import iso
from channels.web.channel import WebChannel
from channels.web.views import html
from gateway.approvals.approvals import Approvals
from gateway.approvals.display import answers, label, request_details, request_text
from gateway.approvals.surfaces import message_of
from gateway.http.bodies import Bodies
from gateway.http.door import Readiness
from gateway.http.request import PersonRoute, Unserved, answer_json, id_in_path, number_of, read_json
from gateway.operate.agents import agents_view
from gateway.operate.clipped import ANSWER_BYTES, brief
from gateway.operate.contacts import facts as contact_facts
from gateway.operate.masked import config_view
from gateway.operate.sessions import named
from gateway.operate.usage import By, usage_view
from gateway.state.runtime import Runtime
from gateway.store.approvals import Approval, Decider, Grant
from gateway.store.conversations import Names
from gateway.store.dead_letters import DeadLetter, dead_letters, replay
from gateway.store.errors import StoreUnavailable
from gateway.store.migrate import DatabaseUnusable
from gateway.store.sessions import LOCAL_PERSON, session_parts
from gateway.store.statements import PAIRING_SECONDS
from gateway.web.listing import page

Decided: TypeAlias = Literal["allow-once", "allow-always", "deny"]
SURFACE = "console"
DAYS, DAYS_MAX = 30, 366
WAITING_MAX, GRANTS_MAX = 100, 100
PROBLEM_CHARS = 2_000
"""Characters of a mistake's sentence."""
USAGE_BY: Sequence[By] = ("agent", "model", "person", "chat")

NO_SUCH_APPROVAL = 404, "no-such-approval", "There is no such request."
DECIDED = 409, "decided", "This request has been decided already, or has expired."
ONCE_ONLY = 409, "once-only", "Not all that this call runs can be pinned down, so it can only be allowed once."
NO_APPROVER = 403, "no-approver", "The config names others as approvers (approvals.approvers), and not web:local."
NOT_WAITING = 409, "not-waiting", "This person does not wait any more."
NO_DEAD_LETTER = 409, "no-dead-letter", "There is no such dead letter any more."

log = structlog.get_logger()


class _Decision(BaseModel, extra="forbid", strict=True):
    decision: Decided


class _Admitted(BaseModel, extra="forbid", strict=True):
    request: int
    """The message with which the person asked, as the list of people names it."""


class _Replayed(BaseModel, extra="forbid", strict=True):
    names: list[str] = Field(min_length=1, max_length=100)


async def ownership(runtime: Runtime) -> dict[str, Any]:
    """Return whether the operator's page is an owner (`here`), the names of the others, and the time of the first claim."""
    owners = runtime.setup.owners
    others = [it for it in owners if it != LOCAL_PERSON]
    names = await runtime.store.contacts.called(others)
    claimed = {it.person: it.at for it in await runtime.store.owners.listed()}
    since = min((claimed[it] for it in others if it in claimed), default=None) if not owners.named else None
    here = not owners or LOCAL_PERSON in owners
    return {"here": here, "owners": brief([label(it, names.get(it)) for it in others]), "since": since}


class Console:
    """Routes of `gateway.web.door`; each gets the operator."""

    def __init__(
        self, runtime: Runtime, channel: WebChannel, approvals: Approvals, readiness: Readiness, bodies: Bodies
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._approvals = approvals
        self._readiness = readiness
        self._bodies = bodies

    def routes(self) -> Sequence[tuple[str, str, PersonRoute]]:
        return (
            ("GET", "/api/console/state", self.state),
            ("GET", "/api/console/approvals", self.approvals),
            ("POST", "/api/console/approvals/{approval}", self.decide),
            ("GET", "/api/console/people", self.people),
            ("POST", "/api/console/people", self.let_in),
            ("GET", "/api/console/dead-letters", self.dead_letters),
            ("POST", "/api/console/dead-letters", self.replay),
            ("GET", "/api/console/usage", self.usage),
            ("GET", "/api/console/agents", self.agents),
            ("GET", "/api/console/config", self.config),
        )

    async def state(self, request: Request, person: str) -> Response:
        """The state of the gateway, and how much waits for a person."""
        view = await self._readiness.view(tells=True)
        try:
            view["waiting"] = await self._waiting()
        except (StoreUnavailable, DatabaseUnusable):  # the rest of the view says why
            view["waiting"] = None
        view["signedIn"] = bool(await self._channel.admission.signed_in(request.headers.items()))
        return answer_json(brief(view))

    async def _waiting(self) -> dict[str, int]:
        now, store = self._runtime.now(), self._runtime.store
        waiting = [it for it in (await store.approvals.listed(now))[0] if self._is_mine(it)]
        strangers = await store.contacts.waiting(now - PAIRING_SECONDS)
        letters = await asyncio.to_thread(dead_letters, self._runtime.setup.config.database)
        return {"approvals": len(waiting), "people": len(strangers), "deadLetters": len(letters)}

    async def approvals(self, request: Request, person: str) -> Response:
        """The requests that wait, the oldest first, each whole: as many as an answer holds, from the number `from`."""
        waiting, grants = await self._runtime.store.approvals.listed(self._runtime.now())
        names = await self._names()
        begin = number_of(request.query_params.get("from", "")) or 0
        shown = await asyncio.to_thread(lambda: [*self._fitting(waiting[begin:], names)])
        return answer_json(
            {
                "waiting": shown,
                "from": begin,
                "count": len(waiting),
                "grants": brief([self._grant(it, names) for it in grants[-GRANTS_MAX:]]),
                "ownership": await ownership(self._runtime),
            }
        )

    async def _names(self) -> Names:
        return await asyncio.to_thread(named, self._runtime.setup.config)

    def _grant(self, it: Grant, names: Names) -> dict[str, Any]:
        facts = {"id": it.id, "agent": it.agent, "by": it.granted_by, "byName": names.person(it.granted_by)}
        return facts | {"since": it.granted_at, "expires": it.expires, "uses": it.uses}

    def _fitting(self, waiting: Sequence[Approval], names: Names) -> Iterator[dict[str, Any]]:
        """The first always, and those behind it that the answer still holds."""
        zone, size = self._runtime.setup.config.server.zone, 0
        for it in waiting:
            shown = self._shown(it, zone, names)
            size += len(orjson.dumps(shown))
            if size > ANSWER_BYTES and shown["id"] != waiting[0].id:
                return
            yield shown

    def _shown(self, approval: Approval, zone: tzinfo, names: Names) -> dict[str, Any]:
        """The request as an approver reads it in a chat, whole."""
        origin, approvers = message_of(approval), self._approvals.approvers(approval.agent)
        agent = next((it for it in self._runtime.setup.config.agents.list if it.id == approval.agent), None)
        texts = {
            lang: {
                "question": html(
                    request_text(approval, origin, lang, called=names.people, reader=LOCAL_PERSON, agent=agent)
                ),
                "details": html(request_details(approval, origin, lang, zone, names.people).text),
            }
            for lang in ("en", "zh")
        }
        facts = {"id": approval.id, "agent": approval.agent, "created": approval.created, "expires": approval.expires}
        facts |= {"tainted": bool(approval.tainted), "answers": answers(approval), "approvers": approvers}
        people_and_chat = [*map(names.person, approval.requester.split(", ")), names.chat(approval.sid)]
        asked = "", origin.sender.name  # the question has the sender's name
        facts["names"] = brief([it for it in dict.fromkeys(people_and_chat) if it not in asked])
        facts["approverNames"] = brief([label(it, names.person(it)) for it in approvers])
        return facts | {"mine": self._is_mine(approval), "texts": texts}

    def _is_mine(self, approval: Approval) -> bool:
        return LOCAL_PERSON in self._approvals.approvers(approval.agent)

    async def decide(self, request: Request, person: str) -> Response:
        given = await read_json(request, _Decision, self._bodies)
        approval = await self._approvals.get(id_in_path(request, "approval"))
        if approval is None:
            raise Unserved(*NO_SUCH_APPROVAL)
        await self._runtime.setup.owners.claimed.load()  # the command line may have ended the page's right
        if not self._is_mine(approval):
            raise Unserved(*NO_APPROVER)
        if given.decision not in answers(approval):
            raise Unserved(*ONCE_ONLY)
        by = Decider(person=LOCAL_PERSON, surface=SURFACE)
        won, after = await self._approvals.decide(approval, given.decision, by)
        if not won:
            raise Unserved(*DECIDED)
        log.info("approval_decided", approval=after.id, decision=given.decision, by=by.person, surface=SURFACE)
        return answer_json({"id": after.id, "state": after.state})

    async def people(self, request: Request, person: str) -> Response:
        """The strangers who wait, the oldest first, and a page of the people who were let in, the newest first."""
        config, names = self._runtime.setup.config, await self._names()
        contacts = await self._runtime.store.contacts.listed(self._runtime.now() - PAIRING_SECONDS)
        shown = [
            contact_facts(it, config) | {"request": it.turn, "byName": names.person(it.approved_by)} for it in contacts
        ]
        waiting = [it for it in shown if it["approvedBy"] is None]
        known = [it for it in reversed(shown) if it["approvedBy"] is not None]
        listed = await asyncio.to_thread(page, known, request.query_params)
        return answer_json({"waiting": brief(waiting[:WAITING_MAX]), "known": listed.pop("rows")} | listed)

    async def let_in(self, request: Request, person: str) -> Response:
        given = await read_json(request, _Admitted, self._bodies)
        found = await self._runtime.store.contacts.decide(
            given.request, "let in", by=LOCAL_PERSON, turn=None, at=self._runtime.now()
        )
        if found is None:
            raise Unserved(*NOT_WAITING)
        contact, notice = found
        if notice is not None:
            await self._runtime.accept(notice)
        log.info("pairing_approved", channel=contact.channel, sender=contact.person, by=LOCAL_PERSON)
        return answer_json({"name": contact.name})

    async def dead_letters(self, request: Request, person: str) -> Response:
        """A page of them, the newest first; `names` has those of all that are meant, to replay them at once."""
        config, names = self._runtime.setup.config, await self._names()
        found = await asyncio.to_thread(dead_letters, config.database)
        rows = [self._letter(it, names) for it in reversed(found)]
        shown = await asyncio.to_thread(page, rows, request.query_params, marked="name")
        return answer_json({"letters": shown.pop("rows")} | shown)

    def _letter(self, letter: DeadLetter, names: Names) -> dict[str, Any]:
        place = session_parts(letter.session)
        where = {"agent": place.agent, "channel": place.channel, "account": place.account, "chat": place.chat}
        reason = self._runtime.scrubber.scrub(letter.reason)
        title = self._runtime.scrubber.scrub(names.chat(letter.session))
        return {"name": letter.name} | asdict(letter) | where | {"reason": reason, "title": title}

    async def replay(self, request: Request, person: str) -> Response:
        """Queues them again; the next sweep takes them up."""
        given = await read_json(request, _Replayed, self._bodies)
        replayed = await asyncio.to_thread(replay, self._runtime.setup.config.database, given.names)
        if not replayed:
            raise Unserved(*NO_DEAD_LETTER)
        log.info("dead_letters_replayed", names=replayed, by=LOCAL_PERSON)
        return answer_json({"replayed": replayed})

    async def usage(self, request: Request, person: str) -> Response:
        """The last days, and a page of the agents, models, people or chats (`by`) in them."""
        query, config, now = request.query_params, self._runtime.setup.config, self._runtime.now()
        days = min(number_of(query.get("days", "")) or DAYS, DAYS_MAX)
        by = next((it for it in USAGE_BY if it == query.get("by")), USAGE_BY[0])
        names = await self._names()

        def shown() -> dict[str, Any]:
            view = usage_view(config, days, now, by)
            called = {"person": names.people, "chat": names.chats}.get(by, {})
            rows = [it | {"called": called.get(it["name"], "")} for it in view.pop("rows")]
            return view | page(rows, query)

        return answer_json(await asyncio.to_thread(shown))

    async def agents(self, request: Request, person: str) -> Response:
        found, names = await asyncio.to_thread(agents_view, self._runtime.setup), await self._names()
        shown = [it | {"approverNames": [label(who, names.person(who)) for who in it["approvers"]]} for it in found]
        return answer_json(brief({"agents": shown}))

    async def config(self, request: Request, person: str) -> Response:
        """The config in force without its secrets, and what is wrong with the edit that is not."""
        state, config = self._runtime.config_state, self._runtime.setup.config
        shown = await asyncio.to_thread(config_view, config, self._runtime.scrubber)
        problems = [asdict(it) for it in state.problems]
        facts = brief({"version": state.version, "restart": state.restart, "problems": problems}, PROBLEM_CHARS)
        return answer_json(facts | shown | {"since": iso(self._runtime.began, config.server.zone)})
