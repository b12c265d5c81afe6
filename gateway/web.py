"""The web chat's own door: its page, and what the page asks besides sending messages, which go where all messages go.

Every answer says what a browser may do with it; every request but those for the page itself is judged by the channel's
`Admission` first. What the routes take and give is in docs/http.md.
"""

import asyncio
import mimetypes
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import structlog
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from starlette.responses import StreamingResponse

from channels.message import PICTURES, StoredFile
from channels.web.admission import COOKIE, OPERATOR, SECURE_COOKIE, SESSION_SECONDS
from channels.web.archive import Conversation
from channels.web.channel import FILES_MAX, WebChannel
from channels.web.views import PAGE_BYTES_MAX, conversation_view, event, fitting, html
from gateway.commands.catalog import offered
from gateway.request import Guesses, Peers, Route, Unreadable, Unserved, answer_json, catch_errors, problem, read_json
from gateway.routing import chat_session, control_session
from gateway.runtime import Runtime
from gateway.sessions import found as found_session
from gateway.sessions import listed, markdown, summary
from gateway.streams import EventStream
from gateway.uploads import Uploads
from tools.workspace import forget

PAGE = Path(__file__).resolve().parent.parent / "channels" / "web" / "page"
TYPES = {".webmanifest": "application/manifest+json", ".woff2": "font/woff2"}
"""Which not every system's table has."""
PAGE_MESSAGES = 50
DOWNLOAD_PIECE_BYTES = 1_048_576
STOP_SECONDS = 5.0
STOP_POLL_SECONDS = 0.05
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

NO_SUCH_FILE = 404, "no-such-file", "There is no such file."
NO_SUCH_CHAT = 404, "no-such-chat", "There is no such conversation."
OPERATOR_ONLY = 403, "operator-only", "Only whoever has server.adminToken reads all sessions."
PersonRoute = Callable[[Request, str], Awaitable[Response]]
"""What answers a request that was let in, and whose it is."""

log = structlog.get_logger()


class _Token(BaseModel, extra="forbid", strict=True):
    token: str


class _Title(BaseModel, extra="forbid", strict=True):
    title: str


class WebDoor:
    def __init__(self, runtime: Runtime, channel: WebChannel, peers: Peers, guesses: Guesses) -> None:
        self._runtime = runtime
        self._channel = channel
        self._archive = channel.archive
        self._config = runtime.setup.config
        self._limits = self._config.limits
        self._uploads = Uploads(channel.archive, self._limits, runtime.now)
        self._peers = peers
        self._guesses = guesses
        self._searching = asyncio.Lock()
        files = {
            path.relative_to(PAGE).as_posix(): path.read_bytes() for path in sorted(PAGE.rglob("*")) if path.is_file()
        }
        self._files = {name: (data, f'"{sha256(data).hexdigest()[:16]}"') for name, data in files.items()}
        """The page's files and their tags; read once, so that a page is never of two versions."""

    def router(self) -> APIRouter:
        router = APIRouter()
        for method, path, route in (
            ("GET", "/", self.page),
            ("GET", "/web/{name:path}", self.page),
            ("POST", "/api/session", self.sign_in),
            ("DELETE", "/api/session", self._judged(self.sign_out)),
            ("GET", "/api/chats", self._judged(self.chats)),
            ("GET", "/api/search", self._judged(self.search)),
            ("GET", "/api/sessions", self._judged(self.sessions)),
            ("GET", "/api/sessions/{session}", self._judged(self.session)),
            ("GET", "/api/chats/{chat}", self._judged(self.chat)),
            ("GET", "/api/chats/{chat}/export", self._judged(self.export)),
            ("PATCH", "/api/chats/{chat}", self._judged(self.rename)),
            ("DELETE", "/api/chats/{chat}", self._judged(self.erase)),
            ("POST", "/api/files", self._judged(self.upload)),
            ("GET", "/api/files/{key}", self._judged(self.download)),
            ("DELETE", "/api/files/{key}", self._judged(self.discard)),
            ("GET", "/api/events", self._judged(self.events)),
        ):
            router.add_api_route(path, catch_errors(route, self._guesses), methods=[method])
        return router

    def _judged(self, route: PersonRoute) -> Route:
        async def judged(request: Request) -> Response:
            return await route(request, await self._judge(request))

        return judged

    async def page(self, request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            raise Unserved(*NO_SUCH_FILE)
        body, tag = self._files[name]
        headers = {"etag": tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, headers=headers, media_type=TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0])

    async def sign_in(self, request: Request) -> Response:
        """The token, or a link's code, for a session. The page's header is asked for here as well: nobody else signs a
        browser in."""
        admission, headers = self._channel.admission, request.headers.items()
        given = await read_json(request, _Token)
        admission.judge_origin(headers)
        return self._with_cookie(request, await admission.sign_in(given.token, headers), SESSION_SECONDS)

    async def sign_out(self, request: Request, person: str) -> Response:
        await self._channel.admission.sign_out(request.headers.items())
        return self._with_cookie(request, "", 0)

    def _with_cookie(self, request: Request, value: str, seconds: int) -> Response:
        """Over TLS under a name that binds it to this host, which browsers take only there."""
        public_tls = (self._config.server.public_url or "").startswith("https:")
        secure = public_tls or self._peers.of(request.scope).secure
        name = SECURE_COOKIE if secure else COOKIE
        response = Response(status_code=204)
        response.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    async def chats(self, request: Request, person: str) -> Response:
        last = await self._archive.last()
        found = await self._archive.conversations(person)
        limits, agents = self._limits, self._config.agents.list
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
                "operator": person == OPERATOR,
                "chats": [*map(self._view, found)],
                "after": last,
                "signed_in": bool(await self._channel.admission.signed_in(request.headers.items())),
                "commands": [
                    {"name": it.name, "hint": it.form.partition(" ")[2], "en": it.en, "zh": it.zh}
                    for it in offered(self._config.commands)
                ],
                "limits": {"file_bytes": limits.file_bytes, "files": FILES_MAX, "message_chars": limits.message_chars},
                "guide": agents[0].model[0].partition("/")[0] == "demo",
            }
        )

    async def search(self, request: Request, person: str) -> Response:
        """One after the other, and a conversation at a time: whoever else reads the database waits for no search."""
        words = request.query_params.get("words", "").strip().casefold()
        async with self._searching:
            found = await self._archive.conversations(person) if words else ()
            ids = [it.id for it in found if words in it.title.casefold() or await self._archive.says(it.id, words)]
        return answer_json({"chats": ids})

    async def _own(self, request: Request, person: str) -> Conversation:
        """The conversation that the path names. Raises Unserved where it is not the person's."""
        found = await self._archive.conversation(_named(request, "chat"))
        if found is None or found.owner != person:
            raise Unserved(*NO_SUCH_CHAT)
        return found

    async def export(self, request: Request, person: str) -> Response:
        """All of it as Markdown; what people and agents wrote stands there as they wrote it."""
        found = await self._own(request, person)
        names = {it.id: it.name or it.id for it in self._config.agents.list}
        written = self._exported(found, names)
        name = f"filename*=UTF-8''{quote(found.title, safe='')}.md"
        headers = {"content-disposition": f"attachment; {name}", "cache-control": "no-store"}
        return StreamingResponse(written, headers=headers, media_type="text/markdown")

    async def _exported(self, found: Conversation, names: Mapping[str, str]) -> AsyncIterator[str]:
        yield f"# {found.title}\n"
        before, pages = None, []
        while page := fitting(
            await self._archive.page(found.id, before=before, limit=PAGE_MESSAGES, bytes_max=PAGE_BYTES_MAX)
        ):
            before = page[-1]
            pages.append(page)
        for page in reversed(pages):
            for it in await self._archive.messages(page):
                if it.words.dropped:
                    continue
                who = "You" if it.author == "you" else names.get(it.words.agent, it.words.agent)
                at = datetime.fromtimestamp(it.at, tz=self._config.server.zone)
                files = "".join(f"\n\n*{file.name}*" for file in it.words.files)
                yield f"\n## {who} · {at:%Y-%m-%d %H:%M}\n\n{it.words.text}{files}\n"

    async def sessions(self, request: Request, person: str) -> Response:
        """Of every channel, the last active first."""
        if person != OPERATOR:
            raise Unserved(*OPERATOR_ONLY)
        found = await asyncio.to_thread(listed, self._config)
        return answer_json({"sessions": [summary(it, self._config.server.zone) for it in reversed(found)]})

    async def session(self, request: Request, person: str) -> Response:
        if person != OPERATOR:
            raise Unserved(*OPERATOR_ONLY)
        read = await asyncio.to_thread(self._read_session, _named(request, "session"))
        return answer_json(read) if read else problem(404, "no-such-session", "There is no such session.")

    def _read_session(self, name: str) -> dict[str, Any] | None:
        if (read := found_session(self._config, name)) is None:
            return None
        session, entries, _ = read
        zone = self._config.server.zone
        text = self._runtime.scrubber.scrub("\n".join(markdown(session, entries, zone)))
        return {"session": summary(session, zone), "html": html(text)}

    async def chat(self, request: Request, person: str) -> Response:
        found, before = await self._own(request, person), request.query_params.get("before", "")
        newest = await self._archive.page(
            found.id, before=_number(before), limit=PAGE_MESSAGES + 1, bytes_max=PAGE_BYTES_MAX
        )
        numbers = fitting(newest[:PAGE_MESSAGES])
        messages = [orjson.Fragment(it.json) for it in await self._channel.renderings.of(numbers[::-1])]
        return answer_json({"chat": self._view(found), "messages": messages, "more": len(newest) > len(numbers)})

    async def rename(self, request: Request, person: str) -> Response:
        given, own = await read_json(request, _Title), await self._own(request, person)
        if (found := await self._archive.rename(own.id, given.title)) is None:
            raise Unserved(*NO_SUCH_CHAT)
        self._channel.tell(found)
        return answer_json(self._view(found))

    def _view(self, found: Conversation) -> dict[str, Any]:
        return conversation_view(found, running=self._channel.live.running(found.id))

    async def erase(self, request: Request, person: str) -> Response:
        """Whoever answers there is stopped first: what a running turn writes would be left behind."""
        chat = (await self._own(request, person)).id
        sessions = await self._sessions(chat)
        self._channel.leaving.add(chat)
        try:
            for session in sessions:
                await self._stop(session)
                # While there is a conversation: what fails here can be repeated.
                await asyncio.to_thread(forget, Path(self._config.tools.files.uploads_dir), session)
            there_was = await self._archive.erase(chat, sessions)
        except OSError as error:
            log.error("uploads_not_deleted", error=repr(error))
            return problem(
                500, "files-not-deleted", "Its files could not be deleted; the log says why. Then try again."
            )
        finally:
            self._channel.leaving.discard(chat)
        if not there_was:
            raise Unserved(*NO_SUCH_CHAT)
        self._channel.live.announce(event("chat", {"id": chat, "deleted": True}), person)
        return Response(status_code=204)

    async def _sessions(self, chat: str) -> Sequence[str]:
        """All of a conversation, whoever was talked to in it."""
        known = sorted({*await self._archive.agents(chat), *(it.id for it in self._config.agents.list)})
        main = [chat_session(it, self._channel.name, self._channel.account, chat) for it in known]
        return [*main, *map(control_session, main)]

    async def _stop(self, session: str) -> None:
        """Stop what runs there, at whichever worker, and wait for it to have ended, for a while."""
        control, store = self._runtime.control, self._runtime.store
        before = await self._archive.newest_turn(session) + 1
        if await control.stop(session, before):
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    while session in control.lanes or await store.stop(session, before):  # noqa: ASYNC110
                        await asyncio.sleep(STOP_POLL_SECONDS)

    async def upload(self, request: Request, person: str) -> Response:
        try:
            return answer_json(asdict(await self._uploads.take(request, person)))
        except Unreadable as unreadable:
            if unreadable.status != 413:
                raise
            sentence = f"The file is larger than {self._limits.file_bytes / 1_048_576:.0f} MiB (limits.fileBytes)."
            return problem(413, "file-too-large", sentence)

    async def discard(self, request: Request, person: str) -> Response:
        """An upload that was not sent; what was sent goes with its conversation."""
        if not await self._archive.discard(_named(request, "key"), person):
            raise Unserved(*NO_SUCH_FILE)
        return Response(status_code=204)

    async def download(self, request: Request, person: str) -> Response:
        """Pictures may be shown, everything else is saved: a page that somebody uploaded must not become ours."""
        file = next(iter(await self._archive.files([_named(request, "key")], person)), None)
        if file is None:
            raise Unserved(*NO_SUCH_FILE)
        shown = file.type in PICTURES and "download" not in request.query_params
        disposition = f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{quote(file.name, safe='')}"
        policy = {"content-security-policy": "default-src 'none'; sandbox"}
        headers = policy | {"content-disposition": disposition, "cache-control": "private, max-age=86400"}
        headers |= {"content-length": str(file.size)}
        return StreamingResponse(self._pieces(file), headers=headers, media_type=file.type)

    async def _pieces(self, file: StoredFile) -> AsyncIterator[bytes]:
        """One at a time: of a file that is sent to somebody slow, no more is in memory."""
        for at in range(0, file.size, DOWNLOAD_PIECE_BYTES):
            yield await self._archive.piece(file.id, at, DOWNLOAD_PIECE_BYTES)

    async def events(self, request: Request, person: str) -> Response:
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return EventStream(
            channel=self._channel,
            person=person,
            after=_number(after) or 0,
            pages_max=self._limits.event_streams,
            judge=lambda: self._judge(request),
            now=self._runtime.now,
            plain="plain" in request.query_params,
        )

    async def _judge(self, request: Request) -> str:
        changes = request.method not in ("GET", "HEAD")
        return await self._channel.admission.judge(request.headers.items(), changes=changes)


def _named(request: Request, parameter: str) -> str:
    """An id in the path, or "", which nothing is called: not every database takes any text as a question."""
    value: str = request.path_params[parameter]
    return value if _ID.fullmatch(value) else ""


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else None
