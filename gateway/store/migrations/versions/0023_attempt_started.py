"""The start of an attempt has a column of its own: the sign of `next_at` said it before.

Rows stay as they are. Replicas of the older version serve until they are updated too, and may be making these attempts: a
value that they do not know would outlive its attempt. `statements.QUEUED` reads both.
"""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.add_column("outbox", sa.Column("attempt_started_at", sa.Float))  # NULL once its outcome is known
