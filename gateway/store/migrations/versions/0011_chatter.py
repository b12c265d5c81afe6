"""The talk of people in groups without addressing the bot, if a group's history is kept."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    op.create_table(
        "chatter",
        sa.Column("chat", sa.Text, nullable=False),  # channel:account:chat
        sa.Column("thread", sa.Text, nullable=False),  # the topic in it; empty for none
        sa.Column("message", sa.Text, nullable=False),  # its id
        sa.Column("sender", sa.Text, nullable=False),  # channel:account:id
        sa.Column("body", sa.Text, nullable=False),  # JSON of the message
        sa.Column("at", sa.Float, nullable=False),  # when it arrived
        sa.PrimaryKeyConstraint("chat", "thread", "message"),
    )
