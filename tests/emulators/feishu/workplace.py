"""Feishu's documents, sheets, tables, calendars, tasks and people, as far as tools call them, with rights per person.

It refuses what Feishu refuses: a token without the scope, a person without access, an unknown path, a method or a body of
another shape, a page size or a range beyond its limits. `grant` gives a person, or the app, access to one object.
"""

import functools
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.feishu.login import PeopleLogins
from tests.emulators.feishu.rules import Refusal

APP = "app"
DOC, SHEET, BASE, NODE, CALENDAR = "docxA", "shtA", "bscA", "wikA", "feishu.cn_cal@group.calendar.feishu.cn"
Handler: TypeAlias = Callable[["Caller"], Any]
BAD_BODY = 9499
PAGE = {"block_id": DOC, "block_type": 1, "children": ["b1"], "page": {"elements": [{"text_run": {"content": "Plan"}}]}}
LAMPS = {"block_id": "b1", "block_type": 2, "text": {"elements": [{"text_run": {"content": "Buy three lamps"}}]}}
_RENDERED = ("ToString", "Formula", "FormattedValue", "UnformattedValue")
_RANGE = re.compile(r"([A-Za-z0-9]+)!([A-Z]{1,3})([0-9]{1,7}):([A-Z]{1,3})([0-9]{1,7})")


class Body(BaseModel, extra="forbid", strict=True):
    """The base of every body: unknown members are refused."""


class ValueRange(Body):
    range: str
    values: list[list[str | int | float | bool | None]]


class Values(Body):
    value_range: ValueRange = Field(alias="valueRange")


class Record(Body):
    fields: dict[str, Any]
    record_id: str | None = None


class Records(Body):
    records: list[Record]


class Search(Body):
    view_id: str | None = None
    field_names: list[str] | None = None
    filter: dict[str, Any] | None = None
    sort: list[dict[str, Any]] | None = None


class Moment(Body):
    timestamp: str | None = None
    date: str | None = None
    timezone: str | None = None


class Event(Body):
    summary: str
    start_time: Moment
    end_time: Moment
    description: str | None = None
    need_notification: bool | None = None


class Attendee(Body):
    type: str
    user_id: str


class Attendees(Body):
    attendees: list[Attendee]


class FreeBusy(Body):
    time_min: str
    time_max: str
    user_ids: list[str]
    only_busy: bool | None = None


class Task(Body):
    summary: str
    client_token: str | None = None
    description: str | None = None
    due: dict[str, Any] | None = None


class TaskChange(Body):
    task: dict[str, Any]
    update_fields: list[str]


class Nothing(Body):
    pass


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """A call that may be made. `who` is the person's open id, or `app`."""

    who: str
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any


@dataclass(kw_only=True)
class Workplace:
    """`live` says which of the app's tokens are valid, `app_scopes` what the app may do with them."""

    logins: PeopleLogins
    live: Callable[[str], bool]
    app_scopes: set[str] = field(default_factory=set)
    access: dict[str, set[str]] = field(default_factory=dict)
    """Who may use each object."""
    deleted: set[str] = field(default_factory=set)
    node: tuple[str, str] = ("docx", DOC)
    """The object of the wiki's node: its type and its token."""
    blocks: list[dict[str, Any]] = field(default_factory=lambda: [PAGE, LAMPS])
    values: list[list[Any]] = field(default_factory=lambda: [["City", "Rain"], ["Hamburg", 7]])
    tabs: list[dict[str, Any]] = field(
        default_factory=lambda: [{"sheet_id": "0b1", "title": "Weather"}, {"sheet_id": "0b2", "title": "Empty"}]
    )
    grid: tuple[int, int] = (200, 20)
    """The rows and columns of each sheet."""
    fields: list[dict[str, Any]] = field(
        default_factory=lambda: [{"field_id": "fldA", "field_name": "Name", "type": 1, "ui_type": "Text"}]
    )
    records: dict[str, dict[str, Any]] = field(default_factory=dict)
    events: dict[str, dict[str, Any]] = field(default_factory=dict)
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    called: list[tuple[str, str, str]] = field(default_factory=list)
    """Who made which call, as far as it was permitted."""
    before: Callable[[str], Awaitable[object] | None] = lambda path: None
    after: Callable[[str], Awaitable[object] | None] = lambda path: None
    """Called before a call is looked at, which is dropped if that is awaited, and once it has been made but not answered."""
    _keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    _answers: list[tuple[str, Response]] = field(default_factory=list)

    def answer_next(self, path: str, *, status: int, **headers: str) -> None:
        """Answer the next request whose path ends so with this status instead."""
        self._answers.append((path, Response(status_code=status, headers=headers)))

    def refuse_next(self, path: str, code: int, *, status: int = 400) -> None:
        self._answers.append((path, JSONResponse({"code": code, "msg": "refused"}, status_code=status)))

    def grant(self, who: str, *objects: str) -> None:
        for it in objects:
            self.access.setdefault(it, set()).add(who)

    def routes(self) -> list[Route]:
        sheet, base = "sheets/v2/spreadsheets/{token}", "bitable/v1/apps/{app}/tables"
        events = "calendar/v4/calendars/{calendar}/events"
        rows = f"{base}/{{table}}/records"
        table: list[tuple[str, str, str, Handler, type[Body] | None]] = [
            ("GET", "docx/v1/documents/{doc}/raw_content", "docx:document:readonly", self._doc, None),
            ("GET", "docx/v1/documents/{doc}/blocks", "docx:document:readonly", self._blocks, None),
            ("GET", "wiki/v2/spaces/get_node", "wiki:node:read", self._node, None),
            (
                "GET",
                "sheets/v3/spreadsheets/{token}/sheets/query",
                "sheets:spreadsheet.meta:read",
                self._tabs,
                None,
            ),
            ("GET", f"{sheet}/values/{{range}}", "sheets:spreadsheet:read", self._values, None),
            ("PUT", f"{sheet}/values", "sheets:spreadsheet:write_only", self._write, Values),
            ("POST", f"{sheet}/values_append", "sheets:spreadsheet:write_only", self._append, Values),
            ("GET", base, "base:table:read", self._tables, None),
            ("GET", f"{base}/{{table}}/fields", "base:field:read", self._fields, None),
            ("POST", f"{rows}/search", "base:record:retrieve", self._search, Search),
            ("POST", f"{rows}/batch_create", "base:record:create", self._create_records, Records),
            ("POST", f"{rows}/batch_update", "base:record:update", self._update_records, Records),
            ("POST", "calendar/v4/calendars/primary", "calendar:calendar:read", self._primary, Nothing),
            ("GET", f"{events}/instance_view", "calendar:calendar.event:read", self._agenda, None),
            ("POST", events, "calendar:calendar.event:create", self._create_event, Event),
            ("POST", f"{events}/{{event}}/attendees", "calendar:calendar.event:update", self._invite, Attendees),
            ("POST", "calendar/v4/freebusy/batch", "calendar:calendar.free_busy:read", self._busy, FreeBusy),
            ("GET", "task/v2/tasks", "task:task:read", self._tasks, None),
            ("POST", "task/v2/tasks", "task:task:write", self._create_task, Task),
            ("PATCH", "task/v2/tasks/{guid}", "task:task:write", self._change_task, TaskChange),
            ("GET", "search/v1/user", "contact:user:search", self._people, None),
        ]
        return [
            Route(f"/open-apis/{path}", self._answering(scope, handler, body), methods=[method])
            for method, path, scope, handler, body in table
        ]

    def _answering(self, scope: str, handler: Handler, body: type[Body] | None) -> Any:
        async def answering(request: Request) -> Response:
            given_path = request.url.path
            if (dropping := self.before(given_path)) is not None:
                await dropping
                return Response(status_code=503)
            if other := next((it for it in self._answers if given_path.endswith(it[0])), None):
                self._answers.remove(other)
                return other[1]
            try:
                who = self._who(request, scope)
                given = await _given(request, body)
                caller = Caller(who=who, path=request.path_params, query=dict(request.query_params), body=given)
                data = handler(caller)
            except Refusal as refusal:
                answer: dict[str, Any] = {"code": refusal.code, "msg": refusal.message}
                if refusal.code in (99991672, 99991679):
                    violation = {"type": "action_scope_required", "subject": scope}
                    answer["error"] = {"log_id": "1", "permission_violations": [violation]}
                return JSONResponse(answer, status_code=refusal.status)
            self.called.append((who, request.method, request.url.path))
            if (waiting := self.after(request.url.path)) is not None:
                await waiting
            return JSONResponse({"code": 0, "msg": "success", "data": data})

        return answering

    def _who(self, request: Request, scope: str) -> str:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token:
            raise Refusal(99991661, "Missing access token for authorization.", status=400)
        if not token.startswith("t-"):
            return self.logins.person_of(token, [scope])
        if not self.live(token):
            raise Refusal(99991668, "Invalid access token for authorization.", status=401)
        if scope not in self.app_scopes:
            raise Refusal(99991672, f"Access denied. One of the following scopes is required: [{scope}].", status=400)
        return APP

    def _may(self, caller: Caller, object_: str, *, missing: int, forbidden: int) -> None:
        if object_ not in (DOC, SHEET, BASE, NODE, CALENDAR):
            raise Refusal(missing, "not found", status=404)
        if object_ in self.deleted:
            raise Refusal({DOC: 1770003, SHEET: 1310249}.get(object_, missing), "deleted", status=400)
        if caller.who not in self.access.get(object_, ()):
            raise Refusal(forbidden, "no permission", status=403)

    def _doc(self, caller: Caller) -> Any:
        self._may(caller, caller.path["doc"], missing=1770002, forbidden=1770032)
        return {"content": "The plan of Ann\nBuy three lamps"}

    def _blocks(self, caller: Caller) -> Any:
        self._may(caller, caller.path["doc"], missing=1770002, forbidden=1770032)
        return _page(caller, self.blocks, size_max=500, default=500, bad_size=1770001, bad_token=1770022)

    def _node(self, caller: Caller) -> Any:
        self._may(caller, caller.query.get("token", ""), missing=131005, forbidden=131006)
        obj_type, obj_token = self.node
        return {"node": {"node_token": NODE, "obj_type": obj_type, "obj_token": obj_token, "title": "Plan"}}

    def _tabs(self, caller: Caller) -> Any:
        self._may(caller, caller.path["token"], missing=1310214, forbidden=1310213)
        rows, columns = self.grid
        grid = {
            "grid_properties": {"row_count": rows, "column_count": columns},
            "resource_type": "sheet",
            "hidden": False,
        }
        return {"sheets": [{**grid, "index": index, **it} for index, it in enumerate(self.tabs)]}

    def _values(self, caller: Caller) -> Any:
        """The cells of the range alone, with null for those that are empty."""
        self._sheet(caller, caller.path["range"])
        options = {"valueRenderOption": _RENDERED, "dateTimeRenderOption": ("FormattedString",)}
        if any(value not in options.get(name, ()) for name, value in caller.query.items()):
            raise Refusal(90204, "wrong query", status=400)
        match = _RANGE.fullmatch(caller.path["range"])
        if match is None:
            raise Refusal(90202, "wrong range", status=400)
        left, top, right, end = _column(match[2]), int(match[3]), _column(match[4]), int(match[5])
        if not (0 < top <= end <= self.grid[0] and left <= right <= self.grid[1]):
            raise Refusal(90202, "range exceeds the grid", status=400)
        own = self.values if match[1] == "0b1" else []
        rows = [own[at] if at < len(own) else [] for at in range(top - 1, end)]
        cells = [[row[at] if at < len(row) else None for at in range(left - 1, right)] for row in rows]
        return {"revision": 1, "valueRange": {"majorDimension": "ROWS", "range": caller.path["range"], "values": cells}}

    def _write(self, caller: Caller) -> Any:
        self._sheet(caller, caller.body.value_range.range)
        self.values = [*caller.body.value_range.values]
        return {"updatedRange": caller.body.value_range.range, "updatedRows": len(self.values)}

    def _append(self, caller: Caller) -> Any:
        self._sheet(caller, caller.body.value_range.range)
        self.values += caller.body.value_range.values
        return {"tableRange": caller.body.value_range.range}

    def _sheet(self, caller: Caller, range_: str) -> None:
        self._may(caller, caller.path["token"], missing=1310214, forbidden=1310213)
        if range_.partition("!")[0] not in [it["sheet_id"] for it in self.tabs]:
            raise Refusal(1310216, "sheet not found", status=400)

    def _base(self, caller: Caller) -> None:
        self._may(caller, caller.path["app"], missing=1254040, forbidden=1254302)
        if caller.path.get("table", "tblA") != "tblA":
            raise Refusal(1254041, "TableIdNotFound", status=404)

    def _tables(self, caller: Caller) -> Any:
        self._base(caller)
        tables = [{"table_id": "tblA", "name": "Leads"}]
        return _page(caller, tables, size_max=100, default=20, bad_size=1254002, bad_token=1254002)

    def _fields(self, caller: Caller) -> Any:
        self._base(caller)
        return _page(caller, self.fields, size_max=100, default=20, bad_size=1254002, bad_token=1254002)

    def _search(self, caller: Caller) -> Any:
        self._base(caller)
        items = [
            {"record_id": id_, "fields": {name: self._given_back(name, it) for name, it in fields.items()}}
            for id_, fields in self.records.items()
        ]
        return _page(caller, items, size_max=500, default=20, bad_size=1254002, bad_token=1254002)

    def _given_back(self, name: str, value: Any) -> Any:
        """Text comes back in parts."""
        is_text = any(it["type"] == 1 for it in self.fields if it["field_name"] == name)
        return [{"text": value, "type": "text"}] if is_text and isinstance(value, str) else value

    def _create_records(self, caller: Caller) -> Any:
        self._base(caller)
        made = {f"rec{len(self.records) + number}": it.fields for number, it in enumerate(caller.body.records)}
        if any(set(it) - {it["field_name"] for it in self.fields} for it in made.values()):
            raise Refusal(1254045, "FieldNameNotFound", status=400)
        self.records |= made
        return {"records": [{"record_id": id_, "fields": fields} for id_, fields in made.items()]}

    def _update_records(self, caller: Caller) -> Any:
        self._base(caller)
        for it in caller.body.records:
            if it.record_id not in self.records:
                raise Refusal(1254043, "RecordIdNotFound", status=404)
            self.records[it.record_id] |= it.fields
        return {"records": [{"record_id": it.record_id} for it in caller.body.records]}

    def _primary(self, caller: Caller) -> Any:
        return {"calendars": [{"user_id": caller.who, "calendar": {"calendar_id": CALENDAR, "type": "primary"}}]}

    def _agenda(self, caller: Caller) -> Any:
        self._may(caller, caller.path["calendar"], missing=191001, forbidden=191002)
        if not {"start_time", "end_time"} <= caller.query.keys():
            raise Refusal(190002, "invalid parameters in request", status=400)
        return {"items": [*self.events.values()]}

    def _create_event(self, caller: Caller) -> Any:
        self._may(caller, caller.path["calendar"], missing=191001, forbidden=191002)
        key = caller.query.get("idempotency_key", "")
        if key and key in self._keys:
            return self._keys[key]
        event = {"event_id": f"evt_{len(self.events)}", **caller.body.model_dump(exclude_none=True)}
        self.events[event["event_id"]] = event
        self._keys[key or secrets.token_hex()] = {"event": event}
        return {"event": event}

    def _invite(self, caller: Caller) -> Any:
        self._may(caller, caller.path["calendar"], missing=191001, forbidden=191002)
        if caller.path["event"] not in self.events:
            raise Refusal(193001, "event not found", status=404)
        return {"attendees": [it.model_dump() for it in caller.body.attendees]}

    def _busy(self, caller: Caller) -> Any:
        if not 0 < len(caller.body.user_ids) <= 10:
            raise Refusal(190002, "invalid parameters in request", status=400)
        return {"freebusy_lists": [{"user_id": it, "freebusy_items": []} for it in caller.body.user_ids]}

    def _tasks(self, caller: Caller) -> Any:
        return {"items": [it for it in self.tasks.values() if it["creator"] == caller.who], "has_more": False}

    def _create_task(self, caller: Caller) -> Any:
        key = caller.body.client_token or secrets.token_hex()
        if key not in self._keys:
            task = {"guid": f"task{len(self.tasks)}", "summary": caller.body.summary, "creator": caller.who}
            self.tasks[task["guid"]] = task
            self._keys[key] = {"task": task}
        return self._keys[key]

    def _change_task(self, caller: Caller) -> Any:
        task = self.tasks.get(caller.path["guid"])
        if task is None:
            raise Refusal(1470404, "not found", status=404)
        if task["creator"] != caller.who:
            raise Refusal(1470403, "forbidden", status=403)
        if caller.body.task.keys() - set(caller.body.update_fields):
            raise Refusal(1470400, "update_fields", status=400)
        task |= caller.body.task
        return {"task": task}

    def _people(self, caller: Caller) -> Any:
        if not (words := caller.query.get("query", "")):
            raise Refusal(40003, "query is required", status=400)
        found = [{"open_id": id_, "name": name} for id_, name in self.logins.users.items() if words in name]
        return {"users": found, "has_more": False}


def _page(
    caller: Caller, items: list[dict[str, Any]], *, size_max: int, default: int, bad_size: int, bad_token: int
) -> dict[str, Any]:
    """One page of the items, as the query asks for it."""
    query = dict(caller.query)
    size, token = query.pop("page_size", str(default)), query.pop("page_token", "p0")
    if not size.isdecimal() or not 0 < int(size) <= size_max or query:
        raise Refusal(bad_size, "invalid param", status=400)
    if not re.fullmatch(r"p[0-9]{1,7}", token) or int(token[1:]) > len(items):
        raise Refusal(bad_token, "invalid page token", status=400)
    start = int(token[1:])
    end = min(len(items), start + int(size))
    following = {"page_token": f"p{end}"} if end < len(items) else {}
    return {"items": items[start:end], "has_more": end < len(items), "total": len(items), **following}


def _column(letters: str) -> int:
    return functools.reduce(lambda number, letter: number * 26 + ord(letter) - ord("A") + 1, letters, 0)


async def _given(request: Request, body: type[Body] | None) -> Any:
    raw = await request.body()
    if body is None:
        if raw:
            raise Refusal(BAD_BODY, "a GET has no body", status=400)
        return None
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Refusal(BAD_BODY, "content type must be application/json", status=400)
    try:
        return body.model_validate(orjson.loads(raw))
    except (ValidationError, orjson.JSONDecodeError) as error:
        raise Refusal(BAD_BODY, f"Bad Request: {type(error).__name__}", status=400) from None
