"""The messages that count towards a rate. Both columns and both indexes are empty if no rate is configured."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    op.add_column("inbox", sa.Column("chat", sa.Text))  # channel:account:chat id; NULL for what counts towards no rate
    op.add_column("inbox", sa.Column("beyond", sa.Text))  # sender or chat: whose rate it exceeds; it gets a note
    where = sa.text("chat IS NOT NULL")
    for whose in ("sender", "chat"):
        op.create_index(f"inbox_{whose}_rate", "inbox", [whose, "at"], sqlite_where=where, postgresql_where=where)
