"""Uploads of the web chat: few are in memory at a time, and what waits to be sent with a message is bounded in all.

The room is reserved before a body is read, so that uploads that arrive together cannot pass the limit together; the
database counts once more when it keeps one, for all replicas. Others wait for their turn unread, at their senders'.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from fastapi import Request

from agents.attachments import actual_type
from channels.message import File, StoredFile, media_type
from channels.web.archive import ChatHistory
from gateway.config.root import LimitsConfig
from gateway.request import read_body

UPLOAD_SECONDS = 600.0
FILES_AT_ONCE = 2
"""Bodies in memory: together no larger than so many of the largest files."""
NAME_CHARS_MAX = 200


class TooManyUploads(Exception):
    """The uploads that wait to be sent fill `limits.uploadsBytes`."""


class Uploads:
    """Takes what the page uploads. In bytes, `_reserved` are the uploads that have begun, by person, `_reading` those in
    memory."""

    def __init__(self, archive: ChatHistory, *, limits: LimitsConfig, now: Callable[[], float]) -> None:
        self._archive = archive
        self._limits = limits
        self._now = now
        self._reserved: Counter[str] = Counter()
        self._reading = 0
        self._turn = asyncio.Condition()

    async def take(self, request: Request, person: str) -> StoredFile:
        """Read a file of a person's and keep it. Raises TooManyUploads, Unreadable."""
        file_max, uploads_max = self._limits.file_bytes, self._limits.uploads_bytes
        declared = request.headers.get("content-length", "")
        size = min(int(declared[:20]), file_max) if declared.isdecimal() else file_max
        waiting = await self._archive.waiting_bytes(person)
        if waiting + self._reserved[person] + size > uploads_max:
            raise TooManyUploads
        self._reserved[person] += size
        try:
            async with self._room(size):
                data = await read_body(request, bytes_max=file_max, seconds=UPLOAD_SECONDS)
                name = _file_name(request.query_params.get("name", "")) or "file"
                kind = actual_type(media_type(request.headers.get("content-type", "")), data)
                file = File(name=name, type=kind, data=data)
                kept = await self._archive.upload(file, self._now(), owner=person, bytes_max=uploads_max)
        finally:
            self._reserved[person] -= size
        if kept is None:
            raise TooManyUploads
        return kept

    @asynccontextmanager
    async def _room(self, size: int) -> AsyncIterator[None]:
        """Wait until there is memory for a body; small ones pass large ones."""
        async with self._turn:
            await self._turn.wait_for(lambda: self._reading + size <= FILES_AT_ONCE * self._limits.file_bytes)
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
