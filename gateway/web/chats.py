"""Conversation routes of the web chat: list, search, read, export, rename, move and erase.

A conversation belongs to one person; everybody else gets a 404. docs/http.md lists requests and responses.

Notes are those of `/remember`; if the config closes that command to a person, these routes are closed as well. Adding a
note is idempotent: the note's turn is derived from the id that the page sends.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote
from weakref import WeakValueDictionary

import orjson
import structlog
from fastapi import Request, Response
from pydantic import BaseModel, StringConstraints, model_validator
from starlette.responses import StreamingResponse

from agents.config import AgentConfig
from agents.turn import Settings, settings_json
from channels.message import Chat, MessageContext
from channels.moment import timestamp
from channels.web.admission import OPERATOR
from channels.web.archive import WebConversation
from channels.web.channel import FILES_MAX, WebChannel
from channels.web.views import PAGE_BYTES_MAX, conversation_view, event, fitting
from gateway.commands.catalog import COMMANDS, offered, situation
from gateway.commands.command import Command
from gateway.commands.settings import model_in_force, thinking_levels
from gateway.http.bodies import Bodies
from gateway.http.request import PersonRoute, Unserved, answer_json, id_in_path, number_of, problem, read_json
from gateway.later.schedule import theirs
from gateway.operate.first_key import FirstKey
from gateway.state.runtime import Runtime
from gateway.store.archive import CONVERSATIONS_MAX, WebHit, has_all, place_of
from gateway.store.errors import StoreUnavailable
from gateway.store.memory import NOTES_MAX
from gateway.store.sessions import all_beside, chat_session, is_open, message_in, sender_of, session_key
from tools.memory import NOTE_CHARS_MAX
from tools.policy import permitted
from tools.workspace import forget_session

log = structlog.get_logger()

PAGE_MESSAGES = 50
UNTIL_MESSAGES = 500
"""Maximum messages in a page that reaches back to a search hit."""
FOUND_MAX = 100
"""Maximum conversations in a search result."""
HITS_MAX = 3
"""Maximum matching lines shown per conversation."""
CHAT_NOTICE = "chat "
"""Prefix of the notice to other replicas that a conversation changed; no session id starts so."""
STOP_SECONDS = 5.0
STOP_POLL_SECONDS = 0.05
NO_SUCH_AGENT = 404, "no-such-agent", "There is no such agent."
NO_SUCH_MESSAGE = 404, "no-such-message", "There is no such message."
RATINGS_CLOSED = 403, "ratings-closed", "The config keeps /good and /bad for others."
NO_SUCH_CHAT = 404, "no-such-chat", "There is no such conversation."


class _ChatChange(BaseModel, extra="forbid", strict=True):
    """Changes to a conversation; omitted fields are unchanged."""

    title: str | None = None
    pinned: bool | None = None
    archived: bool | None = None
    branch: int | None = None
    """A message number: show the newest branch that contains it."""

    @model_validator(mode="after")
    def _changes_something(self) -> "_ChatChange":
        if self.model_fields_set:
            return self
        raise ValueError("nothing is to change")


class _Rating(BaseModel, extra="forbid", strict=True):
    rating: Literal["good", "bad"] | None


class Chats:
    """Routes of `gateway.web.door`; each gets the signed-in person."""

    def __init__(self, runtime: Runtime, channel: WebChannel, bodies: Bodies, first_key: FirstKey) -> None:
        self._runtime = runtime
        self._channel = channel
        self._bodies = bodies
        self._first_key = first_key
        self._archive = runtime.store.archive
        self._config = runtime.setup.config
        self._offers = Offers(runtime, channel)
        self._searching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """A lock per person: one search at a time."""

    async def chats(self, request: Request, person: str) -> Response:
        """Return what a page starts with: the conversations, the agents, and the limits on messages."""
        if behind := request.query_params.get("behind"):
            return answer_json(await self._page(person, archived=False, behind=behind))
        last = await self._archive.last()
        limits, agents = self._config.limits, self._offers.agents(person)
        return answer_json(
            {
                "agents": [
                    {
                        "id": it.id,
                        "name": it.name or it.id,
                        "model": it.model[0],
                        "description": it.description,
                        "examples": it.examples,
                    }
                    for it in agents
                ],
                "person": person,
                "voice": bool(self._config.transcription.model),
                "operator": person == OPERATOR,
                **await self._page(person, archived=False),
                "archived": await self._archive.archived(person),
                "after": last,
                "currency": self._config.currency,
                "signed_in": bool(await self._channel.admission.signed_in(request.headers.items())),
                "commands": [
                    {"name": it.name, "hint": it.form.partition(" ")[2], "en": it.en, "zh": it.zh}
                    for it in await self._commands(person)
                ],
                "limits": {"file_bytes": limits.file_bytes, "files": FILES_MAX, "message_chars": limits.message_chars},
                "keys": [
                    {"vendor": it.names[0], "title": it.title, "made_at": it.made_at}
                    for it in self._first_key.vendors_for(person)
                ],
                "guide": self._config.agents.list[0].is_demo,
            }
        )

    async def _commands(self, person: str) -> Sequence[Command]:
        setup, message = self._runtime.setup, self._offers.message(person)
        layers = setup.layers.of(message)
        runners = [setup.runners[it.id] for it in self._offers.agents(person)]
        there = situation(setup, {name for it in runners for name in permitted(layers, it.names)})
        names = {it.name for it in offered(there, "direct")}
        if "schedules" not in names and await theirs(self._runtime.store, message):
            names.add("schedules")
        return [it for it in COMMANDS.values() if it.name in names and it.is_open(setup, message)]

    async def archived(self, request: Request, person: str) -> Response:
        return answer_json(await self._page(person, archived=True, behind=request.query_params.get("behind", "")))

    async def _page(self, person: str, *, archived: bool, behind: str = "") -> dict[str, Any]:
        found = await self._archive.conversations(person, archived=archived, behind=behind)
        more = len(found) == CONVERSATIONS_MAX
        return {"chats": [*map(self._view, found)], "next": place_of(found[-1]) if more else None}

    async def search(self, request: Request, person: str) -> Response:
        """Search one conversation at a time, so other readers of the database do not wait. Stop if the client
        disconnects."""
        words = words_of(request.query_params.get("words", ""))
        chats_found: list[dict[str, Any]] = []
        if not words:
            return answer_json({"chats": chats_found, "more": False})
        async with self._searching.setdefault(person, asyncio.Lock()):
            async for it in self._all(person):
                if await request.is_disconnected():
                    break
                hits = await self._runtime.store.search.hits(it.id, words, limit=HITS_MAX)
                if hits or has_all(it.title, words):
                    chats_found.append(self._found(it, hits, words))
                if len(chats_found) > FOUND_MAX:
                    break
        return answer_json({"chats": chats_found[:FOUND_MAX], "more": len(chats_found) > FOUND_MAX})

    async def _all(self, person: str) -> AsyncIterator[WebConversation]:
        for archived in (False, True):
            behind = ""
            while page := await self._archive.conversations(person, archived=archived, behind=behind):
                for it in page:
                    yield it
                behind = place_of(page[-1])

    def _found(self, chat: WebConversation, hits: Sequence[WebHit], words: Sequence[str]) -> dict[str, Any]:
        lines = [
            {"message": it.number, "author": it.author, "at": it.at, "line": found_line(it.text, words)} for it in hits
        ]
        return {"chat": self._view(chat), "title": found_line(chat.title, words), "hits": lines}

    async def _own(self, request: Request, person: str) -> WebConversation:
        chat = await self._archive.conversation(id_in_path(request, "chat"))
        if chat is None or chat.owner != person:
            raise Unserved(*NO_SUCH_CHAT)
        return chat

    async def export(self, request: Request, person: str) -> Response:
        """Export the conversation as Markdown, verbatim except for secrets."""
        found, scrub = await self._own(request, person), self._runtime.scrubber.scrub
        names = {it.id: it.name or it.id for it in self._config.agents.list}
        written = (scrub(it) async for it in self._exported(found, names))
        name = f"filename*=UTF-8''{quote(scrub(found.title), safe='')}.md"
        headers = {"content-disposition": f"attachment; {name}", "cache-control": "no-store"}
        return StreamingResponse(written, headers=headers, media_type="text/markdown")

    async def _exported(self, chat: WebConversation, names: Mapping[str, str]) -> AsyncIterator[str]:
        yield f"# {chat.title}\n"
        before, pages = None, []
        while page := fitting(
            await self._archive.page(chat.id, before=before, limit=PAGE_MESSAGES, bytes_max=PAGE_BYTES_MAX)
        ):
            before = page[-1]
            pages.append(page)
        for page in reversed(pages):
            for it in await self._archive.messages(page):
                if it.words.dropped:
                    continue
                who = "You" if it.author == "you" else names.get(it.words.agent, it.words.agent)
                at = timestamp(it.at, self._config.server.zone)
                files = "".join(f"\n\n*{file.name}*" for file in it.words.files)
                yield f"\n## {who} · {at}\n\n{it.words.text}{files}\n"

    async def chat(self, request: Request, person: str) -> Response:
        found, before = await self._own(request, person), request.query_params.get("before", "")
        until = number_of(request.query_params.get("until", ""))
        limit = PAGE_MESSAGES if until is None else UNTIL_MESSAGES
        last, branches = await self._archive.last(), self._runtime.store.branches
        versions = await branches.versions(found.id) if found.branch else {}
        newest = await self._archive.page(found.id, before=number_of(before), limit=limit + 1, bytes_max=PAGE_BYTES_MAX)
        if until is not None:
            limit = min(limit, sum(it.number >= until for it in newest) + PAGE_MESSAGES // 2)
        numbers = fitting(newest[:limit])
        messages = [orjson.Fragment(it.json) for it in await self._channel.renderings.of(numbers[::-1])]
        ratings = await self._runtime.store.chatter.given(await self._sessions(found.id), self._sender(person))
        more = {"more": len(newest) > len(numbers), "versions": versions, "ratings": ratings, "after": last}
        return answer_json({"chat": self._view(found), "messages": messages, **more})

    async def choices(self, request: Request, person: str) -> Response:
        return answer_json(await self._offers.in_chat(await self._own(request, person)))

    async def new_choices(self, request: Request, person: str) -> Response:
        """Return the choices for a new conversation with the agent in the path."""
        agent = id_in_path(request, "agent")
        if agent not in {it.id for it in self._offers.agents(person)}:
            raise Unserved(*NO_SUCH_AGENT)
        return answer_json(self._offers.in_new(agent, person))

    async def change(self, request: Request, person: str) -> Response:
        given, own = await read_json(request, _ChatChange, self._bodies), await self._own(request, person)
        if given.branch is not None and not await self._runtime.store.branches.turn(own.id, given.branch):
            raise Unserved(*NO_SUCH_MESSAGE)
        if (found := await self._archive.change(own.id, **given.model_dump(exclude={"branch"}))) is None:
            raise Unserved(*NO_SUCH_CHAT)
        self._channel.tell(found)
        with suppress(StoreUnavailable):  # pages of other replicas get it with the next message
            await self._runtime.store.notify(CHAT_NOTICE + found.id)
        return answer_json(self._view(found))

    async def rate(self, request: Request, person: str) -> Response:
        """Store the person's rating of an answer in a conversation of theirs, as `/good` and `/bad` do, or delete it."""
        given, own = await read_json(request, _Rating, self._bodies), await self._own(request, person)
        if not COMMANDS["bad" if given.rating == "bad" else "good"].is_open(
            self._runtime.setup, self._offers.message(person)
        ):
            raise Unserved(*RATINGS_CLOSED)
        number, emoji = (
            number_of(request.path_params["message"]) or 0,
            {"good": "👍", "bad": "👎"}.get(given.rating or ""),
        )
        rated = (own.id, number, self._sender(person), emoji, self._runtime.now())
        if not await self._runtime.store.chatter.rate(*rated):
            raise Unserved(*NO_SUCH_MESSAGE)
        log.info("answer_rated", chat=own.id, message=number, rating=given.rating)
        change = {
            "chat": own.id,
            "ratings": await self._runtime.store.chatter.given(await self._sessions(own.id), self._sender(person)),
        }
        self._channel.live.announce(event("rated", change), person)
        return answer_json(change)

    def _sender(self, person: str) -> str:
        return sender_of(self._offers.message(person))

    async def _sessions(self, chat: str) -> list[str]:
        agents = sorted({*await self._archive.agents(chat), *(it.id for it in self._config.agents.list)})
        return [chat_session(it, self._channel.name, self._channel.account, chat) for it in agents]

    def _view(self, chat: WebConversation) -> dict[str, Any]:
        return conversation_view(chat, running=self._channel.live.running(chat.id))

    async def erase(self, request: Request, person: str) -> Response:
        """Erase a conversation. Stop its turns first, so that they leave nothing behind."""
        chat = (await self._own(request, person)).id
        main = await self._sessions(chat)
        asked = [task.sid for it in main for task in await self._runtime.store.tasks.of(it)]
        sessions = [*main, *(beside for it in main for beside in all_beside(it)), *asked]
        self._channel.live.leaving.add(chat)
        try:
            for session in sessions:
                await self._stop(session)
                # Before the conversation is erased, so that a failure here can be retried.
                await asyncio.to_thread(forget_session, Path(self._config.tools.files.uploads_dir), session)
            there_was = await self._archive.erase(chat, sessions)
        except OSError as error:
            log.error("uploads_not_deleted", error=repr(error))
            return problem(
                500, "files-not-deleted", "Its files could not be deleted; the log says why. Then try again."
            )
        finally:
            self._channel.live.leaving.discard(chat)
        if not there_was:
            raise Unserved(*NO_SUCH_CHAT)
        self._channel.live.announce(event("chat", {"id": chat, "deleted": True}), person)
        return Response(status_code=204)

    async def _stop(self, session: str) -> None:
        control, store = self._runtime.control, self._runtime.store
        before = await self._archive.newest_turn(session) + 1
        # The session may run at any worker; wait for it to end, for a limited time.
        if await control.stop(session, before):
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    while session in control.lanes or await store.stop(session, before):  # noqa: ASYNC110
                        await asyncio.sleep(STOP_POLL_SECONDS)


_NEW = "c_new"
"""The id of a conversation that does not exist yet."""


class Offers:
    def __init__(self, runtime: Runtime, channel: WebChannel) -> None:
        self._runtime = runtime
        self._channel = channel

    def agents(self, person: str) -> list[AgentConfig]:
        """List the agents with whom the person may start a conversation; the first agent if none, as it answers then."""
        setup, message = self._runtime.setup, self.message(person)
        agents = setup.config.agents.list
        return [it for it in agents if is_open(setup.config, setup.owners, it.id, message)] or [agents[0]]

    def in_new(self, agent: str, person: str) -> dict[str, Any]:
        """Return the settings of a new conversation with the agent, and the available choices."""
        return self._choices(agent, self.message(person), Settings())

    async def in_chat(self, chat: WebConversation) -> dict[str, Any]:
        """Return the settings in force in a conversation, and its owner's choices."""
        message = self.message(chat.owner, chat.id)
        agent = self._runtime.agent(message, chat.agent)
        return self._choices(agent, message, await self._settings(agent, message))

    def message(self, person: str, chat: str = _NEW) -> MessageContext:
        return message_in(self._channel.name, self._channel.account, Chat(id=chat, kind="direct"), person)

    async def _settings(self, agent: str, message: MessageContext) -> Settings:
        session = session_key(agent, message, self._runtime.setup.session_rules(agent).scope)
        work = await self._runtime.store.conversation(session, before=sys.maxsize, history_turns=1, waiting_max=1)
        return settings_json.validate_json(work.settings)

    def _choices(self, agent: str, message: MessageContext, settings: Settings) -> dict[str, Any]:
        setup = self._runtime.setup
        runner = setup.runners.get(agent)
        if runner is None:  # removed from the config
            nothing: dict[str, Any] = {"model": "", "own": "", "models": [], "thinking": None, "levels": []}
            return nothing | {"agent": agent, "reasoning": None, "notes": False}
        model, may = model_in_force(setup, runner, settings), COMMANDS
        return {
            "agent": agent,
            "model": model,
            "own": runner.config.model[0],
            "models": setup.config.choosable_models if may["model"].is_open(setup, message) else [model],
            "thinking": settings.thinking or runner.config.thinking,
            "levels": thinking_levels(runner, model) if may["think"].is_open(setup, message) else [],
            "reasoning": settings.reasoning if may["reasoning"].is_open(setup, message) else None,
            "notes": may["remember"].is_open(setup, message)
            and agent in {it.id for it in self.agents(message.sender.id)},
        }


WORDS_MAX = 8
LINE_CHARS = 160
BEFORE_CHARS = 40
"""Characters shown before the first match."""


def words_of(query: str) -> list[str]:
    """Split a query into casefolded words, longest first, so a word is preferred over its own prefix."""
    return sorted(set(query.casefold().split()[:WORDS_MAX]), key=len, reverse=True)


def found_line(text: str, words: Sequence[str]) -> list[str]:
    """Return the first line with the most matching words, as alternating plain and matching pieces."""
    lines = [line.strip() for line in text.splitlines()] or [""]
    best = max(lines, key=lambda line: sum(it in line.casefold() for it in words))
    return _pieces(best, list(_places(best, words)))


def _pieces(line: str, places: Sequence[tuple[int, int]]) -> list[str]:
    first = places[0][0] if places else 0
    start = max(0, first - BEFORE_CHARS) if len(line) > LINE_CHARS else 0
    end = min(len(line), start + LINE_CHARS)
    pieces, at = [], start
    for begin, stop in places:
        if begin >= end:
            break
        pieces += [line[at:begin], line[begin : min(stop, end)]]
        at = min(stop, end)
    pieces.append(line[at:end] + ("…" if end < len(line) else ""))
    return [("…" if start else "") + pieces[0], *pieces[1:]]


def _places(line: str, words: Sequence[str]) -> Iterator[tuple[int, int]]:
    # Casefolding may turn one letter into two, so keep the original index of each.
    letters = [(folded, at) for at, char in enumerate(line) for folded in char.casefold()]
    folded, at, end = "".join(it for it, _ in letters), 0, 0
    while at < len(folded):
        here = next((it for it in words if folded.startswith(it, at)), "")
        if here and letters[at][1] >= end:
            end = letters[at + len(here) - 1][1] + 1
            yield letters[at][1], end
        at += len(here) or 1


NO_SUCH_NOTE = 404, "no-such-note", "There is no such note."
CLOSED = 403, "notes-closed", "The config keeps /remember for others."
TOO_MANY = 409, "too-many-notes", f"There are {NOTES_MAX} notes already. Delete one first."

_Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=NOTE_CHARS_MAX)]


class _Taken(BaseModel, extra="forbid", strict=True):
    id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{8,64}$")]
    text: _Text


class _Changed(BaseModel, extra="forbid", strict=True):
    text: _Text


class Notes:
    """Routes of `gateway.web.door`; each gets the signed-in person."""

    def __init__(self, runtime: Runtime, channel: WebChannel, bodies: Bodies) -> None:
        self._runtime = runtime
        self._bodies = bodies
        self._memory = runtime.store.memory
        self._offers = Offers(runtime, channel)

    def routes(self) -> Sequence[tuple[str, str, PersonRoute]]:
        return (
            ("GET", "/api/agents/{agent}/notes", self.listed),
            ("POST", "/api/agents/{agent}/notes", self.add),
            ("PUT", "/api/agents/{agent}/notes/{note}", self.change),
            ("DELETE", "/api/agents/{agent}/notes/{note}", self.delete),
        )

    async def listed(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        notes = [asdict(it) for it in await self._memory.notes(sender, agent)]
        return answer_json({"notes": notes, "notes_max": NOTES_MAX, "chars_max": NOTE_CHARS_MAX})

    async def add(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        given, now = await read_json(request, _Taken, self._bodies), self._runtime.now()
        turn = _turn(sender, given.id)
        if await self._memory.take_note(sender, agent, given.text, turn=turn, at=now) is None:
            raise Unserved(*TOO_MANY)
        return await self.listed(request, person)

    async def change(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        given, now = await read_json(request, _Changed, self._bodies), self._runtime.now()
        if not await self._memory.change_note(sender, agent, self._number(request), given.text, at=now):
            raise Unserved(*NO_SUCH_NOTE)
        return await self.listed(request, person)

    async def delete(self, request: Request, person: str) -> Response:
        sender, agent = self._whose(request, person)
        number = self._number(request)
        if not await self._memory.delete_note(sender, agent, number, turn=_turn(sender, f"{agent} {number}")):
            raise Unserved(*NO_SUCH_NOTE)
        return await self.listed(request, person)

    def _number(self, request: Request) -> int:
        return number_of(request.path_params["note"]) or 0

    def _whose(self, request: Request, person: str) -> tuple[str, str]:
        agent, message = id_in_path(request, "agent"), self._offers.message(person)
        if agent not in {it.id for it in self._offers.agents(person)}:
            raise Unserved(*NO_SUCH_AGENT)
        if not COMMANDS["remember"].is_open(self._runtime.setup, message):
            raise Unserved(*CLOSED)
        return sender_of(message), agent


def _turn(sender: str, name: str) -> int:
    # Negative, so that it never equals a turn that a message has.
    return -1 - int.from_bytes(sha256(f"{sender} {name}".encode()).digest()[:7])
