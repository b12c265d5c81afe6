"""Inbox, transcript, outbox and the session's lease."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "session",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text),  # worker id, or NULL
        sa.Column("epoch", sa.Integer, nullable=False),  # fencing token: +1 with each new owner
        sa.Column("pending", sa.Integer, nullable=False),  # messages accepted and not finished
    )
    op.create_table(
        "inbox",
        sa.Column("id", _BigId, primary_key=True, autoincrement=True),  # also the turn's number
        sa.Column("dedupe", sa.Text, nullable=False, unique=True),  # channel:account:message id
        sa.Column("dedupe_text", sa.Text, unique=True),  # recognises a re-push under another message id
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),  # JSON of gateway.records.inbound.Inbound
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),  # times it was begun and its process died
        sqlite_autoincrement=True,
    )
    _index("inbox_waiting", "inbox", ["sid", "id"], "status = 0")
    op.create_table(
        "transcript",
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("seq", sa.Integer, nullable=False),
        sa.Column("turn", _BigId, nullable=False),  # inbox.id
        sa.Column("kind", sa.Text, nullable=False),  # user, steered, assistant, toolResult, drained or final
        sa.Column("content", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("sid", "seq"),
    )
    _index("transcript_turns", "transcript", ["sid", "seq"], "kind = 'user'")
    op.create_table(
        "outbox",
        sa.Column("id", _BigId, primary_key=True, autoincrement=True),
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("turn", _BigId, nullable=False),
        sa.Column("part", sa.Integer, nullable=False),
        sa.Column("key", sa.Text, nullable=False),  # idempotency key: made once, never per attempt
        sa.Column("payload", sa.Text, nullable=False),  # JSON of gateway.outbox.outbox.OutboxPayload
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("ext_id", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.UniqueConstraint("turn", "part"),
        sqlite_autoincrement=True,
    )
    _index("outbox_queued", "outbox", ["sid", "id"], "status = 0")


def _index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
