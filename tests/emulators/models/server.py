"""A model provider on loopback: the part of it that is the same for every vendor.

It keeps what it is sent, refuses what the vendor refuses, streams what the script says, and goes wrong in every way that
the script asks for. Where the script ends it echoes the user.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.emulators.models.dialogue import last_user_text
from tests.emulators.models.script import Fault, StreamFault, says

CHARS_PER_TOKEN = 4
_LENGTHS = ("max_tokens", "max_completion_tokens", "max_output_tokens")

Reply: TypeAlias = StreamFault | Fault
Script: TypeAlias = Sequence[Reply] | Callable[[dict[str, Any]], Reply]


class Refusal(Exception):
    """The request is refused as malformed, with the vendor's status and type. The words are the vendor's only where our
    error classes read them."""

    def __init__(
        self, status: int, type_: str, message: str, *, code: str | None = None, param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.type = type_
        self.message = message
        self.code = code
        self.param = param


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """A request. `client` is the connection's other end, as host and port; `body` is empty where it was not an object;
    `refusal` says why it was not answered."""

    client: str
    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]
    refusal: Refusal | None


class ModelEmulator(ABC):
    """One emulated account. `app` is an ASGI app; `requests` holds everything it was sent, refused or not.

    With `api_key` only that key is let in. `script` may be set anew at any time; a list is taken from the front, and when
    it ends every answer is an echo of the last text of the user. With `window_tokens`, prompts that
    leave no room in it for the answer they ask for are refused as too long.
    """

    path: ClassVar[str]
    """Of the route, in Starlette's form."""
    models_path: ClassVar[str] = "/v1/models"
    id_header: ClassVar[str] = "x-request-id"

    def __init__(self, script: Script = (), *, api_key: str | None = None, window_tokens: int | None = None) -> None:
        listing = Route(self.models_path, self._list, methods=["GET"])
        self.app = Starlette(routes=[listing, Route(self.path, self._answer, methods=["POST"])])
        self.models: list[str] = []
        """What the list of models has."""
        self.listed: list[Mapping[str, str]] = []
        """The headers of who asked for it."""
        self.requests: list[Received] = []
        self.hangups = 0
        """How often a client went away before the answer was over."""
        self.script = script
        self.api_key = api_key
        self.window_tokens = window_tokens

    @property
    def script(self) -> Script:
        return self._script

    @script.setter
    def script(self, script: Script) -> None:
        self._script = script if callable(script) else list(script)

    @abstractmethod
    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        """The body of a sound request. Raises `Refusal`."""

    @abstractmethod
    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        """What refuses a conversation that is too long."""

    @abstractmethod
    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        """The JSON of an error. What is None is what the vendor says with this status."""

    @abstractmethod
    def frames(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        """The whole stream of an answer, one item an event. `number` counts the requests from 1, `tokens` is the size
        of the request."""

    @abstractmethod
    def error_frame(self, type_: str) -> bytes:
        """An error in the middle of a stream."""

    @abstractmethod
    def whole(self, turn: StreamFault, number: int, body: dict[str, Any], tokens: int) -> Any:
        """The answer as one JSON object, where no stream is asked for."""

    def check_key(self, headers: Mapping[str, str]) -> None:
        """For the list of models. Raises `Refusal`."""
        if self.api_key is not None and headers.get("authorization") != f"Bearer {self.api_key}":
            raise Refusal(401, "authentication_error", "invalid key")

    def listing(self) -> Any:
        """The JSON of the list."""
        return {"object": "list", "data": [{"id": name, "object": "model"} for name in self.models]}

    async def _list(self, request: Request) -> Response:
        self.listed.append(dict(request.headers))
        try:
            self.check_key(dict(request.headers))
        except Refusal as refusal:
            return self._refused(refusal)
        return JSONResponse(self.listing())

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        """Whether a stream is asked for."""
        return bool(body.get("stream"))

    async def _answer(self, request: Request) -> Response:
        raw = await request.body()
        path, headers = request.url.path, dict(request.headers)
        body: dict[str, Any] = {}
        refusal: Refusal | None = None
        tokens = len(raw) // CHARS_PER_TOKEN + 1
        try:
            body = self.check(path, headers, raw)
            if self.window_tokens is not None and tokens + self._wanted(body) > self.window_tokens:
                raise self.overflow(tokens, self.window_tokens)
        except Refusal as error:
            refusal = error
        client = "{}:{}".format(*request.client) if request.client else ""
        self.requests.append(Received(client=client, path=path, headers=headers, body=body, refusal=refusal))
        number = len(self.requests)
        response = self._refused(refusal) if refusal else self._replied(path, body, tokens, number)
        response.headers.setdefault(self.id_header, f"req_{number:04d}")
        return response

    def _wanted(self, body: dict[str, Any]) -> int:
        """What the answer may take of the window, in tokens."""
        return next((int(body[name]) for name in _LENGTHS if isinstance(body.get(name), int)), 0)

    def _refused(self, refusal: Refusal) -> Response:
        error = self.error(refusal.status, refusal.type, refusal.message, refusal.code, refusal.param)
        return JSONResponse(error, refusal.status)

    def _replied(self, path: str, body: dict[str, Any], tokens: int, number: int) -> Response:
        reply = self._next(body)
        if isinstance(reply, Fault):
            return self._faulty(reply)
        if not self.streams(path, body):
            return JSONResponse(self.whole(reply, number, body, tokens))
        return _Stream(self, reply, self.frames(reply, number, body, tokens))

    def _next(self, body: dict[str, Any]) -> Reply:
        if callable(self._script):
            return self._script(body)
        assert isinstance(self._script, list)
        if self._script:
            return self._script.pop(0)
        messages = next(body[name] for name in ("messages", "contents", "input") if name in body)
        text = messages if isinstance(messages, str) else last_user_text(messages)
        return says(text or "(nothing to echo)")

    def _faulty(self, fault: Fault) -> Response:
        body = fault.body
        if body is None:
            body = json.dumps(self.error(fault.status, fault.type, fault.message, fault.code, None))
        response = Response(body, fault.status, fault.headers, media_type=fault.content_type)
        return response if fault.then == "end" else _Half(response, stalls=fault.then == "stall")


def sse(data: Any, event: str = "", *, newline: str = "\n") -> bytes:
    """One event of a stream."""
    named = f"event: {event}{newline}" if event else ""
    return f"{named}data: {json.dumps(data, ensure_ascii=False)}{newline * 2}".encode()


class _Half(Response):
    """The first half of a body; then silence, or a return before its end, which resets the connection."""

    def __init__(self, whole: Response, *, stalls: bool) -> None:
        super().__init__(whole.body, whole.status_code, dict(whole.headers))
        self._stalls = stalls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        half = bytes(self.body)[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})
        if self._stalls:
            await _gone(receive, None)


class _Stream(Response):
    """The events of one answer on the wire, with the fault that befalls it."""

    def __init__(self, emulator: ModelEmulator, fault: StreamFault, frames: Sequence[bytes]) -> None:
        super().__init__(media_type="text/event-stream")
        del self.headers["content-length"]
        self._emulator = emulator
        self._fault = fault
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for chunk in self._chunks():
            if self._fault.pause_seconds and await _gone(receive, self._fault.pause_seconds):
                self._emulator.hangups += 1
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        broken = self._fault.cut_after is not None
        if broken and self._fault.then == "stall":
            await _gone(receive, None)
            self._emulator.hangups += 1
        elif not (broken and self._fault.then == "reset"):
            # A server that returns before the end of a body resets the connection.
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _chunks(self) -> Iterator[bytes]:
        frames = list(self._frames[: self._fault.cut_after])
        if self._fault.cut_after is not None and self._fault.then == "error":
            frames.append(self._emulator.error_frame(self._fault.error_type))
        if self._fault.chunk_bytes is None:
            yield from frames
            return
        stream = b"".join(frames)
        for at in range(0, len(stream), self._fault.chunk_bytes):
            yield stream[at : at + self._fault.chunk_bytes]


async def _gone(receive: Receive, seconds: float | None) -> bool:
    """Wait so long, or for ever; True as soon as the client has gone away."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True
