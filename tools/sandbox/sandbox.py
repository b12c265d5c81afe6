"""Where a command runs: behind the strongest wall that this machine lets us build, or not at all.

Which wall stands is not believed but tried, with a command that does what it must not: at start, every hour, and after a
command that could not be started. Whether a command may run is somebody else's matter.
"""

import asyncio
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tools.config import ExecConfig
from tools.limits import above
from tools.process import run
from tools.sandbox.bubblewrap import SYSTEM, binaries, fenced
from tools.sandbox.confine import landlock_version
from tools.sandbox.launch import SKILLS, Launch, not_made, owner_of, shown, skills
from tools.tool import ToolError
from tools.web.client import Client
from tools.web.config import FetchConfig
from tools.web.proxy import ENVIRONMENT, PORT, Proxy
from tools.workspace import Workspace

PROBE_EVERY_SECONDS = 3600.0
PROBE_AGAIN_SECONDS = 60.0
"""Where nothing works."""
_BOUNDS = ExecConfig.model_validate({"timeoutSeconds": 10.0})
COMMANDS_MAX = 8
"""At the same time, of all agents."""
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty")
_SOURCES = ("/dev/random", "/dev/urandom", "/bin", "/sbin", "/lib", "/lib32", "/lib64")

Kind: TypeAlias = Literal["bubblewrap", "bubblewrap without /proc", "Landlock and seccomp"]
KINDS: tuple[Kind, ...] = ("bubblewrap", "bubblewrap without /proc", "Landlock and seccomp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wall:
    """One way to confine a command on this machine."""

    kind: Kind
    binary: str = ""

    def launch(
        self, command: str, workspace: Workspace, environment: Mapping[str, str], network: Client | None = None
    ) -> Launch:
        """`network` judges where it may connect to; without one there is none. Raises OSError."""
        owner = owner_of(workspace)
        if self.kind == "Landlock and seccomp":
            return _landlocked(command, workspace, environment, owner)
        env = dict(environment)
        if any(it.startswith(f"{SKILLS}/") for it in workspace.mounts):
            env["SKILLS"] = f"{workspace.root}/{SKILLS}"
        has_proc = self.kind == "bubblewrap"
        argv, fds = fenced(self.binary, command, workspace, has_proc=has_proc, has_network=network is not None)
        plan: dict[str, Any] = {
            "wrappers": 2,
            "started": True,
            "counted": True,
            "stage": fds[1:] if owner is not None else [],
            "protected": not_made(workspace),
        }
        if network is None:
            return Launch(argv=tuple(argv), env=env, owner=owner, plan=plan, pass_fds=tuple(fds))
        proxy = Proxy(network)
        plan["network"] = (fd := above(proxy.fd), PORT)
        passed = (*fds, fd)
        return Launch(argv=tuple(argv), env=env | ENVIRONMENT, owner=owner, plan=plan, pass_fds=passed, proxy=proxy)


def _landlocked(
    command: str, workspace: Workspace, environment: Mapping[str, str], owner: tuple[int, int] | None
) -> Launch:
    written, read = shown(workspace), skills(workspace)
    rules = {
        "read": [*SYSTEM, *_SOURCES, *(it.fd for it in read)],
        "write": [*_DEVICES, *(it.fd for it in written)],
    }
    links = {Path(it).name: str(path) for it, path in workspace.mounts.items() if it.startswith(f"{SKILLS}/")}
    return Launch(
        argv=("/bin/sh", "-c", "--", command),
        env=environment,
        owner=owner,
        plan={"landlock": rules, "links": links, "protected": not_made(workspace)},
        pass_fds=tuple(it.fd for it in (*written, *read)),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a probe has found: the wall that stands, and why those before it do not."""

    wall: Wall | None
    failures: Mapping[str, str]

    def __str__(self) -> str:
        refused = "; ".join(f"{kind}: {reason}" for kind, reason in self.failures.items())
        if self.wall is None:
            return f"none ({refused})"
        return f"{self.wall.kind} ({refused})" if refused else self.wall.kind


class Sandbox:
    """One for the whole gateway. `private` are files of the gateway that no command may read; `kinds` are tried in order,
    with a way to the network where `opens`."""

    def __init__(self, private: Sequence[Path] = (), *, kinds: Sequence[Kind] = KINDS, opens: bool = False) -> None:
        self.slots = asyncio.Semaphore(COMMANDS_MAX)
        self.report: Report | None = None
        self._private = private
        self._kinds = kinds
        self._opens = opens
        self._probed = float("-inf")
        self._probing = asyncio.Lock()

    async def launch(
        self,
        command: str,
        *,
        workspace: Workspace,
        environment: Mapping[str, str],
        config: ExecConfig,
        network: Client | None = None,
    ) -> Launch:
        """How the command starts; `network` as in `Wall.launch`. Raises ToolError where the config wants a wall and none
        stands; OSError."""
        if config.sandbox == "off":
            return Launch(argv=("/bin/sh", "-c", "--", command), env=environment, owner=owner_of(workspace))
        report = await (self if network is None else self.opened).probe()
        if report.wall is None and network is not None:
            raise _unavailable(
                f"none that opens the network and keeps this machine's own services closed ({report}). For the operator: "
                "set tools.exec.network: false, or tools.exec.sandbox: off for commands without a wall"
            )
        if report.wall is None:
            raise _unavailable(str(report))
        return report.wall.launch(command, workspace, environment, network)

    @cached_property
    def opened(self) -> "Sandbox":
        """The same for commands that may reach the network: Landlock cannot tell one address from another."""
        return Sandbox(self._private, kinds=[it for it in self._kinds if it != "Landlock and seccomp"], opens=True)

    async def probe(self) -> Report:
        """What stands now, at most an hour old."""
        async with self._probing:
            every = PROBE_EVERY_SECONDS if self.report and self.report.wall else PROBE_AGAIN_SECONDS
            if self.report is None or time.monotonic() - self._probed > every:
                self.report = await self._try()
                self._probed = time.monotonic()
            return self.report

    @property
    def standing(self) -> str:
        """In a word, for everybody: why others do not stand is the operator's."""
        if self.report is None:
            return "not tried yet"
        return self.report.wall.kind if self.report.wall else "none"

    def doubt(self) -> None:
        """A command could not be started: try anew before the next one."""
        self._probed = float("-inf")
        if not self._opens:
            self.opened._probed = float("-inf")

    async def _try(self) -> Report:
        failures: dict[str, str] = {}
        for kind in self._kinds:
            for wall in _walls(kind):
                reason = await _pierced(wall, self._private, opens=self._opens)
                if reason is None:
                    return Report(wall=wall, failures=failures)
                failures[kind] = reason
            failures.setdefault(kind, "not on this machine")
        return Report(wall=None, failures=failures)


def _unavailable(reason: str) -> ToolError:
    message = f"commands run in a sandbox only, and there is none: {reason}. Tell the user"
    return ToolError("EXEC_SANDBOX_UNAVAILABLE", message)


def _walls(kind: Kind) -> list[Wall]:
    if kind == "Landlock and seccomp":
        return [Wall(kind=kind)] if landlock_version() else []
    return [Wall(kind=kind, binary=it) for it in binaries()]


_CANARY = """
echo made > made && [ "$(cat made)" = made ] || exit 10
for file in {files}; do cat "$file" >/dev/null 2>&1 && exit 11; done
(kill -9 {victim}) 2>/dev/null
(: < /proc/{gateway}/environ) 2>/dev/null && [ {gateway} -gt 20 ] && exit 12
if command -v bash; then
  bash -c 'echo > /dev/tcp/127.0.0.1/{tcp}'; bash -c 'echo > /dev/udp/127.0.0.1/{udp}'
elif command -v python3; then
  python3 -c 'import socket as s; s.socket(2, 2).sendto(b"x", ("127.0.0.1", {udp}))'
  python3 -c 'import socket as s; s.create_connection(("127.0.0.1", {tcp}))'
else
  echo | nc -w 1 127.0.0.1 {tcp}; echo | nc -w 1 -u 127.0.0.1 {udp}
fi >/dev/null 2>&1
exit 0
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
}


def _planted(folder: Path) -> Path:
    folder.chmod(0o711)
    planted = folder / "planted"
    planted.write_text("planted")
    return planted


async def _pierced(wall: Wall, private: Sequence[Path], *, opens: bool) -> str | None:
    """Why this wall is none; None where it holds."""
    with ExitStack() as leaving:
        folder = Path(tempfile.mkdtemp(prefix="clawgate-probe-"))
        leaving.callback(shutil.rmtree, folder, ignore_errors=True)
        planted = _planted(folder)
        workspace = Workspace(root=folder / "workspace")
        leaving.callback(workspace.close)
        tcp = leaving.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = leaving.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        tcp.setblocking(False)
        udp.setblocking(False)
        uid = (owner_of(workspace) or (None,))[0]
        # It ends with its input, so with us; and it holds nothing that somebody waits for us to close.
        nowhere = subprocess.DEVNULL
        victim = subprocess.Popen(  # noqa: ASYNC220 - a millisecond
            ["/bin/cat"], stdin=subprocess.PIPE, stdout=nowhere, stderr=nowhere, user=uid, env={}
        )
        leaving.enter_context(victim)
        leaving.callback(victim.kill)
        files = " ".join(f"'{it}'" for it in (planted, *private) if it.is_file() and "'" not in str(it))
        ports = {"tcp": tcp.getsockname()[1], "udp": udp.getsockname()[1]}
        network = Client(FetchConfig(ports=(ports["tcp"],))) if opens else None
        command = (_PROXIED if opens else "") + _CANARY
        command = command.format(files=files, victim=victim.pid, gateway=os.getpid(), **ports)
        environment = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(workspace.root), "TMPDIR": "/tmp"}
        try:
            launch = wall.launch(command, workspace, environment, network)
            finished = await run(launch, folder=workspace.fd, bounds=_BOUNDS)
        except OSError as error:
            return str(error)
        if finished.limit is not None or finished.code != 0:
            return _PIERCED.get(finished.code, f"its test ended with {finished.code}: {finished.output.shown(200)}")
        for listening in (tcp, udp):
            with suppress(BlockingIOError):
                listening.accept()[0].close() if listening is tcp else listening.recv(1)
                return "it reaches this machine's ports"
        return "it reaches other processes" if victim.poll() is not None else None
