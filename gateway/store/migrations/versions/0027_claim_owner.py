"""An owner hands out a claim code for another account of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column("claim", sa.Column("owner", sa.Text))  # `channel:id` of who handed it out; NULL: the start did
