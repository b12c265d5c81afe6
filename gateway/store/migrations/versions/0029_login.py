"""The logins of people at a platform, with sealed tokens."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.create_table(
        "login",
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("account", sa.Text, primary_key=True),
        sa.Column("person", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("scopes", sa.Text, nullable=False),  # separated by blanks
        sa.Column("access", sa.Text),  # sealed; NULL once the login has ended
        sa.Column("refresh", sa.Text),  # sealed
        sa.Column("access_until", sa.Float, nullable=False),
        sa.Column("refresh_until", sa.Float, nullable=False),
        sa.Column("revision", sa.BigInteger().with_variant(sa.Integer, "sqlite"), nullable=False),
        sa.Column("since", sa.Float, nullable=False),
        sa.Column("ended", sa.Float),
        sa.Column("busy_until", sa.Float),  # by the database's clock: a worker refreshes it
    )
