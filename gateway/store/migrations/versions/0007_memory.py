"""Notes that people had taken, and an index of the words of past turns."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "note",
        sa.Column("sender", sa.Text, nullable=False),  # whose it is: channel:account:id, as in the inbox
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("number", _BigId, nullable=False),  # as the person sees it; never given twice
        sa.Column("turn", _BigId, nullable=False, unique=True),  # the message that had it taken
        sa.Column("text", sa.Text, nullable=False),  # empty where it was deleted
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("deleted", _BigId),  # the message that had it deleted
        sa.PrimaryKeyConstraint("sender", "agent", "number"),
    )
    op.create_table(
        "indexed",
        sa.Column("sid", sa.Text, primary_key=True),
        sa.Column("seq", _BigId, nullable=False),  # how far the session's transcript is in the index
    )
    # `word`: the words of a part of a turn, made by tools.memory.terms; in SQLite the first names the session
    if op.get_bind().dialect.name == "sqlite":
        op.execute("CREATE VIRTUAL TABLE word USING fts5(terms, sid UNINDEXED, turn UNINDEXED, tokenize = 'ascii')")
        return
    op.execute(
        "CREATE TABLE word (id BIGSERIAL PRIMARY KEY, terms TSVECTOR NOT NULL, sid TEXT NOT NULL, turn BIGINT NOT NULL)"
    )
    op.create_index("word_sid", "word", ["sid", "id"])
