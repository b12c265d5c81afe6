"""Several people in the web chat: each conversation and each upload that waits has an owner."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    owner = sa.Column("owner", sa.Text, nullable=False, server_default="local")
    op.add_column("web_conversation", owner)
    op.drop_index("web_conversation_at", "web_conversation")
    op.create_index("web_conversation_owner", "web_conversation", ["owner", "at"])
    op.execute("UPDATE file SET chat = '@local' WHERE chat = ''")
