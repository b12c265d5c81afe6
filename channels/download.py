"""A file from a platform: streamed under a cap and a deadline, from the address that the channel's client has.

No redirect is followed and nothing is unpacked: a small answer must not become a large one. What the path may be, and
what a refusal means, is the channel's business.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import httpx

from channels.channel import TooLarge, Unreachable

SECONDS = 25.0
"""Of one attempt; two of them stay inside of the time that a turn waits for a file."""
REFUSAL_BYTES_MAX = 65_536

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Download:
    """The response. Where `status` is not 200, `data` is the beginning of the platform's error."""

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
    """Raises TooLarge, or Unreachable where no complete answer arrived."""
    request_headers = {"accept-encoding": "identity", **(headers or {})}
    try:
        # The client's own timeout is for one read; a file that comes drop by drop would never end.
        async with asyncio.timeout(seconds):
            async with client.stream(
                "GET", path, params=params, headers=request_headers, follow_redirects=False
            ) as response:
                data = await _read(response, bytes_max)
    except (httpx.HTTPError, TimeoutError) as error:
        raise Unreachable(f"the file did not come ({type(error).__name__})") from error
    return Download(status=response.status_code, headers=response.headers, data=data)


async def twice(attempt: Callable[[], Awaitable[T]]) -> T:
    """Tries an interrupted download once more, which is safe as it changes nothing."""
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
