"""HTTP routes of the web chat: its page, its sign-in, and what it requests besides sending messages.

Each request except those for the page itself passes the channel's `Admission` first. The conversation routes are in
`gateway.web.chats`; docs/http.md lists requests and responses.

A page load takes two round trips: its scripts are bundled into one file, its style sheets into another, both with a version
tag. Unread events of an event stream are bounded: a page too far behind is disconnected and resumes after its last event.
"""

import asyncio
import gzip
import mimetypes
import posixpath
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from urllib.parse import quote

import structlog
from fastapi import Request, Response
from pydantic import BaseModel
from starlette import routing
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from agents.attachments import actual_type
from channels.channel import Rejected
from channels.message import PICTURES, File, StoredFile, media_type
from channels.web.admission import COOKIE, OPERATOR, SECURE_COOKIE, SESSION_SECONDS
from channels.web.channel import ALIVE_SECONDS, WebChannel
from gateway.config.channels import configured
from gateway.config.root import LimitsConfig
from gateway.http.bodies import Bodies, Unreadable, declared_size
from gateway.http.request import (
    Guesses,
    Peers,
    PersonRoute,
    Route,
    Unserved,
    answer_json,
    catch_errors,
    id_in_path,
    number_of,
    problem,
    read_json,
    served,
)
from gateway.operate.first_key import FirstKey
from gateway.operate.scan import AppScan
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.files import DatabaseFiles
from gateway.web.chats import Chats, Notes
from gateway.web.console import Console, ownership

log = structlog.get_logger()

DOWNLOAD_PIECE_BYTES = 1_048_576

NO_SUCH_FILE = 404, "no-such-file", "There is no such file."
OPERATOR_ONLY = 403, "operator-only", "This is for the holder of server.adminToken alone."


class _Key(BaseModel, extra="forbid", strict=True):
    vendor: str
    key: str


class _Token(BaseModel, extra="forbid", strict=True):
    token: str


class WebDoor:
    def __init__(
        self,
        runtime: Runtime,
        channel: WebChannel,
        peers: Peers,
        guesses: Guesses,
        bodies: Bodies,
        console: Console,
        scan: AppScan,
    ) -> None:
        self._runtime = runtime
        self._console = console
        self._channel = channel
        self._files = runtime.store.files
        self._config = runtime.setup.config
        self._limits = self._config.limits
        self._bodies = bodies
        self._scan = scan
        self._first_key = FirstKey(runtime)
        self._chats = Chats(runtime, channel, bodies, self._first_key)
        self._notes = Notes(runtime, channel, bodies)
        self._uploads = Uploads(self._files, self._limits, runtime.now)
        self._peers = peers
        self._guesses = guesses
        self._pages = page_files()

    def routes(self) -> list[routing.Route]:
        found = (
            ("GET", "/", self.start),
            ("GET", "/console", self.console_page),
            ("GET", "/web/{name:path}", self.page),
            ("POST", "/api/session", self.sign_in),
            ("GET", "/api/session", self.session_person),
            ("DELETE", "/api/session", self._identified(self.sign_out)),
            ("GET", "/api/chats", self._identified(self._chats.chats)),
            ("GET", "/api/archived", self._identified(self._chats.archived)),
            ("GET", "/api/search", self._identified(self._chats.search)),
            ("GET", "/api/setup", self._operators(self.setup)),
            ("GET", "/api/chats/{chat}", self._identified(self._chats.chat)),
            ("GET", "/api/chats/{chat}/choices", self._identified(self._chats.choices)),
            ("GET", "/api/agents/{agent}/choices", self._identified(self._chats.new_choices)),
            ("GET", "/api/chats/{chat}/export", self._identified(self._chats.export)),
            ("PATCH", "/api/chats/{chat}", self._identified(self._chats.change)),
            ("DELETE", "/api/chats/{chat}", self._identified(self._chats.erase)),
            ("PUT", "/api/chats/{chat}/messages/{message}/rating", self._identified(self._chats.rate)),
            ("POST", "/api/setup/key", self._operators(self.take_key)),
            ("POST", "/api/setup/feishu", self._operators(self.begin_scan)),
            ("GET", "/api/setup/feishu", self._operators(self.scan_state)),
            ("POST", "/api/files", self._identified(self.upload)),
            ("GET", "/api/files/{key}", self._identified(self.download)),
            ("DELETE", "/api/files/{key}", self._identified(self.discard)),
            ("GET", "/api/events", self._identified(self.events)),
            *((method, path, self._identified(route)) for method, path, route in self._notes.routes()),
            *((method, path, self._operators(route)) for method, path, route in self._console.routes()),
        )
        return [served(path, catch_errors(route, self._guesses), method) for method, path, route in found]

    def _identified(self, route: PersonRoute) -> Route:
        async def identified(request: Request) -> Response:
            return await route(request, await self._person(request))

        return identified

    def _operators(self, route: PersonRoute) -> Route:

        async def identified(request: Request) -> Response:
            if (person := await self._person(request)) != OPERATOR:
                raise Unserved(*OPERATOR_ONLY)
            return await route(request, person)

        return identified

    async def start(self, request: Request) -> Response:
        """Serve the start page; preload the chat list if signed in. Ignore tokens: a guess would be answered but not
        counted."""
        headers = [it for it in request.headers.items() if it[0] != "authorization"]
        try:
            await self._channel.admission.identify(headers, changes=False)
        except (Rejected, StoreUnavailable):
            return self._file(request, START)
        return self._file(request, START_SIGNED_IN)

    async def page(self, request: Request) -> Response:
        return self._file(request, request.path_params["name"])

    async def console_page(self, request: Request) -> Response:
        """Serve the console without data, so that the operator can sign in."""
        return self._file(request, "console.html")

    def _file(self, request: Request, name: str) -> Response:
        if (answer := self._pages.answer(request, name)) is None:
            raise Unserved(*NO_SUCH_FILE)
        return answer

    async def sign_in(self, request: Request) -> Response:
        """Exchange the token or a link's code for a session. Require the page's own header, to prevent login CSRF."""
        admission, headers = self._channel.admission, request.headers.items()
        given = await read_json(request, _Token, self._bodies)
        admission.check_origin(headers)
        return self._with_cookie(request, await admission.sign_in(given.token, headers), SESSION_SECONDS)

    async def session_person(self, request: Request) -> Response:
        """Return the person of this browser's session, so the page can ask before another session replaces it."""
        try:
            return answer_json({"person": await self._person(request)})
        except Rejected as rejected:
            if rejected.guess or rejected.status != 401:
                raise
            return answer_json({"person": None})

    async def sign_out(self, request: Request, person: str) -> Response:
        await self._channel.admission.sign_out(request.headers.items())
        return self._with_cookie(request, "", 0)

    def _with_cookie(self, request: Request, value: str, seconds: int) -> Response:
        public_tls = (self._config.server.public_url or "").startswith("https:")
        secure = public_tls or self._peers.of(request.scope).secure
        name = SECURE_COOKIE if secure else COOKIE  # browsers accept the secure name from this host only
        response = Response(status_code=204)
        response.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    async def setup(self, request: Request, person: str) -> Response:
        """Return who owns the bot; without an owner, also the claim code and the channels to send it in."""
        setup = self._runtime.setup
        code = await setup.owners.claim_code(self._runtime.now())
        channels = sorted({it.kind.name for it in configured(setup.config.channels) if it.kind.bot_key})
        facts = {"owned": setup.owners.is_owned, "claim": code, "channels": channels}
        facts["feishu"] = self._scan.is_offered(person)
        return answer_json(facts | await ownership(self._runtime))

    async def take_key(self, request: Request, person: str) -> Response:
        given = await read_json(request, _Key, self._bodies)
        return answer_json({"model": await self._first_key.store_key(person, given.vendor, given.key.strip())})

    async def begin_scan(self, request: Request, person: str) -> Response:
        return answer_json(await self._scan.begin(person))

    async def scan_state(self, request: Request, person: str) -> Response:
        return answer_json(self._scan.state)

    async def upload(self, request: Request, person: str) -> Response:
        try:
            return answer_json(asdict(await self._uploads.store(request, person)))
        except Unreadable as unreadable:
            if unreadable.status != 413:
                raise
            sentence = f"The file is larger than {self._limits.file_bytes / 1_048_576:.0f} MiB (limits.fileBytes)."
            return problem(413, "file-too-large", sentence)

    async def discard(self, request: Request, person: str) -> Response:
        """Delete an unsent upload. A sent file is deleted with its conversation."""
        if not await self._files.discard(id_in_path(request, "key"), person):
            raise Unserved(*NO_SUCH_FILE)
        return Response(status_code=204)

    async def download(self, request: Request, person: str) -> Response:
        """Stream a file. Only pictures are shown inline, so that an uploaded page cannot run as ours."""
        file = next(iter(await self._files.find([id_in_path(request, "key")], person)), None)
        if file is None:
            raise Unserved(*NO_SUCH_FILE)
        shown = file.type in PICTURES and "download" not in request.query_params
        disposition = f"{'inline' if shown else 'attachment'}; filename*=UTF-8''{quote(file.name, safe='')}"
        policy = {"content-security-policy": "default-src 'none'; sandbox"}
        headers = policy | {"content-disposition": disposition, "cache-control": "private, max-age=86400"}
        headers |= {"content-length": str(file.size)}
        return StreamingResponse(self._pieces(file), headers=headers, media_type=file.type)

    async def _pieces(self, file: StoredFile) -> AsyncIterator[bytes]:
        for at in range(0, file.size, DOWNLOAD_PIECE_BYTES):
            yield await self._files.piece(file.id, at, DOWNLOAD_PIECE_BYTES)

    async def events(self, request: Request, person: str) -> Response:
        after = request.headers.get("last-event-id") or request.query_params.get("after", "")
        return EventStream(
            channel=self._channel,
            person=person,
            after=number_of(after) or 0,
            pages_max=self._limits.event_streams,
            person_now=lambda: self._person_again(request),
            now=self._runtime.now,
            plain="plain" in request.query_params,
        )

    async def _person_again(self, request: Request) -> str:
        if self._runtime.setup.channels.get((self._channel.name, self._channel.account)) is not self._channel:
            raise Rejected("the config has changed")  # the page reconnects to the new door
        return await self._person(request)

    async def _person(self, request: Request) -> str:
        changes = request.method not in ("GET", "HEAD")
        return await self._channel.admission.identify(request.headers.items(), changes=changes)


PAGE = Path(__file__).resolve().parents[2] / "channels" / "web" / "page"
START = "index.html"
START_SIGNED_IN = "index.html with the list"
"""A name for the start page that preloads the list; no file has it."""
EARLY_LIST = '<link rel="preload" href="api/chats" as="fetch" crossorigin>'
TYPES = {".webmanifest": "application/manifest+json", ".woff2": "font/woff2"}
"""Media types missing from some systems' tables."""
COMPRESSED = frozenset({".css", ".html", ".js", ".svg"})
FOREVER = "public, max-age=31536000, immutable"

_IMPORT = re.compile(r'^import \{([^}]*)\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_ENTRY = re.compile(r'<script type="module" src="web/([^"]+)"')
_STYLE = re.compile(r'<link rel="stylesheet" href="web/([^"]+)">')
_STYLES = re.compile(rf"(?: *{_STYLE.pattern.replace('(', '(?:')}\n)+")
_NAMED = re.compile(r'(?<=(?:href|.src)=")web/([^"?]+)(?=")')


@dataclass(frozen=True)
class PageFile:
    name: str
    data: bytes

    @cached_property
    def tag(self) -> str:
        return sha256(self.data).hexdigest()[:16]

    @cached_property
    def gzipped(self) -> bytes:
        return gzip.compress(self.data, mtime=0)

    @property
    def type(self) -> str | None:
        suffix = Path(self.name).suffix
        return TYPES.get(suffix) or mimetypes.guess_type(self.name)[0]


class PageFiles:
    def __init__(self, folder: Path = PAGE) -> None:
        paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
        files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
        html = {name: data.decode() for name, data in files.items() if name.endswith(".html")}
        modules = {name: data.decode() for name, data in files.items() if name.endswith(".js")}
        for entry in {found for it in html.values() for found in _ENTRY.findall(it)}:
            files[entry] = bundled(modules, entry).encode()
        self._files = {name: PageFile(name, data) for name, data in files.items()}
        for name, text in html.items():
            named = _STYLES.sub(partial(self._joined, f"{Path(name).stem}-all.css"), text)
            self._files[name] = PageFile(name, _NAMED.sub(self._tagged, named).encode())
        head, rest = self._files[START].data.split(b"<title>", 1)
        early = head + EARLY_LIST.encode() + b"\n  <title>" + rest
        self._signed_in = PageFile(START, early)

    def _joined(self, name: str, match: re.Match[str]) -> str:
        self._files[name] = PageFile(name, b"".join(self._files[it].data for it in _STYLE.findall(match[0])))
        return f'  <link rel="stylesheet" href="web/{name}">\n'

    def _tagged(self, match: re.Match[str]) -> str:
        return f"{match[0]}?v={self._files[match[1]].tag}"

    def answer(self, request: Request, name: str) -> Response | None:
        """Return the response, or None if there is no such file."""
        file = self._signed_in if name == START_SIGNED_IN else self._files.get(name)
        if file is None:
            return None
        small = "gzip" in request.headers.get("accept-encoding", "") and Path(file.name).suffix in COMPRESSED
        tag = f'"{file.tag}{"-gzip" if small else ""}"'
        known = request.query_params.get("v") == file.tag
        headers = {"etag": tag, "cache-control": FOREVER if known else "no-cache", "vary": "accept-encoding"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        if small:
            headers["content-encoding"] = "gzip"
        return Response(file.gzipped if small else file.data, headers=headers, media_type=file.type)


@cache
def page_files() -> PageFiles:
    """Read the files once per process, so that a config reload never mixes a newer page with an older server."""
    return PageFiles()


def bundled(modules: Mapping[str, str], entry: str) -> str:
    """Bundle `entry` after everything it imports. Each module gets its own scope, and its exports become an object.

    Only the import and export forms of the page's own modules are supported."""
    parts: dict[str, str] = {}
    _add(modules, entry, parts)
    return "".join(parts.values())


def _add(modules: Mapping[str, str], name: str, parts: dict[str, str]) -> str:
    own = "$" + re.sub(r"\W", "_", name)
    if name in parts:
        return own

    def imported(match: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), match[2]))
        return f"const {{{match[1].replace(' as ', ': ')}}} = {_add(modules, path, parts)};\n"

    text = _IMPORT.sub(imported, modules[name])
    exports = ", ".join(_EXPORT.findall(text))
    parts[name] = f"// {name}\nconst {own} = (() => {{\n{_EXPORT.sub('', text)}\nreturn {{ {exports} }};\n}})();\n"
    return own


UPLOAD_SECONDS = 600.0
FILES_AT_ONCE = 2
"""Bodies in memory together are at most this many times the largest file."""
NAME_CHARS_MAX = 200


@dataclass(eq=False)
class Uploads:
    """Store the page's uploads, with few bodies in memory at a time.

    Each body's size is reserved before it is read, so concurrent uploads cannot exceed a person's limit together. The
    database checks the limit again on storing, across replicas. Further uploads wait unread."""

    files: DatabaseFiles
    limits: LimitsConfig
    now: Callable[[], float]
    _reserved: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._bodies = Bodies(FILES_AT_ONCE * self.limits.file_bytes)

    async def store(self, request: Request, person: str) -> StoredFile:
        """Read and store an uploaded file. Raises Unserved, Unreadable."""
        file_max, uploads_max = self.limits.file_bytes, self.limits.uploads_bytes
        size = min(declared_size(request, file_max), file_max)
        waiting = await self.files.waiting_bytes(person)
        if waiting + self._reserved[person] + size > uploads_max:
            raise self._too_many()
        self._reserved[person] += size
        try:
            async with self._bodies.reserved(size):
                data = await self._bodies.read(request, bytes_max=file_max, seconds=UPLOAD_SECONDS)
                name = _file_name(request.query_params.get("name", "")) or "file"
                kind = actual_type(media_type(request.headers.get("content-type", "")), data)
                file = File(name=name, type=kind, data=data)
                kept = await self.files.upload(file, self.now(), owner=person, bytes_max=uploads_max)
        finally:
            self._reserved[person] -= size
        if kept is None:
            raise self._too_many()
        return kept

    def _too_many(self) -> Unserved:
        limit = f"{self.limits.uploads_bytes / 1_048_576:.0f} MiB (limits.uploadsBytes)"
        sentence = f"The files that wait to be sent fill the limit of {limit}. Send some of them, or remove them."
        return Unserved(413, "too-many-uploads", f"{sentence} What is not sent within a day is deleted.")


def _file_name(given: str) -> str:
    name = "".join(char for char in given if char.isprintable()).strip()
    return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX // 2] + name[-NAME_CHARS_MAX // 2 :]


PIECE_BYTES = 65_536
"""The piece that a connection gets at once: a page that does not read is owed two, the rest waits with those of others."""
RETRY_SECONDS = 10


@dataclass(eq=False, kw_only=True)
class EventStream(StreamingResponse):
    """The events of one page from message `after` on; a refusal if `pages_max` are connected already.
    `person_now` raises Rejected once the page's session has ended."""

    channel: WebChannel
    person: str
    after: int
    pages_max: int
    person_now: Callable[[], Awaitable[str]]
    now: Callable[[], float]
    plain: bool = False
    """Drafts are sent as text."""

    def __post_init__(self) -> None:
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__((), headers=headers, media_type="text/event-stream")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        live = self.channel.live
        if live.pages >= self.pages_max:
            open_ = f"{self.pages_max} pages of the web chat are open, as many as may be (limits.eventStreams)."
            refusal = problem(503, "too-many-pages", f"{open_} Close one of them.", retry_seconds=RETRY_SECONDS)
            await refusal(scope, receive, send)
            return
        with live.watching(self.person, plain=self.plain) as watcher:
            self.body_iterator = self._pieces(self.channel.events(watcher, self.after))
            sending = asyncio.create_task(self.stream_response(send))
            over = [
                asyncio.create_task(self.listen_for_disconnect(receive)),
                asyncio.create_task(watcher.behind.wait()),
            ]
            try:
                await asyncio.wait([sending, *over], return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (sending, *over):
                    task.cancel()
                await asyncio.gather(sending, *over, return_exceptions=True)
        if not sending.cancelled():
            sending.result()
        elif watcher.behind.is_set():
            log.warning("page_let_go", reason="it does not read", pages=live.pages)

    async def _pieces(self, events: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yields the stream until the page's session ends or it cannot be read on; the page reconnects, or signs in."""
        checked = self.now()
        try:
            async for event in events:
                if self.now() - checked >= ALIVE_SECONDS:
                    if await self.person_now() != self.person:
                        return
                    checked = self.now()
                for at in range(0, len(event), PIECE_BYTES):
                    yield event[at : at + PIECE_BYTES]
        except (Rejected, StoreUnavailable) as error:
            log.info("stream_ended", error=repr(error))
