"""The skills that there are: folders with a SKILL.md, found in roots that the operator named and in the workspace.

What ships comes first, then the configured folders, then `<workspace>/skills`; of two with one name the later wins. A
file is parsed when it is new or has changed, else it costs a stat. A broken skill is left out with a log line. Nothing
is installed, fetched or run, and a skill's text gains no authority by being listed.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated
from xml.sax.saxutils import escape

from channels.section import LocalPath, Section, ToolNames
from skills.lock import LOCK, SkillLock
from skills.root import Skill as Skill  # the catalogue is where others look for it
from skills.root import SkillRoot


class SkillsConfig(Section):
    """The top-level `skills:` section."""

    directories: Annotated[ToolNames, LocalPath()] = ()
    """Folders with more skills, one folder each, for every agent; a later one wins over an earlier and over what ships."""
    added_dir: Annotated[str, LocalPath(beside=(LOCK,))] = "./skills.d"
    """The folder of the skills that `clawgate skills add` has added, with `skills.lock` beside it: only what the lock names
    is used, and only as long as it is unchanged. Those of `directories` win over them."""


class AgentSkillsConfig(Section):
    """Inside an agent: which skills it sees."""

    allow: ToolNames = ("*",)
    """Names of skills; `*` means every one there is."""
    deny: ToolNames = ()
    """Names to leave out; wins over `allow`."""


LISTED_MAX = 150
LISTED_CHARS_MAX = 30_000
NAMES_IN_NOTICE_MAX = 20
WORKSPACES_MAX = 256
"""Workspaces whose skills are remembered; those of one more are read again."""


@dataclass
class SkillCatalog:
    """All skills, for any agent. Of `roots` later ones win; `added` is the one with a lock; `platform` is as in
    `sys.platform`. Blocking; thread-safe."""

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
        """The usable skills by name, without the workspace's hidden ones. Raises nothing: an unreadable folder has none."""
        return tuple(skill for skill in self._found(workspace, is_hidden) if not skill.missing)

    def hidden(self, workspace: Path | None = None) -> tuple[Skill, ...]:
        """The skills whose requirements are not met; `missing` says which."""
        return tuple(skill for skill in self._found(workspace) if skill.missing)

    def names(self, workspace: Path | None = None) -> tuple[str, ...]:
        """The names of both, and of added skills that are refused: what a config may mention."""
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
        """The skill with what it lacks today; the same object if it lacks nothing."""
        needs = skill.requires
        missing = [
            *(f"the program {name}" for name in needs.bins if self.which(name) is None),
            *(f"the environment variable {name}" for name in needs.env if not self.env.get(name)),
        ]
        if needs.os and self.platform not in needs.os:
            missing.append(f"the system {' or '.join(needs.os)}")
        return replace(skill, missing=tuple(missing)) if missing else skill


def visible(skills: Sequence[Skill], config: AgentSkillsConfig) -> tuple[Skill, ...]:
    """The skills that the agent may see, in their order. `deny` wins over `allow`."""
    return tuple(skill for skill in skills if sees(config, skill.name))


def sees(config: AgentSkillsConfig, name: str) -> bool:
    return not {"*", name}.isdisjoint(config.allow) and {"*", name}.isdisjoint(config.deny)


def render(skills: Sequence[Skill]) -> str:
    """The catalogue for the prompt, by name. What does not fit is named in a notice below it."""
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
