"""A conversation of the web chat may have branches, and a turn then reads those before it on its own."""

import json

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_BigId = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ROWS_AT_ONCE = 500


def upgrade() -> None:
    # the number of the person's message behind which this one begins a branch; NULL: it follows the one before it
    op.add_column("web_message", sa.Column("follows", _BigId))
    op.add_column("web_message", sa.Column("under", _BigId))  # the number of the person's message that this answers
    where = sa.text("follows IS NOT NULL")
    op.create_index(
        "web_message_follows", "web_message", ["chat", "number"], sqlite_where=where, postgresql_where=where
    )
    # the number of the last message of the branch that is shown; 0: that of the newest message
    op.add_column("web_conversation", sa.Column("tip", _BigId, nullable=False, server_default="0"))
    op.create_table(
        "gap",  # turns from `first` to below `last` are not in the history of `turn`, nor of those behind it
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("turn", _BigId, nullable=False),
        sa.Column("first", _BigId, nullable=False),
        sa.Column("last", _BigId, nullable=False),
        sa.PrimaryKeyConstraint("sid", "turn", "first"),
    )
    _place_answers(op.get_bind())


def _place_answers(connection: sa.Connection) -> None:
    """Writes under which message each old answer stands."""
    own = sa.text("SELECT number FROM web_message WHERE chat = :chat AND key = :key AND author = 'you'")
    rows = sa.text(
        "SELECT number, chat, words FROM web_message WHERE author = 'agent' AND number > :last "
        "ORDER BY number LIMIT :limit"
    )
    last = 0
    while found := connection.execute(rows, {"last": last, "limit": _ROWS_AT_ONCE}).all():
        for row in found:
            key = json.loads(row.words).get("reply_to")
            if key and (under := connection.execute(own, {"chat": row.chat, "key": key}).scalar()):
                connection.execute(
                    sa.text("UPDATE web_message SET under = :under WHERE number = :number"),
                    {"under": under, "number": row.number},
                )
        last = found[-1].number
