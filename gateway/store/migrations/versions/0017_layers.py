"""The layers of finished turns, and the texts that many of them share."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "layer",
        sa.Column("turn", _BigId, primary_key=True, autoincrement=False),
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),  # channel:id; empty for the operator's own
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),  # when the turn ended
        sa.Column("prompt", sa.Text, nullable=False),  # the hash of the list of its sections; empty if none was built
        sa.Column("tools", sa.Text, nullable=False),  # the same of the tools that were offered
        sa.Column("route", sa.Text, nullable=False),  # the same of the route with its reasons
        sa.Column("content", sa.Text, nullable=False),  # what the journal does not have: JSON
    )
    for name in ("agent", "channel", "person", "outcome"):
        op.create_index(f"layer_{name}", "layer", [name, "turn"])
    op.create_table(
        "layer_text",
        sa.Column("hash", sa.Text, primary_key=True),
        sa.Column("content", sa.Text, nullable=False),  # without the configured secrets
    )
