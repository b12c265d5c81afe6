"""The memory of the web chat: conversations, messages and files."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "web_conversation",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),  # when something was last said
    )
    op.create_index("web_conversation_at", "web_conversation", ["at"])
    op.create_table(
        "web_message",
        sa.Column("number", _BigId, primary_key=True, autoincrement=True),  # a page goes on behind it
        sa.Column("chat", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),  # the page's id, or the idempotency key of a reply part
        sa.Column("author", sa.Text, nullable=False),  # you or agent
        sa.Column("words", sa.Text, nullable=False),  # JSON of channels.web.archive.MessageBody
        sa.Column("at", sa.Float, nullable=False),
        sa.UniqueConstraint("chat", "key"),
        sqlite_autoincrement=True,
    )
    op.create_index("web_message_chat", "web_message", ["chat", "number"])
    op.create_table(
        "file",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("chat", sa.Text),  # its conversation; until it is sent '' for an upload, NULL for an agent's
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),  # media type, as it was declared
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("file_chat", "file", ["chat"])
