"""Every statement of the store is one whole text, as it is pasted into `psql` or `sqlite3`, and both databases know it."""

import ast
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg

import gateway.store
from gateway.store.operations import _numbered
from tests.empty_database import _empty_database

STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s")
ONLY_POSTGRES = re.compile(r"\bpg_\w+[( ]|FOR UPDATE|clock_timestamp|octet_length|JSONB")
ONLY_SQLITE = re.compile(r"AS BLOB|sqlite_master")
LIST = re.compile(r"\bIN (:\w+)")


def statements() -> Iterator[tuple[str, str]]:
    """Each statement, and where it is written."""
    for file in sorted(Path(gateway.store.__file__).parent.glob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        pieces = {piece for it in ast.walk(tree) if isinstance(it, ast.JoinedStr) for piece in it.values}
        for it in ast.walk(tree):
            if (
                isinstance(it, ast.Constant)
                and isinstance(it.value, str)
                and it not in pieces
                and STATEMENT.match(it.value)
            ):
                yield f"{file.name}:{it.lineno}", LIST.sub(r"IN (\1)", it.value)


def test_every_statement_is_understood_by_sqlite(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(_empty_database())
    wrong, read = list[str](), 0
    with closing(sqlite3.connect(tmp_path / "x.db")) as database:
        for where, statement in statements():
            if ONLY_POSTGRES.search(statement):
                continue
            try:
                database.execute(f"EXPLAIN {statement}", defaultdict[str, None](lambda: None))
                read += 1
            except sqlite3.Error as error:
                wrong.append(f"{where}: {error}")
    assert not wrong, "\n".join(wrong)
    assert read > 200


def test_every_statement_is_understood_by_postgres(postgres_url: str) -> None:
    wrong, read = list[str](), 0
    with psycopg.connect(postgres_url, autocommit=True) as database:
        for where, statement in statements():
            if ONLY_SQLITE.search(statement):
                continue
            try:
                query = statement
                for place in range(1, 1 + statement.count("%s")):  # those of `Presence` are psycopg's own
                    query = query.replace("%s", f"${place}", 1)
                database.execute(b"PREPARE one AS " + _numbered(query)[0])
                database.execute("DEALLOCATE one")
                read += 1
            except psycopg.Error as error:
                wrong.append(f"{where}: {error}")
    assert not wrong, "\n".join(wrong)
    assert read > 200
