"""`python -m tests.bench.floods`: attack the door of a gateway on this machine, and measure what everybody else notices.

Every flood has a process of its own. "stall" is the longest time that `/healthz` took to answer on another connection
meanwhile, "memory" what the process grew by at its highest. `--files` is the soft limit of files that it starts with.
"""

import argparse
import resource
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvloop

from tests.bench import subject
from tests.bench.sides import Feishu
from tests.bench.subject import Subject, address, started

CHUNK = 1 << 18
PROBES = 2_000
NOWHERE = "http://127.0.0.1:9"
HEAD = b"POST /webhooks/feishu/default HTTP/1.1\r\nhost: x\r\n"


def one_value() -> Iterator[bytes]:
    """One header of 200 MB."""
    yield HEAD + b"x-flood: "
    yield from [b"a" * CHUNK] * (200_000_000 // CHUNK)


def small_fields() -> Iterator[bytes]:
    """61 MB of headers of a few bytes each."""
    yield HEAD
    yield from [b"a:b\r\n" * (CHUNK // 5)] * (61_000_000 // CHUNK)


def trailers() -> Iterator[bytes]:
    """61 MB of fields behind a chunked body."""
    yield HEAD + b"transfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    yield from [b"a:b\r\n" * (CHUNK // 5)] * (61_000_000 // CHUNK)


def pipelined() -> Iterator[bytes]:
    """50,000 requests that nobody waits for."""
    yield from [b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 500] * 100


def send(where: tuple[str, int], flood: Callable[[], Iterator[bytes]]) -> None:
    with suppress(OSError), socket.create_connection(where, timeout=60) as connection:
        for data in flood():
            connection.sendall(data)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(CHUNK):
            pass


def ask(connection: socket.socket) -> None:
    connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
    answer = b""
    while not answer.endswith(b"}"):
        received = connection.recv(CHUNK)
        assert received
        answer += received
    assert b" 200 " in answer


def stall(where: tuple[str, int], flood: Callable[[], Iterator[bytes]]) -> float:
    """The longest answer of `/healthz` while the flood lasts, in seconds."""
    flooding = threading.Thread(target=send, args=(where, flood))
    flooding.start()
    longest = 0.0
    while flooding.is_alive():
        began = time.perf_counter()
        with socket.create_connection(where, timeout=120) as connection:
            ask(connection)
        longest = max(longest, time.perf_counter() - began)
        time.sleep(0.002)
    return longest


def silence(gateway: Subject, count: int = 1_100) -> str:
    """Connections that say nothing: whether somebody else is answered meanwhile."""
    where = address(gateway.url)
    held: list[socket.socket] = []
    try:
        held.extend(socket.create_connection(where, timeout=10) for _ in range(count))
        with socket.create_connection(where, timeout=5, source_address=("127.0.0.2", 0)) as connection:
            ask(connection)
        return "answered"
    except (OSError, AssertionError) as error:
        return f"not answered ({type(error).__name__})"
    finally:
        for each in held:
            each.close()


def plain_request(gateway: Subject) -> str:
    """The processor time of one plain request over a connection that stays open: the median of blocks."""
    with socket.create_connection(address(gateway.url), timeout=10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        blocks = []
        for _ in range(9):
            began = gateway.cpu_seconds()
            for _ in range(PROBES):
                ask(connection)
            blocks.append((gateway.cpu_seconds() - began) / PROBES * 1e6)
    return f"{sorted(blocks)[len(blocks) // 2]:.0f} us"


def flooded(flood: Callable[[], Iterator[bytes]], gateway: Subject) -> str:
    before, seconds = gateway.peak_mb(), stall(address(gateway.url), flood)
    return f"stall {seconds:6.3f} s, memory {gateway.peak_mb() - before:+6.0f} MB"


async def main(files: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    attacks: dict[str, Callable[[Subject], str]] = {
        flood.__name__: partial(flooded, flood) for flood in (one_value, small_fields, trailers, pipelined)
    }
    for name, measure in (attacks | {"silence": silence, "a plain request": plain_request}).items():
        with tempfile.TemporaryDirectory() as folder:
            command = subject.gateway(Path(folder), Feishu(), {"feishu": NOWHERE, "anthropic": NOWHERE})
            resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))  # inherited by the process
            async with started(command) as gateway:
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
                sys.stdout.write(f"{name}: {measure(gateway)}\n")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=1024)
    uvloop.run(main(options.parse_args().files))
