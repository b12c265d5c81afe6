"""The routes of the console's room for what is to come and what runs beside: schedules, and tasks.

Both are changed by the functions that the command line and the chat have for it. An act names the state that the page saw:
what has changed meanwhile is not changed again.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import structlog
from fastapi import Request, Response
from pydantic import BaseModel

from gateway.fault import OperatorError
from gateway.http.bodies import Bodies
from gateway.http.request import PersonRoute, Unserved, answer_json, id_in_path, number_of, read_json
from gateway.operate import schedules
from gateway.operate.clipped import brief
from gateway.operate.sessions import named
from gateway.state.runtime import Runtime
from gateway.store.conversations import Names
from gateway.store.sessions import LOCAL_PERSON
from gateway.store.tasks import Task
from gateway.turns.tasks import Tasks
from gateway.web.listing import ROWS_MAX, page

Act: TypeAlias = Literal["pause", "resume", "stop"]
STATES: Mapping[Act, Sequence[str]] = {"pause": ("active",), "resume": ("paused",), "stop": ("active", "paused")}
"""The states of a schedule in which an act is possible."""
TASKS_MAX = 200
NO_MESSAGE = 0
"""The number of a command that stops a task without a message."""
NOT_CHANGED = 409, "not-changed", "It has changed meanwhile, and was left as it is."

log = structlog.get_logger()


class _Change(BaseModel, extra="forbid", strict=True):
    act: Act


class _Stop(BaseModel, extra="forbid", strict=True):
    """Holds nothing: the address says all."""


class Plans:
    """Routes of `gateway.web.door`; each gets the operator."""

    def __init__(self, runtime: Runtime, tasks: Tasks, bodies: Bodies) -> None:
        self._runtime = runtime
        self._tasks = tasks
        self._bodies = bodies

    def routes(self) -> Sequence[tuple[str, str, PersonRoute]]:
        return (
            ("GET", "/api/console/schedules", self.schedules),
            ("POST", "/api/console/schedules/{schedule}", self.change),
            ("GET", "/api/console/tasks", self.tasks),
            ("POST", "/api/console/tasks/{task}", self.stop),
        )

    async def schedules(self, request: Request, person: str) -> Response:
        """A page of them; the person who asked for one and its place have their names as `ownerName` and `toName`."""
        shown = await asyncio.to_thread(self._schedules, request.query_params)
        return answer_json({"schedules": shown.pop("rows")} | shown)

    def _schedules(self, query: Mapping[str, str]) -> dict[str, Any]:
        """Read the rows of the page alone unless words are looked for: the room asks again every few seconds."""
        config = self._runtime.setup.config
        if query.get("words") or query.get("agent"):
            return page(self._with_names(schedules.listed(config)), query)
        first = number_of(query.get("from", "")) or 0
        rows, count = schedules.page(config, first=first, most=ROWS_MAX)
        return {"rows": brief(self._with_names(rows)), "from": first, "count": count}

    def _with_names(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        names = named(self._runtime.setup.config)
        return [
            it | {"ownerName": names.person(it["owner"]), "toName": names.place(it["to"]) or names.person(it["to"])}
            for it in rows
        ]

    async def change(self, request: Request, person: str) -> Response:
        """Pauses a schedule, lets it go on, or ends a person's for good."""
        given, id_ = await read_json(request, _Change, self._bodies), id_in_path(request, "schedule")
        try:
            after = await asyncio.to_thread(self._changed, id_, given.act)
        except OperatorError as error:
            raise Unserved(409, "not-changed", str(error)) from None
        log.info("schedule_changed", id=id_, act=given.act, by=LOCAL_PERSON)
        return answer_json(after)

    def _changed(self, id_: str, act: Act) -> dict[str, Any]:
        config = self._runtime.setup.config
        if schedules.one(config, id_)["state"] not in STATES[act]:
            raise Unserved(*NOT_CHANGED)
        return schedules.cancel(config, id_) if act == "stop" else schedules.pause(config, id_)

    async def tasks(self, request: Request, person: str) -> Response:
        """The newest tasks of all conversations; those that run come first."""
        newest = await self._runtime.store.tasks.newest(TASKS_MAX)
        names = await asyncio.to_thread(named, self._runtime.setup.config)
        shown = page([self._view(it, names) for it in newest], request.query_params, begin="tasks")
        return answer_json({"tasks": shown.pop("rows")} | shown)

    def _view(self, task: Task, names: Names) -> dict[str, Any]:
        seconds = (task.ended or self._runtime.now()) - task.started
        facts: dict[str, Any] = {
            "id": task.id,
            "agent": task.agent,
            "person": task.person,
            "personName": names.person(task.person),
            "chat": task.chat,
            "chatName": names.place(task.chat),
        }
        facts |= {"title": self._runtime.scrubber.scrub(task.title), "state": task.state, "started": task.started}
        return facts | {"seconds": round(max(0.0, seconds), 1)}

    async def stop(self, request: Request, person: str) -> Response:
        await read_json(request, _Stop, self._bodies)
        task = await self._runtime.store.tasks.get(id_in_path(request, "task"))
        if task is None or not await self._tasks.halt([task], by=NO_MESSAGE):
            raise Unserved(*NOT_CHANGED)
        log.info("task_stopped", task=task.id, by=LOCAL_PERSON)
        return answer_json({"id": task.id, "state": "stopped"})
