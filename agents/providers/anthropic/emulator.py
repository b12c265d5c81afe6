"""Anthropic's Messages API on loopback, as strict as the real one, for tests, the demo and rehearsals.

It refuses what the real server refuses (`rules`), streams the same events, and goes wrong in every way that
a script asks for. It thinks nothing of its own: what it says is scripted (`script`), or an echo.
"""

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agents.providers.anthropic.block_rules import Refusal
from agents.providers.anthropic.rules import check_body, check_headers, parse_body
from agents.providers.anthropic.script import Fault, Reply, Turn, events_of, message_of, says

CHARS_PER_TOKEN = 4

Script: TypeAlias = Sequence[Reply] | Callable[[dict[str, Any]], Reply]


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """A request as it came. `body` is empty where it was not an object; `refusal` says why it was not answered."""

    headers: Mapping[str, str]
    body: dict[str, Any]
    refusal: Refusal | None


class AnthropicEmulator:
    """One emulated account. `app` is an ASGI app; `requests` holds everything it was sent, refused or not.

    `script` may be set anew at any time; a list is taken from the front, and when it ends every answer is an echo of
    the last text of the user. With `window_tokens`, longer prompts are refused as too long.
    """

    def __init__(
        self,
        script: Script = (),
        *,
        api_key: str | None = None,
        is_model: Callable[[str], bool] = lambda name: name.startswith("claude-"),
        window_tokens: int | None = None,
    ) -> None:
        self.app = Starlette(routes=[Route("/v1/messages", self._messages, methods=["POST"])])
        self.requests: list[Received] = []
        self.hangups = 0
        """How often a client went away before the answer was over."""
        self.script = script
        self._api_key = api_key
        self._is_model = is_model
        self._window_tokens = window_tokens

    @property
    def script(self) -> Script:
        return self._script

    @script.setter
    def script(self, script: Script) -> None:
        self._script = script if callable(script) else list(script)

    async def _messages(self, request: Request) -> Response:
        raw = await request.body()
        headers = dict(request.headers)
        number = len(self.requests) + 1
        body: dict[str, Any] = {}
        refusal: Refusal | None = None
        tokens = len(raw) // CHARS_PER_TOKEN + 1
        try:
            check_headers(headers, self._api_key)
            body = parse_body(raw)
            check_body(body, self._is_model)
            self._check_window(tokens)
        except Refusal as error:
            refusal = error
        self.requests.append(Received(headers=headers, body=body, refusal=refusal))
        if refusal is not None:
            fault = Fault(status=refusal.status, type=refusal.type, message=refusal.message)
            return _faulty(fault, number)
        reply = self._next(body)
        if isinstance(reply, Fault):
            return _faulty(reply, number)
        if not body.get("stream", False):
            return JSONResponse(message_of(reply, number, body["model"], tokens), headers=_request_id(number))
        return _Stream(self, reply, number, events_of(reply, number, body["model"], tokens))

    def _check_window(self, tokens: int) -> None:
        if self._window_tokens is not None and tokens > self._window_tokens:
            message = f"prompt is too long: {tokens} tokens > {self._window_tokens} maximum"
            raise Refusal(400, "invalid_request_error", message)

    def _next(self, body: dict[str, Any]) -> Reply:
        if callable(self._script):
            return self._script(body)
        assert isinstance(self._script, list)
        return self._script.pop(0) if self._script else says(last_user_text(body) or "(nothing to echo)")


def last_user_text(body: dict[str, Any]) -> str:
    """The last text block that a user message of this request holds, metadata and all."""
    for message in reversed(body["messages"]):
        if message["role"] == "user":
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            for block in reversed(blocks):
                if block["type"] == "text":
                    return str(block["text"])
    return ""


def _faulty(fault: Fault, number: int) -> Response:
    headers = _request_id(number) | dict(fault.headers)
    if fault.body is not None:
        return Response(fault.body, fault.status, headers, media_type=fault.content_type)
    error: dict[str, Any] = {"type": fault.type, "message": fault.message}
    if fault.error_code is not None:
        error["details"] = {"error_code": fault.error_code}
    body = {"type": "error", "error": error, "request_id": headers["request-id"]}
    return JSONResponse(body, fault.status, headers)


def _request_id(number: int) -> dict[str, str]:
    return {"request-id": f"req_{number:04d}"}


class _Stream(Response):
    """The events of one answer on the wire, with the accident that the turn asks for."""

    def __init__(self, emulator: AnthropicEmulator, turn: Turn, number: int, events: list[dict[str, Any]]) -> None:
        super().__init__(headers=_request_id(number), media_type="text/event-stream")
        del self.headers["content-length"]
        self._emulator = emulator
        self._turn = turn
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        for chunk in self._chunks():
            if self._turn.pause_seconds and await _gone(receive, self._turn.pause_seconds):
                self._emulator.hangups += 1
                return
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        broken = self._turn.cut_after is not None
        if broken and self._turn.then == "stall":
            await _gone(receive, None)
            self._emulator.hangups += 1
        elif not (broken and self._turn.then == "reset"):  # a server that returns before the end resets the connection
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _chunks(self) -> Iterator[bytes]:
        pieces = [_sse(event) for event in self._events[: self._turn.cut_after]]
        if self._turn.cut_after is not None and self._turn.then == "error":
            error = {"type": self._turn.error_type, "message": "Overloaded"}
            pieces.append(_sse({"type": "error", "error": error}))
        if self._turn.chunk_bytes is None:
            yield from pieces
            return
        stream = b"".join(pieces)
        for at in range(0, len(stream), self._turn.chunk_bytes):
            yield stream[at : at + self._turn.chunk_bytes]


def _sse(event: dict[str, Any]) -> bytes:
    return f"event: {event['type']}\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode()


async def _gone(receive: Receive, seconds: float | None) -> bool:
    """Wait so long, or for ever; True as soon as the client has gone away."""
    try:
        async with asyncio.timeout(seconds):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True
