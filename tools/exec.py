"""`exec`: a shell command in the workspace, if the config allows it.

The mode decides: `deny` refuses, `ask` runs what a person has approved, `allow` runs. The command gets a clean
environment, its own temporary folder, and limits on its time, its output and what it writes; nothing of it outlives the
call. A root gateway runs it as the workspace's owner, who is never root.
"""

import asyncio
import signal
from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from pydantic import Field

from tools.binding import binding_of
from tools.command import OUTPUT_BYTES_MAX, CommandLimit, Input, ShellCommand
from tools.config import EXEC_SECONDS_MAX, ExecConfig
from tools.limits import MEMORY_BYTES_MAX, PROCESSES_MAX
from tools.output import Output
from tools.sandbox.sandbox import Sandbox
from tools.tool import Arguments, Call, Held, Subject, ToolError, ToolResult
from tools.web.client import WebClient
from tools.workspace import Workspace

log = structlog.get_logger()

SHELL = "/bin/sh"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


STOPPED: Mapping[CommandLimit, str] = {
    "time": "EXEC_TIMEOUT: stopped after {seconds:g} seconds; ",
    "output": f"EXEC_OUTPUT_LIMIT: stopped: its output is longer than {OUTPUT_BYTES_MAX:,} bytes; ",
    "written": "EXEC_DISK_LIMIT: stopped: it put more than {written:,} bytes into the workspace and $TMPDIR; ",
    "free": "EXEC_DISK_LIMIT: stopped: {free}; ",
    "memory": f"EXEC_MEMORY_LIMIT: stopped: it held more than {MEMORY_BYTES_MAX:,} bytes of memory; ",
    "processes": f"EXEC_PROCESS_LIMIT: stopped: it had more than {PROCESSES_MAX} processes; ",
    "idle": "stopped: it wrote nothing and nobody asked for it; ",
    "killed": "killed; ",
}


class ExecArguments(Arguments):
    command: str = Field(description="The command, as for `sh -c`. It runs in the workspace.", min_length=1)
    timeout_seconds: float | None = Field(default=None, gt=0, description="Seconds it may run, at most 600.")


@dataclass
class Exec:
    spec = ExecArguments.spec(
        "exec",
        summary="run a shell command in the workspace",
        description=(
            "Run a shell command in the workspace and get its output (stdout and stderr together) and its exit code. "
            "It has no terminal and no input. When it ends, what it left in the background is stopped and $TMPDIR is "
            'emptied. Files that people sent lie in "$UPLOADS" for a command, not in ./uploads.'
        ),
        effect="once",
    )
    parse = staticmethod(ExecArguments.parse)

    workspace: Workspace
    config: ExecConfig
    slots: asyncio.Semaphore
    """Shared by all turns of the agent."""
    sandbox: Sandbox
    result_chars: int
    network: WebClient | None = None
    """Decides which addresses a sandboxed command may connect to; None allows none."""

    def subject(self, arguments: ExecArguments, call: Call) -> Subject | None:
        if self.config.mode == "deny":
            raise ToolError("EXEC_DENIED", "commands are switched off for this agent (tools.exec.mode: deny)")
        if self.config.mode == "allow" and not call.gated:
            return None
        bound = binding_of(arguments.command, folder=self.workspace.fd, path=PATH)
        fixed = (item for item in self._environment().items() if item[0] != "UPLOADS")  # each session's own
        environment = {f"env {name}": value for name, value in fixed}
        surroundings = {"sandbox": "required", "network": "public addresses" if self.network else "no"}
        if self.config.sandbox == "off":
            surroundings = {"sandbox": "none", "network": "yes"}
        return Subject(
            text=arguments.command,
            facts={"folder": str(self.workspace.root), "timeout": f"{self._timeout(arguments):g} s"} | surroundings,
            identity={**bound.identity, **environment, "shell": SHELL},
            always=bound.always,
            held=bound.held,
        )

    def _timeout(self, arguments: ExecArguments) -> float:
        return min(arguments.timeout_seconds or self.config.timeout_seconds, EXEC_SECONDS_MAX)

    async def run(self, arguments: ExecArguments, call: Call) -> ToolResult:
        """Run without asking: `Toolbox` has asked for an approval of `subject`."""
        if self.slots.locked() or self.sandbox.slots.locked():
            raise ToolError("EXEC_BUSY", "too many commands are running; try again in a moment", retryable=True)
        timeout = self._timeout(arguments)
        async with (
            self.slots,
            self.sandbox.slots,
            await self.begin(arguments.command, timeout, held=call.held) as command,
        ):
            try:
                await command.attend(Output(self.config.output_bytes))
            except OSError as error:
                raise self.not_started(error) from error
        return await asyncio.to_thread(self._result, command)

    async def begin(
        self, command: str, seconds: float, stdin: Input = "none", held: Held | None = None
    ) -> ShellCommand:
        """Start a command, with the approved files as they were `held`; the caller attends to it. Raises ToolError."""
        if "\0" in command:
            raise ToolError("INVALID_ARGUMENT", "'command' holds a NUL character")
        self.workspace.shows_uploads()
        environment = self._environment() | ({"TERM": "xterm"} if isinstance(stdin, tuple) else {})
        bounds = self.config.but(timeout_seconds=seconds)
        try:
            launch = await self.sandbox.launch(
                held.command if held else command,
                workspace=self.workspace,
                environment=environment,
                config=self.config,
                network=self.network,
            )
            launch.hold(held.copies if held else ())
            return ShellCommand(launch, self.workspace.fd, bounds, stdin)
        except (OSError, ValueError) as error:
            raise self.not_started(error) from error

    def not_started(self, error: Exception) -> ToolError:
        log.error("command_not_started", error=str(error)[:500])
        if self.config.sandbox == "off":
            return ToolError("EXEC_FAILED", f"the command could not be started ({type(error).__name__})")
        again = self.sandbox.doubt(self.workspace.root)
        message = "the sandbox could not be built for this command; it did not run. " + (
            "Nor could it the last time: do not try again, and tell the user that the operator finds the reason with "
            "Clawgate's `doctor` and in the log (command_not_started)"
            if again
            else "Try it again once"
        )
        return ToolError("EXEC_SANDBOX_UNAVAILABLE", message, retryable=not again)

    def _environment(self) -> dict[str, str]:
        uploads = self.workspace.uploads
        sent = {"UPLOADS": str(uploads)} if uploads is not None and uploads.is_dir() else {}
        return sent | {
            "PATH": PATH,
            "HOME": str(self.workspace.root),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": "/tmp",
            "TZ": "UTC",
        }

    def _result(self, command: ShellCommand) -> ToolResult:
        code = exit_code(command.code)
        note, details = self.note(command), {"exitCode": code, "timedOut": command.limit == "time"}
        text = command.output.shown(self.result_chars - len(note) - 1).rstrip("\n")
        is_error = command.limit is not None or code != 0
        return ToolResult(content=(f"{text}\n{note}".lstrip("\n"),), details=details, is_error=is_error)

    def note(self, command: ShellCommand) -> str:
        """Describe for the model how the command ended."""
        self.sandbox.failed.discard(self.workspace.root)
        free = f"less than {self.config.free_bytes:,} bytes are left on the disk"
        written = self.config.written_bytes
        stopped = (
            STOPPED[command.limit].format(seconds=command.seconds, written=written, free=free) if command.limit else ""
        )
        ended = f": ended by {_signal(-command.code)}" if command.code < 0 else ""
        read_only = f"; it could write nothing to files: {free}" if command.read_only else ""
        refused = "; files of protected names that it made are now called refused-…" if command.refused else ""
        return f"[{stopped}exit code {exit_code(command.code)}{ended}{read_only}{refused}]"


def exit_code(code: int) -> int:
    """Return the exit code as a shell reports it."""
    return code if code >= 0 else 128 - code


def _signal(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"
