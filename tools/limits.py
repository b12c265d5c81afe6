"""Resource limits of a command: the kernel enforces some, watcher threads the others.

Part of the supervisor (`tools.supervisor`), so it imports only the standard library. A watcher writes a letter to
STATUS when a limit is exceeded.
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
"""More wrapper processes than any sandbox has."""
MEMORY_BYTES_MAX = 2 * 1024**3
"""Memory that a process writes to, not its address space: runtimes reserve far more than they use."""
CPU_SECONDS_EXTRA = 10
LOOK_SECONDS = 0.1
"""Seconds between checks of what the command has written; its end waits no longer for a last check."""
LOOK_SHARE = 0.1
"""Largest share of the time spent on these checks, so a large workspace is checked less often; after a minute, a tenth
as often. Free disk space is always checked at the same rate."""
LONG_SECONDS = 60
QUICK_ENTRIES_MAX = 10_000
"""Entries that are counted at most before a command begins: 40 ms."""
ENTRY_BYTES = 4096
"""Bytes that a file counts on top of its content, so that empty files are limited, too."""


def above(fd: int) -> int:
    """Move the descriptor to 10 or above, out of the shell's way, and set close-on-exec."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(fd)


def limit(seconds: int, file_bytes: int, *, processes: int) -> None:
    """Limit this process and its children; `processes` 0 leaves their number alone."""
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
    """Watches what the command adds to the workspace, which is the working folder, and to its temporary folder."""

    def __init__(self, folders: tuple[str, ...], bytes_max: int) -> None:
        """Count before the command begins; a large workspace is first counted by `watch`."""
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
        """Check a last time, if that is quick."""
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
    """Return the bytes on disk below these folders; None beyond `entries_max`. A file with several names counts
    once."""
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
    """Watch the number of processes and their total memory: the kernel limits only one process, or all of a user."""
    while len(below := descendants(os.getpid())) <= PROCESSES_MAX + WRAPPERS_MAX:
        # `statm` counts shared memory for each process; `smaps_rollup` is exact, and slow.
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
    """Watch the free bytes on the workspace's disk."""
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
