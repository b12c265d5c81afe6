"""Files in the database: those of agents, of API clients, and uploads of the web chat. A file outside a
conversation, and an upload that is not sent, expires after a day."""

from collections.abc import Sequence
from uuid import uuid4

from sqlalchemy import Connection

from channels.message import File, StoredFile
from channels.web.admission import OPERATOR
from gateway.store.operations import Database, Lock, lock, reads, run, writes

UNUSED_FILE_SECONDS = 24 * 3600
_MARK = "@"
"""Begins the `chat` of a user's upload that is not sent yet, before the user: no conversation's id has this prefix. An
agent's file has NULL. It is not a column, because replicas of two versions attach each other's uploads during an
update."""
FORGET_PENDING = "DELETE FROM file WHERE chat = '@' || CAST(:owner AS TEXT)"


class DatabaseFiles(Database):
    @writes
    def put(self, connection: Connection, file: File, at: float) -> StoredFile:
        """Store an agent's file. It expires after a day outside a conversation."""
        _delete_expired(connection, at)
        return _insert(connection, file, at, chat=None)

    @writes
    def upload(
        self, connection: Connection, file: File, at: float, *, bytes_max: int, owner: str = OPERATOR
    ) -> StoredFile | None:
        """Store a user's file until it is sent, for at most a day. None if all unsent files would exceed
        `bytes_max`."""
        lock(connection, Lock.UPLOADS)
        _delete_expired(connection, at)
        if _waiting(connection, owner) + len(file.data) > bytes_max:
            return None
        return _insert(connection, file, at, chat=_MARK + owner)

    @reads
    def waiting_bytes(self, connection: Connection, owner: str = OPERATOR) -> int:
        return _waiting(connection, owner)

    @writes
    def discard(self, connection: Connection, key: str, owner: str = OPERATOR) -> bool:
        """Delete a user's upload. Return False if it does not exist or was sent."""
        unsent = "DELETE FROM file WHERE id = :key AND chat = '@' || CAST(:owner AS TEXT)"
        return run(connection, unsent, key=key, owner=owner).rowcount > 0

    @writes
    def prune(self, connection: Connection, at: float) -> None:
        _delete_expired(connection, at)

    @reads
    def load(self, connection: Connection, key: str) -> tuple[StoredFile, bytes] | None:
        row = run(connection, "SELECT id, name, type, data FROM file WHERE id = :key", key=key).one_or_none()
        return (
            (StoredFile(id=row.id, name=row.name, type=row.type, size=len(row.data)), bytes(row.data)) if row else None
        )

    @reads
    def piece(self, connection: Connection, key: str, at: int, size: int) -> bytes:
        """Return up to `size` bytes of a file from byte `at`; empty if it is gone."""
        part = "SELECT substr(data, :at, :size) FROM file WHERE id = :key"
        return bytes(run(connection, part, key=key, at=at + 1, size=size).scalar() or b"")

    @reads
    def find(self, connection: Connection, keys: Sequence[str], owner: str = OPERATOR) -> Sequence[StoredFile]:
        wanted = """
        SELECT id, name, type, length(data) AS size FROM file WHERE id IN :keys
        AND (chat = '@' || CAST(:owner AS TEXT) OR chat IN (SELECT id FROM web_conversation WHERE owner = :owner))
        """
        rows = run(connection, wanted, keys=keys, owner=owner).mappings()
        found = {row["id"]: StoredFile(**row) for row in rows}
        return [found[key] for key in keys if key in found]


def _waiting(connection: Connection, owner: str) -> int:
    size = "SELECT sum(length(data)) FROM file WHERE chat = '@' || CAST(:owner AS TEXT)"
    return int(run(connection, size, owner=owner).scalar() or 0)


def _delete_expired(connection: Connection, at: float) -> None:
    unused = "DELETE FROM file WHERE (chat IS NULL OR chat LIKE '@%') AND at < :before"
    run(connection, unused, before=at - UNUSED_FILE_SECONDS)


def _insert(connection: Connection, new: File, at: float, *, chat: str | None) -> StoredFile:
    kept = StoredFile(id=f"f_{uuid4().hex}", name=new.name, type=new.type, size=len(new.data))
    row = {"id": kept.id, "chat": chat, "name": kept.name, "type": kept.type, "data": new.data, "at": at}
    new_file = "INSERT INTO file (id, chat, name, type, data, at) VALUES (:id, :chat, :name, :type, :data, :at)"
    run(connection, new_file, **row)
    return kept
