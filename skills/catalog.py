"""The catalogue of skills: folders with a SKILL.md, in roots that the operator named and in the workspace.

Shipped skills are first, then the configured folders, then `<workspace>/skills`; the later of two with one name wins. A
file is parsed when it is new or has changed; otherwise it costs a stat. A broken skill is left out with a log line.
Nothing is installed, fetched or run, and a skill's text gains no authority by being listed. Files are opened by walking
down from the root's descriptor without following links; a link inside the root is resolved first and must stay inside.
So what an agent's commands can change in a workspace leads nowhere outside it.
"""

import hashlib
import os
import re
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Literal, TypeAlias
from xml.sax.saxutils import escape

import structlog

from channels.section import LocalPath, Section, ToolNames
from skills.frontmatter import BadSkill, Requirements, read_head
from skills.lock import LOCK, SETTLED_NS, SkillLock

log = structlog.get_logger()


DOCUMENT = "SKILL.md"
DOCUMENT_BYTES_MAX = 262_144
FOLDERS_MAX = 500

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


RootKind: TypeAlias = Literal["shared", "workspace"]


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """One skill. `location` is what the prompt prints and `read` accepts; `directory` is its real path."""

    name: str
    description: str
    directory: Path
    version: str
    """12 hex digits of the document's hash."""
    source: RootKind
    """`workspace`: it is at its location already. `shared`: it must be mounted there."""
    requires: Requirements = field(default_factory=Requirements)
    missing: tuple[str, ...] = ()
    """Unmet requirements, such as "the program git". Empty for a usable skill."""

    @property
    def location(self) -> str:
        return f"./skills/{self.name}/SKILL.md"


_CachedSkill: TypeAlias = tuple[tuple[int, int, int] | None, Skill | None]
"""A parsed SKILL.md, under the name written in it; None if it is unusable. Its stamp is its mtime, size and inode; None
if the file may change without a new stamp."""


@dataclass
class SkillRoot:
    """`path` is a folder of skills, or for the source `workspace` the workspace with its `skills` folder. With a
    `lock`, only pinned skills are used, as long as they are unchanged."""

    path: Path
    source: RootKind
    now_ns: Callable[[], int]
    lock: SkillLock | None = None
    _known: dict[str, _CachedSkill] = field(default_factory=dict)
    _logged: set[str] = field(default_factory=set)

    def skills(self) -> list[Skill]:
        """Return the usable skills, with unique names. Raises nothing."""
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
        own = folder if _NAME.fullmatch(folder) else None
        if self.source == "workspace" or not _NAME.fullmatch(written):  # skills of a workspace are read in place
            return own
        return own if written != folder and written in self._known else written

    def _log_once(self, event: str, **facts: str | int) -> None:
        if (key := repr(facts)) not in self._logged:
            self._logged.add(key)
            log.warning(event, **facts)


def _content(root: int, top: Path, directory: Path) -> bytes:
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


def _is_shipped(fd: int) -> bool:  # an installer may hard-link it from its cache
    with suppress(OSError):
        return Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(Path(__file__).resolve().parent)
    return False


def _opened(root: int, parts: tuple[str, ...]) -> int:
    current = os.dup(root)
    try:
        for part in parts[:-1]:
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(parts[-1], _FILE, dir_fd=current)
    finally:
        os.close(current)


class SkillsConfig(Section):
    """The top-level `skills:` section."""

    directories: Annotated[ToolNames, LocalPath()] = ()
    """Folders with more skills, one folder each, for every agent; a later one wins over earlier ones and over shipped
    skills."""
    added_dir: Annotated[str, LocalPath(beside=(LOCK,))] = "./skills.d"
    """Folder of the skills that `clawgate skills add` has added, next to `skills.lock`: only pinned skills are used,
    and only while they are unchanged. Those of `directories` win over them."""


class AgentSkillsConfig(Section):
    """The skills that an agent sees."""

    allow: ToolNames = ("*",)
    """Names of skills; `*` means all."""
    deny: ToolNames = ()
    """Names to leave out; wins over `allow`."""


LISTED_MAX = 150
LISTED_CHARS_MAX = 30_000
NAMES_IN_NOTICE_MAX = 20
WORKSPACES_MAX = 256
"""Workspaces to cache skills for."""


@dataclass
class SkillCatalog:
    """All skills, for any agent. Later `roots` win; `added` is the one with a lock; `platform` is as in `sys.platform`.
    Blocking; thread-safe."""

    roots: InitVar[Sequence[Path]]
    env: Mapping[str, str]
    which: Callable[[str], str | None]
    platform: str
    now_ns: Callable[[], int] = time.time_ns
    added: Path | None = None

    def __post_init__(self, roots: Sequence[Path]) -> None:
        locks = {self.added: SkillLock(self.added, self.now_ns)} if self.added else {}
        self._shared = [SkillRoot(root, "shared", self.now_ns, locks.get(root)) for root in roots]
        of_workspace = partial(SkillRoot, source="workspace", now_ns=self.now_ns)
        self._of_workspace = lru_cache(maxsize=WORKSPACES_MAX)(of_workspace)
        self._lock = threading.Lock()

    def scan(self, workspace: Path | None = None, is_hidden: Callable[[str], bool] | None = None) -> tuple[Skill, ...]:
        """Return the usable skills by name, without the workspace's hidden ones. Raises nothing: an unreadable folder
        has none."""
        return tuple(skill for skill in self._found(workspace, is_hidden) if not skill.missing)

    def hidden(self, workspace: Path | None = None) -> tuple[Skill, ...]:
        """Return the skills with unmet requirements, which `missing` names."""
        return tuple(skill for skill in self._found(workspace) if skill.missing)

    def names(self, workspace: Path | None = None) -> tuple[str, ...]:
        """Return all names that a config may mention: of both, and of added skills that are refused."""
        found = {skill.name for skill in self._found(workspace)}
        return tuple(sorted(found.union(*(root.lock.known() for root in self._shared if root.lock))))

    def _found(self, workspace: Path | None, is_hidden: Callable[[str], bool] | None = None) -> list[Skill]:
        with self._lock:
            roots = [*self._shared, *([self._of_workspace(workspace)] if workspace else [])]
            there = [skill for root in roots for skill in root.skills()]
        own = (it for it in there if is_hidden is None or it.source == "shared" or not is_hidden(f"skills/{it.name}"))
        skills = {skill.name: skill for skill in own}
        return [self._judged(skills[name]) for name in sorted(skills)]

    def _judged(self, skill: Skill) -> Skill:
        needs = skill.requires
        missing = [
            *(f"the program {name}" for name in needs.bins if self.which(name) is None),
            *(f"the environment variable {name}" for name in needs.env if not self.env.get(name)),
        ]
        if needs.os and self.platform not in needs.os:
            missing.append(f"the system {' or '.join(needs.os)}")
        return replace(skill, missing=tuple(missing)) if missing else skill


def visible(
    skills: Sequence[Skill], config: AgentSkillsConfig, tools: Collection[str] | None = None
) -> tuple[Skill, ...]:
    """Return the skills that the agent may see, in their order, without those that require other `tools`. `deny` wins
    over `allow`."""
    usable = (it for it in skills if tools is None or set(it.requires.tools).issubset(tools))
    return tuple(skill for skill in usable if sees(config, skill.name))


def sees(config: AgentSkillsConfig, name: str) -> bool:
    return not {"*", name}.isdisjoint(config.allow) and {"*", name}.isdisjoint(config.deny)


def render(skills: Sequence[Skill]) -> str:
    """Render the catalogue for the prompt, by name. A notice below it names what does not fit."""
    ordered = sorted(skills, key=lambda skill: skill.name)
    lines: list[str] = []
    left = LISTED_CHARS_MAX
    for skill in ordered[:LISTED_MAX]:
        inner = "".join(f"<{tag}>{escape(getattr(skill, tag), _QUOTES)}</{tag}>" for tag in _TAGS)
        line = f"<skill>{inner}</skill>"
        left -= len(line) + 1
        if left < 0:
            break
        lines.append(line)
    catalogue = "\n".join(("<available_skills>", *lines, "</available_skills>"))
    left_out = [skill.name for skill in ordered[len(lines) :]]
    if not left_out:
        return catalogue
    names = ", ".join(left_out[:NAMES_IN_NOTICE_MAX]) + (", …" if len(left_out) > NAMES_IN_NOTICE_MAX else "")
    return f"{catalogue}\n({len(left_out)} more skills are not listed, for want of room: {names})"


_TAGS = ("name", "description", "location", "version")
_QUOTES = {'"': "&quot;", "'": "&apos;"}
