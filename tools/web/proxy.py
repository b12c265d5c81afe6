"""The network of one sandboxed command: an HTTP proxy on the sandbox's own loopback, and no other way out.

The command's network namespace has only its loopback. The listening socket is made inside and sent to us
(`tools.sandbox.confine`), so no port of this machine is opened and no extra process runs. Requests are checked,
resolved and pinned as for `web_fetch`: addresses, ports, `allowPrivate`.
"""

import asyncio
import socket
from contextlib import suppress

from tools.tool import ToolError
from tools.web.client import Blocked, WebClient, host_of, port_of

PORT = 3128
"""Port of the proxy, in a namespace where every port is free."""
CONNECTIONS_MAX = 32
"""Connections of one command; more wait to be accepted."""
HEAD_BYTES_MAX = 65_536
HEAD_SECONDS = 10.0
IDLE_SECONDS = 120.0
_URL = f"http://127.0.0.1:{PORT}"
_OWN = ("localhost", "127.0.0.1", "::1")
_HOP = ("connection", "host", "keep-alive", "proxy-authorization", "proxy-connection", "te", "trailer", "upgrade")

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Proxy:
    """`fd` is the descriptor through which the sandbox sends its listening socket."""

    def __init__(self, client: WebClient) -> None:
        self._client = client
        self._channel, theirs = socket.socketpair()
        self.fd = theirs.detach()
        self._serving: asyncio.Task[None] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """Return the variables that lead programs here. Loopback hosts stay the command's own, except those that
        `allowPrivate` names."""
        own = ",".join(it for it in _OWN if it not in self._client.private_hosts)
        values = {"HTTP_PROXY": _URL, "HTTPS_PROXY": _URL, "ALL_PROXY": _URL, "NO_PROXY": own}
        return values | {name.lower(): value for name, value in values.items()}

    def begin(self) -> None:
        self._serving = asyncio.create_task(self._serve())

    def close(self) -> None:
        """End the proxy and all its connections."""
        if self._serving is not None:
            self._serving.cancel()
        else:
            self._channel.close()

    async def _serve(self) -> None:
        loop, slots = asyncio.get_running_loop(), asyncio.Semaphore(CONNECTIONS_MAX)
        with self._channel:
            arrived = asyncio.Event()
            loop.add_reader(self._channel, arrived.set)
            try:
                await arrived.wait()
            finally:
                loop.remove_reader(self._channel)
            _, fds, *_ = socket.recv_fds(self._channel, 1, 1)
        if not fds:  # the command could not be started
            return
        with socket.socket(fileno=fds[0]) as listening:
            listening.setblocking(False)
            async with asyncio.TaskGroup() as connections:
                while True:
                    await slots.acquire()
                    accepted, _ = await loop.sock_accept(listening)
                    connections.create_task(self._connection(accepted)).add_done_callback(lambda _: slots.release())

    async def _connection(self, accepted: socket.socket) -> None:
        with suppress(OSError, EOFError, ValueError, RuntimeError):  # it went away, fell silent, or speaks no HTTP
            near = await asyncio.open_connection(sock=accepted, limit=HEAD_BYTES_MAX)
            try:
                await self._answer(near)
            finally:
                near[1].transport.abort()

    async def _answer(self, near: Stream) -> None:
        reader, writer = near
        async with asyncio.timeout(HEAD_SECONDS):
            try:
                head = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1")
            except asyncio.LimitOverrunError:
                return
        status, text = "403 Forbidden", ""
        try:
            far, request = await self._connected(head)
        except ToolError as error:
            text = error.message
        except Blocked as error:
            text = f"{error}; nothing was fetched"
        except TimeoutError:
            status, text = "504 Gateway Timeout", "the host did not answer in time"
        except OSError:
            status, text = "502 Bad Gateway", "the host is unknown or cannot be reached"
        else:
            try:
                (far[1] if request else writer).write(request or b"HTTP/1.1 200 Connection established\r\n\r\n")
                await _relay(near, far)
            finally:
                far[1].transport.abort()
            return
        length = f"Content-Type: text/plain\r\nContent-Length: {len(text) + 1}\r\nConnection: close"
        writer.write(f"HTTP/1.1 {status}\r\n{length}\r\n\r\n{text}\n".encode())
        writer.close()
        async with asyncio.timeout(HEAD_SECONDS):
            await writer.wait_closed()

    async def _connected(self, head: str) -> tuple[Stream, bytes]:
        line, *headers = head.split("\r\n")
        method, _, rest = line.partition(" ")
        target = rest.rpartition(" ")[0]
        tunnels = method == "CONNECT"
        url = self._client.judged(f"https://{target}" if tunnels else target)
        if not tunnels and url.scheme != "http":
            raise ToolError("FETCH_BLOCKED", "https is tunnelled by CONNECT; nothing was fetched")
        far = await self._client.connect(host_of(url), port_of(url))
        forwarded = [it for it in headers if it.partition(":")[0].strip().lower() not in _HOP]
        own = [f"{method} {url.raw_path.decode('ascii')} HTTP/1.1", f"Host: {url.netloc.decode('ascii')}"]
        request = "\r\n".join([*own, *forwarded, "Connection: close", "", ""])
        # a tunnel starts without a request
        return far, b"" if tunnels else request.encode("latin-1")


async def _relay(near: Stream, far: Stream) -> None:
    async with asyncio.timeout(IDLE_SECONDS) as idle:
        sending = asyncio.create_task(_copy(near[0], far[1], idle))
        try:
            await _copy(far[0], near[1], idle)
            near[1].close()
            await near[1].wait_closed()
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, idle: asyncio.Timeout) -> None:
    while data := await source.read(HEAD_BYTES_MAX):
        target.write(data)
        await target.drain()
        idle.reschedule(asyncio.get_running_loop().time() + IDLE_SECONDS)
    target.write_eof()
