"""A database of Clawgate 1.0.0 with every kind of row.

Another gateway wrote the rows of `revision_0015.json`, and the migrations of 1.0.0 brought them to its schema.
"""

import json
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, create_engine, text

from gateway.store.migrate import OLDEST, upgrade

OLD = OLDEST
ROWS: dict[str, list[dict[str, Any]]] = json.loads(Path(__file__).with_name(f"revision_{OLD}.json").read_text())


def make_old(url: str) -> None:
    """Make the tables of 1.0.0 and insert the rows."""
    if url.startswith("sqlite:///"):
        Path(url.removeprefix("sqlite:///")).parent.mkdir(mode=0o711, parents=True, exist_ok=True)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        upgrade(connection, None, to=OLD)
        for table, rows in ROWS.items():
            for row in rows:
                _insert(connection, table, row)
        if connection.dialect.name == "postgresql":
            for table in ("inbox", "outbox", "web_message"):
                _number_on(connection, table)
    engine.dispose()


def _insert(connection: Connection, table: str, row: dict[str, Any]) -> None:
    values = {name: bytes.fromhex(it) if (table, name) == ("file", "data") else it for name, it in row.items()}
    names = ", ".join(f'"{it}"' for it in values)
    connection.execute(text(f'INSERT INTO "{table}" ({names}) VALUES ({", ".join(f":{it}" for it in values)})'), values)


def _number_on(connection: Connection, table: str) -> None:
    column = {"web_message": "number"}.get(table, "id")
    sequence = connection.scalar(text(f"SELECT pg_get_serial_sequence('{table}', '{column}')"))
    if sequence is not None:
        connection.execute(text(f"SELECT setval('{sequence}', (SELECT max({column}) FROM {table}))"))
