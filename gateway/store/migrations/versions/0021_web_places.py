"""A conversation of the web chat may stand above the others, or aside."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    for name in ("pinned", "archived"):
        op.add_column("web_conversation", sa.Column(name, sa.SmallInteger, nullable=False, server_default="0"))
