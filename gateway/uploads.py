"""Uploads of the web chat: few are in memory at a time, and what waits to be sent with a message is bounded in all.

The room is reserved before a body is read, so that uploads that arrive together cannot pass the limit together; the
database counts once more when it keeps one, for all replicas. Others wait for their turn unread, at their senders'.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from fastapi import Request

from agents.attachments import actual_type
from channels.message import File, StoredFile, media_type
from channels.web.archive import ChatHistory
from gateway.config.root import LimitsConfig
from gateway.request import Unserved, read_body

UPLOAD_SECONDS = 600.0
FILES_AT_ONCE = 2
"""Bodies in memory: together no larger than so many of the largest files."""
NAME_CHARS_MAX = 200


@dataclass(eq=False)
class Uploads:
    """Takes what the page uploads. In bytes, `_reserved` are the uploads that have begun, by person, `_reading` those in
    memory."""

    archive: ChatHistory
    limits: LimitsConfig
    now: Callable[[], float]
    _reserved: Counter[str] = field(default_factory=Counter)
    _reading: int = 0
    _turn: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: Request, person: str) -> StoredFile:
        """Read a file of a person's and keep it. Raises Unserved, Unreadable."""
        file_max, uploads_max = self.limits.file_bytes, self.limits.uploads_bytes
        declared = request.headers.get("content-length", "")
        size = min(int(declared[:20]), file_max) if declared.isdecimal() else file_max
        waiting = await self.archive.waiting_bytes(person)
        if waiting + self._reserved[person] + size > uploads_max:
            raise self._too_many()
        self._reserved[person] += size
        try:
            async with self._room(size):
                data = await read_body(request, bytes_max=file_max, seconds=UPLOAD_SECONDS)
                name = _file_name(request.query_params.get("name", "")) or "file"
                kind = actual_type(media_type(request.headers.get("content-type", "")), data)
                file = File(name=name, type=kind, data=data)
                kept = await self.archive.upload(file, self.now(), owner=person, bytes_max=uploads_max)
        finally:
            self._reserved[person] -= size
        if kept is None:
            raise self._too_many()
        return kept

    def _too_many(self) -> Unserved:
        limit = f"{self.limits.uploads_bytes / 1_048_576:.0f} MiB (limits.uploadsBytes)"
        sentence = f"The files that wait to be sent fill the limit of {limit}. Send some of them, or remove them."
        return Unserved(413, "too-many-uploads", f"{sentence} What is not sent within a day is deleted.")

    @asynccontextmanager
    async def _room(self, size: int) -> AsyncIterator[None]:
        """Wait until there is memory for a body; small ones pass large ones."""
        async with self._turn:
            await self._turn.wait_for(lambda: self._reading + size <= FILES_AT_ONCE * self.limits.file_bytes)
            self._reading += size
        try:
            yield
        finally:
            async with self._turn:
                self._reading -= size
                self._turn.notify_all()


def _file_name(given: str) -> str:
    """What can be shown of it; of one without measure the beginning and the end."""
    name = "".join(char for char in given if char.isprintable()).strip()
    return name if len(name) <= NAME_CHARS_MAX else name[: NAME_CHARS_MAX // 2] + name[-NAME_CHARS_MAX // 2 :]
