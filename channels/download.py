"""Requests to a platform, each with a total timeout: calls, and streamed downloads with a size limit.

Downloads follow no redirect and decompress nothing, so a small response cannot expand. Paths and the meaning of a refusal
are left to the channel.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlencode

import httpx

from channels.channel import TooLarge, Unreachable
from channels.transport import HttpResponse

SECONDS = 25.0
"""Timeout of one attempt; two attempts fit the time that a turn waits for a file."""
REFUSAL_BYTES_MAX = 65_536
CONNECT_SECONDS_MAX = 10.0
"""Shorter than the total timeout, to tell a request that never left from one that may have arrived."""
NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

T = TypeVar("T")


async def request(
    client: Any,
    method: str,
    path: str,
    *,
    seconds: float,
    platform: str,
    content: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    params: Mapping[str, str] | None = None,
    **form: Any,
) -> HttpResponse | httpx.Response:
    """Send a request with a multipart `form`, or with `content`, which bypasses httpx for speed.

    Raises Unreachable, which says whether the request may have arrived, if there is no complete response."""
    soon = min(0.8 * seconds, CONNECT_SECONDS_MAX)
    try:
        # The client's timeout applies to each read; a trickling response would never end.
        async with asyncio.timeout(seconds):
            if form:
                each = httpx.Timeout(seconds, connect=soon, pool=soon)
                uploaded: httpx.Response = await client.request(
                    method, path, timeout=each, headers=headers, params=params, **form
                )
                return uploaded
            url = str(client.base_url).rstrip("/") + path + (f"?{urlencode(params)}" if params else "")
            answer: HttpResponse = await client.to_server.ask(method, url, headers or {}, content or b"", soon)
            return answer
    except (httpx.HTTPError, TimeoutError) as error:
        reason = f"{platform} cannot be reached ({type(error).__name__})"
        raise Unreachable(reason, maybe_arrived=not isinstance(error, NEVER_LEFT)) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """The response. If `status` is not 200, `data` is the beginning of the platform's error."""

    status: int
    headers: httpx.Headers
    data: bytes = field(repr=False)


async def download(
    client: httpx.AsyncClient,
    path: str,
    *,
    bytes_max: int,
    params: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    seconds: float = SECONDS,
) -> Download:
    """Download a file. Raises TooLarge, or Unreachable if there is no complete response."""
    request_headers = {"accept-encoding": "identity", **(headers or {})}
    try:
        # The client's timeout applies to each read; a trickling file would never end.
        async with asyncio.timeout(seconds):
            async with client.stream(
                "GET", path, params=params, headers=request_headers, follow_redirects=False
            ) as response:
                data = await _read(response, bytes_max)
    except (httpx.HTTPError, TimeoutError) as error:
        raise Unreachable(f"the file did not come ({type(error).__name__})") from error
    return Download(status=response.status_code, headers=response.headers, data=data)


async def twice(attempt: Callable[[], Awaitable[T]]) -> T:
    """Retry an interrupted download once."""
    try:
        return await attempt()
    except Unreachable:
        return await attempt()


async def _read(response: httpx.Response, bytes_max: int) -> bytes:
    if response.status_code != 200:
        bytes_max = REFUSAL_BYTES_MAX
    elif response.headers.get("content-encoding", "identity") != "identity":
        raise Unreachable("the file came packed, which was not asked for")
    elif (declared := response.headers.get("content-length", "")).isdecimal() and int(declared) > bytes_max:
        raise TooLarge(bytes_max)
    data = bytearray()
    async for piece in response.aiter_raw():
        data += piece
        if len(data) > bytes_max:
            if response.status_code == 200:
                raise TooLarge(bytes_max)
            break
    return bytes(data[:bytes_max])
