"""What httpx on aiohttp's connections promises: which failures never left, which leave doubt, what is used again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
import pytest
import uvicorn
from structlog.testing import capture_logs

from channels import transport
from channels.channel import Unreachable
from channels.download import request
from channels.transport import KEEP_ALIVE_SECONDS, PIECE_BYTES, Transport, client_class

LIBRARIES = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])
GOOD = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Handler = Callable[["Peer", asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Peer:
    """A server that speaks as its handler says, and keeps the heads and bodies that it was sent."""

    def __init__(self, handler: Handler) -> None:
        self.url = ""
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self._handler = handler

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            await self._handler(self, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def read(self, reader: asyncio.StreamReader) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.lower().split("\r\n") if line.startswith("content-length:")), 0)
        self.heads.append(head)
        self.bodies.append(await reader.readexactly(length))


@asynccontextmanager
async def peer(handler: Handler) -> AsyncIterator[Peer]:
    it = Peer(handler)
    server = await asyncio.start_server(it.serve, "127.0.0.1", 0)
    it.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield it


def answers(*answer: bytes) -> Handler:
    """Each request of a connection gets the next answer; after the last the connection ends."""

    async def handle(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for each in answer:
            await it.read(reader)
            writer.write(each)
            await writer.drain()

    return handle


async def silence(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@asynccontextmanager
async def client(library: Any, url: str, **options: Any) -> AsyncIterator[Any]:
    async with client_class(library)(base_url=url, transport=Transport(library, url), **options) as it:
        yield it


@LIBRARIES
async def test_transport_sends_large_requests_and_reuses_connections(library: Any) -> None:
    large = bytes(range(256)) * (PIECE_BYTES // 64)
    async with peer(answers(GOOD, GOOD)) as server, client(library, server.url) as http:
        for path, content in (("/one%2Ftwo?q=%E4%BD%A0", "你好".encode()), ("/files/bot1:a_b/x", large)):
            answer = await http.post(path, content=content, headers={"x-mine": "yes"})
            assert (answer.status_code, answer.content) == (200, b"ok")
        assert (server.connections, server.bodies) == (1, ["你好".encode(), large])
        assert server.heads[0].startswith("POST /one%2Ftwo?q=%E4%BD%A0 HTTP/1.1\r\n")
        assert "/files/bot1:a_b/x" in server.heads[1]
        for head in server.heads:
            names = [line.partition(":")[0].lower() for line in head.split("\r\n")[1:] if line]
            assert sorted(names) == sorted(set(names))
            assert not {"content-type", "transfer-encoding"} & set(names)


@LIBRARIES
async def test_transport_tells_unsent_from_ambiguous_sends(library: Any) -> None:
    async with peer(silence) as server:
        gone = server.url
    for url in (gone, "http://name.invalid"):
        async with client(library, url) as http:
            with pytest.raises(library.ConnectError) as caught:
                await http.post("/bot12345:SECRET/getMe")
            assert "SECRET" not in f"{caught.value!r} {caught.value.__cause__!r}"
    async with peer(silence) as server, client(library, server.url, timeout=0.05) as http:
        with pytest.raises(library.ReadTimeout):
            await http.post("/", content=b"x")
    for answer in (b"", b"HTTP/1.1 200", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"):
        async with peer(answers(answer)) as server, client(library, server.url) as http:
            with pytest.raises(library.RemoteProtocolError):
                await http.post("/", content=b"x")
            assert server.connections == 1  # a POST is never repeated


async def test_transport_errors_equal_those_of_httpx(monkeypatch: pytest.MonkeyPatch) -> None:
    async def call(url: str) -> Any:
        async with client(httpx, url) as http:
            sent: Any = {"content": b"{}", "headers": {"x-mine": "yes"}, "params": {"q": "你 好"}}
            answers = [await request(http, "POST", "/a%2Fb", seconds=30, platform="X", **sent) for _ in range(2)]
            return answers[1]

    async with peer(answers(GOOD, GOOD)) as server:
        answer = await call(server.url)
        assert (answer.status_code, answer.content, answer.headers["Content-Length"]) == (200, b"ok", "2")
        assert (server.connections, server.bodies) == (1, [b"{}", b"{}"])
        assert server.heads[0].startswith("POST /a%2Fb?q=%E4%BD%A0+%E5%A5%BD HTTP/1.1\r\n")
        names = [line.partition(":")[0].lower() for line in server.heads[0].split("\r\n")[1:] if line]
        assert {"x-mine", "accept", "user-agent"} < set(names)
        assert sorted(names) == sorted(set(names))
    with pytest.raises(Unreachable) as caught:
        await call(server.url + "/bot12345:SECRET")
    assert not caught.value.maybe_arrived
    assert "SECRET" not in f"{caught.value!r} {caught.value.__cause__!r}"
    monkeypatch.setattr(transport, "ANSWER_BYTES_MAX", 1)
    for bad in (GOOD, b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"):
        async with peer(answers(bad)) as server:
            with pytest.raises(Unreachable) as caught:
                await call(server.url)
            assert (caught.value.maybe_arrived, server.connections) == (True, 1)


@LIBRARIES
async def test_transport_closes_a_connection_with_an_unread_body(library: Any) -> None:
    endless = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n"
    ended = asyncio.Event()

    async def handle(it: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await it.read(reader)
        writer.write(endless)
        await reader.read()
        ended.set()

    async with peer(handle) as server, client(library, server.url) as http:
        async with http.stream("GET", "/") as response:
            assert await anext(response.aiter_bytes()) == b"ok"
        async with asyncio.timeout(30):
            await ended.wait()


@LIBRARIES
async def test_transport_uses_the_environments_proxy(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    async with peer(answers(GOOD)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with client(library, "http://open.example.com") as http:
            assert (await http.get("/there")).status_code == 200
        assert proxy.heads[0].startswith("GET http://open.example.com/there HTTP/1.1\r\n")
    async with client(library, "http://open.example.com") as http:
        with pytest.raises(library.ProxyError):
            await http.get("/there")
    monkeypatch.delenv("http_proxy")
    monkeypatch.setenv("all_proxy", "socks5://user:SECRET@127.0.0.1:7890")
    with capture_logs() as logs:
        async with client(library, "http://open.example.com") as http:
            with pytest.raises(library.ProxyError):
                await http.get("/there")
    assert [(line["event"], line["proxy"]) for line in logs] == [("proxy_not_usable", "socks5")]
    assert "SECRET" not in str(logs)


def test_transport_keepalive_timeout_is_below_common_servers() -> None:
    assert uvicorn.Config("app").timeout_keep_alive >= KEEP_ALIVE_SECONDS + 1
