"""`channels.web.archive.ChatHistory` on the gateway's own database, SQLite or PostgreSQL: one text for both.

A web chat is read and written at the pace of people, so each method is a plain transaction. On PostgreSQL whoever says
or erases something does so under a lock: who has seen number 17 must never miss a 16 that is committed later, and an
answer must not outlive its conversation. The other replicas, whose pages watch as well, are woken with the commit.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar
from uuid import uuid4

from pydantic import TypeAdapter
from sqlalchemy import Connection, Delete, LargeBinary, Select, cast, delete, exists, func, or_, select, text, update
from sqlalchemy.dialects import postgresql, sqlite

from channels.message import File, StoredFile
from channels.web.archive import Conversation, MessageBody, Sized, WebMessage
from gateway.store.store import NOTIFY_CHANNEL
from gateway.store.tables import InboxStatus, conversation, file, inbox, message, outbox, transcript, web_session

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

T = TypeVar("T")
_words: TypeAdapter[MessageBody] = TypeAdapter(MessageBody)


class Run(Protocol):
    """Run an operation in a transaction of its own and commit. Raises StoreUnavailable."""

    def __call__(self, operation: Callable[[Connection], T]) -> Awaitable[T]: ...


class DatabaseArchive:
    """`read` and `write` may be the same."""

    def __init__(self, *, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def keep(self, chat: str, key: str, words: MessageBody, at: float) -> Conversation:
        return await self._write(lambda c: _keep(c, chat, key, words, at))

    async def answer(self, chat: str, key: str, words: MessageBody, at: float) -> bool:
        return await self._write(lambda c: _answer(c, chat, key, words, at))

    async def conversations(self) -> Sequence[Conversation]:
        newest = select(conversation).order_by(conversation.c.at.desc()).limit(CONVERSATIONS_MAX)
        return await self._read(lambda c: [_conversation(row) for row in c.execute(newest)])

    async def conversation(self, chat: str) -> Conversation | None:
        return await self._read(lambda c: _find(c, chat))

    async def rename(self, chat: str, title: str) -> Conversation | None:
        named = update(conversation).where(conversation.c.id == chat).values(title=_title(title) or "…")

        def write(connection: Connection) -> Conversation | None:
            connection.execute(named)
            return _find(connection, chat)

        return await self._write(write)

    async def agents(self, chat: str) -> Sequence[str]:
        agents = select(message.c.words).where(message.c.chat == chat, message.c.author == "you")
        agents = agents.execution_options(yield_per=ROWS_AT_ONCE)
        return await self._read(lambda c: sorted({_words.validate_json(it).agent for it in c.scalars(agents)}))

    async def newest_turn(self, session: str) -> int:
        newest = select(func.max(inbox.c.id)).where(inbox.c.sid == session)
        return await self._read(lambda c: c.scalar(newest) or 0)

    async def erase(self, chat: str, sessions: Sequence[str]) -> bool:
        return await self._write(lambda c: _erase(c, chat, sessions))

    async def page(self, chat: str, *, before: int | None, limit: int, bytes_max: int) -> Sequence[Sized]:
        newest = select(message.c.number).where(message.c.chat == chat).order_by(message.c.number.desc()).limit(limit)
        if before is not None:
            newest = newest.where(message.c.number < before)
        return await self._read(lambda c: _sized(c, newest, bytes_max))

    async def since(self, number: int, *, limit: int, bytes_max: int) -> Sequence[Sized]:
        missed = select(message.c.number).where(message.c.number > number).order_by(message.c.number).limit(limit)
        return await self._read(lambda c: _sized(c, missed, bytes_max))

    async def messages(self, numbers: Sequence[int]) -> Sequence[WebMessage]:
        wanted = select(message).where(message.c.number.in_(numbers)).order_by(message.c.number)
        return await self._read(lambda c: [_message(row) for row in c.execute(wanted)])

    async def last(self) -> int:
        return await self._read(lambda c: c.scalar(select(func.max(message.c.number))) or 0)

    async def put(self, new: File, at: float) -> StoredFile:
        kept, row = _new_file(new, at)
        await self._write(lambda c: (c.execute(_expired(at)), c.execute(file.insert().values(row))))
        return kept

    async def upload(self, new: File, at: float, *, bytes_max: int) -> StoredFile | None:
        kept, row = _new_file(new, at)

        def write(connection: Connection) -> bool:
            _alone(connection, _UPLOADS_KEY)
            connection.execute(_expired(at))
            if _waiting(connection) + kept.size > bytes_max:
                return False
            connection.execute(file.insert().values(row | {"chat": UNSENT}))
            return True

        return kept if await self._write(write) else None

    async def waiting_bytes(self) -> int:
        return await self._read(_waiting)

    async def discard(self, key: str) -> bool:
        unsent = delete(file).where(file.c.id == key, file.c.chat == UNSENT)
        return await self._write(lambda c: c.execute(unsent).rowcount > 0)

    async def prune(self, at: float) -> None:
        await self._write(lambda c: c.execute(_expired(at)))

    async def file(self, key: str) -> tuple[StoredFile, bytes] | None:
        def read(connection: Connection) -> tuple[StoredFile, bytes] | None:
            row = connection.execute(select(file).where(file.c.id == key)).one_or_none()
            return (_file(row, len(row.data)), bytes(row.data)) if row else None

        return await self._read(read)

    async def piece(self, key: str, at: int, size: int) -> bytes:
        part = select(func.substr(file.c.data, at + 1, size, type_=LargeBinary)).where(file.c.id == key)
        return await self._read(lambda c: bytes(c.scalar(part) or b""))

    async def files(self, keys: Sequence[str]) -> Sequence[StoredFile]:
        wanted = select(file.c.id, file.c.name, file.c.type, func.length(file.c.data).label("size")).where(
            file.c.id.in_(keys)
        )
        found = await self._read(lambda c: {row.id: _file(row, row.size) for row in c.execute(wanted)})
        return [found[key] for key in keys if key in found]


def _keep(connection: Connection, chat: str, key: str, words: MessageBody, at: float) -> Conversation:
    _alone(connection)
    title = _title(words.text) or (words.files[0].name if words.files else "") or "…"
    row = {"id": chat, "title": title, "agent": words.agent, "at": at}
    connection.execute(_insert(connection)(conversation).values(row).on_conflict_do_nothing())
    _say(connection, chat, key, "you", words, at)
    return _conversation(connection.execute(select(conversation).where(conversation.c.id == chat)).one())


def _answer(connection: Connection, chat: str, key: str, words: MessageBody, at: float) -> bool:
    _alone(connection)
    if _find(connection, chat) is None:
        return False
    _say(connection, chat, key, "agent", words, at)
    return True


def _say(connection: Connection, chat: str, key: str, author: str, words: MessageBody, at: float) -> None:
    row = {"chat": chat, "key": key, "author": author, "words": _words.dump_json(words).decode(), "at": at}
    new = _insert(connection)(message).values(row).on_conflict_do_nothing(index_elements=["chat", "key"])
    if connection.scalar(new.returning(message.c.number)) is not None:
        connection.execute(update(conversation).where(conversation.c.id == chat).values(at=at))
        connection.execute(update(file).where(file.c.id.in_([it.id for it in words.files])).values(chat=chat))
        if _is_shared(connection):
            connection.execute(
                text("SELECT pg_notify(:channel, :what)"), {"channel": NOTIFY_CHANNEL, "what": WEB_NOTICE}
            )


def _erase(connection: Connection, chat: str, sessions: Sequence[str]) -> bool:
    """What a running turn still needs, its message, goes with the dedupe horizon instead."""
    _alone(connection)
    if not connection.execute(delete(conversation).where(conversation.c.id == chat)).rowcount:
        return False
    connection.execute(delete(message).where(message.c.chat == chat))
    connection.execute(delete(file).where(file.c.chat == chat))
    connection.execute(delete(transcript).where(transcript.c.sid.in_(sessions)))
    connection.execute(delete(inbox).where(inbox.c.sid.in_(sessions), inbox.c.status != InboxStatus.WAITING))
    connection.execute(delete(outbox).where(outbox.c.sid.in_(sessions)))
    return True


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
    return Conversation(id=row.id, title=row.title, agent=row.agent, at=row.at)


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


def _message(row: Any) -> WebMessage:
    words = _words.validate_json(row.words)
    return WebMessage(number=row.number, chat=row.chat, author=row.author, key=row.key, words=words, at=row.at)


def _waiting(connection: Connection) -> int:
    waiting = select(func.coalesce(func.sum(func.length(file.c.data)), 0)).where(file.c.chat == UNSENT)
    return int(connection.scalar(waiting) or 0)


def _expired(at: float) -> Delete:
    unused = or_(file.c.chat.is_(None), file.c.chat == UNSENT)
    return delete(file).where(unused, file.c.at < at - UNUSED_FILE_SECONDS)


def _new_file(new: File, at: float) -> tuple[StoredFile, dict[str, Any]]:
    kept = StoredFile(id=f"f_{uuid4().hex}", name=new.name, type=new.type, size=len(new.data))
    return kept, {"id": kept.id, "name": kept.name, "type": kept.type, "data": new.data, "at": at}


def _file(row: Any, size: int) -> StoredFile:
    return StoredFile(id=row.id, name=row.name, type=row.type, size=size)


def _title(words: str) -> str:
    """The first words, on one line, without what no database or screen takes."""
    line = re.sub(r"[\s\x00-\x1f\x7f-\x9f]+", " ", words).strip()
    return line if len(line) <= TITLE_CHARS else line[: TITLE_CHARS - 1].rstrip() + "…"


class DatabaseSessions:
    """`read` and `write` may be the same."""

    def __init__(self, *, read: Run, write: Run) -> None:
        self._read = read
        self._write = write

    async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        over = delete(web_session).where(or_(web_session.c.ends <= at, web_session.c.key.in_(instead_of)))
        new = web_session.insert().values(key=key, ends=ends)
        await self._write(lambda c: (c.execute(over), c.execute(new)))

    async def end(self, keys: Sequence[str]) -> None:
        await self._write(lambda c: c.execute(delete(web_session).where(web_session.c.key.in_(keys))))

    async def hold(self, keys: Sequence[str], at: float) -> bool:
        held = select(exists().where(web_session.c.key.in_(keys), web_session.c.ends > at))
        return await self._read(lambda c: bool(c.scalar(held)))
