"""`channels.web.archive.ChatHistory` on the gateway's own database, SQLite or PostgreSQL: one text for both.

A web chat is read and written at the pace of people, so each method is a plain transaction. On PostgreSQL whoever says
or erases something does so under a lock: who has seen number 17 must never miss a 16 that is committed later, and an
answer must not outlive its conversation. The other replicas, whose pages watch as well, are woken with the commit.
"""

import re
from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from pydantic import TypeAdapter
from sqlalchemy import Connection, Delete, LargeBinary, Select, cast, delete, exists, func, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from channels.message import File, StoredFile
from channels.web.archive import Conversation, MessageBody, Sized, WebMessage
from gateway.store.operation import Database, reads, writes
from gateway.store.store import NOTIFY_CHANNEL
from gateway.store.tables import InboxStatus, conversation, inbox, message, outbox, transcript, web_session
from gateway.store.tables import file as files

WEB_NOTICE = "web"
"""What replicas tell each other where something was said; no session has this name."""
CONVERSATIONS_MAX = 500
TITLE_CHARS = 60
UNUSED_FILE_SECONDS = 24 * 3600
UNSENT = ""
"""The conversation of an upload that waits; no conversation has this id. A file of an agent's has NULL instead."""
ROWS_AT_ONCE = 16
_LOCK_KEY = 7_305_843_001_217
_UPLOADS_KEY = 7_305_843_001_218

_words: TypeAdapter[MessageBody] = TypeAdapter(MessageBody)


class DatabaseArchive(Database):
    @writes
    def keep(self, connection: Connection, chat: str, key: str, words: MessageBody, at: float) -> Conversation:
        _alone(connection)
        title = _title(words.text) or (words.files[0].name if words.files else "") or "…"
        row = {"id": chat, "title": title, "agent": words.agent, "at": at}
        connection.execute(_insert(connection)(conversation).values(row).on_conflict_do_nothing())
        _say(connection, chat, key, "you", words, at)
        return _conversation(connection.execute(select(conversation).where(conversation.c.id == chat)).one())

    @writes
    def answer(self, connection: Connection, chat: str, key: str, words: MessageBody, at: float) -> bool:
        _alone(connection)
        if _find(connection, chat) is None:
            return False
        _say(connection, chat, key, "agent", words, at)
        return True

    @reads
    def conversations(self, connection: Connection) -> Sequence[Conversation]:
        newest = select(conversation).order_by(conversation.c.at.desc()).limit(CONVERSATIONS_MAX)
        return [_conversation(row) for row in connection.execute(newest)]

    @reads
    def conversation(self, connection: Connection, chat: str) -> Conversation | None:
        return _find(connection, chat)

    @writes
    def rename(self, connection: Connection, chat: str, title: str) -> Conversation | None:
        connection.execute(update(conversation).where(conversation.c.id == chat).values(title=_title(title) or "…"))
        return _find(connection, chat)

    @reads
    def agents(self, connection: Connection, chat: str) -> Sequence[str]:
        spoken = select(message.c.words).where(message.c.chat == chat, message.c.author == "you")
        rows = connection.scalars(spoken.execution_options(yield_per=ROWS_AT_ONCE))
        return sorted({_words.validate_json(it).agent for it in rows})

    @reads
    def newest_turn(self, connection: Connection, session: str) -> int:
        return connection.scalar(select(func.max(inbox.c.id)).where(inbox.c.sid == session)) or 0

    @writes
    def erase(self, connection: Connection, chat: str, sessions: Sequence[str]) -> bool:
        """What a running turn still needs, its message, goes with the dedupe horizon instead."""
        _alone(connection)
        if not connection.execute(delete(conversation).where(conversation.c.id == chat)).rowcount:
            return False
        connection.execute(delete(message).where(message.c.chat == chat))
        connection.execute(delete(files).where(files.c.chat == chat))
        connection.execute(delete(transcript).where(transcript.c.sid.in_(sessions)))
        connection.execute(delete(inbox).where(inbox.c.sid.in_(sessions), inbox.c.status != InboxStatus.WAITING))
        connection.execute(delete(outbox).where(outbox.c.sid.in_(sessions)))
        return True

    @reads
    def page(
        self, connection: Connection, chat: str, *, before: int | None, limit: int, bytes_max: int
    ) -> Sequence[Sized]:
        newest = select(message.c.number).where(message.c.chat == chat).order_by(message.c.number.desc()).limit(limit)
        if before is not None:
            newest = newest.where(message.c.number < before)
        return _sized(connection, newest, bytes_max)

    @reads
    def since(self, connection: Connection, number: int, *, limit: int, bytes_max: int) -> Sequence[Sized]:
        missed = select(message.c.number).where(message.c.number > number).order_by(message.c.number).limit(limit)
        return _sized(connection, missed, bytes_max)

    @reads
    def messages(self, connection: Connection, numbers: Sequence[int]) -> Sequence[WebMessage]:
        wanted = select(message).where(message.c.number.in_(numbers)).order_by(message.c.number)
        rows = connection.execute(wanted).mappings()
        return [WebMessage(**{**row, "words": _words.validate_json(row["words"])}) for row in rows]

    @reads
    def last(self, connection: Connection) -> int:
        return connection.scalar(select(func.max(message.c.number))) or 0

    @writes
    def put(self, connection: Connection, file: File, at: float) -> StoredFile:
        connection.execute(_expired(at))
        return _insert_file(connection, file, at, chat=None)

    @writes
    def upload(self, connection: Connection, file: File, at: float, *, bytes_max: int) -> StoredFile | None:
        _alone(connection, _UPLOADS_KEY)
        connection.execute(_expired(at))
        if _waiting(connection) + len(file.data) > bytes_max:
            return None
        return _insert_file(connection, file, at, chat=UNSENT)

    @reads
    def waiting_bytes(self, connection: Connection) -> int:
        return _waiting(connection)

    @writes
    def discard(self, connection: Connection, key: str) -> bool:
        return connection.execute(delete(files).where(files.c.id == key, files.c.chat == UNSENT)).rowcount > 0

    @writes
    def prune(self, connection: Connection, at: float) -> None:
        connection.execute(_expired(at))

    @reads
    def file(self, connection: Connection, key: str) -> tuple[StoredFile, bytes] | None:
        row = connection.execute(select(files).where(files.c.id == key)).one_or_none()
        return (_file(row, len(row.data)), bytes(row.data)) if row else None

    @reads
    def piece(self, connection: Connection, key: str, at: int, size: int) -> bytes:
        part = select(func.substr(files.c.data, at + 1, size, type_=LargeBinary)).where(files.c.id == key)
        return bytes(connection.scalar(part) or b"")

    @reads
    def files(self, connection: Connection, keys: Sequence[str]) -> Sequence[StoredFile]:
        size = func.length(files.c.data).label("size")
        wanted = select(files.c.id, files.c.name, files.c.type, size).where(files.c.id.in_(keys))
        found = {row.id: _file(row, row.size) for row in connection.execute(wanted)}
        return [found[key] for key in keys if key in found]


def _say(connection: Connection, chat: str, key: str, author: str, words: MessageBody, at: float) -> None:
    row = {"chat": chat, "key": key, "author": author, "words": _words.dump_json(words).decode(), "at": at}
    new = _insert(connection)(message).values(row).on_conflict_do_nothing(index_elements=["chat", "key"])
    if connection.scalar(new.returning(message.c.number)) is not None:
        connection.execute(update(conversation).where(conversation.c.id == chat).values(at=at))
        connection.execute(update(files).where(files.c.id.in_([it.id for it in words.files])).values(chat=chat))
        if _is_shared(connection):
            connection.execute(
                text("SELECT pg_notify(:channel, :what)"), {"channel": NOTIFY_CHANNEL, "what": WEB_NOTICE}
            )


def _alone(connection: Connection, key: int = _LOCK_KEY) -> None:
    """Nobody else says or erases anything until the commit; on SQLite there is one writer anyway."""
    if _is_shared(connection):
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def _is_shared(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


def _find(connection: Connection, chat: str) -> Conversation | None:
    row = connection.execute(select(conversation).where(conversation.c.id == chat)).one_or_none()
    return _conversation(row) if row else None


def _insert(connection: Connection) -> Any:
    return postgresql.insert if _is_shared(connection) else sqlite.insert


def _conversation(row: Any) -> Conversation:
    return Conversation(**row._mapping)


def _sized(connection: Connection, numbers: Select[Any], bytes_max: int) -> list[Sized]:
    """The database measures, so what is too much is not loaded; and SQLite, which must read a text for that, no further
    than it is asked."""
    words = message.c.words
    size = func.octet_length(words) if _is_shared(connection) else func.length(cast(words, LargeBinary))
    found: list[Sized] = []
    total = 0
    with connection.execute(numbers.add_columns(size.label("bytes"))) as rows:
        for row in rows:
            found.append(Sized(number=row.number, bytes=row.bytes))
            if total > bytes_max:
                break
            total += row.bytes
    return found


def _waiting(connection: Connection) -> int:
    waiting = select(func.coalesce(func.sum(func.length(files.c.data)), 0)).where(files.c.chat == UNSENT)
    return int(connection.scalar(waiting) or 0)


def _expired(at: float) -> Delete:
    unused = or_(files.c.chat.is_(None), files.c.chat == UNSENT)
    return delete(files).where(unused, files.c.at < at - UNUSED_FILE_SECONDS)


def _insert_file(connection: Connection, new: File, at: float, *, chat: str | None) -> StoredFile:
    kept = StoredFile(id=f"f_{uuid4().hex}", name=new.name, type=new.type, size=len(new.data))
    row = {"id": kept.id, "chat": chat, "name": kept.name, "type": kept.type, "data": new.data, "at": at}
    connection.execute(files.insert().values(row))
    return kept


def _file(row: Any, size: int) -> StoredFile:
    return StoredFile(id=row.id, name=row.name, type=row.type, size=size)


def _title(words: str) -> str:
    """The first words, on one line, without what no database or screen takes."""
    line = re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", words).strip()
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


class DatabaseSessions(Database):
    @writes
    def begin(self, connection: Connection, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        connection.execute(delete(web_session).where(or_(web_session.c.ends <= at, web_session.c.key.in_(instead_of))))
        connection.execute(web_session.insert().values(key=key, ends=ends))

    @writes
    def end(self, connection: Connection, keys: Sequence[str]) -> None:
        connection.execute(delete(web_session).where(web_session.c.key.in_(keys)))

    @reads
    def hold(self, connection: Connection, keys: Sequence[str], at: float) -> bool:
        held = select(exists().where(web_session.c.key.in_(keys), web_session.c.ends > at))
        return bool(connection.scalar(held))
