"""The start of one command: the sandbox decides it, and the supervisor carries it out.

All that a command sees is opened here, as descriptors, and is not looked up by name again: swapping a folder meanwhile
changes nothing.
"""

import asyncio
import marshal
import os
import stat
import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tools.limits import above
from tools.paths import FORBIDDEN_NAMES, MEMORY, MEMORY_FOLDER, names_in, open_by_walking, protection
from tools.supervisor import allowed
from tools.tool import Copy
from tools.web.proxy import Proxy
from tools.workspace import NOBODY, Workspace

SCRATCH = "@TMPDIR@"
"""Placeholder in `argv` for the temporary folder that the supervisor makes for this command."""
SKILLS = "skills"
SHOWN_MAX = 150
"""Maximum descriptors of one command: each is a mount, and a process may hold 256."""
_PIECE_BYTES = 1 << 18
_ROOT = str(Path(__file__).parents[2])


@dataclass(kw_only=True)
class Launch:
    """`argv` is what the supervisor executes as `owner` (uid, gid; None for the gateway's user), `env` its whole
    environment, and `plan` what the supervisor does around it. `argv` and `plan` name `pass_fds`; `close` closes them
    once the supervisor has them."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    owner: tuple[int, int] | None
    plan: Mapping[str, Any] = field(default_factory=dict)
    pass_fds: tuple[int, ...] = ()
    proxy: Proxy | None = None

    @property
    def arguments(self) -> tuple[str, ...]:
        """The last arguments of the supervisor."""
        return marshal.dumps(dict(self.plan)).hex(), *self.argv

    def hold(self, copies: Sequence[Copy]) -> None:
        """Hand these files to the supervisor, as they were read. Raises OSError."""
        held = []
        for copy in copies:
            fd = above(os.memfd_create("approved", os.MFD_CLOEXEC))
            self.pass_fds += (fd,)
            os.truncate(fd, len(copy.content))
            os.pwrite(fd, copy.content, 0)
            held.append((copy.name, copy.link, fd, copy.rights))
        self.plan = {**self.plan, "held": held}

    def close(self) -> None:
        for fd in self.pass_fds:
            os.close(fd)
        self.pass_fds = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SandboxPath:
    """A file or folder that a command sees at `path`; an empty folder without a descriptor."""

    path: str
    fd: int = -1
    is_writable: bool = False


def program(module: str, *options: str) -> tuple[str, ...]:
    """Build the command line that runs `main` of a module with few imports. Imported as a module, it is compiled only
    once."""
    start = f"import sys; sys.path.append({_ROOT!r}); from {module} import main; main(sys.argv[1:])"
    return sys.executable, *options, "-c", start


async def output_of(words: Sequence[str], given: IO[bytes] | int, *, seconds: float, bytes_max: int) -> bytes:
    """Run a program that reads an open file, and return its output; its exit code is ignored. The program ends with the
    turn. Raises TimeoutError, and ValueError if it writes more than `bytes_max`."""
    process = await asyncio.create_subprocess_exec(
        *words, stdin=given, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, env={}, cwd="/"
    )
    try:
        assert process.stdout is not None
        output = bytearray()
        async with asyncio.timeout(seconds):
            while piece := await process.stdout.read(_PIECE_BYTES):
                output += piece
                if len(output) > bytes_max:  # it is no longer our program that writes
                    raise ValueError
            await process.wait()
        return bytes(output)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def owner_of(workspace: Workspace) -> tuple[int, int] | None:
    """Return the user and group that a command runs as, never root; None for the gateway's own."""
    if os.geteuid() != 0:
        return None
    status = os.fstat(workspace.fd)
    return status.st_uid or NOBODY, status.st_gid or NOBODY


def shown(workspace: Workspace) -> list[SandboxPath]:
    """Open the workspace and the session's uploads. Raises OSError."""
    places = [SandboxPath(path=str(workspace.root), fd=_opened(workspace, "."), is_writable=True)]
    if workspace.uploads is not None:
        with suppress(FileNotFoundError):
            fd = above(os.open(workspace.uploads, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC))
            places.append(SandboxPath(path=str(workspace.uploads), fd=fd, is_writable=True))
    return places


def skills(workspace: Workspace, hidden: Collection[str] = ()) -> list[SandboxPath]:
    """Open the shared skills, except those at `hidden` paths."""
    places = []
    for name, folder in workspace.mounts.items():
        if name.startswith(f"{SKILLS}/") and f"{workspace.root}/{name}" not in hidden:
            with suppress(OSError):
                fd = above(os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
                places.append(SandboxPath(path=f"{workspace.root}/{name}", fd=fd))
    return places


def readable_places(paths: Sequence[Path]) -> list[SandboxPath]:
    """Open files and folders outside the workspace, at their own paths. Missing ones are left out."""
    places = []
    for path in paths:
        with suppress(OSError):
            places.append(SandboxPath(path=str(path), fd=above(os.open(path, os.O_PATH | os.O_CLOEXEC))))
    return places


def protected(workspace: Workspace) -> list[SandboxPath]:
    """Open what is read-only in the workspace, as for the file tools; of `.git`, what others would run."""
    places = []
    names = [it for it in names_in(workspace.fd, ".") if _is_protected(it, workspace) and not workspace.hides(it)]
    of_git = (".git/hooks", ".git/config") if may(workspace, ".git", 1) else ()
    for name in (*names[:SHOWN_MAX], *of_git):
        with suppress(OSError):
            fd = _opened(workspace, name)
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                os.close(fd)
            else:
                places.append(SandboxPath(path=f"{workspace.root}/{name}", fd=fd))
    return places


def hidden(workspace: Workspace) -> tuple[list[str], list[SandboxPath]]:
    """Return the files and folders in the workspace that this session does not see. Links are left out: a command that
    follows one to a hidden name finds nothing. Raises OSError."""
    names = [it for it in names_in(workspace.fd, ".") if workspace.hides(it)]
    modes = {it: os.stat(it, dir_fd=workspace.fd, follow_symlinks=False).st_mode for it in names}
    files = [f"{workspace.root}/{it}" for it, mode in modes.items() if not (stat.S_ISDIR(mode) or stat.S_ISLNK(mode))]
    return files, [SandboxPath(path=f"{workspace.root}/{it}") for it, mode in modes.items() if stat.S_ISDIR(mode)]


def may(workspace: Workspace, name: str, rights: int) -> bool:
    """Return whether the command's user has these rights there, by the mode: 4 to read, 1 to enter."""
    try:
        fd = _opened(workspace, name)
    except OSError:
        return False
    status, owner = os.fstat(fd), owner_of(workspace) or (-1, -1)
    os.close(fd)
    return allowed(status.st_mode, status.st_uid, status.st_gid, *owner) & rights == rights


def forbidden_names(workspace: Workspace) -> list[str]:
    """Return the names that a command may not make at the top of the workspace, besides `.env*`."""
    memory = () if MEMORY in workspace.writable else (MEMORY, MEMORY_FOLDER)
    return [it.casefold() for it in (*FORBIDDEN_NAMES, *memory) if it not in workspace.writable]


def own_skills(workspace: Workspace) -> list[SandboxPath]:
    """Open the workspace's own skills. Raises OSError without any."""
    names = names_in(workspace.fd, SKILLS)[:SHOWN_MAX]
    return [
        SandboxPath(path=f"{workspace.root}/{SKILLS}/{it}", fd=_opened(workspace, f"{SKILLS}/{it}")) for it in names
    ]


def _is_protected(name: str, workspace: Workspace) -> bool:
    if name.casefold() in (".git", SKILLS):
        return False
    inner = f"{name}/a.md" if name.casefold() == MEMORY_FOLDER else name
    return protection(inner, workspace.writable) is not None


def _opened(workspace: Workspace, name: str) -> int:
    return above(open_by_walking(workspace.fd, name, os.O_PATH))
