"""The parent of one shell command: a process of its own, so that nothing of the command outlives it.

It is the reaper of its descendants only, so whatever detaches itself, twice even, comes back to it and to no other
command; the gateway need adopt nobody's orphans and guess at none. It sets the limits between fork and exec, where the
command cannot yet undo them. Run as a script by an isolated interpreter (`-I -S`), it imports nothing of ours and holds
nothing of the gateway's environment. It decides nothing: the gateway keeps the time and reads the output.

    supervisor.py CONTROL STATUS FOLDER UID GID SECONDS WRITTEN FREE PLAN ARGV...

CONTROL, STATUS and FOLDER are descriptors, UID and GID are -1 for our own; WRITTEN is how many bytes the command may add
to FOLDER and its temporary folder, FREE how many it must leave on the disk. A byte on CONTROL asks the command to end;
its end of file, which the gateway's death brings as well, ends everything. A terminal as input becomes the command's own.
STATUS gets the exit code as text, or `!` where the command could not be started; besides, `W` or `F` where it went beyond
WRITTEN or FREE, `M` where it held too much memory, `N` where it started too many processes, `L` where the disk was too
full from the start, and `P` where it had made files of protected names, which are renamed. Its end of file says that
nobody is left. PLAN is what the sandbox wants done around ARGV, each member absent where it is not wanted:

    landlock  what `confine.prepare` takes: the command is confined by the kernel, in its own process
    stage     descriptors that root mounts for bubblewrap
    wrappers  so many processes stand between us and the command; they are not asked to end
    started   ARGV writes to descriptor 9 as soon as the command's own process runs: what ends before was never started
    counted   the limit of processes is set by ARGV
    links     of the temporary folder's `skills`, to where
    protected names at the workspace's top that a command may not make
    network   where a socket that listens on the loopback of its own network is sent, and the port
"""

import _thread
import contextlib
import ctypes
import fcntl
import marshal
import os
import resource
import select
import signal
import sys
import time
import types
from collections.abc import Iterator

FILE_BYTES_MAX = 64 * 1024 * 1024
FILES_MAX = 256
PROCESSES_MAX = 128
WRAPPERS_MAX = 8
"""More than that is nobody's sandbox."""
MEMORY_BYTES_MAX = 2 * 1024**3
"""Of what a process writes to, not of its address space: runtimes reserve far more of that than they use."""
CPU_SECONDS_EXTRA = 10
KILL_SECONDS_MAX = 5.0
LOOK_SECONDS = 0.1
"""How often what the command has written is looked at, and the longest time that its end waits for a last look."""
LOOK_SHARE = 0.1
"""Of the time, at most, goes into looking: a large workspace is looked at less often, and by a background command's
supervisor, after a minute, a tenth as often. What must stay free on the disk is looked at as before."""
LONG_SECONDS = 60
QUICK_ENTRIES_MAX = 10_000
"""So many files and folders are looked through before a command begins: 40 ms."""
ENTRY_BYTES = 4096
"""What a file counts on top of its content, so that empty ones have an end, too."""
SIGNALLED = 128
"""What shells add to a signal's number."""
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36
_SYS_LANDLOCK_CREATE_RULESET = 444
_SYS_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_SCOPE_SIGNAL = 2


def main(arguments: list[str]) -> None:
    control, status, folder, uid, gid, seconds, written_max, free_min = map(int, arguments[:8])
    plan, argv = Plan(arguments[8]), arguments[9:]
    control, status, folder = map(above, (control, status, folder))  # ours, not the command's
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    try:
        os.fchdir(folder)
    except OSError:
        os.write(status, b"!")
        return
    temporary = make_temporary(uid, gid, plan.links)
    written = Written((".", temporary), written_max)
    is_full = free_bytes() < free_min
    refused = Refused(plan.protected, uid)
    argv = [temporary if it == "@TMPDIR@" else it for it in argv]
    shell = os.fork()
    if shell == 0:
        prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        # The limit counts every process of the uid, other commands' and a person's: those that are there come on top.
        is_limited = not plan.counted and (uid >= 0 or plan.landlock is not None)
        processes = PROCESSES_MAX + threads_of(uid if uid >= 0 else os.getuid()) if is_limited else 0
        become(
            argv,
            uid,
            gid,
            limits(seconds, 0 if is_full else FILE_BYTES_MAX, processes=processes),
            status,
            plan,
            temporary,
        )
    plan.forked()
    _thread.start_new_thread(written.watch, (status,))
    _thread.start_new_thread(watch_numbers, (status,))
    _thread.start_new_thread(refused.watch, ())
    if is_full:
        os.write(status, b"L")
    else:
        _thread.start_new_thread(watch_free, (free_min, status))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for theirs in (0, 1, 2):  # else a pipe would not end before we do
        os.dup2(nowhere, theirs)
    supervise(shell, control, status, woken, written, plan)
    kill_everybody()
    refused.rename(".", "skills", ".git")
    if refused.has_any:
        os.write(status, b"P")
    remove(temporary)


class Plan:
    """What the sandbox wants."""

    def __init__(self, text: str) -> None:
        plan = marshal.loads(bytes.fromhex(text))
        self.landlock: dict[str, list[str | int]] | None = plan.get("landlock")
        self.stage: list[int] = plan.get("stage", [])
        self.wrappers: int = plan.get("wrappers", 0)
        self.counted: bool = plan.get("counted", False)
        self.links: dict[str, str] = plan.get("links", {})
        self.protected: list[str] = plan.get("protected", [])
        self.network: tuple[int, int] | None = plan.get("network")
        self._started = tuple(map(above, os.pipe())) if plan.get("started") else None
        gateway = os.getppid()
        self._gateway = (gateway, -os.getpgid(gateway))
        self._confine: types.ModuleType | None = None
        if self.network is not None:
            import socket  # noqa: F401 - as long as we may read it
        if self.landlock is not None or self.stage or self.network is not None:
            sys.path.append(f"{os.path.dirname(__file__)}/sandbox")  # noqa: PTH120 - as above
            self._confine = __import__("confine")

    def prepare(self, temporary: str) -> None:
        """In the command's process, as long as it has our rights."""
        if self._started is not None:
            os.dup2(self._started[1], 9)
        if self._confine is not None and self.stage:
            self._confine.stage(self.stage)
        if self._confine is not None and self.landlock is not None:
            self.landlock["write"].append(temporary)
            self._ruleset = self._confine.prepare(self.landlock)

    def confine(self) -> None:
        """The last step before it is the command."""
        if self._confine is not None and self.landlock is not None:
            us = os.getppid()
            self._confine.restrict(self._ruleset, (us, -us, -1, *self._gateway))
        elif self._confine is not None and self.network is not None:
            self._confine.open_loopback(*self.network)
        elif not self.wrappers:
            keep_to_itself()

    def forked(self) -> None:
        if self.network is not None:
            os.close(self.network[0])
        if self._started is not None:
            os.close(self._started[1])
            os.set_blocking(self._started[0], False)

    def has_started(self) -> bool:
        """Once the command's process has ended."""
        with contextlib.suppress(BlockingIOError):
            return self._started is None or bool(os.read(self._started[0], 1))
        return False

    def asked_to_end(self, shell: int) -> list[int]:
        """Whom a wish to end reaches, as `kill` names them: the command's group, or what is inside of the wrappers."""
        inside = [shell]
        for _ in range(self.wrappers):
            inside = [child for pid in inside for child in children(pid)]
        return [pid for it in inside for pid in (it, *descendants(it))] if self.wrappers else [-shell]


class Refused:
    """Names that a command may not make, in the workspace, its `skills` and its `.git`. What is new of them is renamed:
    nothing is lost, and nobody reads or runs it by that name. What the gateway reads is renamed at once, since a background
    command may run for days; what git needs while it works only when nothing of the command is left."""

    def __init__(self, names: list[str], uid: int) -> None:
        self._names, self._uid = names, uid
        self._before = {it: self._found(it) for it in (".", "skills", ".git")}
        self.has_any = False

    def watch(self) -> None:
        while self._names:
            self.rename(".", "skills")
            time.sleep(LOOK_SECONDS)

    def rename(self, *folders: str) -> None:
        for folder in folders:
            found = self._found(folder)
            self._before[folder] &= found  # what is gone is new when it comes back
            for name in found - self._before[folder]:
                to = f"refused-{os.urandom(4).hex()}-{name.lstrip('.')}"
                with contextlib.suppress(OSError), opened(".") as top, opened(folder) as parent:
                    os.rename(name, to, src_dir_fd=parent, dst_dir_fd=top)
                self.has_any = True

    def _found(self, folder: str) -> set[str]:
        found: set[str] = set()
        if self._names:
            with contextlib.suppress(OSError), opened(folder) as parent, os.scandir(parent) as entries:
                for entry in filter(lambda it: self._is_refused(folder, it), entries):
                    with contextlib.suppress(OSError):
                        if self._uid in (-1, entry.stat(follow_symlinks=False).st_uid):
                            found.add(entry.name)
        return found

    def _is_refused(self, folder: str, entry: "os.DirEntry[str]") -> bool:
        name = entry.name.casefold()
        if folder == ".git":
            return name in ("hooks", "config")
        if folder == "." and name in (".git", "skills"):
            return not entry.is_dir(follow_symlinks=False)
        return folder == "skills" or name in self._names or name.startswith(".env")


def above(fd: int) -> int:
    """The same descriptor, out of the shell's way, and not for the command."""
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10)
    finally:
        os.close(fd)


@contextlib.contextmanager
def opened(folder: str) -> Iterator[int]:
    """No link is followed: it could lead to what is not the command's."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def make_temporary(uid: int, gid: int, links: dict[str, str]) -> str:
    """A folder for what this command alone puts into TMPDIR; where none can be made, what the environment says stays."""
    folder = f"{os.environ.get('TMPDIR', '/tmp')}/clawgate-{os.urandom(8).hex()}"
    with contextlib.suppress(OSError):
        os.mkdir(folder, 0o700)  # noqa: PTH102 - pathlib would double the start-up time
        if links:
            os.mkdir(f"{folder}/skills")  # noqa: PTH102 - as above
            os.environ["SKILLS"] = f"{folder}/skills"
        for name, target in links.items():
            os.symlink(target, f"{folder}/skills/{name}")  # noqa: PTH211 - as above
        if uid >= 0:
            os.chown(folder, uid, gid)
        os.environ["TMPDIR"] = folder
    return folder


def remove(folder: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        try:
            os.rmdir(folder)  # noqa: PTH106 - as above
        except OSError:
            import shutil  # only here, where something was left: it takes longer than all of our start

            shutil.rmtree(folder, ignore_errors=True)


def become(
    argv: list[str], uid: int, gid: int, limits: list[tuple[int, int]], status: int, plan: Plan, temporary: str
) -> None:
    """The command, from here on. Never returns."""
    try:
        plan.prepare(temporary)
        os.setsid()
        has_terminal = os.isatty(0)
        if has_terminal:
            import termios  # only here

            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        os.umask(0o022)
        for limit, value in limits:
            hard = resource.getrlimit(limit)[1]
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(limit, (most, most))
        if uid >= 0:
            os.setgroups([])
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
        signal.set_wakeup_fd(-1)
        plan.confine()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGQUIT):  # a terminal's keys, which would end the wrappers
            signal.signal(number, signal.SIG_IGN if has_terminal and plan.wrappers else signal.SIG_DFL)
        os.execv(argv[0], argv)
    finally:
        os.write(status, b"!")
        os._exit(1)


def keep_to_itself() -> None:
    """From here on we signal and trace our own descendants only: not the supervisor, the gateway or another command.

    The uid is no border where it is the gateway's own, or that of several agents. Done by Landlock, from Linux 6.12;
    an older kernel refuses the ruleset, and the command runs without this belt.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    ruleset = (ctypes.c_uint64 * 3)(0, 0, _LANDLOCK_SCOPE_SIGNAL)  # of files and ports nothing is ruled here
    fd = libc.syscall(_SYS_LANDLOCK_CREATE_RULESET, ctypes.byref(ruleset), ctypes.c_size_t(ctypes.sizeof(ruleset)), 0)
    if fd >= 0:
        libc.syscall(_SYS_LANDLOCK_RESTRICT_SELF, fd, 0)
        os.close(fd)


def limits(seconds: int, file_bytes: int, *, processes: int) -> list[tuple[int, int]]:
    kept = [
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES_MAX),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_CPU, seconds + CPU_SECONDS_EXTRA),
        (resource.RLIMIT_DATA, MEMORY_BYTES_MAX),
    ]
    return [*kept, (resource.RLIMIT_NPROC, processes)] if processes else kept


def threads_of(uid: int) -> int:
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208 - as above
        with contextlib.suppress(OSError):
            if os.stat(f"/proc/{pid}").st_uid == uid:  # noqa: PTH116 - as above
                total += len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - as above
    return total


class Written:
    """What the command adds to the workspace, which is the working folder, and to its own temporary one."""

    def __init__(self, folders: tuple[str, ...], bytes_max: int) -> None:
        """Before the command begins; of a large workspace the first look is the first of `watch`."""
        self._folders = folders
        self._bytes_max = bytes_max
        self._seconds = 0.0
        self._at_start = stored_bytes(folders, entries_max=QUICK_ENTRIES_MAX)

    def watch(self, status: int) -> None:
        """Until it is too much."""
        long = time.monotonic() + LONG_SECONDS
        while not self._exceeded():
            share = LOOK_SHARE if time.monotonic() < long else LOOK_SHARE / 10
            time.sleep(max(LOOK_SECONDS, self._seconds * (1 / share - 1)))
        os.write(status, b"W")

    def look_again(self, status: int) -> None:
        """A last time, where that is quick."""
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
    """What all below these folders takes on the disk; None where that is more entries. A file of several names counts
    once, if all of them are here."""
    total, entries_left, pending = 0, entries_max, list(folders)
    while pending:
        if entries_left < 0:
            return None
        with contextlib.suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                entries_left -= 1
                with contextlib.suppress(OSError):
                    found = entry.stat(follow_symlinks=False)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(entry.path)
                        total += ENTRY_BYTES
                    else:
                        total += ENTRY_BYTES + found.st_blocks * 512 // max(1, found.st_nlink)
    return total


def watch_numbers(status: int) -> None:
    """Until there are too many of them, or all together hold too much: the kernel's limits are of one process, or of all
    that a user runs."""
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
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{file}", encoding="ascii") as lines:  # noqa: PTH123
            if file == "statm":
                total += int(lines.read().split()[1]) * resource.getpagesize()
            else:
                total += sum(int(it.split()[1]) * 1024 for it in lines if it.startswith("Pss:"))
    return total


def watch_free(bytes_min: int, status: int) -> None:
    """Until less than that is free on the workspace's disk."""
    while free_bytes() >= bytes_min:
        time.sleep(LOOK_SECONDS / 4)
    os.write(status, b"F")


def free_bytes() -> int:
    disk = os.statvfs(".")
    return disk.f_bavail * disk.f_frsize


def supervise(shell: int, control: int, status: int, woken: int, written: Written, plan: Plan) -> None:
    """Until the gateway lets go: pass on its wish to end, say how the shell ended, bury the dead."""
    while True:
        readable, _, _ = select.select([control, woken], [], [])
        if woken in readable:
            os.read(woken, 4096)
            for pid, code in buried():
                if pid == shell:
                    shell = 0
                    written.look_again(status)
                    if plan.wrappers and SIGNALLED < code <= SIGNALLED + signal.NSIG:
                        code = SIGNALLED - code
                    os.write(status, str(code).encode() if plan.has_started() else b"!")
        if control in readable:
            if not os.read(control, 1):
                return
            for pid in plan.asked_to_end(shell) if shell else ():
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGTERM)


def buried() -> list[tuple[int, int]]:
    """Children that have died, with their exit codes, negative where a signal ended them."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((dead[0], os.waitstatus_to_exitcode(dead[1])))
    return found


def kill_everybody() -> None:
    """All below us: stopped first, so that none can fork while it is its turn, then killed; till nobody is left."""
    give_up = time.monotonic() + KILL_SECONDS_MAX
    while (below := descendants(os.getpid())) and time.monotonic() < give_up:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in below:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        buried()
        time.sleep(0.001)


def descendants(pid: int) -> list[int]:
    found = children(pid)
    for child in found:  # which grows meanwhile
        found += children(child)
    return found


def children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - pathlib would double the start-up time
            with (
                contextlib.suppress(OSError),
                open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file,  # noqa: PTH123 - as above
            ):
                found += map(int, file.read().split())
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
