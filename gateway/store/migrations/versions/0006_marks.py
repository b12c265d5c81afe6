"""The marks in which commands and compaction speak of a conversation, and what was spent in a day."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "mark",
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),  # new, summary, settings or undone
        sa.Column("turn", _BigId, nullable=False),  # the turn that it is about; all up to it, for new and summary
        sa.Column("content", sa.Text, nullable=False),  # JSON
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("sid", "kind", "turn"),
    )
    op.create_table(
        "usage",
        sa.Column("scope", sa.Text, nullable=False),  # agent:…, chat:… or sender:…
        sa.Column("day", sa.Text, nullable=False),  # 2026-11-22, where the gateway is
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Float, nullable=False),
        sa.Column("warned", _BigId, nullable=False, server_default="0"),  # the turn whose answer warned
        sa.PrimaryKeyConstraint("scope", "day"),
    )
