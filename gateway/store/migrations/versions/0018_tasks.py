"""Tasks that a conversation asked for, and how they ended."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "task",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),  # of the call that asked: a second run finds the same
        sa.Column("parent", sa.Text, nullable=False),  # the conversation that asked
        sa.Column("sid", sa.Text, nullable=False),  # the task's own conversation
        sa.Column("chat", sa.Text, nullable=False),  # channel:account:id, for the limit
        sa.Column("person", sa.Text, nullable=False),  # channel:id of whoever asked
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("turn", _BigId, nullable=False),  # that asked
        sa.Column("origin", sa.Text, nullable=False),  # the message that is replied to
        sa.Column("started", sa.Float, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("ended", sa.Float),
        sa.Column("ended_by", _BigId),  # the command that stopped it
        sa.Column("result", sa.Text, nullable=False, server_default=""),
        sa.Column("external", sa.Integer, nullable=False, server_default="0"),  # 1: it holds text of strangers
    )
    op.create_index("task_parent", "task", ["parent", "started"])
    op.create_index(
        "task_chat", "task", ["chat"], sqlite_where=sa.text("ended IS NULL"), postgresql_where=sa.text("ended IS NULL")
    )
