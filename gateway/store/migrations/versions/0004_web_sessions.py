"""The people who are signed in to the web chat."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "web_session",
        sa.Column("key", sa.Text, primary_key=True),  # the hash of the cookie
        sa.Column("ends", sa.Float, nullable=False),
    )
