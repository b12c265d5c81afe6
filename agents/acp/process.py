"""One process that speaks the Agent Client Protocol over its pipes, with one session in it.

Only this module imports the protocol's SDK, so that it is loaded only where an agent has `runner.acp`. The program is
untrusted: the length of a message and the size of all waiting ones are limited, and too much ends it. It gets files only
through the workspace, and no terminal of ours: its own shell runs in the sandbox around it.
"""

import asyncio
import json
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from acp import PROTOCOL_VERSION
from acp.client.connection import ClientSideConnection
from acp.exceptions import RequestError
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    DeniedOutcome,
    FileSystemCapabilities,
    ImageContentBlock,
    Implementation,
    PermissionOption,
    PromptResponse,
    ReadTextFileResponse,
    RequestPermissionResponse,
    TextContentBlock,
    ToolCallUpdate,
    WriteTextFileResponse,
)
from pydantic import ValidationError

from agents.acp.agent import AcpFailure
from tools.command import ShellCommand
from tools.output import Output
from tools.tool import ToolError

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
WAITING_BYTES_MAX = 4 * MESSAGE_BYTES_MAX
ERRORS_BYTES = 4_096
REASON_CHARS = 300
CANCEL_SECONDS = 5.0
"""Seconds for the program to end a cancelled prompt before it is killed."""
_AUTH_REQUIRED, _INVALID_PARAMS = -32000, -32602

log = structlog.get_logger()


class AcpTurn(Protocol):
    """The running turn, which the process reports to."""

    def updated(self, update: Any) -> None:
        """Take one `session/update`."""

    async def permitted(self, call: ToolCallUpdate) -> bool | None:
        """Decide a permission request; None cancels the turn, because a person decides later."""

    async def read(self, path: str) -> str:
        """Return a file of the workspace. Raises ToolError."""

    async def write(self, path: str, text: str) -> None:
        """Write a file of the workspace. Raises ToolError."""


class _Messages(Output):
    """Splits the program's output into messages. `total` is the length of the unfinished line; too much ends it."""

    def __init__(self) -> None:
        super().__init__(0)
        self._begun = bytearray()
        self._queue: asyncio.Queue[tuple[dict[str, Any] | None, int]] = asyncio.Queue()
        self._waiting = 0

    def feed(self, data: bytes) -> None:
        if self.total > MESSAGE_BYTES_MAX:
            return  # it is being stopped: ignore the rest
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._begun) + line if self._begun else line
            self._begun.clear()
            self._receive(whole)
        self._begun += rest
        if self.total <= MESSAGE_BYTES_MAX:
            self.total = len(self._begun)

    def _receive(self, line: bytes) -> None:
        if not line.lstrip().startswith(b"{"):
            return
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            log.warning("acp_message_unreadable", bytes=len(line))
            return
        self._waiting += len(line)
        if self._waiting > WAITING_BYTES_MAX:
            self.total = sys.maxsize
            return
        self._queue.put_nowait((message, len(line)))

    def end(self) -> None:
        self._queue.put_nowait((None, 0))

    async def next(self) -> dict[str, Any] | None:
        message, size = await self._queue.get()
        self._waiting -= size
        return message


@dataclass
class _Pipes:
    """The SDK's transport over a command's pipes."""

    command: ShellCommand
    messages: _Messages

    async def send(self, message: dict[str, Any]) -> None:
        try:
            await self.command.send(json.dumps(message, ensure_ascii=False).encode(errors="replace") + b"\n")
        except OSError as error:
            raise ConnectionError("the program reads no more") from error

    async def receive(self) -> dict[str, Any] | None:
        return await self.messages.next()

    async def close(self) -> None:
        """Leave the command to its owner."""


class AcpProcess:
    """One program and its session. `turn` is the turn that it works for; None between turns."""

    def __init__(self, command: ShellCommand, name: str) -> None:
        self.turn: AcpTurn | None = None
        self.session = ""
        """The program's id of the session; empty before `open`."""
        self.takes_images = self.resumes = False
        self.title = name
        self._is_ending = False
        self._name = name
        self._command = command
        self._errors = Output(ERRORS_BYTES)
        self._messages = _Messages()
        self._attending = asyncio.create_task(self._attend())
        self._connection = ClientSideConnection(self, _Pipes(command, self._messages))  # type: ignore[arg-type]

    async def _attend(self) -> None:
        try:
            await self._command.attend(self._messages, self._errors)
        finally:
            self._messages.end()

    @property
    def is_alive(self) -> bool:
        return not self._attending.done() and not self._is_ending

    async def open(self, cwd: str, *, resume: str, mode: str, version: str, seconds: float) -> bool:
        """Initialize the program and open a session; return whether `resume`, an earlier session, was loaded. Raises
        AcpFailure."""
        try:
            async with asyncio.timeout(seconds):
                files = FileSystemCapabilities(read_text_file=True, write_text_file=True)
                begun = await self._connection.initialize(
                    protocol_version=PROTOCOL_VERSION,
                    client_capabilities=ClientCapabilities(fs=files, terminal=False),
                    client_info=Implementation(name="clawgate", version=version),
                )
                self._note(begun)
                resumed = await self._resumed(cwd, resume) if resume and self.resumes else False
                if not resumed:
                    self.session = (await self._connection.new_session(cwd=cwd, mcp_servers=[])).session_id
                if mode:
                    await self._connection.set_session_mode(session_id=self.session, mode_id=mode)
                return resumed
        except TimeoutError:
            raise AcpFailure(f"it did not answer within {seconds:g} s") from None
        except (RequestError, ConnectionError, ValidationError) as error:
            raise await self._failure(error) from error

    def _note(self, begun: Any) -> None:
        capabilities, info = begun.agent_capabilities, begun.agent_info
        self.resumes = bool(capabilities and capabilities.load_session)
        prompts = capabilities.prompt_capabilities if capabilities else None
        self.takes_images = bool(prompts and prompts.image)
        if info and (title := info.title or info.name):
            self.title = f"{title} {info.version or ''}".strip()[:REASON_CHARS]

    async def _resumed(self, cwd: str, session: str) -> bool:
        try:
            await self._connection.load_session(cwd=cwd, session_id=session, mcp_servers=[])
        except RequestError as error:
            log.info("acp_session_not_loaded", runner=self._name, code=error.code)
            return False
        self.session = session
        return True

    async def prompt(self, turn: AcpTurn, text: str, images: Sequence[tuple[str, str]]) -> PromptResponse:
        """Send a prompt and wait for its end; `images` are media types and base64. Cancelling cancels the prompt. Raises
        AcpFailure."""
        blocks: list[Any] = [TextContentBlock(type="text", text=text)]
        blocks += [ImageContentBlock(type="image", mime_type=kind, data=data) for kind, data in images]
        self.turn = turn
        asking = asyncio.ensure_future(self._connection.prompt(session_id=self.session, prompt=blocks))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await asyncio.shield(self._cancelled(asking))
            raise
        except (RequestError, ConnectionError, ValidationError) as error:
            raise await self._failure(error) from error
        finally:
            self.turn = None

    async def _cancelled(self, asking: "asyncio.Future[PromptResponse]") -> None:
        await self.cancel()
        with suppress(Exception):
            async with asyncio.timeout(CANCEL_SECONDS):
                await asyncio.shield(asking)
        if not asking.done():
            asking.cancel()
            self._is_ending = True
            self._command.stop("killed")

    async def cancel(self) -> None:
        """Cancel the prompt. A program that can load its session is started again for the next one: what a cancelled prompt
        leaves behind may end the prompt that follows (claude-agent-acp 0.23 takes its late `idle` for that one's end)."""
        self._is_ending = self._is_ending or self.resumes
        with suppress(ConnectionError):
            await self._connection.cancel(session_id=self.session)

    async def close(self) -> None:
        """End the program and all that it started."""
        self._command.stop("killed")
        with suppress(Exception):
            await self._connection.close()
        with suppress(OSError):
            await self._attending
        await self._command.leave()

    async def _failure(self, error: Exception) -> AcpFailure:
        if isinstance(error, ConnectionError):
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(CANCEL_SECONDS):
                    await asyncio.shield(self._attending)
            command, last = self._command, self._last_line()
            how = f"code {command.code}" if command.limit is None else f"it reached the limit of {command.limit}"
            return AcpFailure(f"its program has ended ({how}){last and ': ' + last}")
        if isinstance(error, RequestError) and error.code == _AUTH_REQUIRED:
            return AcpFailure("it is not logged in: set its API key in runner.env")
        data = error.data if isinstance(error, RequestError) else None
        details = data.get("details", data.get("message", "")) if isinstance(data, dict) else data
        words = " ".join(f"{error} {details or ''}".split())[:REASON_CHARS]
        log.info("acp_request_refused", runner=self._name, errors=self._errors.shown(ERRORS_BYTES))
        return AcpFailure(f"it refuses the request: {words}")

    def _last_line(self) -> str:
        lines = self._errors.shown(ERRORS_BYTES).splitlines()
        return next((it.strip() for it in reversed(lines) if it.strip()), "")[-REASON_CHARS:]

    # what the program asks of us

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self.turn is not None and session_id == self.session:
            self.turn.updated(update)

    async def request_permission(
        self, session_id: str, tool_call: ToolCallUpdate, options: list[PermissionOption], **_: Any
    ) -> RequestPermissionResponse:
        turn, cancelled = self.turn, RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))
        if turn is None or session_id != self.session:
            return cancelled
        allowed = await turn.permitted(tool_call)
        wanted = ("allow_once", "allow_always") if allowed else ("reject_once", "reject_always")
        chosen = next((it for kind in wanted for it in options if it.kind == kind), None)
        if allowed is None:
            await self.cancel()  # first: a program that reads the refusal alone asks its model once more
        if allowed is None or chosen is None:
            return cancelled
        return RequestPermissionResponse(outcome=AllowedOutcome(outcome="selected", option_id=chosen.option_id))

    async def read_text_file(
        self, session_id: str, path: str, line: int | None = None, limit: int | None = None, **_: Any
    ) -> ReadTextFileResponse:
        try:
            text = await self._served(session_id).read(path)
        except ToolError as error:
            raise RequestError(_INVALID_PARAMS, error.message) from None
        lines, start = text.splitlines(keepends=True), max(0, (line or 1) - 1)
        return ReadTextFileResponse(content="".join(lines[start : None if limit is None else start + limit]))

    async def write_text_file(self, session_id: str, path: str, content: str, **_: Any) -> WriteTextFileResponse:
        try:
            await self._served(session_id).write(path, content)
        except ToolError as error:
            raise RequestError(_INVALID_PARAMS, error.message) from None
        return WriteTextFileResponse()

    def _served(self, session_id: str) -> AcpTurn:
        if self.turn is None or session_id != self.session:
            raise RequestError.invalid_request({"details": "no turn is running in this session"})
        return self.turn
