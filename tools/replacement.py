"""A file that takes the place of another at once: a crash leaves the old one or the new one.

It is written under a temporary name in the same folder, with a lock, and then renamed. A killed process leaves its
temporary file behind, and only the lock, which falls with the process, says whether it is still being written: ages and
process ids do not if replicas share a folder.
"""

import fcntl
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tools.paths import called, not_found
from tools.tool import ToolError

PREFIX = ".clawgate-"
"""The beginning of the temporary names."""


def replace_file(
    folder: int, name: str, data: bytes, *, path: str, expected: os.stat_result | None, give: Callable[[int], None]
) -> None:
    """Make `data` what `name` holds; `path` is what a model calls it, and `give` says who owns the new file. With
    `expected` only if the file is still what it was then. Raises ToolError and OSError."""
    mode = _mode(folder, name, path)
    with replacing(folder, name) as fd:
        with open(fd, "wb", closefd=False) as file:
            file.write(data)
        give(fd)
        os.fchmod(fd, mode)
        os.fsync(fd)
        if expected is not None and not _is_unchanged(folder, name, expected):
            raise ToolError("CHANGED", f"{called(path)!r} changed while it was edited; read it again", retryable=True)
    os.close(fd)
    os.fsync(folder)


def _mode(folder: int, name: str, path: str) -> int:
    """The mode to keep. A link, a folder or a file with other names is not replaced."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    if stat.S_ISDIR(status.st_mode):
        raise ToolError("IS_A_FOLDER", f"{called(path)!r} is a folder")
    if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1:
        raise not_found(path)
    return stat.S_IMODE(status.st_mode) & 0o777  # set-uid was given to what the file was, not to what it becomes


def _is_unchanged(folder: int, name: str, then: os.stat_result) -> bool:
    with suppress(OSError):
        now = os.stat(name, dir_fd=folder, follow_symlinks=False)
        return (now.st_ino, now.st_mtime_ns, now.st_size) == (then.st_ino, then.st_mtime_ns, then.st_size)
    return False


def new_temporary(folder: int) -> tuple[str, int]:
    """The name of a new, empty, locked file in `folder`, and its descriptor for writing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f"{PREFIX}{secrets.token_hex(8)}"
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        if _locked(fd) and _is(name, folder, fd):
            return name, fd
        os.close(fd)  # another process swept between the two steps


def sweep(folder: int) -> None:
    """Remove what dead writers left in `folder`: our own earlier lives, and other replicas."""
    for name in os.listdir(folder):
        if name.startswith(PREFIX):
            with suppress(OSError):
                fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
                try:
                    if _locked(fd) and _is(name, folder, fd):
                        os.unlink(name, dir_fd=folder)
                finally:
                    os.close(fd)


@contextmanager
def replacing(folder: int, name: str) -> Iterator[int]:
    """A descriptor for what is to be `name`: it gets that name once it is written, and stays open and locked."""
    sweep(folder)
    temporary, fd = new_temporary(folder)
    try:
        yield fd
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        os.close(fd)
        raise


def _locked(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def is_locked(fd: int) -> bool:
    """True if a process of any replica still writes it. The caller lets it go by closing it."""
    return not _locked(fd, fcntl.LOCK_SH)


def _is(name: str, folder: int, fd: int) -> bool:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == os.fstat(fd).st_ino
    return False
