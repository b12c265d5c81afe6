"""Owners by a claim code, the names of those who wait, and when owners last heard of something."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.add_column("contact", sa.Column("name", sa.Text))  # as the platform gives it
    op.add_column("contact", sa.Column("owner", sa.Integer, nullable=False, server_default="0"))  # 1 by a claim code
    op.add_column("contact", sa.Column("told", sa.Float))  # when the owners heard of the request
    op.add_column("contact", sa.Column("reminded", _BigId))  # the message that was told that it still waits
    op.create_table(
        "claim",
        sa.Column("code", sa.Text, primary_key=True),  # its hash, as long as nobody has used one
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "notice",
        sa.Column("cause", sa.Text, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),  # when the owners heard of it last
    )
