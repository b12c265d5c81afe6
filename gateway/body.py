"""Reading a request's body: under a cap and a deadline, and never a byte more than that."""

import asyncio

from fastapi import Request
from starlette.requests import ClientDisconnect


class Unreadable(Exception):
    """The body could not be read: the answer is `status`, and nobody looked at what was in it."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


async def read_body(request: Request, *, bytes_max: int, seconds: float) -> bytes:
    """The raw body. Raises Unreadable."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > bytes_max:
        raise Unreadable(413, "body too large")
    body = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                body += chunk
                if len(body) > bytes_max:
                    raise Unreadable(413, "body too large")
    except TimeoutError:
        raise Unreadable(408, "body too slow") from None
    except ClientDisconnect:
        raise Unreadable(400, "body cut off") from None
    return bytes(body)
