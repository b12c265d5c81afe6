"""HTTP to a model provider: what every client of ours has in common, whichever library it is.

Nothing but the machine's proxy settings is taken from the environment, and redirects are not followed: following one
would carry the key to wherever it points.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

from agents.providers.config import ProviderConfig
from agents.providers.errors import BadStream, Refused
from channels.transport import Transport

END = "[DONE]"
CONNECT_SECONDS = 5.0
DRAIN_SECONDS = 0.25
"""How long a body may take to end after the answer's last event; read to its end, the connection can be used again."""

REFUSAL_BYTES_MAX = 256 * 1024
REFUSAL_SECONDS = 5.0
"""How much of a refusal's body is read, and for how long: its status says the most."""


T = TypeVar("T")


class LazyClient:
    """A client that is built at the first need, in a thread: importing an SDK and reading the machine's certificates takes
    up to a second."""

    def __init__(self, build: Callable[[], Any]) -> None:
        self._build = build
        self._client: Any = None
        self._building = asyncio.Lock()

    async def get(self) -> Any:
        async with self._building:
            if self._client is None:
                self._client = await asyncio.to_thread(self._build)
            return self._client

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await (client.aclose() if hasattr(client, "aclose") else client.close())


def settings(config: ProviderConfig, base_url: str, library: Any) -> dict[str, Any]:
    """The keyword arguments for an `AsyncClient` of `library`: `httpx`, or the `httpx2` of the SDKs. The client raises
    Refused for every answer that is no success; an SDK wraps that into an exception of its own."""
    total = config.timeout_seconds
    return {
        "timeout": library.Timeout(total, connect=min(CONNECT_SECONDS, total)),
        "transport": Transport(library, base_url),
        "follow_redirects": False,
        "event_hooks": {"response": [_refuser(min(REFUSAL_SECONDS, config.idle_seconds / 2))]},
    }


def _refuser(seconds: float) -> Callable[[Any], Awaitable[None]]:
    async def refuse(response: Any) -> None:
        if not response.is_success:
            raise Refused(response.status_code, await _refusal(response, seconds), response.headers)

    return refuse


async def _refusal(response: Any, seconds: float) -> object:
    """The parsed body; None where it is too long, stalls, breaks off or is no JSON."""
    body = b""
    with suppress(Exception):
        async with asyncio.timeout(seconds):
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > REFUSAL_BYTES_MAX:
                    return None
        return json.loads(body)
    return None


def must_be_events(headers: Mapping[str, str]) -> None:
    """A proxy's page with status 200 is no answer."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "text/event-stream":
        raise BadStream("the answer is not an event stream")


async def server_sent(chunks: AsyncIterator[bytes]) -> AsyncGenerator[str, None]:
    """The data of server-sent events, from the bytes of a body; "" for whatever else is a sign of life.

    Lines end at line feeds alone: what else Python takes for the end of a line may stand inside JSON.
    """
    data: list[str] = []
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" ").decode())
            elif line:
                yield ""
            elif data:
                yield "\n".join(data)
                data = []
    if rest.startswith(b"data:"):
        data.append(rest[5:].strip().decode())
    if data:
        yield "\n".join(data)


def event_of(data: str) -> dict[str, Any]:
    """One event; an empty one for what is no news, such as the end that some servers spell out. Raises BadStream."""
    if data.strip() in ("", END):
        return {}
    try:
        event = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BadStream("an event is not JSON") from error
    if not isinstance(event, dict):
        raise BadStream("an event is not an object")
    return event


async def drain(events: AsyncIterator[T], *, idle_seconds: float, seconds: float = DRAIN_SECONDS) -> list[T]:
    """What still arrives behind the end of an answer. The answer is whole, so neither silence nor an error matters any
    more; read to its end, the connection can be used again."""
    found: list[T] = []
    with suppress(Exception):
        async with asyncio.timeout(min(seconds, idle_seconds / 2)):
            async for event in events:
                found.append(event)  # noqa: PERF401 - kept also where it breaks off
    return found
