"""Files that the page uploads, before the message that they go with."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from fastapi import Request

from agents.attachments import actual_type
from channels.message import File, StoredFile, media_type
from gateway.config.root import LimitsConfig
from gateway.http.bodies import Bodies, declared_size
from gateway.http.request import Unserved
from gateway.store.files import DatabaseFiles

UPLOAD_SECONDS = 600.0
FILES_AT_ONCE = 2
"""Bodies in memory: together no larger than this many of the largest files."""
NAME_CHARS_MAX = 200


@dataclass(eq=False)
class Uploads:
    """Takes what the page uploads; few bodies are in memory at a time. The room is reserved before a body is read, so that
    uploads that arrive together cannot pass the limit together: `_reserved` are the bytes of those that have begun, by
    person. The database counts once more when it keeps one, for all replicas. Others wait unread, at their senders'."""

    files: DatabaseFiles
    limits: LimitsConfig
    now: Callable[[], float]
    _reserved: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._bodies = Bodies(FILES_AT_ONCE * self.limits.file_bytes)

    async def store(self, request: Request, person: str) -> StoredFile:
        """Read a file of a person's and keep it. Raises Unserved, Unreadable."""
        file_max, uploads_max = self.limits.file_bytes, self.limits.uploads_bytes
        size = min(declared_size(request, file_max), file_max)
        waiting = await self.files.waiting_bytes(person)
        if waiting + self._reserved[person] + size > uploads_max:
            raise self._too_many()
        self._reserved[person] += size
        try:
            async with self._bodies.reserved(size):
                data = await self._bodies.read(request, bytes_max=file_max, seconds=UPLOAD_SECONDS)
                name = _file_name(request.query_params.get("name", "")) or "file"
                kind = actual_type(media_type(request.headers.get("content-type", "")), data)
                file = File(name=name, type=kind, data=data)
                kept = await self.files.upload(file, self.now(), owner=person, bytes_max=uploads_max)
        finally:
            self._reserved[person] -= size
        if kept is None:
            raise self._too_many()
        return kept

    def _too_many(self) -> Unserved:
        limit = f"{self.limits.uploads_bytes / 1_048_576:.0f} MiB (limits.uploadsBytes)"
        sentence = f"The files that wait to be sent fill the limit of {limit}. Send some of them, or remove them."
        return Unserved(413, "too-many-uploads", f"{sentence} What is not sent within a day is deleted.")


def _file_name(given: str) -> str:
    """The part of a name that can be shown; of one without measure the beginning and the end."""
    name = "".join(char for char in given if char.isprintable()).strip()
    return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX // 2] + name[-NAME_CHARS_MAX // 2 :]
