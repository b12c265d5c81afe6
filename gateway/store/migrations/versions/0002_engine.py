"""Stops, joined messages, ambiguous sends and dead letters, and the workers of a shared database."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    # turns below this are not to be run on
    op.add_column("session", sa.Column("stopped", _BigId, nullable=False, server_default="0"))
    op.add_column("inbox", sa.Column("turn", _BigId))  # the message that this one was answered with
    # attempts that may have arrived
    op.add_column("outbox", sa.Column("ambiguous", sa.Integer, nullable=False, server_default="0"))
    op.add_column("outbox", sa.Column("reason", sa.Text))  # why it was given up
    _index("session_owned", "session", ["owner"], "owner IS NOT NULL")
    _index("session_left", "session", ["id"], "owner IS NULL AND pending > 0")
    op.create_table(
        "worker",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("lock_key", sa.BigInteger, nullable=False),  # advisory lock, held for as long as the worker lives
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),  # by the database's clock
    )


def _index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
