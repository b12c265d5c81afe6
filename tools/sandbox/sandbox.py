"""The sandbox of commands: they run behind the strongest wall that this machine lets us build, or not at all.

Each wall is tried, with a command that does what it must not: at start, every hour, and after a command that could not
be started. Approvals are not here.
"""

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias

from tools.config import ExecConfig
from tools.limits import above
from tools.sandbox.bubblewrap import SYSTEM, binaries, fenced
from tools.sandbox.canary import probe_failure
from tools.sandbox.confine import landlock_version
from tools.sandbox.launch import SKILLS, Launch, forbidden_names, owner_of, readable_places, shown, skills
from tools.tool import ToolError
from tools.web.client import WebClient
from tools.web.proxy import ENVIRONMENT, PORT, Proxy
from tools.workspace import Workspace

PROBE_EVERY_SECONDS = 3600.0
PROBE_AGAIN_SECONDS = 60.0
"""Seconds to the next probe if nothing works."""
COMMANDS_MAX = 8
"""Commands at the same time, of all agents."""
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
        """`network` decides where it may connect to; without one there is no network. `readable` is what it may read
        besides. Raises OSError."""
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
        return Launch(argv=tuple(argv), env=env | ENVIRONMENT, owner=owner, plan=plan, pass_fds=passed, proxy=proxy)


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
    """The result of a probe: the wall that works, and why those before it fail."""

    wall: Wall | None
    failures: Mapping[str, str]

    def __str__(self) -> str:
        refused = "; ".join(f"{kind}: {reason}" for kind, reason in self.failures.items())
        if self.wall is None:
            return f"none ({refused})"
        return f"{self.wall.kind} ({refused})" if refused else self.wall.kind


class Sandbox:
    """One for the whole gateway. `private` are files of the gateway that no command may read; `kinds` are tried in
    order, with a way to the network if `opens`."""

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
        """The launch of the command; `network` and `readable` as in `Wall.launch`. Raises OSError, and ToolError if there
        is no wall."""
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
        """The sandbox of commands that may reach the network: Landlock cannot tell one address from another."""
        return Sandbox(self._private, kinds=[it for it in self._kinds if it != "Landlock and seccomp"], opens=True)

    async def probe(self) -> ProbeReport:
        """The newest report, at most an hour old."""
        async with self._probing:
            every = PROBE_EVERY_SECONDS if self.report and self.report.wall else PROBE_AGAIN_SECONDS
            if self.report is None or time.monotonic() - self._probed > every:
                self.report = await self._try()
                self._probed = time.monotonic()
            return self.report

    @property
    def status(self) -> str:
        """The wall's kind in a word, for everybody; why others fail is for the operator."""
        if self.report is None:
            return "not tried yet"
        return self.report.wall.kind if self.report.wall else "none"

    def doubt(self, workspace: Path) -> bool:
        """A command could not be started: try again before the next one. True if the last one there could not either."""
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
    """A model passes the reason on: names of files stay, folders of this machine do not."""
    message = f"commands run in a sandbox only, and there is none: {_FOLDERS.sub('', reason)}. Tell the user"
    return ToolError("EXEC_SANDBOX_UNAVAILABLE", message)


def _walls(kind: WallKind) -> list[Wall]:
    if kind == "Landlock and seccomp":
        return [Wall(kind=kind)] if landlock_version() else []
    return [Wall(kind=kind, binary=it) for it in binaries()]
