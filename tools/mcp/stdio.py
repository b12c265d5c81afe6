"""The pipes to an MCP server that we started: a JSON message a line, each way, through its supervisor.

A line has a longest length, and so have all messages that wait: a server that goes beyond is stopped. Of a burst, progress
and log notifications are dropped: nothing but a status line is lost. Output that is no JSON is noise, and left out.
"""

import math
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
import structlog
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp.types import jsonrpc_message_adapter

from tools.mcp.definition import ProgramEnd
from tools.output import Output
from tools.process import Finished, Supervised

log = structlog.get_logger()

MESSAGE_BYTES_MAX = 16 * 1024 * 1024
"""The longest message of a server."""
WAITING_MAX = 1_000
"""Messages that wait to be taken up; while there are so many, droppable notifications are dropped. Ten times as many end
the server."""
WAITING_BYTES_MAX = 4 * MESSAGE_BYTES_MAX
DROPPABLE = ("notifications/progress", "notifications/message")
REASON_CHARS = 200
LIFE_SECONDS = 7 * 86_400
ERRORS_BYTES = 4_096
Incoming: TypeAlias = SessionMessage | Exception
Streams: TypeAlias = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


class MessageLines(Output):
    """Cuts what the server writes into messages. `total` is how much waits; too much of it ends the server."""

    def __init__(self, messages: MemoryObjectSendStream[Incoming]) -> None:
        super().__init__(0)
        self._messages = messages
        self._begun = bytearray()
        self._waiting: deque[int] = deque()
        """The bytes of each message that was not taken up yet."""
        self._dropped = 0

    def feed(self, data: bytes) -> None:
        if self.total > MESSAGE_BYTES_MAX:
            return  # it is being stopped, and what it goes on to write makes no message whole
        *lines, rest = data.split(b"\n")
        for line in lines:
            whole = bytes(self._begun) + line if self._begun else line
            self._begun.clear()
            self._receive(whole)
        self._begun += rest
        self.total = max(self.total, len(self._begun)) if self.total > MESSAGE_BYTES_MAX else len(self._begun)

    def _receive(self, line: bytes) -> None:
        if not line.lstrip().startswith(b"{"):
            return
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValueError:
            log.warning("mcp_message_unreadable", bytes=len(line))
            return
        waiting = self._messages.statistics().current_buffer_used
        while len(self._waiting) > waiting:
            self._waiting.popleft()
        if waiting >= WAITING_MAX and getattr(message, "method", "") in DROPPABLE:
            self._dropped += 1
            if self._dropped.bit_count() == 1:  # the first, second, fourth, eighth …
                log.info("mcp_notifications_dropped", count=self._dropped)
            return
        if waiting >= WAITING_MAX * 10 or sum(self._waiting) + len(line) > WAITING_BYTES_MAX:
            self.total = sys.maxsize
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):  # the session is gone
            self._messages.send_nowait(SessionMessage(message))
            self._waiting.append(len(line))


@asynccontextmanager
async def pipes(supervised: Supervised, ended: ProgramEnd) -> AsyncIterator[Streams]:
    """The streams that the SDK's session speaks by. The server ends with them, and they with the server: `ended` says so."""
    to_session, received = anyio.create_memory_object_stream[Incoming](math.inf)
    sent, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    errors = Output(ERRORS_BYTES)

    async def read() -> None:
        with to_session:
            finished = await supervised.attend(MessageLines(to_session), LIFE_SECONDS, errors)
            error_output = errors.shown(ERRORS_BYTES)
            ended.reason = reason_of_end(finished, error_output)
            ended.set()
            log.info("mcp_server_ended", code=finished.code, limit=finished.limit, errors=error_output)

    async def write() -> None:
        with from_session:
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                try:
                    await supervised.send(f"{text}\n".encode())
                except OSError:
                    return  # it reads no more: what was asked fails as the connection ends

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(read)
            tasks.start_soon(write)
            with received, sent:
                yield received, sent
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await supervised.leave()


def reason_of_end(finished: Finished, errors: str) -> str:
    """The exit code of the program, or the limit that it reached, with the last line that it complained."""
    how = f"code {finished.code}" if finished.limit is None else f"it reached the limit of {finished.limit}"
    last = next((it.strip() for it in reversed(errors.splitlines()) if it.strip()), "")
    return f"its program has ended ({how}){last and ': ' + last[-REASON_CHARS:]}"
