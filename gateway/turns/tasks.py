"""Tasks: `tools.task.Delegate` on the store, and the report of a result to the conversation that asked.

A task is a message in a separate conversation, so it runs, waits for approvals and survives a kill like any turn. The
commit of its last turn puts its report into the inbox of the conversation that asked. There the report waits in the
lane. It is sent unless that conversation's transcript already has the result.
"""

import asyncio
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

import structlog
from pydantic import TypeAdapter

from agents.context import truncate_result
from agents.language import Language, language_for
from agents.messages import EXTERNAL, Text, ToolResultMessage
from agents.prompt.fences import external, harmless
from channels.message import MessageContext, Origin, OriginKind, StoredFile
from gateway.approvals.approvals import Approvals
from gateway.approvals.display import value
from gateway.approvals.notices import message_json as context_json
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import REPORT, Inbound
from gateway.store.records import Delivery
from gateway.store.sessions import agent_of, chat_of, is_open, person_of, sender_behind, task_of, task_session
from gateway.store.statements import NEVER
from gateway.store.tasks import BEGUN, Task, TaskEnd, TaskState
from gateway.turns.batch import Batch
from gateway.turns.reports import keep, tells
from tools.task import Delegated, Order, failure
from tools.tool import SOURCES, Call, ToolError, repeats, task_source, turn_source

ID_CHARS = 8
IDS_TRIED = 3
LOOK_SECONDS = 1.0
"""Polling interval in seconds of a waiting turn, in case another replica ends the task."""
LISTED_MAX = 20
RESULT_CHARS_MAX = 20_000
"""Characters of a result that the conversation keeps; the user is sent all of it."""
_STATES: dict[str, TaskState] = {"replied": "ended", "silent": "ended", "stopped": "stopped", "recalled": "recalled"}

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """The content of a task's result. `paths` are the workspace paths that the agent named."""

    text: str = ""
    files: tuple[StoredFile, ...] = ()
    paths: tuple[str, ...] = ()

    @property
    def whole(self) -> str:
        """The text for a model, with the names of the files."""
        return "\n\n".join(filter(None, (self.text, f"Files: {', '.join(self.paths)}" if self.paths else "")))


result_json: TypeAdapter[Result] = TypeAdapter(Result)


class Tasks:
    """Start, end and report the tasks of all conversations. `serve` binds it to a gateway."""

    def __init__(self) -> None:
        self._ended: dict[str, asyncio.Event] = {}
        """The tasks that a turn of this process waits for."""

    def serve(self, runtime: Runtime, approvals: Approvals) -> None:
        self._runtime, self._approvals, self._store = runtime, approvals, runtime.store.tasks

    async def start(self, order: Order, call: Call) -> Delegated:
        agent, now = self._agent(order, call), self._runtime.now()
        lane, context = self._runtime.control.lanes.get(call.session), call.message
        new = Task(
            id="",
            parent=call.session,
            sid="",
            chat=chat_of(context),
            person=person_of(context) if context.sender.id else "",
            agent=agent,
            title=order.title,
            turn=lane.number if lane else 0,
            origin=context_json.dump_json(wordless(context)).decode(),
            started=now,
            external=int(call.tainted),
        )
        names = (sha256(f"{call.key} {number}".encode()).hexdigest()[:ID_CHARS] for number in range(IDS_TRIED))
        tries = [replace(new, id=id_, sid=task_session(agent, call.session, id_)) for id_ in names]
        most = self._runtime.setup.limits.tasks_per_chat
        try:
            task = await self._store.begin(call.key, tries, most)
            if task is None:
                message = f"{most} tasks run in this chat already; wait for one, or stop one"
                raise ToolError("TASKS_BUSY", message, retryable=True)
            if order.waits:
                self._ended.setdefault(task.id, asyncio.Event())
            if task.state == "running":
                await self._runtime.accept(self._order(task, order, call))
                log.info("task_started", task=task.id, session=task.parent, agent=agent)
            return self._seen(await self._waited(task) if order.waits else task)
        except StoreUnavailable as error:
            raise _unavailable() from error
        finally:
            if order.waits:
                for it in tries:
                    self._ended.pop(it.id, None)

    async def tasks(self, call: Call) -> Sequence[Delegated]:
        try:
            return [self._seen(it) for it in await self.of(call.session)]
        except StoreUnavailable as error:
            raise _unavailable() from error

    async def stop(self, id_: str, call: Call) -> Delegated:
        lane = self._runtime.control.lanes.get(call.session)
        try:
            task = next((it for it in await self.of(call.session) if it.id == id_), None)
            if task is None:
                raise ToolError("NOT_FOUND", f"this conversation has no task {id_[:64]!r}; `list` shows those it has")
            await self.halt([task], by=lane.number if lane else 0)
            return self._seen(await self._store.get(id_) or task)
        except StoreUnavailable as error:
            raise _unavailable() from error

    async def of(self, session: str) -> Sequence[Task]:
        """Return the tasks of a conversation: all running ones, then the newest of the others; each newest first.
        Raises StoreUnavailable."""
        tasks = [*reversed(await self._store.of(session))]
        running = [it for it in tasks if it.ended is None]
        return [*running, *[it for it in tasks if it.ended is not None][: max(0, LISTED_MAX - len(running))]]

    async def halt(self, tasks: Sequence[Task], *, by: int) -> Sequence[Task]:
        """Stop the tasks that still run, on behalf of command `by`, and return those it stopped. Raises
        StoreUnavailable."""
        stopped = await self._store.stop([it.id for it in tasks], by, self._runtime.now())
        for task in stopped:
            await self._approvals.cancel(task.sid, by)
            await self._runtime.control.stop(task.sid, NEVER)
            self._tell(task.id)
        return stopped

    async def halt_of(self, session: str, turn: int, *, by: int) -> Sequence[Task]:
        """Stop the tasks that a turn started, because the conversation forgets that turn. Raises StoreUnavailable."""
        return await self.halt([it for it in await self._store.of(session) if it.turn == turn], by=by)

    async def end_of(self, sid: str, turn: int, ending: Ending) -> TaskEnd | None:
        """Return the end of the task of this conversation, to commit together with its turn. None if there is no
        task, or if a decision or another message is still to come. Raises StoreUnavailable."""
        if (id_ := task_of(sid)) is None or await self._store.goes_on(sid, turn):
            return None
        if (task := await self._store.get(id_)) is None:  # erased
            return None
        state = _STATES.get(ending.outcome, "failed")
        result = Result(text=ending.reply.shown or "", files=ending.reply.files, paths=ending.media)
        return TaskEnd(
            id=id_,
            state=state,
            at=self._runtime.now(),
            result=result_json.dump_json(result).decode(),
            external=ending.external,
            report=None if ending.reply.shown is None else self.report_of(task),  # a stop and a recall say nothing
        )

    def committed(self, end: TaskEnd) -> None:
        """Wake the turn that waits for the task, and the conversation that gets its report."""
        self._tell(end.id)
        if end.report:
            self._runtime.expect(end.report.sid)
        log.info("task_ended", task=end.id, state=end.state)

    def report_of(self, task: Task) -> Delivery:
        """Build the message that reports the task's end to the conversation that asked."""
        asked = context_json.validate_json(task.origin)
        context = replace(asked, sent_at=self._now, origin=_origin(asked, "result", task.id, task.title))
        inbound = Inbound(agent=agent_of(task.parent), context=context, command=REPORT)
        return Delivery.own(
            inbound, f"{BEGUN}{task.id}:ended", sid=task.parent, at=self._runtime.now(), sender=sender_behind(context)
        )

    async def report(self, batch: Batch) -> Ending:
        """Write the transcript rows and return the reply that says how a task ended. Raises Fenced or Revised."""
        context, origin = batch.inbound.context, batch.inbound.context.origin
        task = await self._store.get(origin.id) if origin else None
        if origin is None or task is None or batch.inbound.recalled or task.state == "recalled":
            return Ending(outcome="reported", reason="gone")
        result = result_json.validate_json(task.result or "{}")
        if not batch.work.so_far:
            if any(tells(row, task.id) for row in await self._store.results(task.parent, task.turn, task.id)):
                return Ending(outcome="reported", reason="known")
            await self._keep(batch, task, result)
        head = _head(task, language_for(context))
        return Ending(outcome="reported", reply=Reply(text=f"{head}\n\n{result.text}".strip(), files=result.files))

    async def _keep(self, batch: Batch, task: Task, result: Result) -> None:
        """Write the rows of the report: the gateway's note, and the result as a tool result."""
        text, has_failed = truncate_result(result.whole or task.state, RESULT_CHARS_MAX), task.state != "ended"
        details: dict[str, Any] = {"id": task.id, "state": task.state}
        details[SOURCES] = [turn_source(task.turn), task_source(task.id)]
        if task.external:
            text, details = external(text, f"task {task.id}", secrets.token_hex(8)), details | {EXTERNAL: True}
        text = f"{failure(task.id)}\n{text}" if has_failed else text
        content = (Text(text=text),)
        given = ToolResultMessage(call_id="", tool="task", content=content, is_error=has_failed, details=details)
        await keep(self._runtime, batch, {"action": "list", "id": task.id}, given)

    async def _waited(self, task: Task) -> Task:
        """Wait for the task to end. On timeout, return it in its current state."""
        event, loop = self._ended.setdefault(task.id, asyncio.Event()), asyncio.get_running_loop()
        begun = min(task.started, self._runtime.now())
        until = loop.time() + begun + self._runtime.setup.limits.task_wait_seconds - self._runtime.now()
        while task.ended is None and (left := until - loop.time()) > 0:
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, LOOK_SECONDS)):
                    await event.wait()
            event.clear()
            task = await self._store.get(task.id) or replace(task, state="stopped", ended=0.0)
        return task

    def is_awaited(self, sid: str) -> bool:
        """Return whether a turn of this process waits for the task of this conversation."""
        return task_of(sid) in self._ended

    def _tell(self, id_: str) -> None:
        if event := self._ended.get(id_):
            event.set()

    def _agent(self, order: Order, call: Call) -> str:
        """Return the agent that does the task: one that the user may talk to here. Raises ToolError."""
        setup, own = self._runtime.setup, agent_of(call.session)
        if task_of(call.session):
            raise ToolError("TOOL_NOT_ALLOWED", "a task hands nothing on; do it yourself")
        agent = order.agent or own
        open_ = [own, *(it for it in setup.runners if is_open(setup.config, setup.owners, it, call.message))]
        if agent not in open_:
            there = ", ".join(sorted({*open_}))
            raise ToolError("UNKNOWN_AGENT", f"there is no agent {agent[:64]!r} here; there is: {there}")
        return agent

    def _order(self, task: Task, order: Order, call: Call) -> Delivery:
        asked = replace(call.message, language=language_for(call.message))
        origin = _origin(asked, "task", task.id, task.title)
        text = harmless(order.prompt) if origin.external else order.prompt
        context = replace(wordless(asked), text=text, sent_at=self._now, origin=replace(origin, tainted=call.tainted))
        inbound = Inbound(agent=task.agent, context=context)
        return Delivery.own(
            inbound, f"{BEGUN}{task.id}", sid=task.sid, at=self._runtime.now(), sender=sender_behind(context)
        )

    @property
    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._runtime.now(), tz=UTC)

    def _seen(self, task: Task) -> Delegated:
        result = result_json.validate_json(task.result) if task.result else Result()
        repeats(turn_source(task.turn), task_source(task.id))
        return Delegated(
            id=task.id,
            title=task.title,
            agent=task.agent,
            state=task.state,
            seconds=max(0.0, (task.ended or self._runtime.now()) - task.started),
            result=result.whole,
            external=bool(task.external),
        )


def wordless(context: MessageContext) -> MessageContext:
    """Return the message to reply to, without its text."""
    answered = context.press.message_id if context.press else context.message_id
    return replace(context.wordless, press=None, message_id=answered, language=language_for(context))


def _origin(asked: MessageContext, kind: OriginKind, id_: str, title: str) -> Origin:
    """Return the origin of a message on behalf of the user for whom the asking turn runs."""
    before = asked.origin
    by_operator, is_external = (before.by_operator, before.external) if before else (False, False)
    return Origin(kind=kind, id=id_, title=title, by_operator=by_operator, external=is_external)


def _head(task: Task, language: Language) -> str:
    name = value(task.title)
    if language == "zh":
        return f"任务 {task.id}（{name}）{'失败：' if task.state == 'failed' else '已完成：'}"
    return f"Task {task.id}, {name}, has {'failed' if task.state == 'failed' else 'ended'}:"


def _unavailable() -> ToolError:
    message = "the database does not answer now, so it is not known what became of the call; look with `list`"
    return ToolError("TASK_UNAVAILABLE", message, retryable=True)
