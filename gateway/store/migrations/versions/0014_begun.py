"""The turn of a chat that has begun, so that a process that dies with it counts an attempt for its messages alone."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    # waiting messages up to this one are in a turn that runs; 0 while the chat only waits
    op.add_column("session", sa.Column("begun", _BigId, nullable=False, server_default="0"))
    op.create_index("mark_kind", "mark", ["kind"])  # whose reactions are erased
