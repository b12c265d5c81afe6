"""Routes of the operator's console. `gateway.web.door` serves the page and admits only the operator to these routes.

The page requests a view when it is opened and polls while it is shown; nothing is cached or pushed. A decision is made in
the name of the person at the page, who needs the same approver's rights as in the chat.

Views: overview, usage, schedules, tasks, and the sessions and turns of all channels, as filtered, paged rows.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import tzinfo
from typing import Any, Literal, TypeAlias, TypeVar
from urllib.parse import quote

import orjson
import structlog
from fastapi import Request, Response
from pydantic import BaseModel, Field

from channels.moment import iso
from channels.web.channel import WebChannel
from channels.web.views import html
from gateway.approvals.approvals import Approvals
from gateway.approvals.display import answers, label, request_details, request_text
from gateway.approvals.notices import message_of
from gateway.http.bodies import Bodies
from gateway.http.door import Readiness
from gateway.http.request import PersonRoute, Unserved, answer_json, id_in_path, number_of, read_json
from gateway.observe.secrets import Mask
from gateway.operate import schedules
from gateway.operate.clipped import ANSWER_BYTES, PIECE_CHARS, brief, clipped, text_at
from gateway.operate.contacts import facts as contact_facts
from gateway.operate.sessions import found as found_session
from gateway.operate.sessions import markdown, named, newest, place_facts, read, summary
from gateway.operate.setup import agents_view, config_view
from gateway.operate.turns import record_of, scrubbed, turn_list
from gateway.operate.usage import By, usage_view
from gateway.program import OperatorError
from gateway.state.runtime import Runtime
from gateway.store.approvals import Approval, Decider, Grant
from gateway.store.conversations import Names, Session
from gateway.store.dead_letters import DeadLetter, dead_letters, replay
from gateway.store.errors import StoreUnavailable
from gateway.store.migrate import DatabaseUnusable
from gateway.store.sessions import LOCAL_PERSON, session_parts
from gateway.store.statements import PAIRING_SECONDS
from gateway.store.tasks import Task
from gateway.turns.tasks import Tasks

log = structlog.get_logger()

Decided: TypeAlias = Literal["allow-once", "allow-always", "deny"]
SURFACE = "console"
DAYS, DAYS_MAX = 30, 366
WAITING_MAX, GRANTS_MAX = 100, 100
PROBLEM_CHARS = 2_000
"""Characters of a config problem's text."""
USAGE_BY: Sequence[By] = ("agent", "model", "person", "chat")

Act: TypeAlias = Literal["pause", "resume", "stop"]
STATES: Mapping[Act, Sequence[str]] = {"pause": ("active",), "resume": ("paused",), "stop": ("active", "paused")}
"""The states of a schedule in which each act is allowed."""
TASKS_MAX = 200
NO_MESSAGE = 0
"""The message number when a task is stopped without a message."""
NOT_CHANGED = 409, "not-changed", "It has changed meanwhile, and was left as it is."
SHOWN_CHARS = 100_000
"""Characters of a session that are shown, counted from its end."""
NO_SUCH_APPROVAL = 404, "no-such-approval", "There is no such request."
DECIDED = 409, "decided", "This request has been decided already, or has expired."
ONCE_ONLY = 409, "once-only", "Not all that this call runs can be pinned down, so it can only be allowed once."
NO_APPROVER = 403, "no-approver", "The config names others as approvers (approvals.approvers), and not web:local."
NOT_WAITING = 409, "not-waiting", "This person does not wait any more."
NO_DEAD_LETTER = 409, "no-dead-letter", "There is no such dead letter any more."
NO_SUCH_SESSION = 404, "no-such-session", "There is no such session."
NO_SUCH_TURN = 404, "no-such-turn", "There is no such turn."
NO_SUCH_TEXT = 404, "no-such-text", "There is no such text in this turn."


class _Decision(BaseModel, extra="forbid", strict=True):
    decision: Decided


class _Admitted(BaseModel, extra="forbid", strict=True):
    request: int
    """The message with the pairing request, as listed by `GET /api/console/people`."""


class _Replayed(BaseModel, extra="forbid", strict=True):
    names: list[str] = Field(min_length=1, max_length=100)


class _Change(BaseModel, extra="forbid", strict=True):
    act: Act


class _Stop(BaseModel, extra="forbid", strict=True):
    """Empty body: the path names the task."""


async def ownership(runtime: Runtime) -> dict[str, Any]:
    """Return whether the operator's page is an owner (`here`), the other owners' names, and the time of the first claim."""
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
        self,
        runtime: Runtime,
        channel: WebChannel,
        approvals: Approvals,
        tasks: Tasks,
        readiness: Readiness,
        bodies: Bodies,
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._approvals = approvals
        self._tasks = tasks
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
            ("GET", "/api/console/schedules", self.schedules),
            ("POST", "/api/console/schedules/{schedule}", self.change),
            ("GET", "/api/console/tasks", self.tasks),
            ("POST", "/api/console/tasks/{task}", self.stop),
            ("GET", "/api/sessions", self.sessions),
            ("GET", "/api/sessions/{session}", self.session),
            ("GET", "/api/turns", self.turns),
            ("GET", "/api/turns/{turn}", self.turn),
            ("GET", "/api/turns/{turn}/text", self.text),
        )

    async def state(self, request: Request, person: str) -> Response:
        """Return the gateway's state, and the number of items that wait for a decision."""
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
        """List pending requests in full, oldest first: as many as fit an answer, starting at `from`."""
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
        zone, size = self._runtime.setup.config.server.zone, 0
        for it in waiting:
            shown = self._shown(it, zone, names)
            size += len(orjson.dumps(shown))
            # An oversized first request is still shown.
            if size > ANSWER_BYTES and shown["id"] != waiting[0].id:
                return
            yield shown

    def _shown(self, approval: Approval, zone: tzinfo, names: Names) -> dict[str, Any]:
        origin, approvers = message_of(approval), self._approvals.approvers_of(approval)
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
        return LOCAL_PERSON in self._approvals.approvers_of(approval)

    async def decide(self, request: Request, person: str) -> Response:
        given = await read_json(request, _Decision, self._bodies)
        approval = await self._approvals.get(id_in_path(request, "approval"))
        if approval is None:
            raise Unserved(*NO_SUCH_APPROVAL)
        await self._runtime.setup.owners.claimed.load()  # the command line may have changed the owners
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
        """List pending pairing requests, oldest first, and a page of approved people, newest first."""
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
        """List a page of dead letters, newest first; `names` has all that match, to replay them together."""
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
        given = await read_json(request, _Replayed, self._bodies)
        replayed = await asyncio.to_thread(replay, self._runtime.setup.config.database, given.names)
        if not replayed:
            raise Unserved(*NO_DEAD_LETTER)
        log.info("dead_letters_replayed", names=replayed, by=LOCAL_PERSON)
        return answer_json({"replayed": replayed})

    async def usage(self, request: Request, person: str) -> Response:
        """Return usage of the last days, and a page of it by agent, model, person or chat (`by`)."""
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
        """Return the config in force without secrets, and the problems of an edit that was not applied."""
        state, config = self._runtime.config_state, self._runtime.setup.config
        shown = await asyncio.to_thread(config_view, config, self._runtime.scrubber)
        problems = [asdict(it) for it in state.problems]
        facts = brief({"version": state.version, "restart": state.restart, "problems": problems}, PROBLEM_CHARS)
        return answer_json(facts | shown | {"since": iso(self._runtime.began, config.server.zone)})

    async def schedules(self, request: Request, person: str) -> Response:
        """List a page of schedules; `ownerName` and `toName` name the owner and the chat."""
        shown = await asyncio.to_thread(self._schedules, request.query_params)
        return answer_json({"schedules": shown.pop("rows")} | shown)

    def _schedules(self, query: Mapping[str, str]) -> dict[str, Any]:
        config = self._runtime.setup.config
        if query.get("words") or query.get("agent"):
            return page(self._with_names(schedules.listed(config)), query)
        # The page polls every few seconds: without a filter, read only its rows.
        first = number_of(query.get("from", "")) or 0
        rows, count = schedules.page(config, first=first, most=ROWS_MAX)
        return {"rows": brief(self._with_names(rows)), "from": first, "count": count}

    def _with_names(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        names = named(self._runtime.setup.config)
        return [
            it | {"ownerName": names.person(it["owner"]), "toName": names.place(it["to"]) or names.person(it["to"])}
            for it in rows
        ]

    async def change(self, request: Request, person: str) -> Response:
        given, id_ = await read_json(request, _Change, self._bodies), id_in_path(request, "schedule")
        try:
            after = await asyncio.to_thread(self._changed, id_, given.act)
        except OperatorError as error:
            raise Unserved(409, "not-changed", str(error)) from None
        log.info("schedule_changed", id=id_, act=given.act, by=LOCAL_PERSON)
        return answer_json(after)

    def _changed(self, id_: str, act: Act) -> dict[str, Any]:
        config = self._runtime.setup.config
        if schedules.one(config, id_)["state"] not in STATES[act]:
            raise Unserved(*NOT_CHANGED)
        return schedules.cancel(config, id_) if act == "stop" else schedules.pause(config, id_)

    async def tasks(self, request: Request, person: str) -> Response:
        """List the newest tasks of all conversations, running ones first."""
        newest = await self._runtime.store.tasks.newest(TASKS_MAX)
        names = await self._names()
        shown = page([self._task(it, names) for it in newest], request.query_params, begin="tasks")
        return answer_json({"tasks": shown.pop("rows")} | shown)

    def _task(self, task: Task, names: Names) -> dict[str, Any]:
        seconds = (task.ended or self._runtime.now()) - task.started
        facts: dict[str, Any] = {
            "id": task.id,
            "agent": task.agent,
            "person": task.person,
            "personName": names.person(task.person),
            "chat": task.chat,
            "chatName": names.place(task.chat),
        }
        facts |= {"title": self._runtime.scrubber.scrub(task.title), "state": task.state, "started": task.started}
        return facts | {"seconds": round(max(0.0, seconds), 1)}

    async def stop(self, request: Request, person: str) -> Response:
        await read_json(request, _Stop, self._bodies)
        task = await self._runtime.store.tasks.get(id_in_path(request, "task"))
        if task is None or not await self._tasks.halt([task], by=NO_MESSAGE):
            raise Unserved(*NOT_CHANGED)
        log.info("task_stopped", task=task.id, by=LOCAL_PERSON)
        return answer_json({"id": task.id, "state": "stopped"})

    async def sessions(self, request: Request, person: str) -> Response:
        """List a page of the sessions of all channels, the one with the newest message first."""
        return answer_json(await asyncio.to_thread(self._sessions, dict(request.query_params)))

    def _sessions(self, query: Mapping[str, str]) -> dict[str, Any]:
        config = self._runtime.setup.config
        found, names, scrub = newest(config), named(config), self._runtime.scrubber.scrub
        known = {}

        def view(session: Session) -> dict[str, Any]:
            place = place_facts(session) | {"name": scrub(names.chat(session.sid)), "sid": session.sid}
            known[place["id"]] = session
            return place

        shown = page_of(found, query, view)
        sessions = read(config, [known[it["id"]] for it in shown["rows"]])
        rows = zip(sessions, shown.pop("rows"), strict=True)
        return {"sessions": [summary(session, config.server.zone) | row for session, row in rows]} | shown

    async def session(self, request: Request, person: str) -> Response:
        read = await asyncio.to_thread(self._read, id_in_path(request, "session"))
        if read is None:
            raise Unserved(*NO_SUCH_SESSION)
        return answer_json(read)

    def _read(self, name: str) -> dict[str, Any] | None:
        config = self._runtime.setup.config
        if (read := found_session(config, name)) is None:
            return None
        session, entries, marks = read
        zone = config.server.zone
        mask = Mask(self._runtime.scrubber.scrub)
        text = mask("\n".join(markdown(session, entries, marks, zone)))
        names = named(config)
        facts = summary(session, zone) | {"name": self._runtime.scrubber.scrub(names.chat(session.sid))}
        shown, missing = html(text[-SHOWN_CHARS:]), max(0, len(text) - SHOWN_CHARS)
        return {"session": brief(facts), "html": shown, "missing": missing, "masked": mask.count}

    async def turns(self, request: Request, person: str) -> Response:
        config, query = self._runtime.setup.config, dict(request.query_params)
        layers, before = self._runtime.store.layers, number_of(query.get("before", ""))
        page = await turn_list(layers, before=before, only=query, config=config)
        return answer_json(await asyncio.to_thread(lambda: brief(scrubbed(page, self._runtime.scrubber.scrub))))

    async def turn(self, request: Request, person: str) -> Response:
        whole = await self._whole(request)
        return answer_json(await asyncio.to_thread(clipped, whole, self._runtime.scrubber.scrub))

    async def text(self, request: Request, person: str) -> Response:
        """Return a text of the turn's layers: the whole as a file, or a piece from character `from`."""
        query = request.query_params
        whole = await self._whole(request)
        text = await asyncio.to_thread(text_at, whole, query.get("at", ""), self._runtime.scrubber.scrub)
        if text is None:
            raise Unserved(*NO_SUCH_TEXT)
        if (begin := number_of(query.get("from", ""))) is not None:
            return answer_json({"text": text[begin : begin + PIECE_CHARS], "chars": len(text)})
        name = quote(f"turn-{request.path_params['turn']}{query['at'].replace('/', '-')}.txt", safe="")
        headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}", "cache-control": "no-store"}
        headers |= {"content-security-policy": "default-src 'none'; sandbox"}
        return Response(text, headers=headers, media_type="text/plain")

    async def _whole(self, request: Request) -> dict[str, Any]:
        number, config = number_of(request.path_params["turn"]), self._runtime.setup.config
        turn = None if number is None else await record_of(self._runtime.store.layers, number, config)
        if turn is None:
            raise Unserved(*NO_SUCH_TURN)
        return turn.model_dump(by_alias=True)


T = TypeVar("T")
ROWS_MAX = 50
FIELDS = ("agent", "channel")
"""Filters that must equal the row's field; a row without the field does not match."""


def page(
    rows: Sequence[Mapping[str, Any]], query: Mapping[str, str], *, begin: str = "from", marked: str = ""
) -> dict[str, Any]:
    """Return the page of `rows` that contain all `words`, starting at the number in the parameter `begin`.

    `count` is the number of matching rows; `names` has the field `marked` of each, if given."""
    words = query.get("words", "").casefold().split()
    only = {name: query[name] for name in FIELDS if query.get(name)}
    meant = [it for it in rows if _is_meant(it, only) and holds(words, it)]
    first = number_of(query.get(begin, "")) or 0
    shown = {"rows": brief(meant[first : first + ROWS_MAX]), "from": first, "count": len(meant)}
    return shown | ({"names": [it[marked] for it in meant]} if marked else {})


def page_of(found: Sequence[T], query: Mapping[str, str], view: Callable[[T], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the `page` of the views of `found`. Without a filter, build only the views of that page."""
    if query.get("words") or any(map(query.get, FIELDS)):
        return page([view(it) for it in found], query)
    first = number_of(query.get("from", "")) or 0
    rows = [view(it) for it in found[first : first + ROWS_MAX]]
    return {"rows": brief(rows), "from": first, "count": len(found)}


def holds(words: Sequence[str], *values: Any) -> bool:
    if not words:
        return True
    text = "\n".join(it for value in values for it in _texts(value)).casefold()
    return all(it in text for it in words)


def _is_meant(row: Mapping[str, Any], only: Mapping[str, str]) -> bool:
    return all(row.get(name) == wanted for name, wanted in only.items())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for it in value.values():
            yield from _texts(it)
    elif isinstance(value, list | tuple):
        for it in value:
            yield from _texts(it)
