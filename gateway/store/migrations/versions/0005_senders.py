"""The sender of a message: what waits of one sender is counted over all chats."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("inbox", sa.Column("sender", sa.Text))  # channel:account:sender id; NULL for a replay
    where = sa.text("status = 0")
    op.create_index("inbox_sender", "inbox", ["sender", "id"], sqlite_where=where, postgresql_where=where)
