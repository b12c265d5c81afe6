"""A sent poll is found by the platform's id of it, which is all that a vote names.

A replica of the older version leaves the column empty, so a poll that it sends gets no votes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"


def upgrade() -> None:
    op.add_column("outbox", sa.Column("poll", sa.Text))  # NULL unless the message is a poll
