"""What a stranger can do to the door with bytes alone: headers without end, connections that say nothing, answers that
nobody takes. Each is asked over a real socket; behind it the gateway goes on."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import loopback
from tests.emulators.models.script import says
from tests.running import Running, client, running
from tests.stories.process.test_process import platforms, started
from tests.stories.process.test_process import say as say_to
from tests.waiting import PATIENCE_SECONDS, until
from tests.web_page import WEB, Page

HOST = b"host: 127.0.0.1\r\n"
SOON = "server: { connectionTimeoutSeconds: 1 }"


@dataclass
class Line:
    """A connection to the door, byte by byte."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def send(self, *data: bytes) -> None:
        """Each piece on its way by itself."""
        for piece in data:
            self.writer.write(piece)
            await self.writer.drain()

    async def answer(self) -> tuple[int, str]:
        """The next answer's status and text."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            length = next(int(line.split(": ")[1]) for line in head.lower().splitlines() if "content-length" in line)
            return int(head.split()[1]), (await self.reader.readexactly(length)).decode()

    async def rest(self) -> bytes:
        """All until the door closes it."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionResetError):
                return await self.reader.read()
            return b""

    async def ask(self, path: str = "/healthz") -> tuple[int, str]:
        await self.send(b"GET %b HTTP/1.1\r\n%b\r\n" % (path.encode(), HOST))
        return await self.answer()


@asynccontextmanager
async def line(url: str, address: str = "127.0.0.1") -> AsyncIterator[Line]:
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(address, 0))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


FIELD = b"x-field: " + b"a" * (16_384 - len(b"x-field"))
MANY = b"".join(b"x-%d: a\r\n" % number for number in range(98))
WIDE = b"".join(b"x-%d: %b\r\n" % (number, b"a" * 14_000) for number in range(5))
BEYOND = [
    ("a field", b"/healthz", FIELD + b"a\r\n", 431, "maxHeaderFieldBytes"),
    ("a name", b"/healthz", b"a" * 16_385 + b": x\r\n", 431, "maxHeaderFieldBytes"),
    ("many", b"/healthz", MANY + b"a: b\r\nb: c\r\n", 431, "maxHeaderFields"),
    ("in all", b"/healthz", WIDE, 431, "maxHeaderBytes"),
    ("an address", b"/" + b"a" * 8_192, b"", 414, "maxUrlBytes"),
    ("a query", b"/healthz?" + b"a" * 8_192, b"", 414, "maxUrlBytes"),
    ("a webhook", b"/webhooks/feishu/default", FIELD + b"a\r\n", 431, "maxHeaderFieldBytes"),
    ("the web chat", b"/api/chats", FIELD + b"a\r\n", 431, "maxHeaderFieldBytes"),
]


async def test_http_header_within_the_caps_is_read_byte_by_byte(house: Running) -> None:
    requests = [
        b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path, HOST, fields)
        for path, fields in ((b"/healthz", FIELD + b"\r\n"), (b"/healthz", MANY), (b"/healthz?" + b"a" * 8_182, b""))
    ]
    short = b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-field: some value\r\n\r\n"
    pieces = [[short[at : at + size] for at in range(0, len(short), size)] for size in (1, 2)]
    async with line(house.url) as it:
        for sent in (*([request] for request in requests), *pieces):
            await it.send(*sent)
            assert (await it.answer())[0] == 200


async def test_http_header_beyond_a_cap_is_refused_and_closed(house: Running) -> None:
    for case, path, fields, status, key in BEYOND:
        whole = b"GET %b HTTP/1.1\r\n%b%b\r\n" % (path, HOST, fields)
        for pieces in ([whole], [whole[at : at + 1_000] for at in range(0, len(whole), 1_000)]):
            async with line(house.url) as it:
                await it.send(*pieces)
                answered, text = await it.answer()
                assert (answered, key in text) == (status, True), case
                assert await it.rest() == b"", case
        async with line(house.url) as it:
            assert (await it.ask())[0] == 200, case


POST = b"POST /webhooks/feishu/default HTTP/1.1\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
FLOODS = {
    "one value": (POST + b"x: ", b"a" * 4_096, 431),
    "one name": (POST, b"a" * 4_096, 431),
    "small fields": (POST, b"a:b\r\n" * 100, 431),
    "an address": (b"POST /", b"a" * 4_096, 414),
    "empty lines": (b"", b"\r\n" * 1_000, 431),
    "the size of a chunk": (CHUNKED + b"1;", b"a" * 4_096, 431),
    "trailers": (CHUNKED + b"0\r\n", b"a:b\r\n" * 100, 431),
    "one trailer": (CHUNKED + b"0\r\nx: ", b"a" * 4_096, 431),
}


async def test_http_header_without_end_hits_the_cap(house: Running) -> None:
    for flood, (beginning, more, status) in FLOODS.items():
        async with line(house.url) as it:
            await it.send(beginning)
            answering = asyncio.create_task(it.answer())
            with suppress(ConnectionError):
                while not answering.done():
                    await it.send(more)
            assert (await answering)[0] == status, flood


async def test_http_chunked_body_is_read_and_trailers_refused(
    house: Running,
) -> None:
    chunked = POST + HOST + b"transfer-encoding: chunked\r\n\r\n"
    async with line(house.url) as it:
        await it.send(chunked + b"2;a=b\r\n{}\r\n0\r\n\r\n")
        assert (await it.answer())[0] == 400
        await it.send(chunked + b"2\r\n{}\r\n0\r\nx-lark-signature: forged\r\n\r\n")
        status, text = await it.answer()
        assert (status, "trailers" in text) == (431, True)
        assert await it.rest() == b""


async def test_http_expect_continue_is_answered(house: Running) -> None:
    async with line(house.url) as it:
        await it.send(POST + HOST + b"expect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert b"100 Continue" in await it.reader.readuntil(b"\r\n\r\n")
        await it.send(b"{}")
        assert (await it.answer())[0] == 400
    async with line(house.url) as it:
        await it.send(b"POST / HTTP/1.1\r\n%bexpect: 100-continue\r\n%ba\r\n\r\n" % (HOST, FIELD))
        assert (await it.answer())[0] == 431


async def test_http_pipelined_requests_are_answered_in_order(
    house: Running,
) -> None:
    one = b"GET /healthz HTTP/1.1\r\n%b\r\n" % HOST
    async with line(house.url) as it:
        await it.send(one * 3 + b"GET /healthz HTTP/1.1\r\n%b\r\n" % (FIELD + b"a\r\n"))
        assert (await it.rest()).count(b"HTTP/1.1 ") == 3
    async with line(house.url) as other, line(house.url) as it:
        assert (await other.ask())[0] == 200
        idle = asyncio.create_task(other.rest())
        await it.send(one * 2_000)
        assert 0 < (await it.rest()).count(b"HTTP/1.1 200") < 100
        assert not idle.done()  # it is closed behind its answers, before a connection that has been idle for longer
        idle.cancel()


async def test_http_garbage_gets_a_400_and_an_upgrade_a_plain_answer(tmp_path: Path) -> None:
    async with running(tmp_path, more="server: { adminToken: canary-admin-token-91827 }") as house:
        for nonsense in (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"nonsense\r\n\r\n"):
            async with line(house.url) as it:
                await it.send(nonsense)
                assert (await it.answer())[0] == 400
        assert house.counted('clawgate_connections_refused_total{reason="malformed"} 2.0')
        async with line(house.url) as other, line(house.url) as it:
            assert (await other.ask())[0] == 200
            await it.send(b"GET /healthz HTTP/1.1\r\n%bconnection: upgrade\r\nupgrade: websocket\r\n\r\nxxxx" % HOST)
            assert (await it.answer())[0] == 200
            idle = asyncio.create_task(other.rest())
            assert await it.rest() == b""
            assert not idle.done()  # it is closed at once, not once it has been idle for longer than another
            idle.cancel()


SILENCES = {
    "nothing": b"",
    "half a line": b"GET /hea",
    "half a header": b"GET /healthz HTTP/1.1\r\nhost: x\r\nx: ",
    "empty lines": b"\r\n\r\n",
    "a body that is not asked for": b"GET /healthz HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\nx",
}


async def test_http_header_timeout_closes_the_connection(tmp_path: Path) -> None:
    async with running(tmp_path, more=SOON) as house, AsyncExitStack() as stack:
        lines = await held(stack, house.url, len(SILENCES), "127.0.0.1")
        for it, sent in zip(lines, SILENCES.values(), strict=True):
            await it.send(sent)
        for it, silence in zip(lines, SILENCES, strict=True):
            assert (b"408" in await it.rest()) == silence.startswith("half"), silence


async def test_http_unread_body_dripping_in_is_closed(tmp_path: Path) -> None:
    async with running(tmp_path, more=SOON) as house, line(house.url) as it:
        await it.send(b"GET /healthz HTTP/1.1\r\n%bcontent-length: 1000000\r\n\r\n" % HOST)
        assert (await it.answer())[0] == 200
        ended = asyncio.create_task(it.rest())
        async with asyncio.timeout(PATIENCE_SECONDS):
            with suppress(ConnectionError):
                while not ended.done():
                    await it.send(b"x")
                    await asyncio.sleep(0.05)
        assert await ended == b""


async def test_http_body_timeout_refuses_a_slow_body(tmp_path: Path) -> None:
    async with running(tmp_path, more="server: { bodyTimeoutSeconds: 0.2 }") as house, line(house.url) as it:
        await it.send(POST + HOST + b"content-length: 100\r\n\r\nxx")
        assert (await it.answer())[0] == 408


async def test_http_write_timeout_cuts_off_a_client_that_does_not_read(tmp_path: Path) -> None:
    async with running(tmp_path, more=SOON, feishu=WEB) as house, line(house.url) as it:
        it.reader._transport.pause_reading()  # type: ignore[attr-defined]

        async def ask_on() -> None:
            while True:
                await it.send(b"GET /web/words.js HTTP/1.1\r\n%b\r\n" % HOST)
                await asyncio.sleep(0.002)

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(ask_on(), PATIENCE_SECONDS)


async def test_http_timeout_spares_slow_uploads_and_event_streams(tmp_path: Path) -> None:
    async with running(tmp_path, more=SOON, feishu=WEB, script=[says("here")]) as house, line(house.url) as upload:
        page = Page(house.url)
        async with page.watching():
            await upload.send(
                b"POST /api/files?name=a.txt HTTP/1.1\r\n%bx-clawgate: 1\r\ncontent-length: 4\r\n\r\n" % HOST
            )
            for piece in (b"sl", b"o"):
                await upload.send(piece)
                async with line(house.url) as silent:  # lives for as long as a connection may owe us a request
                    await silent.rest()
            await upload.send(b"w")
            assert (await upload.answer())[0] == 200
            await page.say("hello")
            assert await page.answers(1) == ["here"]
        await page.http.aclose()


async def test_http_keep_alive_timeout_ends_with_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loopback, "KEEP_ALIVE_SECONDS", 0.2)
    async with running(tmp_path, feishu=WEB) as house, line(house.url) as upload, line(house.url) as idle:
        assert (await upload.ask())[0] == 200
        await upload.send(
            b"POST /api/files?name=a.txt HTTP/1.1\r\n%bx-clawgate: 1\r\ncontent-length: 4\r\n\r\nsl" % HOST
        )
        assert (await idle.ask())[0] == 200
        assert await idle.rest() == b""  # its time began after that of the other
        await upload.send(b"ow")
        assert (await upload.answer())[0] == 200


async def held(stack: AsyncExitStack, url: str, count: int, address: str) -> list[Line]:
    """Connections that say nothing."""
    return [await stack.enter_async_context(line(url, address)) for _ in range(count)]


async def test_http_connection_limit_per_address_evicts_the_idlest(tmp_path: Path) -> None:
    async with running(tmp_path, more="server: { maxConnectionsPerAddress: 5 }") as house, AsyncExitStack() as stack:
        others = await held(stack, house.url, 1, "127.0.0.3")
        begun, *silent = await held(stack, house.url, 5, "127.0.0.2")
        await begun.send(b"GET /healthz HTTP/1.1\r\n")
        await until(lambda: any(it.in_header for it in house.gateway.connections._open))
        assert (await silent[0].ask())[0] == 200
        async with line(house.url, "127.0.0.2") as sixth, line(house.url, "127.0.0.2") as seventh:
            for each in (sixth, seventh):
                assert (await each.ask())[0] == 200
            for each in silent[1:3]:
                assert await each.rest() == b""
            for each in (silent[0], silent[3], *others):
                assert (await each.ask())[0] == 200
            await begun.send(HOST, b"\r\n")
            assert (await begun.answer())[0] == 200


async def test_http_connection_limit_per_address_answers_503_when_busy(
    tmp_path: Path,
) -> None:
    more = "server: { maxConnectionsPerAddress: 3 }"
    async with running(tmp_path, more=more, feishu=WEB) as house, AsyncExitStack() as stack:
        for stream in await held(stack, house.url, 3, "127.0.0.2"):
            await stream.send(b"GET /api/events HTTP/1.1\r\n%b\r\n" % HOST)
            assert b" 200 " in await stream.reader.readuntil(b"event: hello")
        async with line(house.url, "127.0.0.2") as fourth:
            head = await fourth.reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nretry-after: 5\r\n" in head
            assert b"maxConnectionsPerAddress" in await fourth.rest()
        async with line(house.url, "127.0.0.3") as other:
            assert (await other.ask())[0] == 200


async def test_http_connection_limit_evicts_the_longest_silent(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, more="server: { maxConnections: 10 }") as house, AsyncExitStack() as stack:
        silent = [*await held(stack, house.url, 5, "127.0.0.2"), *await held(stack, house.url, 5, "127.0.0.3")]
        assert (await silent[0].ask())[0] == 200
        async with line(house.url) as it:
            assert (await it.ask())[0] == 200
            assert await silent[1].rest() == b""
            for each in (silent[0], *silent[2:]):
                assert (await each.ask())[0] == 200


async def test_http_connection_limit_turns_away_the_next_when_all_busy(tmp_path: Path) -> None:
    async with running(tmp_path, more="server: { maxConnections: 10 }", feishu=WEB) as house, AsyncExitStack() as stack:
        streams = await held(stack, house.url, 10, "127.0.0.1")
        for stream in streams:
            await stream.send(b"GET /api/events HTTP/1.1\r\n%b\r\n" % HOST)
            assert b" 200 " in await stream.reader.readuntil(b"event: hello")
        async with line(house.url) as it:
            head = await it.reader.readuntil(b"\r\n\r\n")
            assert (head.split()[1], b"\r\nretry-after: 5\r\n" in head) == (b"503", True)
            assert b"maxConnections" in await it.rest()
        streams[0].writer.close()
        await house.until(lambda: len(house.gateway.connections._open) == 9)
        async with line(house.url) as it:
            assert (await it.ask())[0] == 200


SLOW_BODY = POST + b"host: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n"
PROXIES = [
    ("1.1.1.1", "1.1.1.1", "2.2.2.2"),
    ("6.6.6.6, 1.1.1.1", "7.7.7.7, 1.1.1.1", "1.1.1.1, 2.2.2.2"),
    ("2001:db8:0:1::1", "2001:db8:0:1:ffff::9", "2001:db8:0:2::1"),
]


@pytest.mark.parametrize(("chain", "same", "other"), PROXIES)
async def test_http_trusted_proxy_counts_by_forwarded_address(
    tmp_path: Path, chain: str, same: str, other: str
) -> None:
    more = "server: { trustedProxies: [127.0.0.1], maxConnectionsPerAddress: 2 }"
    async with running(tmp_path, more=more) as house, AsyncExitStack() as stack:
        proxy = await held(stack, house.url, 5, "127.0.0.1")
        for each in proxy[:2]:
            await each.send(SLOW_BODY + b"x-forwarded-for: %b\r\n\r\n" % chain.encode())
            assert b"100 Continue" in await each.reader.readuntil(b"\r\n\r\n")

        async def ask(chain: str) -> int:
            await proxy[2].send(b"GET /healthz HTTP/1.1\r\n%bx-forwarded-for: %b\r\n\r\n" % (HOST, chain.encode()))
            return (await proxy[2].answer())[0]

        assert [await ask(same), await ask(other), await ask("")] == [503, 200, 200]
        assert house.counted('clawgate_connections_refused_total{reason="too many connections of one address"} 1.0')
        await proxy[0].send(b"{}")
        assert (await proxy[0].answer())[0] == 400
        assert await ask(same) == 200


async def test_http_file_limit_is_raised_and_reserved_for_messages(
    tmp_path: Path,
) -> None:
    async with platforms(tmp_path) as (feishu, anthropic, config), AsyncExitStack() as stack:
        anthropic.script = [says("here")]
        async with started(config, shell="ulimit -n 256; ulimit -Sn 200") as run:
            limits = Path(f"/proc/{run.process.pid}/limits").read_text(encoding="utf-8")
            assert re.search(r"^Max open files +256 +256 ", limits, re.M)
            for address in ("127.0.0.2", "127.0.0.3"):
                await held(stack, run.url, 180, address)
            await say_to(run, feishu, "hello")
            (reply,) = await feishu.sent(1)
            assert reply.text == "here"
            await run.wrote("connections_refused")


ADDRESSES = [
    ("/webhooks/feishu/default", 400, 405),
    ("/webhooks/feishu/other", 404, 405),
    ("/webhooks/telegram/default", 404, 405),
    ("/webhooks/feishu", 404, 404),
    ("/webhooks/feishu/default/more", 404, 404),
    ("/healthz", 405, 200),
    ("/readyz", 405, 200),
    ("/metrics", 405, 404),
    ("/docs", 404, 404),
    ("/openapi.json", 404, 404),
]


async def test_webhook_of_wrong_path_method_or_size_is_refused(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(40):
            yield b"x" * 1024

    async with running(tmp_path, more="server: { maxBodyBytes: 8192 }") as house, client(house.url) as http:
        for path, posted, read in ADDRESSES:
            answers = [await http.post(path, content=b"{}"), await http.get(path)]
            assert [answer.status_code for answer in answers] == [posted, read], path
        assert (await http.head("/healthz")).status_code == 405
        bodies: list[tuple[bytes | AsyncIterator[bytes], int]] = [
            (b"x" * 8193, 413),
            (chunks(), 413),
            (b"x" * 8192, 401),
        ]
        unsigned = await http.post("/webhooks/feishu/default", content=b"x" * 8193)
        assert unsigned.status_code == 401
        at = str(int(time.time()))
        forged = {"x-lark-request-timestamp": at, "x-lark-request-nonce": "n", "x-lark-signature": "0" * 64}
        for body, status in bodies:
            assert (await http.post("/webhooks/feishu/default", content=body, headers=forged)).status_code == status
