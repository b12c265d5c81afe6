"""Paths: which of them a model may name, and how they are opened, always below a directory descriptor.

`openat2` with RESOLVE_BENEATH rejects a path that leaves the directory, even one that is swapped meanwhile: the kernel
decides, not a comparison of strings. Without that call, the path is walked component by component and no link is
followed.
"""

import ctypes
import errno
import os
import unicodedata
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Final, get_args

from tools.config import InstructionFile
from tools.tool import ToolError

PATH_BYTES_MAX = 4_096
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
INSTRUCTION_FILES: tuple[str, ...] = get_args(InstructionFile)
"""Files at the top of a workspace that are part of the system prompt: they belong to the operator."""
MEMORY = "MEMORY.md"
MEMORY_FOLDER = "memory"
"""The agent's memory, together with that file: one `.md` file for each day or subject."""
PRIVATE = ("USER.md", MEMORY)
"""Files about one user, as the memory folder is: sessions with other readers cannot read them."""
_RUN_BY_OTHERS = [
    ".gitmodules",
    ".ssh",
    *(f".{shell}rc" for shell in ("bash", "zsh", "ksh", "mksh", "csh", "tcsh", "input")),
    *(
        f".{name}"
        for name in ("bash_profile", "bash_login", "bash_logout", "bash_aliases", "profile", "login", "logout")
    ),
    *(f".z{name}" for name in ("shenv", "profile", "login", "logout")),
]
FORBIDDEN_NAMES = (*INSTRUCTION_FILES, *_RUN_BY_OTHERS)
"""Names that no command may make at the top of a workspace, besides `.env*`. It may make a `.git`, without hooks and
config."""


def relative(path: str, root: str) -> str:
    """Return the path below the workspace; `.` for the workspace itself. Absolute paths must be in the workspace.
    Nothing is expanded: `$` is an ordinary character, and a leading `~` is rejected as a mistake. Raises ToolError."""
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise ToolError("INVALID_ARGUMENT", "the path holds half a character") from None
    if "\0" in path or size > PATH_BYTES_MAX or not path.strip():
        raise ToolError("INVALID_ARGUMENT", "that is not a usable path")
    if path.startswith("~"):
        raise ToolError("INVALID_ARGUMENT", "`~` is not expanded; use a path relative to the workspace")
    if path.startswith("/"):
        inside = os.path.normpath(path)
        if inside != root and not inside.startswith(root.rstrip("/") + "/"):
            raise not_found(path)
        path = os.path.relpath(inside, root)
    parts: list[str] = []
    for part in PurePosixPath(path).parts:
        if part != "..":
            parts.append(part)
        elif not parts:
            raise not_found(path)
        else:
            parts.pop()
    return "/".join(parts) or "."


def protection(path: str, writable: Collection[str] = ()) -> str | None:
    """Return why tools may not write there: the gateway reads it, or others would run it. None if they may. Instruction
    files and memory in `writable` are open."""
    parts = [_plain(part) for part in PurePosixPath(path).parts]
    for name in INSTRUCTION_FILES:
        if parts[:1] == [_plain(name)] and name not in writable:
            return (
                f"{name} is part of your instructions, which only the operator changes: by hand, or after opening it to "
                f"tools with tools.files.writable: [{name}]. Say so to the user; what you want to remember goes into "
                "MEMORY.md"
            )
    if MEMORY not in writable and is_memory(parts):
        return (
            f"{path!r} is the memory that all who talk to this agent share: it is written in a direct chat with an owner of "
            "the bot (`owners` in the config). Say so to the user; what they want to keep for themselves "
            "they send as /remember TEXT"
        )
    if parts[:1] == ["skills"] or any(it in (".git", *_RUN_BY_OTHERS) or it.startswith(".env") for it in parts):
        return f"{path!r} is protected: tools do not write there"
    return None


def is_memory(parts: Sequence[str]) -> bool:
    """Return whether a split path in a workspace is one of the agent's memory files."""
    *folders, name = map(_plain, parts or ["."])
    return (not folders and name == _plain(MEMORY)) or (folders == [MEMORY_FOLDER] and name.endswith(".md"))


def is_private(parts: Sequence[str]) -> bool:
    """Return whether a split path in a workspace is a private file, or in the memory folder."""
    return _plain(parts[0]) in map(_plain, (*PRIVATE, MEMORY_FOLDER))


def _plain(part: str) -> str:
    """Normalize a name as the most lenient file system compares it."""
    return unicodedata.normalize("NFKC", part).casefold().rstrip(". ")


def called(path: str) -> str:
    """Return the path as messages quote it: one outside the workspace only by its last part, since others read
    along."""
    if path.startswith("/") or ".." in path.split("/"):
        path = path.rstrip("/").rpartition("/")[2]
    return path if len(path) <= 200 else path[:200] + "…"


def not_found(path: str) -> ToolError:
    """Return one error for a missing path and for one outside the workspace, so that neither reveals the other."""
    return ToolError("NOT_FOUND", f"there is no {called(path)!r} in the workspace; `ls` shows what there is")


def explained(error: OSError, path: str) -> ToolError:
    """Convert an OSError to the error for the model."""
    if error.errno in _NO_SPACE:
        return ToolError("NO_SPACE", "there is no space left for that")
    if error.errno == errno.ENAMETOOLONG:
        return ToolError("INVALID_ARGUMENT", "the name is too long")
    return not_found(path)


_SYS_OPENAT2: Final = 437
_NO_MAGICLINKS: Final = 0x02
_BENEATH: Final = 0x08
_RETRIES_MAX: Final = 32
"""openat2 fails with EAGAIN when a rename happens meanwhile."""

_libc = ctypes.CDLL(None, use_errno=True)


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: int, path: str, flags: int, mode: int = 0) -> int:
    """Open `path`, relative to the directory descriptor `root`. Raises OSError."""
    try:
        return _openat2(root, path, flags, mode)
    except OSError as error:
        if error.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return open_by_walking(root, path, flags, mode)


def open_in(folder: Path, name: str, flags: int) -> tuple[int, int]:
    """Open `name` below a folder; return the descriptor and the folder's device. Raises OSError."""
    root = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(root, name or ".", flags), os.fstat(root).st_dev
    finally:
        os.close(root)


def _openat2(root: int, path: str, flags: int, mode: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, mode, _BENEATH | _NO_MAGICLINKS)
    for _ in range(_RETRIES_MAX):
        fd = _libc.syscall(_SYS_OPENAT2, root, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
        if fd >= 0:
            return int(fd)
        code = ctypes.get_errno()
        if code != errno.EAGAIN:
            raise OSError(code, os.strerror(code))
    raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def open_by_walking(root: int, path: str, flags: int, mode: int = 0) -> int:
    """Open without openat2: no link is followed anywhere, `..` is refused. Raises OSError."""
    *folders, name = [part for part in path.split("/") if part not in ("", ".")] or ["."]
    if ".." in (*folders, name):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
    current = os.dup(root)
    try:
        for folder in folders:
            inner = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=current)
            os.close(current)
            current = inner
        return os.open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, mode, dir_fd=current)
    finally:
        os.close(current)


def names_in(root: int, folder: str) -> list[str]:
    """Return the sorted names in a folder below `root`. Follows no link. Raises OSError."""
    fd = open_by_walking(root, folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(fd) as entries:
            return sorted(it.name for it in entries)
    finally:
        os.close(fd)
