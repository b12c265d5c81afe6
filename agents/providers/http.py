"""HTTP to model providers, shared by all clients and libraries.

Only the proxy settings are taken from the environment. Redirects are not followed, because that would send the key
elsewhere.
"""

import asyncio
import codecs
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

import orjson

from agents.providers.config import ProviderConfig
from agents.providers.payload import BadStream
from agents.providers.refusals import RequestRefused, unreadable
from channels.transport import Transport, client_class

END = "[DONE]"
CONNECT_SECONDS = 5.0
TAIL_SECONDS = 0.25
"""Seconds for a body to end after the last event; a fully read connection can be reused."""

REFUSAL_BYTES_MAX = 256 * 1024
REFUSAL_SECONDS = 5.0
"""Limits of a refusal's body; the status matters most."""
ERROR_BYTES_MAX = 1_000_000
"""The longest error body in place of an answer."""
EVENT_BYTES_MAX = 8 * 1024 * 1024
STREAM_BYTES_MAX = 256 * 1024 * 1024
"""Limits of one event or unstreamed answer, and of a whole stream, so that a server cannot exhaust memory."""
WORDS_BYTES = 2_000
"""The start of a body that is kept to describe a non-answer."""


class PlainClient:
    """httpx alone. An SDK would add little and cost a second and tens of megabytes. `post` returns the open httpx
    response and raises RequestRefused, possibly as the cause of an SDK's exception."""

    def __init__(self, config: ProviderConfig, base_url: str, headers: Mapping[str, str]) -> None:
        import httpx

        self._client = http_client(config, base_url, httpx, headers={**headers, **config.headers})
        self._base_url = base_url

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        request = self._client.build_request("POST", self._base_url + path, content=body, headers=dict(headers))
        return await self._client.send(request, stream=True)

    async def close(self) -> None:
        await self._client.aclose()


class SdkClient:
    """An official SDK, for authentication, paths and the connection. Bodies and events are ours: the SDK's methods
    copy every item of a body on the event loop, accept a truncated stream, and raise on half-written arguments.
    `stream_class` is its `AsyncStream`, used for the response.

    The SDK builds the first request per path and key. Later ones reuse it with another body, since building takes
    longer than sending.
    """

    def __init__(self, client: Any, http: Any, stream_class: Any, config: ProviderConfig) -> None:
        # Drop what it reads from a variable like ANTHROPIC_CUSTOM_HEADERS: a stray one must not change what we send.
        client._custom_headers = dict(config.headers)
        self._client = client
        self._http = http
        self._stream_class = stream_class[object]
        self._built: dict[tuple[object, ...], Any] = {}

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> Any:
        name = (path, *headers.items())
        if (built := self._built.get(name)) is not None:
            return await self._http.send(built, stream=True, body=body)
        stream = await self._client.post(
            path, cast_to=object, content=body, options={"headers": headers}, stream=True, stream_cls=self._stream_class
        )
        self._built[name] = stream.response.request
        return stream.response

    async def close(self) -> None:
        await self._client.close()


AnyClient: TypeAlias = PlainClient | SdkClient


class LazyClient:
    """A client that is built in a thread on first use: importing an SDK and reading the machine's certificates takes
    up to a second."""

    def __init__(self, build: Callable[[], AnyClient]) -> None:
        self._build = build
        self._client: AnyClient | None = None
        self._building = asyncio.Lock()
        self._users = 0
        self._retired = False
        self._closing: asyncio.Task[None] | None = None

    @contextmanager
    def in_use(self) -> Iterator[None]:
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_if_unused()

    def retire(self) -> None:
        """Close the client as soon as it is unused."""
        self._retired = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        if self._retired and not self._users and self._closing is None:
            self._closing = asyncio.create_task(self.close())

    async def get(self) -> AnyClient:
        if self._client is None:
            async with self._building:
                if self._client is None:
                    self._client = await asyncio.to_thread(self._build)
        return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()


def http_client(config: ProviderConfig, base_url: str, library: Any, **options: Any) -> Any:
    """Return an `AsyncClient` of `library`: `httpx`, or the SDKs' `httpx2`. It raises RequestRefused for every error
    status; an SDK wraps that in its exception."""
    total, patience = config.timeout_seconds, min(REFUSAL_SECONDS, config.idle_seconds / 2)

    async def refuse(response: Any) -> None:
        raise RequestRefused(response.status_code, await _refusal(response, patience), response.headers)

    timeout = library.Timeout(total, connect=min(CONNECT_SECONDS, total), read=None)  # the reader has a deadline
    return client_class(library)(transport=Transport(library, base_url), refuse=refuse, timeout=timeout, **options)


async def _refusal(response: Any, seconds: float) -> object:
    """Return the parsed body, or its text if it is no JSON; None if it is too long, stalls or breaks off."""
    body = b""
    with suppress(Exception):
        async with asyncio.timeout(seconds):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > REFUSAL_BYTES_MAX:
                    return None
        with suppress(ValueError):
            return json.loads(body)
        return body.decode(errors="replace")
    return None


class ArrivingAnswer:
    """One streaming answer, with the timeouts of `config`. Raises TimeoutError. Once it has `ended`, errors are
    ignored and the rest of the body is awaited for `tail_seconds`."""

    def __init__(self, config: ProviderConfig, *, tail_seconds: float) -> None:
        self.ended = False
        self._clock = asyncio.get_running_loop().time
        self._idle_seconds = config.idle_seconds
        self._tail_seconds = min(tail_seconds, config.idle_seconds / 2)
        began = self._clock()
        self._end = began + config.timeout_seconds
        self._until = min(self._end, began + config.first_byte_seconds)
        self._in_tail = self._over = False
        self._reader = _EventReader()
        self._received = 0
        self.headers: Mapping[str, str] = {}
        self._response: Any = None
        self._chunks: AsyncIterator[bytes]

    async def open(self, sending: Awaitable[Any]) -> None:
        async with asyncio.timeout_at(self._until):
            self._response = await sending
            self.headers = self._response.headers
            packed = "content-encoding" in self.headers
            self._chunks = aiter(self._response.aiter_bytes() if packed else self._response.stream)

    async def read(self) -> Sequence[str] | None:
        """Return the data of events that arrived together; None at the end of the body or of `tail_seconds`. Raises
        BadStream, and AttemptFailed if the whole body is no answer, such as a proxy's page with status 200."""
        if self._over:
            return None
        if self.ended and not self._in_tail:
            self._in_tail, self._until = True, self._clock() + self._tail_seconds
        try:
            async with asyncio.timeout_at(self._until):
                chunk = await anext(self._chunks, b"")
            self._over = not chunk
            self._received += len(chunk)
            if self._received > STREAM_BYTES_MAX:
                raise BadStream(f"the answer is longer than {STREAM_BYTES_MAX:,} bytes")
            events = self._reader.feed(chunk) if chunk else self._reader.end()
        except Exception:
            if self.ended:
                return None
            raise
        if not self.ended:
            self._until = min(self._end, self._clock() + self._idle_seconds)
        elif END in events:
            self._until = min(self._until, self._clock() + TAIL_SECONDS)
        return events

    async def close(self) -> None:
        if self._response is not None:
            await self._response.aclose()


class _EventReader:
    """Splits a body into events, or into JSON if that is what it is. The first bytes decide, not the content type:
    some servers label events as JSON or text, and some do not stream.

    Lines end at LF or CRLF, or at CR in a body without LF; Python's other line ends may be inside JSON. Whole lines
    are decoded, so an invalid byte costs one character.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[str] = []
        self._size = 0
        self._found: list[str] = []
        self._head = b""
        self._is_begun = self._is_json = self._has_event = self._has_lf = self._ends_at_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        """Return the events that this chunk completes. Each byte is read once. Raises BadStream."""
        if not self._is_begun and not (chunk := self._begin(chunk)):
            return []
        if len(self._head) < WORDS_BYTES:
            self._head += chunk[:WORDS_BYTES]
        if self._is_json:
            self._rest += chunk
        else:
            self._split(chunk)
        if self._size + len(self._rest) > EVENT_BYTES_MAX:
            raise BadStream(f"an event is longer than {EVENT_BYTES_MAX:,} bytes")
        return self._taken()

    def end(self) -> list[str]:
        """Return the events that the end completes. Raises AttemptFailed if there was none at all."""
        if self._is_json:
            self._found += _values(self._rest.decode(errors="replace"))
            self._rest.clear()
        elif self._is_begun:
            self._ends_at_cr = self._ends_at_cr or not self._has_lf
            self._split(self._cleared() + b"\n\n")
        found = self._taken()
        if not found and not self._has_event:
            raise unreadable(self._head.decode(errors="replace"))
        return found

    def _begin(self, chunk: bytes) -> bytes:
        """Return the bytes from the first that identifies the format; none before."""
        self._rest += chunk
        begun = self._rest.removeprefix(codecs.BOM_UTF8).lstrip()
        if not begun or codecs.BOM_UTF8.startswith(self._rest):
            return b""
        self._rest.clear()
        self._is_begun, self._is_json = True, begun.startswith((b"{", b"["))
        return bytes(begun)

    def _split(self, chunk: bytes) -> None:
        if self._ends_at_cr:
            chunk = chunk.replace(b"\r", b"\n")
        first, *lines = chunk.split(b"\n")
        seen = max(0, len(self._rest) - _CR_CHARS)
        self._rest += first
        if lines:
            self._has_lf = True
            *lines, rest = bytes(self._rest), *lines
            self._rest = bytearray(rest)
            for line in lines:
                self._add_line(line.removesuffix(b"\r"))
        elif not self._has_lf and b"\r" in first and _CR_STREAM.search(self._rest, seen):
            self._ends_at_cr = True
            self._split(self._cleared())

    def _cleared(self) -> bytes:
        rest = bytes(self._rest)
        self._rest.clear()
        return rest

    def _add_line(self, line: bytes) -> None:
        if line.startswith(b"data:"):
            self._data.append(line[5:].removeprefix(b" ").decode(errors="replace"))
            self._size += len(line)
        elif line.startswith(b"{") and line.endswith(b"}"):  # an error that a proxy puts between events, bare
            self._found.append(line.decode(errors="replace"))
        elif not line and self._data:
            self._found.append("\n".join(self._data))
            self._data, self._size = [], 0

    def _taken(self) -> list[str]:
        found, self._found = self._found, []
        self._has_event = self._has_event or bool(found)
        return found


def _values(text: str) -> Iterator[str]:
    """Yield the objects of a JSON body: one, a list, or several in sequence. Raises BadStream."""
    at = 0
    try:
        while at < len(text):
            value, at = _DECODER.raw_decode(text, at)
            for it in value if isinstance(value, list) else [value]:
                if len(text) > ERROR_BYTES_MAX and isinstance(it, dict) and it.get("error"):
                    raise BadStream(f"an error is longer than {ERROR_BYTES_MAX:,} characters")
                yield json.dumps(it)
            at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]  # it matches nothing, too
    except (ValueError, RecursionError):
        raise BadStream("the answer is JSON, and broke off or is broken") from None


_CR_STREAM = re.compile(rb"\r\r(?:data|event|id|retry|:)")
"""An event boundary in a stream whose lines end at CR."""
_CR_CHARS = 8
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_LONG_NUMBER = re.compile("[0-9]{19}")


def _parsed(data: str) -> Any:
    if not _LONG_NUMBER.search(data):  # only the standard library reads large integers and lone surrogates
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    return json.loads(data)


def event_of(data: str) -> dict[str, Any]:
    """Parse one event: one of type END for an explicit end, an empty one for a blank. Raises BadStream."""
    if (data := data.strip()) in ("", END):
        return {"type": END} if data else {}
    try:
        event = _parsed(data)
    except (ValueError, RecursionError) as error:
        raise BadStream("an event is not JSON") from error
    if not isinstance(event, dict):
        raise BadStream("an event is not an object")
    return event
