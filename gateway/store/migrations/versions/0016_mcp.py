"""Tools of MCP servers as owners have seen them."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "mcp_tool",
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("accepted", sa.Text, nullable=False, server_default=""),  # its definition as an owner has seen it
        sa.Column("pending", sa.Text, nullable=False, server_default=""),  # as the server has it now, if that differs
        sa.Column("hash", sa.Text, nullable=False, server_default=""),  # of `accepted`, in hex
        sa.Column("accepted_at", sa.Float),
        sa.Column("accepted_by", sa.Text),
    )
