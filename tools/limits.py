"""Limits of what a command may use of this machine: the kernel keeps some, and watchers the others.

A part of the supervisor (`tools.supervisor`): it imports nothing but what every interpreter has. A watcher is a thread
that writes a letter to STATUS when there is too much.
"""

import fcntl
import os
import resource
import sys
import time
from contextlib import suppress

FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_MAX = 256
PROCESSES_MAX = 128
WRAPPERS_MAX = 8
"""More than any sandbox has."""
MEMORY_BYTES_MAX = 2 * 1024**3
"""The memory that a process writes to, not its address space: runtimes reserve far more of that than they use."""
CPU_SECONDS_EXTRA = 10
LOOK_SECONDS = 0.1
"""Seconds from one look at what the command has written to the next; its end waits no longer for a last look."""
LOOK_SHARE = 0.1
"""The largest share of the time that goes into looking, so a large workspace is looked at less often; a background
command's supervisor, after a minute, looks a tenth as often. What must stay free on the disk is looked at as before."""
LONG_SECONDS = 60
QUICK_ENTRIES_MAX = 10_000
"""The most files and folders that are counted before a command begins: 40 ms."""
ENTRY_BYTES = 4096
"""Bytes that a file counts on top of its content, so that empty ones have an end, too."""


def above(fd: int) -> int:
    """A copy of the descriptor, out of the shell's way, and not for the command."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(fd)


def limit(seconds: int, file_bytes: int, *, processes: int) -> None:
    """Limits this process and those it starts; `processes` 0 leaves their number alone."""
    for what, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CPU, seconds + CPU_SECONDS_EXTRA),
        (resource.RLIMIT_DATA, MEMORY_BYTES_MAX),
        (resource.RLIMIT_NPROC, processes),
    ):
        if what != resource.RLIMIT_NPROC or processes:
            hard = resource.getrlimit(what)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(what, (most, most))


def threads_of(uid: int) -> int:
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - pathlib would double the start-up time
        with suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:  # noqa: PTH116 - as above
                total += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - as above
    return total


class Written:
    """Watches what the command adds to the workspace, which is the working folder, and to its own temporary one."""

    def __init__(self, folders: tuple[str, ...], bytes_max: int) -> None:
        """Runs before the command begins; a large workspace is first looked at by `watch`."""
        self._folders = folders
        self._bytes_max = bytes_max
        self._seconds = 0.0
        self._at_start = stored_bytes(folders, entries_max=QUICK_ENTRIES_MAX)

    def watch(self, status: int) -> None:
        long = time.monotonic() + LONG_SECONDS
        while not self._exceeded():
            share = LOOK_SHARE if time.monotonic() < long else LOOK_SHARE / 10
            time.sleep(max(LOOK_SECONDS, self._seconds * (1 / share - 1)))
        os.write(status, b"W")

    def look_again(self, status: int) -> None:
        """Looks a last time, if that is quick."""
        if self._at_start is not None and self._seconds < LOOK_SECONDS and self._exceeded():
            os.write(status, b"W")

    def _exceeded(self) -> bool:
        began = time.monotonic()
        stored = stored_bytes(self._folders, entries_max=sys.maxsize) or 0
        self._seconds = time.monotonic() - began
        if self._at_start is None:
            self._at_start = stored
        return stored - self._at_start > self._bytes_max


def stored_bytes(folders: tuple[str, ...], *, entries_max: int) -> int | None:
    """Bytes on the disk below these folders; None beyond `entries_max`. A file of several names counts once."""
    total, entries_left, pending = 0, entries_max, list(folders)
    while pending:
        if entries_left < 0:
            return None
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                entries_left -= 1
                with suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    total += ENTRY_BYTES
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                    else:
                        total += found.st_blocks * 512 // max(1, found.st_nlink)
    return total


def watch_numbers(status: int) -> None:
    """Watches the number of processes and the memory of all: the kernel limits one process, or all that a user runs."""
    while len(below := descendants(os.getpid())) <= PROCESSES_MAX + WRAPPERS_MAX:
        # By `statm` it is too much, since what is shared counts for each; by `smaps_rollup` it is exact, and slow.
        if held_bytes(below, "statm") > MEMORY_BYTES_MAX and held_bytes(below, "smaps_rollup") > MEMORY_BYTES_MAX:
            os.write(status, b"M")
            return
        time.sleep(LOOK_SECONDS)
    os.write(status, b"N")


def held_bytes(pids: list[int], file: str) -> int:
    total = 0
    for pid in pids:
        with suppress(OSError), open(f"/proc/{pid}/{file}", encoding="ascii") as lines:  # noqa: PTH123 - as above
            if file == "statm":
                total += int(lines.read().split()[1]) * resource.getpagesize()
            else:
                total += sum(int(it.split()[1]) * 1024 for it in lines if it.startswith("Pss:"))
    return total


def watch_free(bytes_min: int, status: int) -> None:
    """Bytes on the workspace's disk."""
    while free_bytes() >= bytes_min:
        time.sleep(LOOK_SECONDS / 4)
    os.write(status, b"F")


def free_bytes() -> int:
    disk = os.statvfs(".")
    return disk.f_bavail * disk.f_frsize


def descendants(pid: int) -> list[int]:
    pids = children(pid)
    for child in pids:  # which grows meanwhile
        pids += children(child)
    return pids


def children(pid: int) -> list[int]:
    pids: list[int] = []
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - as above
            with suppress(OSError), open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:  # noqa: PTH123
                pids += map(int, file.read().split())
    return pids
