"""A model provider on loopback: the part of it that is the same for every vendor.

It keeps what it is sent, refuses what the vendor's `Face` refuses, streams what the script says, and goes wrong in every
way that the script asks for. It thinks nothing of its own: where the script ends it echoes the user.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from tests.emulators.models.script import Accident, Fault, says

CHARS_PER_TOKEN = 4

Reply: TypeAlias = Accident | Fault
Script: TypeAlias = Sequence[Reply] | Callable[[dict[str, Any]], Reply]


class Refusal(Exception):
    """The request is refused as malformed, in the vendor's words."""

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


class Face(Protocol):
    """What one vendor's API looks like from outside."""

    path: str
    """Of the route, in Starlette's form."""

    def check(self, path: str, headers: Mapping[str, str], raw: bytes) -> dict[str, Any]:
        """The body of a sound request. Raises `Refusal`, whose words and status are the vendor's."""

    def overflow(self, tokens: int, window_tokens: int) -> Refusal:
        """What a conversation that is too long is told."""

    def last_user_text(self, body: dict[str, Any]) -> str:
        """The last text that a user message of a sound request holds, metadata and all."""

    def headers(self, number: int) -> dict[str, str]:
        """Of every answer, such as the request's id; `number` counts the requests from 1."""

    def error(self, status: int, type_: str | None, message: str | None, code: str | None, param: str | None) -> Any:
        """The JSON of an error. What is None is what the vendor says with this status."""

    def frames(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> list[bytes]:
        """The whole stream of an answer, one item an event. `tokens` is the size of the request."""

    def error_frame(self, type_: str) -> bytes:
        """An error that is told in the middle of a stream."""

    def whole(self, turn: Accident, number: int, body: dict[str, Any], tokens: int) -> Any:
        """The answer as one JSON object, where no stream is asked for."""

    def streams(self, path: str, body: dict[str, Any]) -> bool:
        """Whether a stream is asked for."""


class ModelEmulator:
    """One emulated account. `app` is an ASGI app; `requests` holds everything it was sent, refused or not.

    `script` may be set anew at any time; a list is taken from the front, and when it ends every answer is an echo of
    the last text of the user. With `window_tokens`, longer prompts are refused as too long.
    """

    def __init__(self, face: Face, script: Script = (), *, window_tokens: int | None = None) -> None:
        self.app = Starlette(routes=[Route(face.path, self._answer, methods=["POST"])])
        self.requests: list[Received] = []
        self.hangups = 0
        """How often a client went away before the answer was over."""
        self.script = script
        self._face = face
        self._window_tokens = window_tokens

    @property
    def script(self) -> Script:
        return self._script

    @script.setter
    def script(self, script: Script) -> None:
        self._script = script if callable(script) else list(script)

    async def _answer(self, request: Request) -> Response:
        raw = await request.body()
        path, headers = request.url.path, dict(request.headers)
        number = len(self.requests) + 1
        body: dict[str, Any] = {}
        refusal: Refusal | None = None
        tokens = len(raw) // CHARS_PER_TOKEN + 1
        try:
            body = self._face.check(path, headers, raw)
            if self._window_tokens is not None and tokens > self._window_tokens:
                raise self._face.overflow(tokens, self._window_tokens)
        except Refusal as error:
            refusal = error
        client = "{}:{}".format(*request.client) if request.client else ""
        self.requests.append(Received(client=client, path=path, headers=headers, body=body, refusal=refusal))
        if refusal is not None:
            told = self._face.error(refusal.status, refusal.type, refusal.message, refusal.code, refusal.param)
            return JSONResponse(told, refusal.status, self._face.headers(number))
        reply = self._next(body)
        if isinstance(reply, Fault):
            return self._faulty(reply, number)
        if not self._face.streams(path, body):
            return JSONResponse(self._face.whole(reply, number, body, tokens), headers=self._face.headers(number))
        return _Stream(self, self._face, reply, number, self._face.frames(reply, number, body, tokens))

    def _next(self, body: dict[str, Any]) -> Reply:
        if callable(self._script):
            return self._script(body)
        assert isinstance(self._script, list)
        return self._script.pop(0) if self._script else says(self._face.last_user_text(body) or "(nothing to echo)")

    def _faulty(self, fault: Fault, number: int) -> Response:
        headers = self._face.headers(number) | dict(fault.headers)
        body = fault.body
        if body is None:
            body = json.dumps(self._face.error(fault.status, fault.type, fault.message, fault.code, None))
        response = Response(body, fault.status, headers, media_type=fault.content_type)
        return response if fault.then == "end" else _Half(response, stalls=fault.then == "stall")


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
    """The events of one answer on the wire, with the accident that befalls it."""

    def __init__(
        self, emulator: ModelEmulator, face: Face, accident: Accident, number: int, frames: Sequence[bytes]
    ) -> None:
        super().__init__(headers=face.headers(number), media_type="text/event-stream")
        del self.headers["content-length"]
        self._emulator = emulator
        self._face = face
        self._accident = accident
        self._frames = frames

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for chunk in self._chunks():
            if self._accident.pause_seconds and await _gone(receive, self._accident.pause_seconds):
                self._emulator.hangups += 1
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        broken = self._accident.cut_after is not None
        if broken and self._accident.then == "stall":
            await _gone(receive, None)
            self._emulator.hangups += 1
        elif not (broken and self._accident.then == "reset"):
            # A server that returns before the end of a body resets the connection.
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _chunks(self) -> Iterator[bytes]:
        frames = list(self._frames[: self._accident.cut_after])
        if self._accident.cut_after is not None and self._accident.then == "error":
            frames.append(self._face.error_frame(self._accident.error_type))
        if self._accident.chunk_bytes is None:
            yield from frames
            return
        stream = b"".join(frames)
        for at in range(0, len(stream), self._accident.chunk_bytes):
            yield stream[at : at + self._accident.chunk_bytes]


async def _gone(receive: Receive, seconds: float | None) -> bool:
    """Wait so long, or for ever; True as soon as the client has gone away."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True
