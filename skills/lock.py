"""`skills.lock`: the skills that were added from elsewhere, each with its source, its commit and the hash of its files.

The lock is next to the folder that it describes. A skill of that folder is used only while its files are those that the
operator confirmed: the hash covers every path, content and executable bit, not the document alone.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

LOCK = "skills.lock"
LOCK_BYTES_MAX = 4 * 1024 * 1024
FILES_MAX = 200
SKILL_BYTES_MAX = 8 * 1024 * 1024
SETTLED_NS = 100_000_000
"""A folder changed less than this before it was read may change again under the same timestamp, so it is read again."""
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

LockRefusal: TypeAlias = Literal["changed", "missing", "unlisted", "unreadable"]
"""Reason that an added skill is not used. `unreadable`: the lock itself, under its own name."""
_Stamp: TypeAlias = tuple[tuple[str | int, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class SkillFile:
    """A file of a skill; `path` is relative to the skill's folder."""

    path: str
    content: bytes = field(repr=False)
    executable: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Pin:
    """A skill as confirmed. `place` is its folder in the source; a plain folder has no `commit`."""

    source: str
    hash: str
    place: str = ""
    ref: str = ""
    commit: str = ""


class BadLock(Exception):
    """The lock cannot be read; nothing of its folder is used."""


class BadFolder(Exception):
    """The folder holds what no skill does: a link, too much, or a special file."""


def hash_of(files: Iterable[SkillFile]) -> str:
    """Hash the files, in any order."""
    whole = hashlib.sha256()
    for file in sorted(files, key=lambda it: it.path):
        content = hashlib.sha256(file.content).hexdigest()
        whole.update(f"{file.path}\0{'x' if file.executable else '-'}\0{content}\n".encode(errors="surrogateescape"))
    return f"sha256:{whole.hexdigest()}"


def files_in(folder: Path) -> list[SkillFile]:
    """Read every file below a folder. Raises BadFolder, OSError."""
    found = []
    for path, _ in _walk(folder):
        fd = os.open(folder / path, _FILE)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            found.append(
                SkillFile(path=path, content=file.read(SKILL_BYTES_MAX), executable=bool(status.st_mode & 0o111))
            )
    return found


def _walk(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    count = size = 0
    for where, folders, names in os.walk(folder, onerror=_raise):
        folders.sort()
        for name in sorted((*folders, *names)):
            path = Path(where, name)
            status = path.lstat()
            if stat.S_ISDIR(status.st_mode):
                continue
            count, size = count + 1, size + status.st_size
            if not stat.S_ISREG(status.st_mode) or count > FILES_MAX or size > SKILL_BYTES_MAX:
                raise BadFolder(name)
            yield str(path.relative_to(folder)), status


def _raise(error: OSError) -> None:
    raise error


@dataclass
class SkillLock:
    """The pins of one `folder` of added skills, compared with its files. Blocking."""

    folder: Path
    now_ns: Callable[[], int] = time.time_ns
    _pins: tuple[_Stamp, Mapping[str, Pin]] = ((), {})
    _hashes: dict[str, tuple[_Stamp, str]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.folder.parent / LOCK

    def pins(self) -> Mapping[str, Pin]:
        """Return the pins by name, read again if the file has changed. Raises BadLock."""
        try:
            status = self.path.stat()
            stamp: _Stamp = ((status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino),)
            if stamp != self._pins[0]:
                self._pins = stamp, _parsed(self.path)
        except FileNotFoundError:
            self._pins = (), {}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise BadLock(str(self.path)) from error
        return self._pins[1]

    def known(self) -> frozenset[str]:
        """Return the pinned names; none if the lock cannot be read."""
        try:
            return frozenset(self.pins())
        except BadLock:
            return frozenset()

    def write(self, pins: Mapping[str, Pin]) -> None:
        """Replace the file atomically. Raises OSError."""
        text = json.dumps({"version": 1, "skills": {name: asdict(pins[name]) for name in sorted(pins)}}, indent=2)
        new = self.path.with_name(f".{LOCK}.new")
        with new.open("w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        new.replace(self.path)

    def refusals(self, folders: Iterable[str]) -> dict[str, LockRefusal]:
        """Return the skills among `folders`, and in the lock, that may not be used. Raises nothing."""
        try:
            pins = self.pins()
        except BadLock:
            return {LOCK: "unreadable", **dict.fromkeys(folders, "unreadable")}
        there = set(folders)
        refusals_by_name: dict[str, LockRefusal] = {}
        for name in sorted(there | pins.keys()):
            if name not in pins:
                refusals_by_name[name] = "unlisted"
            elif name not in there:
                refusals_by_name[name] = "missing"
            elif self._hash(name) != pins[name].hash:
                refusals_by_name[name] = "changed"
        return refusals_by_name

    def _hash(self, name: str) -> str:
        folder = self.folder / name
        try:
            walked = [*_walk(folder)]
            stamp = tuple(
                (path, it.st_ctime_ns, it.st_mtime_ns, it.st_size, it.st_ino, it.st_mode) for path, it in walked
            )
            cached = self._hashes.get(name)
            if cached is None or cached[0] != stamp:
                cached = stamp, hash_of(files_in(folder))
                newest = max((it.st_ctime_ns for _, it in walked), default=0)
                if newest + SETTLED_NS < self.now_ns():
                    self._hashes[name] = cached
            return cached[1]
        except (BadFolder, OSError):
            return ""


def _parsed(path: Path) -> dict[str, Pin]:
    with path.open("rb") as file:
        content = file.read(LOCK_BYTES_MAX + 1)
    data = json.loads(content.decode())
    if len(content) > LOCK_BYTES_MAX or data["version"] != 1:
        raise ValueError
    return {str(name): Pin(**{key: str(value) for key, value in pin.items()}) for name, pin in data["skills"].items()}
