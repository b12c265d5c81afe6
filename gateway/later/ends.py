"""The ends of background commands: `tools.process.EndReports` on the table of due rows.

A command whose end is to be reported has a row, stored before it starts. The row is due at the command's end and is
polled every few seconds before, because the gateway that runs the command may have died with it. The worker that takes
the row reads the record and puts the report into the conversation's inbox, in the same commit: exactly once, on any
replica.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Final

import structlog
from pydantic import TypeAdapter

from channels.api.channel import ApiChannel
from channels.message import MessageContext, Origin
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import REPORT, Inbound
from gateway.store.later import Later, Step
from gateway.store.records import Delivery
from gateway.store.sessions import agent_of, chat_of, sender_behind, task_of
from gateway.turns.reports import CommandEnd, command_end_json
from gateway.turns.tasks import wordless
from tools.process import BackgroundCommand, details_of, read_record, short, state_of
from tools.tool import Call, ToolError
from tools.workspace import folder_of, processes_of

KIND: Final = "process"
LOOK_SECONDS = 15.0
"""Polling interval in seconds for a command's record, in case its gateway died."""
OUTPUT_CHARS_MAX = 8_000
"""Characters of a command's output that the conversation gets; `log` shows the rest."""

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Expected:
    """A command whose end is to be reported: its record and the message to reply to. `turn` started it; `stopped_by`
    is the message that ended it without a report, 0 for none."""

    session: str
    turn: int
    folder: str
    id: str
    context: MessageContext
    stopped_by: int = 0


expected_json: TypeAdapter[Expected] = TypeAdapter(Expected)


class CommandEnds:
    """The ends of the commands of all conversations. `serve` binds it to a gateway."""

    def serve(self, runtime: Runtime, wake: Callable[[], None]) -> None:
        self._runtime, self.wake, self._store = runtime, wake, runtime.store.later

    async def expect(self, record: BackgroundCommand, call: Call) -> Callable[[], Awaitable[None]]:
        context, now = call.message, self._runtime.now()
        if task_of(call.session) or context.channel == ApiChannel.name:
            where = "a task ends before it could be told" if task_of(call.session) else "a program asks here"
            raise ToolError("UNSUPPORTED", f"{where}; start it without notify, and poll until it has ended")
        lane = self._runtime.control.lanes.get(call.session)
        expected = Expected(
            session=call.session,
            turn=lane.number if lane else 0,
            folder=str(record.folder),
            id=record.id,
            context=wordless(context),
        )
        id_ = _row_id(call.session, record)
        row = Later(
            id=id_,
            kind=KIND,
            due=now + LOOK_SECONDS,
            owner=sender_behind(context),
            place=chat_of(context),
            state="active",
            body=expected_json.dump_json(expected).decode(),
            since=now,
        )
        try:
            await self._store.expect(row)
        except StoreUnavailable as error:
            message = "the database does not answer now, so its end could not be reported; it did not start"
            raise ToolError("PROCESS_UNAVAILABLE", message, retryable=True) from error
        return partial(self._ended, id_)

    async def _ended(self, id_: str) -> None:
        """Make the row due now. If the database is unavailable, the next poll finds it."""
        try:
            await self._store.hasten(id_, self._runtime.now())
            self.wake()
        except StoreUnavailable as error:
            log.warning("command_end_waits", id=id_, error=repr(error))

    async def halt(self, session: str, *, by: int) -> Sequence[BackgroundCommand]:
        """End the commands that a conversation started before message `by` and whose end would be reported; no
        report is sent. Return the commands that it ended. Idempotent per `by`. Raises StoreUnavailable."""
        processes, uploads = self._runtime.setup.processes, Path(self._runtime.setup.config.tools.files.uploads_dir)
        records = await asyncio.to_thread(processes.records, processes_of(folder_of(uploads, session)))
        rows = {it.id: it for it in await self._store.those([_row_id(session, it) for it in records])}
        ended = []
        for record in records:
            row = rows.get(_row_id(session, record))
            expected = expected_json.validate_json(row.body) if row else None
            if row is None or expected is None:
                continue
            is_running = row.state == "active" and record.state in ("running", "elsewhere") and expected.turn < by
            body = expected_json.dump_json(replace(expected, stopped_by=by)).decode()
            if expected.stopped_by == by or (is_running and await self._store.halt(row.id, body)):
                ended.append(record)
                record.ask_to_end()
        return ended

    async def step(self, row: Later, expected: Expected, now: float) -> Step:
        """Return the step that is due for a row of this kind: another poll, or the report."""
        record = await asyncio.to_thread(read_record, Path(expected.folder), expected.id)
        if record is None:  # erased, or it never started
            return Step(later=row, next=None, state="cancelled")
        if record.state in ("running", "elsewhere"):
            return Step(later=row, next=now + LOOK_SECONDS, state="active")
        delivery = await asyncio.to_thread(_report, row, expected, record, now)
        return Step(later=row, next=None, state="done", delivery=delivery, again=now + LOOK_SECONDS)


def _report(row: Later, expected: Expected, record: BackgroundCommand, now: float) -> Delivery:
    """Build the message that reports the end. Blocking: it renders terminal output."""
    before = expected.context.origin
    origin = Origin(
        kind=KIND,
        id=record.id,
        run=str(expected.turn),
        title=short(record.command),
        by_operator=before is not None and before.by_operator,
        external=before is not None and before.external,
    )
    seconds = None if record.ended is None else max(0.0, record.ended - record.started)
    end = CommandEnd(note=state_of(record, now), details=details_of(record), seconds=seconds)
    output = record.output.since(0).shown(OUTPUT_CHARS_MAX).rstrip("\n")
    context = replace(expected.context, text=output, sent_at=datetime.fromtimestamp(now, UTC), origin=origin)
    inbound = Inbound(
        agent=agent_of(expected.session),
        context=context,
        command=REPORT,
        arguments=command_end_json.dump_json(end).decode(),
    )
    name = f"gateway:process:{row.id}:ended"
    return Delivery.own(inbound, name, sid=expected.session, at=now, sender=sender_behind(context))


def _row_id(session: str, record: BackgroundCommand) -> str:
    return "P-" + sha256(f"{session} {record.id} {record.started!r}".encode()).hexdigest()[:16]
