"""The message of a schedule's last run, to see whether it still waits, and the reason why a row is paused.

Rows stay as they are, and replicas of the older version set neither column: a row without a message waits for nothing,
and a paused row without a reason is treated as one that an operator has paused.
"""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.add_column("later", sa.Column("turn", sa.BigInteger))  # the last run's message in the inbox
    op.add_column("later", sa.Column("why", sa.Text))  # why it is paused: `hand`, `config`, `gone`, `unreadable`
    op.create_index("later_place", "later", ["place"])
