"""Serve an ASGI app on a loopback port, a free one unless it is named, for the length of a `with`: how emulators stand up
in tests and demo."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from typing import Any

import uvicorn

LINGER_SECONDS = 1.0
"""How long an answer under way may take when the server goes down."""
POLL_SECONDS = 0.002
KEEP_ALIVE_SECONDS = 60
"""Longer than any client keeps a connection: one that is asked at the moment in which it ends would be lost."""


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers (whoever serves on loopback has signals of its own), and without the tenths
    of a second that it waits while it goes down: a suite does that a thousand times."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stop = asyncio.Event()

    def stop(self) -> None:
        self._stop.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield

    async def main_loop(self) -> None:
        await self.on_tick(0)
        await self._stop.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(POLL_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()


@contextlib.asynccontextmanager
async def serve_on_loopback(app: Any, *, port: int = 0, http: Any = "auto") -> AsyncIterator[str]:
    """Yield the base URL, such as `http://127.0.0.1:40123`. With a `port` whoever was served there before finds it again.
    `http` is uvicorn's: whose connections they are."""
    listener = socket.create_server(("127.0.0.1", port))
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # inherited; without it a reply can wait 40 ms
    ws: Any = "websockets-sansio" if http == "auto" else "none"  # the gateway, which brings its own, has no WebSockets
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        lifespan="off",
        http=http,
        ws=ws,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
    )
    server = _Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(0.005)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.stop()
        await task
        listener.close()
