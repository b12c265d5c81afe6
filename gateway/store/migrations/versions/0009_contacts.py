"""The people whom pairing has let in, those who wait for it, and the wrong codes that were tried."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "contact",
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("turn", _BigId),  # the message that the code answered; NULL where there was none
        sa.Column("code", sa.Text),  # its hash, as long as it can be approved
        sa.Column("asked", sa.Float),  # when; he gets no other line for a while
        sa.Column("approved_by", sa.Text),  # channel:id, or the command line; NULL as long as he may not write
        sa.Column("approved_at", sa.Float),
        sa.Column("decided", _BigId),  # the command that approved it
        sa.PrimaryKeyConstraint("channel", "account", "person"),
    )
    where = sa.text("approved_by IS NULL")
    columns = ["channel", "account"]
    op.create_index("contact_waiting", "contact", columns, sqlite_where=where, postgresql_where=where)
    op.create_table(
        "wrong_code",
        sa.Column("turn", _BigId, primary_key=True),  # the command that had it
        sa.Column("sender", sa.Text, nullable=False),  # channel:id
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("wrong_code_sender", "wrong_code", ["sender", "at"])
