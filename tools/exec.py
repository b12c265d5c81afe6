"""`exec`: a shell command in the workspace, where the config says so.

The mode decides what a call gets: `deny` refuses, `ask` refuses while nobody can approve, `allow` runs. The command
has a clean environment of a few names, a time limit, an output cap and its own process group, and nothing of it outlives
the call. Where the gateway runs as root the command runs as the workspace's owner, who is never root.
"""

import asyncio
import os
from typing import ClassVar, assert_never

from pydantic import Field

from tools.config import EXEC_SECONDS_MAX, ExecConfig
from tools.process import OUTPUT_BYTES_MAX, Finished, run
from tools.tool import Arguments, Call, Effect, Text, ToolError, ToolResult
from tools.workspace import NOBODY, Workspace

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ExecArguments(Arguments):
    command: str = Field(description="The command, as for `sh -c`. It runs in the workspace.", min_length=1)
    timeout_seconds: float | None = Field(default=None, gt=0, description="Stop it after so many seconds, at most 600.")


class Exec:
    name: ClassVar[str] = "exec"
    summary: ClassVar[str] = "run a shell command in the workspace"
    description: ClassVar[str] = (
        "Run a shell command in the workspace and get its output (stdout and stderr together) and its exit code. "
        "It has no terminal and no input, and what it leaves in the background is stopped when it ends. "
        'Files that people sent lie in "$UPLOADS" for a command, not in ./uploads.'
    )
    effect: ClassVar[Effect] = "once"
    arguments: ClassVar[type[Arguments]] = ExecArguments

    def __init__(self, workspace: Workspace, config: ExecConfig, slots: asyncio.Semaphore) -> None:
        """`slots` are the agent's, over all its turns."""
        self._workspace = workspace
        self._config = config
        self._slots = slots

    async def run(self, arguments: ExecArguments, call: Call) -> ToolResult:
        """Raises ToolError."""
        match self._config.mode:
            case "deny":
                raise ToolError("EXEC_DENIED", "commands are switched off for this agent (tools.exec.mode: deny)")
            case "ask":
                message = (
                    "this command needs an approval and nobody can give one; "
                    "tell the user that the operator can set tools.exec.mode: allow"
                )
                raise ToolError("NO_APPROVER", message)
            case "allow":
                return await self._allowed(arguments)
            case _:
                assert_never(self._config.mode)

    async def _allowed(self, arguments: ExecArguments) -> ToolResult:
        if "\0" in arguments.command:
            raise ToolError("INVALID_ARGUMENT", "'command' holds a NUL character")
        if self._slots.locked():
            raise ToolError("EXEC_BUSY", "too many commands are running; try again in a moment", retryable=True)
        timeout = min(arguments.timeout_seconds or self._config.timeout_seconds, EXEC_SECONDS_MAX)
        async with self._slots:
            try:
                finished = await run(
                    arguments.command,
                    folder=self._workspace.fd,
                    owner=self._owner(),
                    environment=self._environment(),
                    timeout_seconds=timeout,
                    keep_bytes=self._config.output_bytes,
                )
            except (OSError, ValueError) as error:
                raise ToolError("EXEC_FAILED", f"the command could not be started ({type(error).__name__})") from error
        return _result(finished, timeout)

    def _environment(self) -> dict[str, str]:
        """These names and nothing of the gateway's own environment."""
        uploads = self._workspace.uploads
        sent = {"UPLOADS": str(uploads)} if uploads is not None and uploads.is_dir() else {}
        return sent | {
            "PATH": PATH,
            "HOME": str(self._workspace.root),
            "LANG": "C.UTF-8",
            "TERM": "dumb",
            "TMPDIR": "/tmp",
            "TZ": "UTC",
        }

    def _owner(self) -> tuple[int, int] | None:
        """Whom the command runs as; None where that is the gateway's own user."""
        if os.geteuid() != 0:
            return None
        status = os.fstat(self._workspace.fd)
        return status.st_uid or NOBODY, status.st_gid or NOBODY  # neither is ever root


def _result(finished: Finished, timeout_seconds: float) -> ToolResult:
    head, tail = (_printable(part) for part in (finished.head, finished.tail))
    gap = f"\n[… {finished.cut_bytes} bytes of output are left out here …]\n" if finished.cut_bytes else ""
    details = {"exitCode": finished.code, "timedOut": finished.timed_out}
    if finished.flooded:
        code, ended = "EXEC_OUTPUT_LIMIT", f"stopped: it wrote more than {OUTPUT_BYTES_MAX} bytes"
    elif finished.timed_out:
        code, ended = "EXEC_TIMEOUT", f"stopped after {timeout_seconds:g} seconds"
    elif finished.code < 0:
        code, ended = "", f"ended by signal {-finished.code}"
    else:
        code, ended = "", f"exit code {finished.code}" if finished.code else ""
    note = f"[{code + ': ' if code else ''}{ended}]" if ended else ""
    text = "\n".join(filter(None, ((head + gap + tail).rstrip("\n"), note))) or "(no output)"
    return ToolResult(content=(Text(text=text),), details=details, is_error=bool(code) or finished.code != 0)


def _printable(raw: bytes) -> str:
    """Text without NUL and control characters, which would reach prompts, chats and terminals."""
    text = raw.decode("utf-8", errors="replace").replace("\r\n", "\n")
    return "".join(f"\\x{ord(char):02x}" if _is_control(char) else char for char in text)


def _is_control(char: str) -> bool:
    """Both sets of them: what terminals take from U+0080 on, they also take for the start of a sequence."""
    return (char < " " and char not in "\n\t") or "\x7f" <= char <= "\x9f"
