"""`serve`: the gateway behind uvicorn, and what signals mean.

The first SIGTERM or SIGINT turns readiness red at once and lets running turns come to a step border; only then the port
closes: until that moment deliveries are still stored, for the next start. A second signal, a second later, exits hard.
A graceful stop exits with 0.
"""

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator

import uvicorn

from gateway.gateway import Gateway

UNREAD_SECONDS = 60
"""Whoever reads nothing of what it is sent for so long is disconnected by the kernel."""
SAME_SIGNAL_SECONDS = 1.0
"""A supervisor that signals `make` and us means it once."""


class AddressInUse(Exception):
    """Choose another: `server.port` (CLAWGATE_PORT with the shipped config), or `serve --port`."""


class Server(uvicorn.Server):
    """uvicorn with our signals: it would close the port first and end with the signal's exit code."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listen(host: str, port: int) -> socket.socket:
    """Raises AddressInUse with what the system says."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if sys.platform == "linux":  # inherited by every connection
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNREAD_SECONDS * 1000)
        return listener
    except OSError as error:
        reason = os.strerror(error.errno or 0)
        raise AddressInUse(f"cannot listen on {host}:{port} ({reason}). {AddressInUse.__doc__}") from error


async def serve(gateway: Gateway, listener: socket.socket) -> None:
    """Serve until a signal comes."""
    config = uvicorn.Config(
        gateway.app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=5,
        ws="none",
        proxy_headers=False,
    )
    server = Server(config)
    stopping = asyncio.Event()

    signalled_at = 0.0

    def on_signal() -> None:
        nonlocal signalled_at
        if stopping.is_set():
            if time.monotonic() - signalled_at > SAME_SIGNAL_SECONDS:
                os._exit(1)
            return
        signalled_at = time.monotonic()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, on_signal)

    await gateway.start()
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    signalled = asyncio.create_task(stopping.wait())
    await asyncio.wait({serving, signalled}, return_when=asyncio.FIRST_COMPLETED)
    await gateway.drain()
    server.should_exit = True
    await serving
    signalled.cancel()
    await gateway.close()


def run(gateway: Gateway, listener: socket.socket) -> None:
    """`serve` on uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serve(gateway, listener))
    else:
        uvloop.run(serve(gateway, listener))
