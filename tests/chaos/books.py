"""What the gateway itself says of sends that may have arrived, read from where an operator reads it.

Telegram recognises no repetition, so there a lost or doubled part is excused, but only by these books: a part that was
given up must be among the dead letters, and no part can be in doubt more often than processes died.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from sqlalchemy import NullPool, create_engine, text
from sqlalchemy.exc import OperationalError

from gateway.config.root import DatabaseConfig
from gateway.outbox import payload_json
from gateway.store.dead_letters import dead_letters
from gateway.store.statements import OutboxStatus
from tests.chaos.ledger import ANSWER, Doubt


class Books:
    """The database of the gateway, through a connection of our own for each look."""

    def __init__(self, url: str) -> None:
        self._config = DatabaseConfig(url=url)
        address = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._engine = create_engine(address, poolclass=NullPool)

    def doubts(self, serials: dict[tuple[str, str], str]) -> Iterator[Doubt]:
        """Every part in doubt so far. `serials` are those of what people wrote, by chat and message id."""
        rows: list[Any] = []
        with suppress(OperationalError), self._engine.begin() as connection:  # it may not be there yet
            doubtful = text("SELECT id, payload, status, ambiguous FROM outbox WHERE ambiguous > 0")
            rows += connection.execute(doubtful).all()
        given_up = {row.id for row in rows if row.status == OutboxStatus.FAILED}
        told = {it.number for it in dead_letters(self._config) if it.ambiguous} if given_up else set()
        for row in rows:
            part = payload_json.validate_json(row.payload).part
            found = ANSWER.search(part.text)
            take, number, parts = (int(found[n]) for n in (2, 3, 4)) if found else (0, 1, 1)
            yield Doubt(
                chat=part.target.chat,
                serial=found[1] if found else serials.get((part.target.chat, part.target.reply_to or ""), ""),
                take=take,
                part=number,
                parts=parts,
                times=row.ambiguous,
                given_up=row.id in given_up,
                told=row.id in told,
            )
