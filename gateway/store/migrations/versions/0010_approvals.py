"""The requests that people are asked to approve, what they approved for good, and an audit of both."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "approval",
        sa.Column("id", sa.Text, primary_key=True),  # XXXX-XXXX-XXXX, Crockford's base 32
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("turn", _BigId, nullable=False),  # the turn whose call it is
        sa.Column("requester", sa.Text, nullable=False),  # channel:id
        sa.Column("origin", sa.Text, nullable=False),  # JSON of the message that the turn answers
        sa.Column("request", sa.Text, nullable=False),  # canonical JSON of what runs
        sa.Column("digest", sa.Text, nullable=False),  # of `request`
        sa.Column("always", sa.Integer, nullable=False),  # 1: may be approved for good
        sa.Column("tainted", sa.Integer, nullable=False),  # 1: its turn had read text of strangers
        sa.Column("surfaces", sa.Text, nullable=False),  # JSON: the chats where it is asked
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),  # counts the arrows
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("expires", sa.Float, nullable=False),  # by the wall clock
        sa.Column("boot", sa.Text, nullable=False),  # the machine's, since it was started
        sa.Column("deadline", sa.Float, nullable=False),  # by its monotonic clock
        sa.Column("decision", sa.Text),  # allow-once, allow-always, deny; or why nobody decides any more
        sa.Column("decided_by", sa.Text),
        sa.Column("decided_in", sa.Text),  # channel:account:chat
        sa.Column("decided_turn", _BigId),  # the message that decided
        sa.Column("decided_at", sa.Float),
        sa.Column("spawned_at", sa.Float),
        sa.Column("exit_code", sa.Integer),
        sa.Column("announced", sa.Integer, nullable=False),  # 1: everybody concerned has been sent what became of it
    )
    op.create_index("approval_open", "approval", ["announced", "state"])
    op.create_index("approval_of_session", "approval", ["sid", "digest"])
    op.create_table(
        "approval_token",
        sa.Column("hash", sa.Text, primary_key=True),  # of a button's token
        sa.Column("approval", sa.Text, nullable=False),
        sa.Column("decision", sa.Text, nullable=False),
        sa.Column("approver", sa.Text, nullable=False),  # channel:id; empty for any of them, in a chat of several
        sa.Column("surface", sa.Integer, nullable=False),
    )
    op.create_table(
        "approval_grant",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("granted_by", sa.Text, nullable=False),
        sa.Column("granted_at", sa.Float, nullable=False),
        sa.Column("expires", sa.Float),
        sa.Column("revoked_at", sa.Float),
        sa.Column("uses", sa.Integer, nullable=False),
        sa.Column("last_used_at", sa.Float),
        sa.Column("source", sa.Text, nullable=False),  # the approval that it comes from
    )
    op.create_index("approval_grant_digest", "approval_grant", ["agent", "digest"])
    op.create_table(
        "approval_audit",
        sa.Column("seq", _BigId, primary_key=True, autoincrement=False),  # without a gap
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("actor", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("object", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("surface", sa.Text, nullable=False),
    )
    op.create_index("approval_audit_actor", "approval_audit", ["actor", "action", "at"])
    for event in ("UPDATE", "DELETE"):  # it is only ever added to
        if op.get_bind().dialect.name == "sqlite":
            op.execute(
                f"CREATE TRIGGER approval_audit_no_{event.lower()} BEFORE {event} ON approval_audit "
                "BEGIN SELECT RAISE(ABORT, 'the audit is append-only'); END"
            )
        else:
            op.execute(
                f"CREATE RULE approval_audit_no_{event.lower()} AS ON {event} TO approval_audit DO INSTEAD NOTHING"
            )
