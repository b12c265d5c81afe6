"""The turn that a person's reminder was asked for in, so that a recall and an erasure of the turn find it.

Replicas of the older version leave it empty: such a reminder ends with its person's erasure, as before.
"""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("later", sa.Column("asked", sa.BigInteger))
    asked = sa.text("asked IS NOT NULL")
    op.create_index("later_asked", "later", ["asked"], sqlite_where=asked, postgresql_where=asked)
