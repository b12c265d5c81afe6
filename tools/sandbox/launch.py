"""How one command starts: what the sandbox decides, and the supervisor does.

What a command sees is opened here, by descriptors, and nothing of it is looked up by name a second time: who swaps a
folder meanwhile changes nothing.
"""

import marshal
import os
import stat
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.limits import above
from tools.paths import MEMORY_FOLDER, NOT_MADE, open_by_walking, protection
from tools.web.proxy import Proxy
from tools.workspace import NOBODY, Workspace

SCRATCH = "@TMPDIR@"
"""What stands in `argv` for the temporary folder that the supervisor makes for this command alone."""
SKILLS = "skills"
SHOWN_MAX = 150
"""Descriptors of one command: each is a mount, and a process may hold 256."""
_ROOT = str(Path(__file__).parents[2])


@dataclass(kw_only=True)
class Launch:
    """`argv` is what the supervisor executes as `owner` (uid, gid; None is the gateway's own user), `env` all that it knows,
    and `plan` what the supervisor does besides. `pass_fds` are named in both; `close` shuts them once the supervisor has
    them. `proxy` serves it while it runs."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    owner: tuple[int, int] | None
    plan: Mapping[str, Any] = field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()
    proxy: Proxy | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The end of the supervisor's."""
        return marshal.dumps(dict(self.plan)).hex(), *self.argv

    def close(self) -> None:
        for fd in self.pass_fds:
            os.close(fd)
        self.pass_fds = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A file or folder that a command sees at `path`; an empty folder where there is no descriptor."""

    path: str
    fd: int = -1
    is_writable: bool = False


def program(module: str, *options: str) -> tuple[str, ...]:
    """The command line of a program of ours, which gets nothing of our environment: `main` of a module that imports little.
    As a module it is compiled once, and not at each start."""
    start = f"import sys; sys.path.append({_ROOT!r}); from {module} import main; main(sys.argv[1:])"
    return sys.executable, *options, "-c", start


def owner_of(workspace: Workspace) -> tuple[int, int] | None:
    """Whom a command runs as: never root."""
    if os.geteuid() != 0:
        return None
    status = os.fstat(workspace.fd)
    return status.st_uid or NOBODY, status.st_gid or NOBODY


def shown(workspace: Workspace) -> list[Place]:
    """The workspace and the session's uploads. Raises OSError."""
    places = [Place(path=str(workspace.root), fd=_opened(workspace, "."), is_writable=True)]
    if workspace.uploads is not None:
        with suppress(FileNotFoundError):
            fd = above(os.open(workspace.uploads, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            places.append(Place(path=str(workspace.uploads), fd=fd, is_writable=True))
    return places


def skills(workspace: Workspace, hidden: Collection[str] = ()) -> list[Place]:
    """The shared ones, without those that would lie at these paths."""
    places = []
    for name, folder in workspace.mounts.items():
        if name.startswith(f"{SKILLS}/") and f"{workspace.root}/{name}" not in hidden:
            with suppress(OSError):
                fd = above(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                places.append(Place(path=f"{workspace.root}/{name}", fd=fd))
    return places


def protected(workspace: Workspace) -> list[Place]:
    """What is in the workspace and may only be read there, as for the file tools; of `.git` what others would run."""
    places = []
    names = [it for it in _names(workspace, ".") if _is_protected(it, workspace)]
    for name in (*names[:SHOWN_MAX], ".git/hooks", ".git/config"):
        with suppress(OSError):
            fd = _opened(workspace, name)
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                os.close(fd)
            else:
                places.append(Place(path=f"{workspace.root}/{name}", fd=fd))
    return places


def not_made(workspace: Workspace) -> list[str]:
    """Names that a command may not make at the top of the workspace, besides `.env*`."""
    return [it.casefold() for it in NOT_MADE if it not in workspace.writable]


def own_skills(workspace: Workspace) -> list[Place]:
    """Raises OSError where there are none."""
    names = _names(workspace, SKILLS)[:SHOWN_MAX]
    return [Place(path=f"{workspace.root}/{SKILLS}/{it}", fd=_opened(workspace, f"{SKILLS}/{it}")) for it in names]


def _is_protected(name: str, workspace: Workspace) -> bool:
    if name.casefold() in (".git", SKILLS):
        return False
    inner = f"{name}/a.md" if name.casefold() == MEMORY_FOLDER else name
    return protection(inner, workspace.writable) is not None


def _names(workspace: Workspace, folder: str) -> list[str]:
    fd = open_by_walking(workspace.fd, folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(fd) as entries:
            return sorted(it.name for it in entries)
    finally:
        os.close(fd)


def _opened(workspace: Workspace, name: str) -> int:
    return above(open_by_walking(workspace.fd, name, os.O_PATH))
