"""The tables as they must be once all migrations have run, on every database: what `test_migrate` compares them with."""

from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
)

from gateway.store.statements import InboxStatus, OutboxStatus

metadata = MetaData()
_BigId = BigInteger().with_variant(Integer, "sqlite")

session = Table(
    "session",
    metadata,
    Column("id", Text, primary_key=True),
    Column("owner", Text, comment="worker id, or NULL"),
    Column("epoch", Integer, nullable=False, comment="fencing token: +1 with each new owner"),
    Column("pending", Integer, nullable=False, comment="messages accepted and not finished"),
    Column("stopped", _BigId, nullable=False, server_default="0", comment="turns below this are not to be run on"),
)
_is_owned = session.c.owner.is_not(None)
Index("session_owned", session.c.owner, sqlite_where=_is_owned, postgresql_where=_is_owned)
_is_left = session.c.owner.is_(None) & (session.c.pending > 0)
Index("session_left", session.c.id, sqlite_where=_is_left, postgresql_where=_is_left)

inbox = Table(
    "inbox",
    metadata,
    Column("id", _BigId, primary_key=True, autoincrement=True, comment="also the turn's number"),
    Column("dedupe", Text, nullable=False, unique=True, comment="channel:account:message id"),
    Column("dedupe_text", Text, unique=True, comment="recognises a re-push under another message id"),
    Column("sid", Text, nullable=False),
    Column("body", Text, nullable=False, comment="JSON of gateway.queue.Inbound"),
    Column("at", Float, nullable=False),
    Column("status", Integer, nullable=False, default=InboxStatus.WAITING),
    Column("attempts", Integer, nullable=False, default=0, comment="times it was begun and its process died"),
    Column("turn", _BigId, comment="the message that this one was answered with"),
    Column("sender", Text, comment="channel:account:sender id; NULL for a replay"),
    sqlite_autoincrement=True,
)
_is_waiting = inbox.c.status == 0
Index("inbox_waiting", inbox.c.sid, inbox.c.id, sqlite_where=_is_waiting, postgresql_where=_is_waiting)
Index("inbox_sender", inbox.c.sender, inbox.c.id, sqlite_where=_is_waiting, postgresql_where=_is_waiting)

transcript = Table(
    "transcript",
    metadata,
    Column("sid", Text, nullable=False),
    Column("seq", Integer, nullable=False),
    Column("turn", _BigId, nullable=False, comment="inbox.id"),
    Column("kind", Text, nullable=False, comment="user, steered, assistant, toolResult, drained or final"),
    Column("content", Text, nullable=False),
    PrimaryKeyConstraint("sid", "seq"),
)
_is_user = transcript.c.kind == "user"
Index("transcript_turns", transcript.c.sid, transcript.c.seq, sqlite_where=_is_user, postgresql_where=_is_user)

outbox = Table(
    "outbox",
    metadata,
    Column("id", _BigId, primary_key=True, autoincrement=True),
    Column("sid", Text, nullable=False),
    Column("turn", _BigId, nullable=False),
    Column("part", Integer, nullable=False),
    Column("key", Text, nullable=False, comment="idempotency key: made once, never per attempt"),
    Column("payload", Text, nullable=False, comment="JSON of gateway.outbox.OutboxPayload"),
    Column("status", Integer, nullable=False, default=OutboxStatus.QUEUED),
    Column("ext_id", Text),
    Column("attempts", Integer, nullable=False, default=0),
    Column("next_at", Float, nullable=False, default=0.0),
    Column("created", Float, nullable=False),
    Column("ambiguous", Integer, nullable=False, server_default="0", comment="attempts that may have arrived"),
    Column("reason", Text, comment="why it was given up"),
    UniqueConstraint("turn", "part"),
    sqlite_autoincrement=True,
)
_is_queued = outbox.c.status == 0
Index("outbox_queued", outbox.c.sid, outbox.c.id, sqlite_where=_is_queued, postgresql_where=_is_queued)

conversation = Table(
    "web_conversation",
    metadata,
    Column("id", Text, primary_key=True),
    Column("title", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("at", Float, nullable=False, comment="when something was last said"),
)
Index("web_conversation_at", conversation.c.at)

message = Table(
    "web_message",
    metadata,
    Column("number", _BigId, primary_key=True, autoincrement=True, comment="a page goes on behind it"),
    Column("chat", Text, nullable=False),
    Column("key", Text, nullable=False, comment="the page's id, or the idempotency key of a reply part"),
    Column("author", Text, nullable=False, comment="you or agent"),
    Column("words", Text, nullable=False, comment="JSON of channels.web.archive.MessageBody"),
    Column("at", Float, nullable=False),
    UniqueConstraint("chat", "key"),
    sqlite_autoincrement=True,
)
Index("web_message_chat", message.c.chat, message.c.number)

file = Table(
    "file",
    metadata,
    Column("id", Text, primary_key=True),
    Column(
        "chat", Text, comment="the conversation it belongs to; until it is sent '' for an upload, NULL for an agent's"
    ),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False, comment="media type, as it was declared"),
    Column("data", LargeBinary, nullable=False),
    Column("at", Float, nullable=False),
)
Index("file_chat", file.c.chat)

web_session = Table(
    "web_session",
    metadata,
    Column("key", Text, primary_key=True, comment="the hash of the cookie"),
    Column("ends", Float, nullable=False),
)

worker = Table(
    "worker",
    metadata,
    Column("id", Text, primary_key=True),
    Column("lock_key", BigInteger, nullable=False, comment="advisory lock, held for as long as the worker lives"),
    Column("expires", DateTime(timezone=True), nullable=False, comment="by the database's clock"),
    comment="PostgreSQL only: who is alive",
)
