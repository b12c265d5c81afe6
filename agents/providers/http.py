"""HTTP to a model provider: what every client of ours has in common, whichever library it is.

Nothing but the machine's proxy settings is taken from the environment, and redirects are not followed: following one
would carry the key to wherever it points.
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
"""Seconds that a body may take to end after the answer's last event; read to its end, the connection can be used again."""

REFUSAL_BYTES_MAX = 256 * 1024
REFUSAL_SECONDS = 5.0
"""The limits of reading a refusal's body, in bytes and seconds: its status says the most."""
ERROR_BYTES_MAX = 1_000_000
"""The longest error that is read in place of an answer."""
EVENT_BYTES_MAX = 8 * 1024 * 1024
STREAM_BYTES_MAX = 256 * 1024 * 1024
"""The limits of one event or of an answer that is whole, and of all that an answer takes on the way: without either a server
could fill the memory."""
WORDS_BYTES = 2_000
"""The beginning of a body that is kept to say what it was if it was no answer."""


class PlainClient:
    """httpx alone. An SDK would add little more than names, and cost a second and tens of megabytes. `post` returns the open
    answer, an httpx response, and raises RequestRefused, perhaps as the cause of an SDK's exception."""

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
    """An official SDK: it gives us authentication, paths and the connection. Bodies and events are ours: its own methods
    copy every item of a body on the event loop, take a cut stream for a whole one, and raise in the middle of
    half-written arguments. `stream_class` is its `AsyncStream`, of which we want the response.

    The SDK builds the first request for a path and key. Later ones are that request with another body: building each
    again takes longer than sending it.
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
    """A client that is built at the first need, in a thread: importing an SDK and reading the machine's certificates takes
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
        """Closes the client as soon as it is unused."""
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
    """An `AsyncClient` of `library`: `httpx`, or the `httpx2` of the SDKs. It raises RequestRefused for every answer
    that is no success; an SDK wraps that into its own exception."""
    total, patience = config.timeout_seconds, min(REFUSAL_SECONDS, config.idle_seconds / 2)

    async def refuse(response: Any) -> None:
        raise RequestRefused(response.status_code, await _refusal(response, patience), response.headers)

    timeout = library.Timeout(total, connect=min(CONNECT_SECONDS, total), read=None)  # who reads has its own deadline
    return client_class(library)(transport=Transport(library, base_url), refuse=refuse, timeout=timeout, **options)


async def _refusal(response: Any, seconds: float) -> object:
    """The parsed body, or its text if it is no JSON; None if it is too long, stalls or breaks off."""
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
    """One answer as it arrives, under the deadlines of `config`. Raises TimeoutError if nothing comes, if it falls
    silent, if it takes too long in all. Once it has `ended`, neither silence nor an error matters any more: what still
    arrives is waited for `tail_seconds`."""

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
        """The data of events that arrived together; None at the end of the body, or of the patience with it. Raises
        BadStream, and AttemptFailed if the whole body is no answer: a proxy's page with status 200."""
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
    """The events of a body, or the JSON that it is instead: its first bytes decide, not its content type. Servers label
    sound events as JSON or plain text, and some answer whole although a stream was asked for.

    Lines end at LF or CRLF, or at CR in a body without any LF: Python's other line ends may be inside JSON. A byte that is
    no UTF-8 costs its own character alone, so lines are decoded once they are whole.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[str] = []
        self._size = 0
        self._found: list[str] = []
        self._head = b""
        self._is_begun = self._is_json = self._has_event = self._has_lf = self._ends_at_cr = False

    def feed(self, chunk: bytes) -> list[str]:
        """The events that are whole with it. Each byte is looked at once. Raises BadStream."""
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
        """The events that the end makes whole. Raises AttemptFailed if nothing of the body was one."""
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
        """Return the bytes from the first one on that says what the body is; nothing before."""
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
    """The objects of a body that is JSON: one, a list of them, or one after the other. Raises BadStream."""
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
"""The end of an event and the beginning of the next one, in a stream whose lines end at CR."""
_CR_CHARS = 8
_DECODER = json.JSONDecoder()
_BETWEEN = re.compile(r"[ \t\r\n,]*")
_LONG_NUMBER = re.compile("[0-9]{19}")


def _parsed(data: str) -> Any:
    """Faster by five than the standard library, which alone reads whole numbers of any size and half an emoji."""
    if not _LONG_NUMBER.search(data):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(data)
    return json.loads(data)


def event_of(data: str) -> dict[str, Any]:
    """One event; one of type END for the end that some servers spell out, an empty one for what is no news. Raises
    BadStream."""
    if (data := data.strip()) in ("", END):
        return {"type": END} if data else {}
    try:
        event = _parsed(data)
    except (ValueError, RecursionError) as error:
        raise BadStream("an event is not JSON") from error
    if not isinstance(event, dict):
        raise BadStream("an event is not an object")
    return event
