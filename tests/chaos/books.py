"""What the gateway itself says of sends that may have arrived, read from where an operator reads it.

Telegram recognises no repetition, so there a lost or doubled part is excused, but only by these books: a part that was
given up must be among the dead letters, and no part can be in doubt more often than processes died.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from sqlalchemy import NullPool, Row, create_engine, text
from sqlalchemy.exc import OperationalError

from gateway.config.root import DatabaseConfig
from gateway.outbox import payload_json
from gateway.store.dead_letters import dead_letters
from gateway.store.tables import OutboxStatus
from tests.chaos.ledger import Doubt, Shown

DOUBTFUL = text("SELECT id, payload, status, ambiguous FROM outbox WHERE ambiguous > 0")


def doubts(url: str, shown: Callable[[str, str, str], Shown]) -> list[Doubt]:
    """Every part in doubt so far, read by `shown` from its chat, the message it replies to and its text. None where
    there is no database yet."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool)
    rows: Sequence[Row[Any]] = []
    with suppress(OperationalError), engine.begin() as connection:
        rows = connection.execute(DOUBTFUL).all()
    reported = {it.number for it in dead_letters(DatabaseConfig(url=url)) if it.ambiguous} if rows else set()
    return [
        Doubt(
            part=shown(part.target.chat, part.target.reply_to or "", part.text),
            times=row.ambiguous,
            given_up=row.status == OutboxStatus.FAILED,
            reported=row.id in reported,
        )
        for row in rows
        for part in (payload_json.validate_json(row.payload).part,)
    ]
