"""A server whose answers come drop by drop and never end: every single read is in time, and the call never is."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Literal

DROP_SECONDS = 0.02
Part = Literal["headers", "body"]


@asynccontextmanager
async def dripping(part: Part, *, but: Mapping[str, bytes] | None = None) -> AsyncIterator[tuple[str, list[str]]]:
    """Its address, and the paths that it began to answer so; those that end as in `but` are answered at once with JSON."""
    dripped: list[str] = []
    connections: set[asyncio.Task[None]] = set()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                while True:
                    await _answer(reader, writer)
        finally:
            writer.close()

    async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        path = head.split(b" ")[1].decode().partition("?")[0]
        lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
        await reader.readexactly(int(lengths[0].partition(b":")[2]) if lengths else 0)
        if (whole := next((it for end, it in (but or {}).items() if path.endswith(end)), None)) is not None:
            writer.write(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(whole)
            )
            writer.write(whole)
            return await writer.drain()
        dripped.append(path)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n")
        writer.write(b"content-length: 1000000\r\n\r\n" if part == "body" else b"x-drops: ")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(DROP_SECONDS)

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", dripped
    finally:
        server.close()
        for connection in connections:
            connection.cancel()
        await asyncio.gather(*connections, return_exceptions=True)
