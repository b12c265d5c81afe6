"""The things that are to happen without a message, each with the time at which it is due."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    op.create_table(
        "later",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("due", sa.Float),  # NULL if it is not to happen: paused, cancelled or done
        sa.Column("resumes", sa.Float),  # the regular time, while `due` is that of a run by hand
        sa.Column("by_hand", sa.Integer, nullable=False, server_default="0"),
        sa.Column("owner", sa.Text),  # channel:account:id of the person who asked for it; NULL for the operator
        sa.Column("place", sa.Text, nullable=False),  # channel:account:chat
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("key", sa.Text, unique=True),  # that of the call that made it, which may come again
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("since", sa.Float, nullable=False),  # when it was made, or its times were changed
        sa.Column("ran", sa.Float),  # when it ran last
        sa.Column("runs", sa.Integer, nullable=False, server_default="0"),
        sa.Column("skipped", sa.Float),  # the last due time that was let pass
        sa.Column("skips", sa.Integer, nullable=False, server_default="0"),
    )
    due = sa.text("due IS NOT NULL")
    op.create_index("later_due", "later", ["due"], sqlite_where=due, postgresql_where=due)
    op.create_index("later_owner", "later", ["owner"])
