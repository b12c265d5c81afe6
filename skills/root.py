"""One folder of skills: its SKILL.md files as they are now, read again only if one has changed.

A file is opened by walking down from the root's descriptor without following links; a link inside the root is resolved
first and must stay inside. So what an agent's commands can change in a workspace leads to nothing outside of it.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import structlog

from skills.frontmatter import BadSkill, Requirements, read_head
from skills.lock import SETTLED_NS, SkillLock

DOCUMENT = "SKILL.md"
DOCUMENT_BYTES_MAX = 262_144
FOLDERS_MAX = 500

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

log = structlog.get_logger()

RootKind: TypeAlias = Literal["shared", "workspace"]


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """One skill. `location` is what the prompt prints and `read` accepts; `directory` is where it really lies."""

    name: str
    description: str
    directory: Path
    version: str
    """12 hex digits of the document's hash."""
    source: RootKind
    """`workspace`: it lies at its location already. `shared`: it has to be mounted there."""
    requires: Requirements = field(default_factory=Requirements)
    missing: tuple[str, ...] = ()
    """The requirements that are not met, in words: "the program git". Empty for a skill that can be used."""

    @property
    def location(self) -> str:
        return f"./skills/{self.name}/SKILL.md"


_CachedSkill: TypeAlias = tuple[tuple[int, int, int] | None, Skill | None]
"""A SKILL.md as it was read, under the name that is written in it; None if it cannot be used. Its stamp is when
it was changed, its size and its inode; None if the file may change without another one."""


@dataclass
class SkillRoot:
    """`path` is a folder of skills, or for the source `workspace` the workspace whose `skills` folder it is. With a `lock`,
    only what it pins is used, as long as it is unchanged."""

    path: Path
    source: RootKind
    now_ns: Callable[[], int]
    lock: SkillLock | None = None
    _known: dict[str, _CachedSkill] = field(default_factory=dict)
    _logged: set[str] = field(default_factory=set)

    def skills(self) -> list[Skill]:
        """The usable skills, no two of one name. Raises nothing."""
        try:
            shared = self.source == "shared"
            root = os.open(self.path, _FOLDER) if shared else os.open(self.path / "skills", _FOLDER | os.O_NOFOLLOW)
            try:
                found = {folder: self._current(root, folder) for folder in self._folders(root)}
            finally:
                os.close(root)
        except OSError:
            found = {}
        self._known = {folder: document for folder, document in found.items() if document is not None}
        return list(self._named())

    def _folders(self, root: int) -> list[str]:
        with os.scandir(root) as entries:
            names = sorted(entry.name for entry in entries if entry.name[0] not in "._" and not entry.is_file())
        if len(names) > FOLDERS_MAX:
            self._log_once("skills_left_out", folder=str(self.path), count=len(names) - FOLDERS_MAX)
        refusals = self.lock.refusals(names) if self.lock else {}
        for name, reason in refusals.items():
            self._log_once("skill_refused", folder=str(self.path / name), reason=reason, fix="`doctor` says what to do")
        return [name for name in names[:FOLDERS_MAX] if name not in refusals]

    def _current(self, root: int, folder: str) -> _CachedSkill | None:
        try:
            status = os.stat(f"{folder}/{DOCUMENT}", dir_fd=root)
        except OSError:
            return None  # not every folder is a skill
        stamp = status.st_mtime_ns, status.st_size, status.st_ino
        cached = self._known.get(folder)
        if cached is None or cached[0] != stamp:
            settled = stamp[0] + SETTLED_NS < self.now_ns()
            read = self._read(root, folder)
            cached = stamp if settled else None, read or (cached[1] if cached else None)
        return cached

    def _read(self, root: int, folder: str) -> Skill | None:
        top = Path(os.path.realpath(self.path if self.source == "shared" else self.path / "skills"))
        directory = Path(os.path.realpath(top / folder))
        try:
            content = _content(root, top, directory)
            head = read_head(content.decode())
        except (BadSkill, OSError, UnicodeDecodeError) as error:
            reasons = {BadSkill: str(error), UnicodeDecodeError: "SKILL.md is not UTF-8"}
            reason = reasons.get(type(error), "it cannot be read")
            self._log_once("skill_skipped", folder=str(top / folder), reason=reason)
            return None
        return Skill(
            name=head.name or "",
            description=head.description,
            directory=directory,
            version=hashlib.sha256(content).hexdigest()[:12],
            source=self.source,
            requires=head.requires,
        )

    def _named(self) -> Iterator[Skill]:
        taken: set[str] = set()
        for folder, (_, skill) in self._known.items():
            if skill is None:
                continue
            name = self._name(folder, skill.name)
            if name is None or name in taken:
                reason = "its name is not made of a-z, 0-9, - and _" if name is None else f"there are two named {name}"
                self._log_once("skill_skipped", folder=str(self.path / folder), reason=reason)
                continue
            taken.add(name)
            yield skill if skill.name == name else replace(skill, name=name)

    def _name(self, folder: str, written: str) -> str | None:
        """The name as written if it is sound and free. In a workspace the folder's: there a skill is read in place."""
        own = folder if _NAME.fullmatch(folder) else None
        if self.source == "workspace" or not _NAME.fullmatch(written):
            return own
        return own if written != folder and written in self._known else written

    def _log_once(self, event: str, **facts: str | int) -> None:
        if (key := repr(facts)) not in self._logged:
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
        if not stat.S_ISREG(status.st_mode) or (status.st_nlink != 1 and not _is_shipped(fd)):
            raise BadSkill("SKILL.md is not an ordinary file under one name")
        content = file.read(DOCUMENT_BYTES_MAX + 1)
    if len(content) > DOCUMENT_BYTES_MAX:
        raise BadSkill(f"SKILL.md is larger than {DOCUMENT_BYTES_MAX // 1024} KiB")
    return content


def _is_shipped(fd: int) -> bool:
    """The file was opened where our own skills lie. An installer may keep a second name of it in its cache."""
    with suppress(OSError):
        return Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(Path(__file__).resolve().parent)
    return False


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
