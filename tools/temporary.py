"""Half-written files: named so that they can be told, locked while their writer lives, removed when it does not.

A process that is killed in the middle of a write leaves its temporary file behind. Nothing but the lock, which falls
with the process, says whether somebody still writes it: ages and process ids do not, where replicas share a folder.
"""

import fcntl
import os
import secrets
from contextlib import suppress

PREFIX = ".clawgate-"


def new_temporary(folder: int) -> tuple[str, int]:
    """The name of a new, empty, locked file in `folder`, and its descriptor for writing."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        name = f"{PREFIX}{secrets.token_hex(8)}"
        fd = os.open(name, flags, 0o600, dir_fd=folder)
        if _locked(fd) and _is(name, folder, fd):
            return name, fd
        os.close(fd)  # somebody swept between the two steps


def sweep(folder: int) -> None:
    """Remove what dead writers left in `folder`: our own earlier lives, and other replicas."""
    for name in os.listdir(folder):
        if name.startswith(PREFIX):
            with suppress(OSError):
                _remove(name, folder)


def _remove(name: str, folder: int) -> None:
    fd = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if _locked(fd) and _is(name, folder, fd):
            os.unlink(name, dir_fd=folder)
    finally:
        os.close(fd)


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(name: str, folder: int, fd: int) -> bool:
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_ino == os.fstat(fd).st_ino
    return False
