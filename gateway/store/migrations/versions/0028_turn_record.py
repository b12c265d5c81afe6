"""Drop the records of turns in their old form. They are diagnostics that are kept for days."""

from alembic import op

revision = "0028"
down_revision = "0027"


def upgrade() -> None:
    op.execute("DELETE FROM layer")
    op.execute("DELETE FROM layer_text")
