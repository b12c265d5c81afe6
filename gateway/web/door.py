"""The web chat's own door: its page, and what the page asks besides sending messages, which go where all messages go.

Every answer says what a browser may do with it; every request but those for the page itself is judged by the channel's
`Admission` first. The conversations are in `gateway.web.chats`. What the routes take and give is in docs/http.md.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict
from urllib.parse import quote

from fastapi import Request, Response
from pydantic import BaseModel
from starlette import routing
from starlette.responses import StreamingResponse

from channels.channel import Rejected
from channels.message import PICTURES, StoredFile
from channels.web.admission import COOKIE, OPERATOR, SECURE_COOKIE, SESSION_SECONDS
from channels.web.channel import WebChannel
from gateway.config.channels import configured
from gateway.http.bodies import Bodies, Unreadable
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
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.web.book import Book
from gateway.web.chats import Chats
from gateway.web.console import Console, ownership
from gateway.web.notes import Notes
from gateway.web.pages import START, START_SIGNED_IN, page_files
from gateway.web.plans import Plans
from gateway.web.streams import EventStream
from gateway.web.uploads import Uploads

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
        rooms: Sequence[Console | Plans | Book],
    ) -> None:
        self._runtime = runtime
        self._rooms = rooms
        self._channel = channel
        self._files = runtime.store.files
        self._config = runtime.setup.config
        self._limits = self._config.limits
        self._bodies = bodies
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
            ("POST", "/api/setup/key", self._operators(self.take_key)),
            ("POST", "/api/files", self._identified(self.upload)),
            ("GET", "/api/files/{key}", self._identified(self.download)),
            ("DELETE", "/api/files/{key}", self._identified(self.discard)),
            ("GET", "/api/events", self._identified(self.events)),
            *((method, path, self._identified(route)) for method, path, route in self._notes.routes()),
            *((method, path, self._operators(route)) for it in self._rooms for method, path, route in it.routes()),
        )
        return [served(path, catch_errors(route, self._guesses), method) for method, path, route in found]

    def _identified(self, route: PersonRoute) -> Route:
        async def identified(request: Request) -> Response:
            return await route(request, await self._person(request))

        return identified

    def _operators(self, route: PersonRoute) -> Route:
        """The route for the operator alone."""

        async def identified(request: Request) -> Response:
            if (person := await self._person(request)) != OPERATOR:
                raise Unserved(*OPERATOR_ONLY)
            return await route(request, person)

        return identified

    async def start(self, request: Request) -> Response:
        """The start page; who is signed in has their list asked for in its head. A token is not looked at: a guess of one
        would be told here, and not be counted."""
        headers = [it for it in request.headers.items() if it[0] != "authorization"]
        try:
            await self._channel.admission.identify(headers, changes=False)
        except (Rejected, StoreUnavailable):
            return self._file(request, START)
        return self._file(request, START_SIGNED_IN)

    async def page(self, request: Request) -> Response:
        return self._file(request, request.path_params["name"])

    async def console_page(self, request: Request) -> Response:
        """The console without any of its data, as a person must see it to sign in."""
        return self._file(request, "console.html")

    def _file(self, request: Request, name: str) -> Response:
        if (answer := self._pages.answer(request, name)) is None:
            raise Unserved(*NO_SUCH_FILE)
        return answer

    async def sign_in(self, request: Request) -> Response:
        """Exchanges the token or a link's code for a session. Demands the page's header, so no other site signs in."""
        admission, headers = self._channel.admission, request.headers.items()
        given = await read_json(request, _Token, self._bodies)
        admission.check_origin(headers)
        return self._with_cookie(request, await admission.sign_in(given.token, headers), SESSION_SECONDS)

    async def session_person(self, request: Request) -> Response:
        """The person whose session this browser has, before another session replaces it."""
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
        """Sets the cookie; over TLS under a name that browsers accept from this host alone."""
        public_tls = (self._config.server.public_url or "").startswith("https:")
        secure = public_tls or self._peers.of(request.scope).secure
        name = SECURE_COOKIE if secure else COOKIE
        response = Response(status_code=204)
        response.set_cookie(name, value, max_age=seconds, httponly=True, samesite="strict", secure=secure, path="/")
        return response

    async def setup(self, request: Request, person: str) -> Response:
        """The claim code as long as nobody owns the bot, and the channels to send it in: those with a bot; and who owns it.
        Without an owner, the operator is one on the page anyway."""
        setup = self._runtime.setup
        code = await setup.owners.claim_code(self._runtime.now())
        channels = sorted({it.kind.name for it in configured(setup.config.channels) if it.kind.bot_key})
        facts = {"owned": setup.owners.is_owned, "claim": code, "channels": channels}
        return answer_json(facts | await ownership(self._runtime))

    async def take_key(self, request: Request, person: str) -> Response:
        """Takes the first key of a model from the operator."""
        given = await read_json(request, _Key, self._bodies)
        return answer_json({"model": await self._first_key.store_key(person, given.vendor, given.key.strip())})

    async def upload(self, request: Request, person: str) -> Response:
        try:
            return answer_json(asdict(await self._uploads.store(request, person)))
        except Unreadable as unreadable:
            if unreadable.status != 413:
                raise
            sentence = f"The file is larger than {self._limits.file_bytes / 1_048_576:.0f} MiB (limits.fileBytes)."
            return problem(413, "file-too-large", sentence)

    async def discard(self, request: Request, person: str) -> Response:
        """Forgets an unsent upload; a sent file goes with its conversation."""
        if not await self._files.discard(id_in_path(request, "key"), person):
            raise Unserved(*NO_SUCH_FILE)
        return Response(status_code=204)

    async def download(self, request: Request, person: str) -> Response:
        """Shows pictures and saves everything else: an uploaded page must not run as ours."""
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
        """Reads one piece at a time: a slow reader costs no more memory than that."""
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
            raise Rejected("the config has changed")  # the page reconnects, and a newer door judges it
        return await self._person(request)

    async def _person(self, request: Request) -> str:
        changes = request.method not in ("GET", "HEAD")
        return await self._channel.admission.identify(request.headers.items(), changes=changes)
