"""The parent of one shell command: a separate process, so that nothing of the command outlives it.

It is the subreaper of its own descendants: a process that detaches itself, even twice, is reparented to it, and the
gateway adopts no orphans. It sets the limits between fork and exec, where the command cannot undo them yet. It runs in
an isolated interpreter (`-I -S`), imports only its own parts and gets nothing of the gateway's environment. It decides
nothing: the gateway keeps the time and reads the output. Its arguments:

CONTROL STATUS FOLDER UID GID SECONDS WRITTEN FREE PLAN ARGV...

CONTROL, STATUS and FOLDER are descriptors; UID and GID are -1 for our own. WRITTEN is how many bytes the command may
add to FOLDER and its temporary folder, FREE how many it must leave on the disk. A byte on CONTROL asks the command to
end; end of file, also by the gateway's death, kills everything. A terminal as input becomes the command's controlling
terminal. STATUS gets the exit code as text, or `!` if the command could not be started. It also gets `W` or `F` if the
command exceeded WRITTEN or FREE, `M` for too much memory, `N` for too many processes, `L` if the disk was too full from
the start, and `P` if it made files with protected names, which are renamed. End of file on STATUS means that no process
is left. PLAN is what the sandbox needs around ARGV; each member is optional:

    landlock  what `confine.prepare` takes: the command is confined by the kernel, in its own process
    stage     descriptors that root mounts for bubblewrap
    wrappers  processes between us and the command; they are not asked to end
    started   ARGV writes to descriptor 9 when the command runs: if it ends before, it was never started
    counted   ARGV sets the limit of processes
    links     links in the temporary folder's `skills`, and their targets
    protected names at the workspace's top that a command may not make
    held      copies of approved files, as `hold` takes them
    network   where to send a socket that listens on the command's own loopback, and its port
"""

import _thread
import contextlib
import ctypes
import fcntl
import marshal
import os
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from tools.limits import (
    FILE_BYTES_MAX,
    LOOK_SECONDS,
    PROCESSES_MAX,
    Written,
    above,
    children,
    descendants,
    free_bytes,
    limit,
    threads_of,
    watch_free,
    watch_numbers,
)
from tools.sandbox import confine

KILL_SECONDS_MAX = 5.0
SIGNALLED = 128
"""Offset that shells add to a signal number."""
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_CHILD_SUBREAPER = 36


def main(arguments: list[str]) -> None:
    control, status, folder, uid, gid, seconds, written_max, free_min = map(int, arguments[:8])
    plan, argv = CommandPlan(arguments[8]), arguments[9:]
    control, status, folder = map(above, (control, status, folder))  # ours, not the command's
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    woken, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    temporary = make_temporary(uid, gid, plan.links)
    try:
        os.fchdir(folder)
        held = hold(temporary, plan.held, (uid, gid)) if plan.held else []
    except OSError:
        os.write(status, b"!")
        remove(temporary)
        return
    written = Written((".", temporary), written_max)
    is_full = free_bytes() < free_min
    refused, mode = ForbiddenNames(plan.protected, uid), os.fstat(folder).st_mode & 0o700
    argv = [temporary if it == "@TMPDIR@" else it for it in argv]
    shell = os.fork()
    if shell == 0:
        try:
            prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            become(argv, plan, temporary, (uid, gid), seconds, 0 if is_full else FILE_BYTES_MAX)
        finally:
            os.write(status, b"!")
            os._exit(1)
    plan.forked()
    _thread.start_new_thread(written.watch, (status,))
    _thread.start_new_thread(watch_numbers, (status,))
    _thread.start_new_thread(refused.watch, ())
    if is_full:
        os.write(status, b"L")
    else:
        _thread.start_new_thread(watch_free, (free_min, status))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for theirs in (0, 1, 2):  # or a pipe would stay open until we end
        os.dup2(nowhere, theirs)
    supervise(shell, control, status, woken, written, plan)
    kill_everybody()
    with contextlib.suppress(OSError):  # restore the owner's rights if the command removed them
        os.chmod(f"/proc/self/fd/{folder}", os.fstat(folder).st_mode & 0o7777 | mode)  # noqa: PTH101 - as above
    refused.rename(".", "skills", ".git")
    if refused.has_any:
        os.write(status, b"P")
    for place in held:
        os.chmod(place, 0o700)  # noqa: PTH101 - pathlib would double the start-up time
    remove(temporary)


def become(
    argv: list[str], plan: "CommandPlan", temporary: str, owner: tuple[int, int], seconds: int, file_bytes: int
) -> None:
    """Turn the forked process into the command. Raises OSError."""
    uid, gid = owner
    # RLIMIT_NPROC counts every process of the uid, so add those that already run.
    is_limited = not plan.counted and (uid >= 0 or plan.landlock is not None)
    processes = PROCESSES_MAX + threads_of(uid if uid >= 0 else os.getuid()) if is_limited else 0
    plan.prepare(temporary)
    take_session(has_wrappers=plan.wrappers > 0)
    limit(seconds, file_bytes, processes=processes)
    if uid >= 0:
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    plan.confine()
    os.execv(argv[0], argv)


class CommandPlan:
    """The sandbox's PLAN for one command."""

    def __init__(self, text: str) -> None:
        plan = marshal.loads(bytes.fromhex(text))
        self.landlock: dict[str, list[str | int]] | None = plan.get("landlock")
        self.stage: list[int] = plan.get("stage", [])
        self.wrappers: int = plan.get("wrappers", 0)
        self.counted: bool = plan.get("counted", False)
        self.links: dict[str, str] = plan.get("links", {})
        self.protected: list[str] = plan.get("protected", [])
        self.held: list[Copied] = [(name, link, above(fd), rights) for name, link, fd, rights in plan.get("held", [])]
        self.network: tuple[int, int] | None = plan.get("network")
        self._started = tuple(map(above, os.pipe())) if plan.get("started") else None
        gateway = os.getppid()
        self._gateway = (gateway, -os.getpgid(gateway))
        if self.network is not None:
            import socket  # noqa: F401 - as long as we may read it

    def prepare(self, temporary: str) -> None:
        """Prepare the command's process while it has our rights."""
        if self._started is not None:
            os.dup2(self._started[1], 9)
        if self.stage:
            confine.stage(self.stage)
        if self.landlock is not None:
            self.landlock["write"].append(temporary)
            self._ruleset = confine.prepare(self.landlock)

    def confine(self) -> None:
        """Confine the process; the last step before the command."""
        if self.landlock is not None:
            us = os.getppid()
            confine.restrict(self._ruleset, (us, -us, -1, *self._gateway))
        elif self.network is not None:
            confine.open_loopback(*self.network)
        elif not self.wrappers:
            confine.keep_to_itself()

    def forked(self) -> None:
        if self.network is not None:
            os.close(self.network[0])
        if self._started is not None:
            os.close(self._started[1])
            os.set_blocking(self._started[0], False)

    def has_started(self) -> bool:
        """Return whether the command ran; to be called after its process has ended."""
        with contextlib.suppress(BlockingIOError):
            return self._started is None or bool(os.read(self._started[0], 1))
        return False

    def asked_to_end(self, shell: int) -> list[int]:
        """Return the targets for `kill`: the command's process group, or the processes inside the wrappers."""
        inside = [shell]
        for _ in range(self.wrappers):
            inside = [child for pid in inside for child in children(pid)]
        return [pid for it in inside for pid in (it, *descendants(it))] if self.wrappers else [-shell]


def make_temporary(uid: int, gid: int, links: dict[str, str]) -> str:
    """Create a private TMPDIR; fall back to the inherited one."""
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


def take_session(*, has_wrappers: bool) -> None:
    """Start the command's session, with its terminal if there is one, and reset umask and signals."""
    os.setsid()
    has_terminal = os.isatty(0)
    if has_terminal:
        import termios  # only here

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.umask(0o022)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    for number in (signal.SIGINT, signal.SIGQUIT):  # a terminal's keys, which would end the wrappers
        signal.signal(number, signal.SIG_IGN if has_terminal and has_wrappers else signal.SIG_DFL)


def supervise(shell: int, control: int, status: int, woken: int, written: Written, plan: CommandPlan) -> None:
    """Run until the gateway closes CONTROL: forward its request to end, report the shell's exit, reap children."""
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
    """Reap dead children; return their pids and exit codes, negative if a signal ended them."""
    found = []
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitpid(-1, os.WNOHANG))[0]:
            found.append((dead[0], os.waitstatus_to_exitcode(dead[1])))
    return found


def kill_everybody() -> None:
    """Stop all descendants, so that none can fork, then kill them, until none is left or time is up."""
    give_up = time.monotonic() + KILL_SECONDS_MAX
    while (below := descendants(os.getpid())) and time.monotonic() < give_up:
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in below:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
        buried()
        time.sleep(0.001)


FOLDER = "approved"
NEIGHBOURS_MAX = 2_000
"""Entries of one folder that get a link, in the order of their names."""

Copied = tuple[str, str, int, tuple[int, int, int]]
"""Name in the workspace, target of a link, descriptor of the content, and mode, uid and gid."""


def hold(temporary: str, copies: list[Copied], owner: tuple[int, int]) -> list[str]:
    """Copy approved files, with links to their neighbours; return the new folders in the order to remove them. The
    workspace is the working folder. Raises OSError."""
    made: list[str] = []
    for name, link, fd, rights in copies:
        *folders, leaf = name.split("/")
        place, there = f"{temporary}/{FOLDER}", "."
        for inner in (*folders, ""):
            if place not in made:
                with suppress(OSError):
                    os.unlink(place)  # noqa: PTH108 - pathlib would double the start-up time
                os.mkdir(place)  # noqa: PTH102 - as above
                made.insert(0, place)
                for neighbour in _neighbours(there, owner):
                    os.symlink(f"{os.getcwd()}/{there}/{neighbour}", f"{place}/{neighbour}")  # noqa: PTH109, PTH211
            if inner:
                place, there = f"{place}/{inner}", f"{there}/{inner}"
        with suppress(FileNotFoundError):
            os.unlink(f"{place}/{leaf}")  # noqa: PTH108 - as above
        if link:
            os.symlink(link, f"{place}/{leaf}")  # noqa: PTH211 - as above
        else:
            _copy(fd, f"{place}/{leaf}", allowed(*rights, *owner))
        os.close(fd)
    for place in made if owner[0] < 0 else ():  # else they are root's
        os.chmod(place, 0o555)  # noqa: PTH101 - as above
    return made


def _neighbours(folder: str, owner: tuple[int, int]) -> list[str]:
    us = os.geteuid(), os.getegid()
    try:
        if owner[0] >= 0:
            os.setegid(owner[1])
            os.seteuid(owner[0])
        return sorted(os.listdir(folder))[:NEIGHBOURS_MAX]  # noqa: PTH208 - as above
    except OSError:
        return []
    finally:
        os.seteuid(us[0])
        os.setegid(us[1])


def allowed(mode: int, uid: int, gid: int, as_uid: int, as_gid: int) -> int:
    """Return the rights of a command's user on a file as the lowest three bits; a negative user is the gateway's
    own."""
    return mode >> 6 if uid == as_uid or as_uid < 0 else mode >> 3 if gid == as_gid else mode


def _copy(source: int, place: str, rights: int) -> None:
    fd = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        while os.sendfile(fd, source, None, 1 << 20):
            pass
        os.fchmod(fd, (rights & 5) * 0o111)
    finally:
        os.close(fd)


class ForbiddenNames:
    """Renames new files with these names, so that nothing is lost, and nothing is read or run by that name. Files that
    the gateway reads are renamed immediately, since a background command may run for days; files that git needs, when
    the command has ended."""

    def __init__(self, names: list[str], uid: int) -> None:
        self._names, self._uid = names, uid
        self._before: dict[str, set[str]] = {}
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
                with suppress(OSError), _opened(".") as top, _opened(folder) as parent:
                    os.rename(name, to, src_dir_fd=parent, dst_dir_fd=top)
                self.has_any = True

    def _found(self, folder: str) -> set[str]:
        present: set[str] = set()
        try:
            with _opened(folder) as parent, os.scandir(parent) as entries:
                for entry in filter(lambda it: self._is_refused(folder, it), entries if self._names else ()):
                    with suppress(OSError):
                        if self._uid in (-1, entry.stat(follow_symlinks=False).st_uid):
                            present.add(entry.name)
        except PermissionError:  # the command made it unreadable: assume that nothing is gone
            return set(self._before.get(folder, ()))
        except OSError:
            pass
        return present

    def _is_refused(self, folder: str, entry: "os.DirEntry[str]") -> bool:
        name = entry.name.casefold()
        if folder == ".git":
            return name in ("hooks", "config")
        if folder == "." and name in (".git", "skills"):
            return not entry.is_dir(follow_symlinks=False)
        return folder == "skills" or name in self._names or name.startswith(".env")


@contextmanager
def _opened(folder: str) -> Iterator[int]:
    # a link could lead to a folder that is not the command's
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
