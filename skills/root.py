"""One folder of skills: its SKILL.md files as they are now, read again only where one has changed.

A file is opened by walking down from the root's descriptor without following links; a link inside the root is resolved
first and must stay inside. So what an agent's commands can change in a workspace leads to nothing outside of it.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

import structlog

from skills.frontmatter import BadSkill, Requirements, SkillHead, read_head

DOCUMENT = "SKILL.md"
DOCUMENT_BYTES_MAX = 262_144
FOLDERS_MAX = 500
SETTLED_NS = 100_000_000
"""A file changed less than this before it was read may change again without a new time stamp: it is read again."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

log = structlog.get_logger()

Source: TypeAlias = Literal["shared", "workspace"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """One skill. `location` is what the prompt prints and `read` accepts; `directory` is where it really lies."""

    name: str
    description: str
    directory: Path
    version: str
    """12 hex digits of the document's hash."""
    source: Source
    """`workspace`: it lies at its location already. `shared`: it has to be mounted there."""
    requires: Requirements = field(default_factory=Requirements)
    missing: tuple[str, ...] = ()
    """Which requirements are not met, in words: "the program git". Empty for a skill that can be used."""

    @property
    def location(self) -> str:
        return f"./skills/{self.name}/SKILL.md"


_Stamp: TypeAlias = tuple[int, int, int]
"""When it was changed, its size, its inode."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Document:
    """A SKILL.md as it was read. `head` is None for one that cannot be used."""

    stamp: _Stamp
    settled: bool
    directory: Path
    head: SkillHead | None = None
    version: str = ""


class SkillRoot:
    """`path` is a folder of skills, or for the source `workspace` the workspace whose `skills` folder it is."""

    def __init__(self, path: Path, source: Source, *, now_ns: Callable[[], int]) -> None:
        self._path = path
        self._source: Source = source
        self._now_ns = now_ns
        self._known: dict[str, _Document] = {}
        self._logged: set[str] = set()

    def skills(self) -> list[Skill]:
        """The usable skills, no two of one name. Raises nothing."""
        try:
            root = self._open()
            try:
                found = {folder: self._current(root, folder) for folder in self._folders(root)}
            finally:
                os.close(root)
        except OSError:
            found = {}
        self._known = {folder: document for folder, document in found.items() if document is not None}
        return list(self._named())

    def _open(self) -> int:
        if self._source == "shared":
            return os.open(self._path, _FOLDER)
        workspace = os.open(self._path, _FOLDER)
        try:
            return os.open("skills", _FOLDER | os.O_NOFOLLOW, dir_fd=workspace)
        finally:
            os.close(workspace)

    def _folders(self, root: int) -> list[str]:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.name[0] not in "._" and not entry.is_file())
        if len(names) > FOLDERS_MAX:
            self._log_once("skills_left_out", folder=str(self._path), count=len(names) - FOLDERS_MAX)
        return names[:FOLDERS_MAX]

    def _current(self, root: int, folder: str) -> _Document | None:
        try:
            stamp = _stamp(os.stat(f"{folder}/{DOCUMENT}", dir_fd=root))
        except OSError:
            return None  # not every folder is a skill
        known = self._known.get(folder)
        if known is None or known.stamp != stamp or not known.settled:
            known = self._read(root, folder, stamp)
        return known

    def _read(self, root: int, folder: str, stamp: _Stamp) -> _Document:
        settled = stamp[0] + SETTLED_NS < self._now_ns()
        top = Path(os.path.realpath(self._path if self._source == "shared" else self._path / "skills"))
        directory = Path(os.path.realpath(top / folder))
        try:
            content = _content(root, top, directory)
            head = read_head(_text(content))
        except (BadSkill, OSError) as error:
            reason = str(error) if isinstance(error, BadSkill) else "it cannot be read"
            self._log_once("skill_skipped", folder=str(top / folder), reason=reason)
            return _Document(stamp=stamp, settled=settled, directory=directory)
        version = hashlib.sha256(content).hexdigest()[:12]
        return _Document(stamp=stamp, settled=settled, directory=directory, head=head, version=version)

    def _named(self) -> Iterator[Skill]:
        taken: set[str] = set()
        for folder, document in self._known.items():
            if document.head is None:
                continue
            name = self._name(folder, document.head)
            if name is None or name in taken:
                reason = "its name is not made of a-z, 0-9, - and _" if name is None else f"there are two named {name}"
                self._log_once("skill_skipped", folder=str(self._path / folder), reason=reason)
                continue
            taken.add(name)
            yield Skill(
                name=name,
                description=document.head.description,
                directory=document.directory,
                version=document.version,
                source=self._source,
                requires=document.head.requires,
            )

    def _name(self, folder: str, head: SkillHead) -> str | None:
        """The name as written where it is sound and free. In a workspace the folder's: there a skill is read in place."""
        own = folder if _NAME.fullmatch(folder) else None
        if self._source == "workspace" or head.name is None or not _NAME.fullmatch(head.name):
            return own
        other = head.name != folder and head.name in self._known
        return own if other else head.name

    def _log_once(self, event: str, **facts: str | int) -> None:
        """Log it, once."""
        key = repr((event, facts))
        if key not in self._logged:
            self._logged.add(key)
            log.warning(event, **facts)


def _content(root: int, top: Path, directory: Path) -> bytes:
    """The document's bytes. Raises BadSkill, OSError."""
    document = Path(os.path.realpath(directory / DOCUMENT))
    if not directory.is_relative_to(top) or not document.is_relative_to(directory):
        raise BadSkill("a link leads out of the folder; name the folder it leads to in skills.directories")
    fd = _opened(root, document.relative_to(top).parts)
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
            raise BadSkill("SKILL.md is not an ordinary file under one name")
        content = file.read(DOCUMENT_BYTES_MAX + 1)
    if len(content) > DOCUMENT_BYTES_MAX:
        raise BadSkill(f"SKILL.md is larger than {DOCUMENT_BYTES_MAX // 1024} KiB")
    return content


def _opened(root: int, parts: tuple[str, ...]) -> int:
    """Walk down, one step at a time, never through a link. Raises OSError."""
    current = os.dup(root)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(parts[-1], _FILE, dir_fd=current)
    finally:
        os.close(current)


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise BadSkill("SKILL.md is not UTF-8") from None


def _stamp(status: os.stat_result) -> _Stamp:
    return status.st_mtime_ns, status.st_size, status.st_ino
