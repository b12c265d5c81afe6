"""The tables of Clawgate 1.0.0. The revisions before it are squashed; `migrate` refuses a database of one."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = None

_BigId = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    _queue()
    _history()
    _web_chat()
    _people()
    _memory()
    _approvals()


def _queue() -> None:
    """Sessions, inbox, outbox, and the workers of a shared database."""
    op.create_table(
        "session",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("owner", sa.Text),  # worker id, or NULL
        sa.Column("epoch", sa.Integer, nullable=False),  # fencing token: +1 with each new owner
        sa.Column("pending", sa.Integer, nullable=False),  # messages accepted and not finished
        sa.Column("stopped", _BigId, nullable=False, server_default="0"),  # turns below this must not run
        # counts what was taken out of the conversation: a write based on an older revision fails
        sa.Column("revision", _BigId, nullable=False, server_default="0"),
        # waiting messages up to this one are in a turn that runs; 0 while the chat only waits
        sa.Column("begun", _BigId, nullable=False, server_default="0"),
    )
    _index("session_owned", "session", ["owner"], "owner IS NOT NULL")
    _index("session_left", "session", ["id"], "owner IS NULL AND pending > 0")
    op.create_table(
        "inbox",
        sa.Column("id", _BigId, primary_key=True, autoincrement=True),  # also the turn's number
        sa.Column("dedupe", sa.Text, nullable=False, unique=True),  # channel:account:message id
        sa.Column("dedupe_text", sa.Text, unique=True),  # recognises a redelivery under another message id
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),  # JSON of `Inbound`
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),  # times it was begun and its process died
        sa.Column("turn", _BigId),  # the message that this one was answered with
        sa.Column("sender", sa.Text),  # channel:account:sender id; NULL for a replay
        sa.Column("chat", sa.Text),  # channel:account:chat id; NULL for what counts towards no rate
        sa.Column("beyond", sa.Text),  # sender or chat: whose rate it exceeds; it gets a note
        sa.Column("person", sa.Text),  # channel:id of its sender; NULL for the gateway's own
        sa.Column("again", _BigId),  # 1: the gateway's own copy of an earlier message
        sqlite_autoincrement=True,
    )
    _index("inbox_waiting", "inbox", ["sid", "id"], "status = 0")
    _index("inbox_sender", "inbox", ["sender", "id"], "status = 0")
    _index("inbox_sender_rate", "inbox", ["sender", "at"], "chat IS NOT NULL")
    _index("inbox_chat_rate", "inbox", ["chat", "at"], "chat IS NOT NULL")
    _index("inbox_ended", "inbox", ["sid", "id"], "status <> 0")
    _index("inbox_person", "inbox", ["person"], "person IS NOT NULL")
    _index("inbox_joined", "inbox", ["turn"], "turn IS NOT NULL")
    _index("inbox_again", "inbox", ["sid", "id"], "again IS NOT NULL")
    op.create_table(
        "outbox",
        sa.Column("id", _BigId, primary_key=True, autoincrement=True),
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("turn", _BigId, nullable=False),
        sa.Column("part", sa.Integer, nullable=False),
        sa.Column("key", sa.Text, nullable=False),  # idempotency key: made once, never per attempt
        sa.Column("payload", sa.Text, nullable=False),  # JSON of `OutboxPayload`
        sa.Column("status", sa.Integer, nullable=False),
        sa.Column("ext_id", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.Float, nullable=False),
        sa.Column("created", sa.Float, nullable=False),
        sa.Column("ambiguous", sa.Integer, nullable=False, server_default="0"),  # attempts that may have arrived
        sa.Column("reason", sa.Text),  # why it was given up
        sa.UniqueConstraint("turn", "part"),
        sqlite_autoincrement=True,
    )
    _index("outbox_queued", "outbox", ["sid", "id"], "status = 0")
    op.create_table(
        "worker",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("lock_key", sa.BigInteger, nullable=False),  # advisory lock, held for as long as the worker lives
        sa.Column("expires", sa.DateTime(timezone=True), nullable=False),  # by the database's clock
    )


def _history() -> None:
    """Transcripts, who spoke in them, marks, group talk and what a day cost."""
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
    op.create_index("transcript_turn", "transcript", ["turn"])  # with `sid` it would be used for a history as well
    op.create_table(
        "spoken",
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("seq", _BigId, nullable=False),  # the row of the transcript
        sa.Column("place", _BigId, nullable=False),  # among the messages of that row
        sa.Column("turn", _BigId, nullable=False),
        sa.Column("message", sa.Text, nullable=False),  # its id on the platform
        sa.Column("person", sa.Text, nullable=False),  # channel:id; empty where nobody is named
        sa.Column("name", sa.Text, nullable=False),  # as the channel had it
        sa.Column("direct", _BigId, nullable=False),  # 1: nobody else reads that chat
        sa.Column("how", sa.Text, nullable=False),  # said; quoted or heard: then it is in the metadata
        sa.Column("parts", _BigId, nullable=False),  # of the row's content; 0 for the metadata
        sa.PrimaryKeyConstraint("sid", "seq", "place"),
    )
    op.create_index("spoken_message", "spoken", ["message", "sid"])
    op.create_index("spoken_person", "spoken", ["person"])
    op.create_index("spoken_turn", "spoken", ["turn"])
    op.create_table(
        "mark",
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),  # new, summary, settings or undone
        sa.Column("turn", _BigId, nullable=False),  # the turn that it is about; all up to it, for new and summary
        sa.Column("content", sa.Text, nullable=False),  # JSON
        sa.Column("at", sa.Float, nullable=False),
        sa.PrimaryKeyConstraint("sid", "kind", "turn"),
    )
    op.create_index("mark_kind", "mark", ["kind"])  # whose reactions are erased
    op.create_table(
        "chatter",  # messages of a group that do not address the bot, if the group's history is kept
        sa.Column("chat", sa.Text, nullable=False),  # channel:account:chat
        sa.Column("thread", sa.Text, nullable=False),  # the topic in it; empty for none
        sa.Column("message", sa.Text, nullable=False),  # its id
        sa.Column("sender", sa.Text, nullable=False),  # channel:account:id
        sa.Column("body", sa.Text, nullable=False),  # JSON of the message
        sa.Column("at", sa.Float, nullable=False),  # when it arrived
        sa.PrimaryKeyConstraint("chat", "thread", "message"),
    )
    op.create_table(
        "usage",
        sa.Column("scope", sa.Text, nullable=False),  # agent:…, chat:… or sender:…
        sa.Column("day", sa.Text, nullable=False),  # 2026-11-22, in the gateway's time zone
        sa.Column("tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.Float, nullable=False),
        sa.Column("warned", _BigId, nullable=False, server_default="0"),  # the turn whose answer warned
        sa.PrimaryKeyConstraint("scope", "day"),
    )


def _web_chat() -> None:
    """Conversations, messages, files and sessions of the web chat."""
    op.create_table(
        "web_conversation",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("at", sa.Float, nullable=False),  # when something was last said
        sa.Column("owner", sa.Text, nullable=False, server_default="local"),
    )
    op.create_index("web_conversation_owner", "web_conversation", ["owner", "at"])
    op.create_table(
        "web_message",
        sa.Column("number", _BigId, primary_key=True, autoincrement=True),  # a page resumes after it
        sa.Column("chat", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),  # the page's id, or the idempotency key of a reply part
        sa.Column("author", sa.Text, nullable=False),  # you or agent
        sa.Column("words", sa.Text, nullable=False),  # JSON of `MessageBody`
        sa.Column("at", sa.Float, nullable=False),
        sa.UniqueConstraint("chat", "key"),
        sqlite_autoincrement=True,
    )
    op.create_index("web_message_chat", "web_message", ["chat", "number"])
    op.create_table(
        "file",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("chat", sa.Text),  # its conversation; until it is sent `@owner` for an upload, NULL for an agent's
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),  # media type, as it was declared
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("file_chat", "file", ["chat"])
    op.create_table(
        "web_session",
        sa.Column("key", sa.Text, primary_key=True),  # the hash of the cookie
        sa.Column("ends", sa.Float, nullable=False),
    )


def _people() -> None:
    """Pairing, claim codes and the owners' notices."""
    op.create_table(
        "contact",
        sa.Column("channel", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("person", sa.Text, nullable=False),
        sa.Column("turn", _BigId),  # the message that the code answered; NULL where there was none
        sa.Column("code", sa.Text),  # its hash, as long as it can be approved
        sa.Column("asked", sa.Float),  # when; no other line is sent for a while
        sa.Column("approved_by", sa.Text),  # channel:id, or the command line; NULL until then
        sa.Column("approved_at", sa.Float),
        sa.Column("decided", _BigId),  # the command that approved it
        sa.Column("name", sa.Text),  # as the platform gives it
        sa.Column("owner", sa.Integer, nullable=False, server_default="0"),  # 1 by a claim code
        sa.Column("told", sa.Float),  # when the owners were notified of the request
        sa.Column("reminded", _BigId),  # the message that was told that the request still waits
        sa.PrimaryKeyConstraint("channel", "account", "person"),
    )
    _index("contact_waiting", "contact", ["channel", "account"], "approved_by IS NULL")
    op.create_table(
        "wrong_code",
        sa.Column("turn", _BigId, primary_key=True),  # the command that had it
        sa.Column("sender", sa.Text, nullable=False),  # channel:id
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_index("wrong_code_sender", "wrong_code", ["sender", "at"])
    op.create_table(
        "claim",
        sa.Column("code", sa.Text, primary_key=True),  # its hash, until somebody uses one
        sa.Column("at", sa.Float, nullable=False),
    )
    op.create_table(
        "notice",
        sa.Column("cause", sa.Text, primary_key=True),
        sa.Column("at", sa.Float, nullable=False),  # when the owners were last notified of it
    )


def _memory() -> None:
    """Notes, and an index of the words of past turns."""
    op.create_table(
        "note",
        sa.Column("sender", sa.Text, nullable=False),  # whose it is: channel:account:id, as in the inbox
        sa.Column("agent", sa.Text, nullable=False),
        sa.Column("number", _BigId, nullable=False),  # as the person sees it; never given twice
        sa.Column("turn", _BigId, nullable=False, unique=True),  # the message that had it taken
        sa.Column("text", sa.Text, nullable=False),  # empty where it was deleted
        sa.Column("at", sa.Float, nullable=False),
        sa.Column("deleted", _BigId),  # the message that had it deleted
        sa.Column("sid", sa.Text),  # the conversation it was made from; NULL where it was dictated
        sa.PrimaryKeyConstraint("sender", "agent", "number"),
    )
    op.create_index("note_session", "note", ["sid"])
    op.create_table(
        "indexed",
        sa.Column("sid", sa.Text, primary_key=True),
        sa.Column("seq", _BigId, nullable=False),  # how far the session's transcript is in the index
    )
    op.create_table(
        "word",
        sa.Column("scope", sa.BigInteger, nullable=False),  # a hash of the session
        sa.Column("term", sa.Text, nullable=False),  # by tools.memory.terms
        sa.Column("turn", _BigId, nullable=False),
        sa.PrimaryKeyConstraint("scope", "term", "turn"),
        sqlite_with_rowid=False,
    )


def _approvals() -> None:
    """Approval requests, permanent grants, and an audit of both."""
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
        sa.Column("tainted", sa.Integer, nullable=False),  # 1: its turn had read untrusted text
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
        sa.Column("announced", sa.Integer, nullable=False),  # 1: everybody concerned was notified of the outcome
    )
    op.create_index("approval_open", "approval", ["announced", "state"])
    op.create_index("approval_of_session", "approval", ["sid", "digest"])
    op.create_index("approval_turn", "approval", ["turn"])
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


def _index(name: str, table: str, columns: list[str], where: str) -> None:
    op.create_index(name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
