"""The workspace's own documents that go into the prompt: six names, read anew only when one of them changed.

They are opened by descriptor and never through a link; what is not an ordinary file under one name is passed over. How
they are shown is not decided here.
"""

import os
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import structlog

from agents.prompt.markers import FILE_HEADINGS, MEMORY
from channels.message import ChatKind

NAMES = FILE_HEADINGS
PRIVATE = ("USER.md", MEMORY)
"""About one person: never shown where others read along."""
FILE_CHARS_MAX = 20_000
ALL_CHARS_MAX = 60_000
SETTLED_NS = 100_000_000
"""A file changed less than this before it was read may change again without a new time stamp: it is read again."""
_BYTES_MAX = 4 * FILE_CHARS_MAX  # no character takes more than four

log = structlog.get_logger()


_Stamp: TypeAlias = tuple[int, int, int]
"""When it was changed, its size, its inode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Read:
    """A file as it was. `text` is None where it could not be used; `cut` tells that there is more of it."""

    stamp: _Stamp
    settled: bool
    text: str | None
    cut: bool = False


class WorkspaceFiles:
    """The documents of one workspace. Safe to use from several threads."""

    def __init__(self, root: Path, *, now_ns: Callable[[], int] = time.time_ns) -> None:
        self._root = root
        self._now_ns = now_ns
        self._known: dict[str, _Read] = {}
        self._lock = threading.Lock()

    def read(self, kind: ChatKind) -> tuple[tuple[str, str], ...]:
        """Name and text of the files there are, in their fixed order, each and all together capped with a note.

        Blocking. Raises nothing: a workspace that is missing has no files.
        """
        wanted = [name for name in NAMES if kind == "direct" or name not in PRIVATE]
        with self._lock:
            return tuple(_within_limits(self._found(wanted)))

    def _found(self, names: list[str]) -> Iterator[tuple[str, _Read]]:
        try:
            folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return
        try:
            for name in names:
                found = self._current(folder, name)
                if found is not None and found.text is not None:
                    yield name, found
        finally:
            os.close(folder)

    def _current(self, folder: int, name: str) -> _Read | None:
        try:
            stamp = _stamp(os.stat(name, dir_fd=folder, follow_symlinks=False))
        except OSError:
            self._known.pop(name, None)
            return None
        known = self._known.get(name)
        if known is None or known.stamp != stamp or not known.settled:
            known = self._known[name] = self._open(folder, name, stamp, known)
        return known

    def _open(self, folder: int, name: str, seen: _Stamp, before: _Read | None) -> _Read:
        now_ns = self._now_ns()
        with suppress(OSError):
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(fd, "rb") as file:
                status = os.fstat(fd)
                if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
                    text, cut = _decoded(file.read(_BYTES_MAX + 1))
                    stamp = _stamp(status)
                    return _Read(stamp=stamp, settled=_settled(stamp, now_ns), text=text or None, cut=cut)
        if before is None or before.stamp != seen:
            log.warning("workspace_file_passed_over", name=name, reason="not an ordinary file, or not readable")
        return _Read(stamp=seen, settled=_settled(seen, now_ns), text=None)


def _within_limits(files: Iterator[tuple[str, _Read]]) -> Iterator[tuple[str, str]]:
    left = ALL_CHARS_MAX
    for name, read in files:
        text = (read.text or "")[:left]
        left -= len(text)
        if read.cut or len(text) < len(read.text or ""):
            shown = f"{text}\n\n[Cut here: {name} is longer than what is shown; `read` shows the rest.]" if text else ""
            yield name, shown or f"[Not shown: these files together exceed {ALL_CHARS_MAX:,} characters.]"
        else:
            yield name, text


def _decoded(data: bytes) -> tuple[str, bool]:
    """At most FILE_CHARS_MAX characters, and whether there were more."""
    text = data.decode(errors="replace").removeprefix("\ufeff").strip()
    return text[:FILE_CHARS_MAX], len(text) > FILE_CHARS_MAX or len(data) > _BYTES_MAX


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino


def _settled(stamp: _Stamp, now_ns: int) -> bool:
    return stamp[0] + SETTLED_NS < now_ns
