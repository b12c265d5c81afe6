"""The areas of Feishu's open platform that the tool `feishu` may call: a closed table of methods and paths.

Each line says whether the call reads or writes, its method, its path and the permissions that it needs. What is not in the
table cannot be called. Sending as a person, and deleting documents, events and tables, are not in it on purpose. Source:
the server API of the open platform (2026).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias
from urllib.parse import quote, unquote

from tools.tool import ToolError

Area: TypeAlias = Literal["docs", "wiki", "sheets", "bitable", "calendar", "tasks", "contacts", "messages"]
ROOT = "/open-apis/"
PATH_CHARS_MAX = 1_000
_TABLE = """
docs
  read  GET    docx/v1/documents/:id                                  docx:document:readonly
  read  GET    docx/v1/documents/:id/raw_content                      docx:document:readonly
  read  GET    docx/v1/documents/:id/blocks                           docx:document:readonly
  read  GET    docx/v1/documents/:id/blocks/:id                       docx:document:readonly
  read  GET    docx/v1/documents/:id/blocks/:id/children              docx:document:readonly
  read  POST   search/v2/doc_wiki/search                              search:docs:read
  write POST   docx/v1/documents                                      docx:document:create
  write POST   docx/v1/documents/:id/blocks/:id/children              docx:document:write_only
  write PATCH  docx/v1/documents/:id/blocks/batch_update              docx:document:write_only
  write PATCH  docx/v1/documents/:id/blocks/:id                       docx:document:write_only
wiki
  read  GET    wiki/v2/spaces                                         wiki:wiki:readonly
  read  GET    wiki/v2/spaces/get_node                                wiki:node:read
  read  GET    wiki/v2/spaces/:id/nodes                               wiki:wiki:readonly
  write POST   wiki/v2/spaces/:id/nodes                               wiki:node:create
sheets
  read  GET    sheets/v3/spreadsheets/:token                          sheets:spreadsheet.meta:read
  read  GET    sheets/v3/spreadsheets/:token/sheets/query             sheets:spreadsheet.meta:read
  read  GET    sheets/v2/spreadsheets/:token/values/:range            sheets:spreadsheet:read
  read  GET    sheets/v2/spreadsheets/:token/values_batch_get         sheets:spreadsheet:read
  write PUT    sheets/v2/spreadsheets/:token/values                   sheets:spreadsheet:write_only
  write POST   sheets/v2/spreadsheets/:token/values_append            sheets:spreadsheet:write_only
bitable
  read  GET    bitable/v1/apps/:app/tables                            base:table:read
  read  GET    bitable/v1/apps/:app/tables/:table/fields              base:field:read
  read  POST   bitable/v1/apps/:app/tables/:table/records/search      base:record:retrieve
  write POST   bitable/v1/apps/:app/tables/:table/records/batch_create  base:record:create
  write POST   bitable/v1/apps/:app/tables/:table/records/batch_update  base:record:update
  write POST   bitable/v1/apps/:app/tables/:table/records/batch_delete  base:record:delete
calendar
  read  POST   calendar/v4/calendars/primary                          calendar:calendar:read
  read  GET    calendar/v4/calendars                                  calendar:calendar:read
  read  GET    calendar/v4/calendars/:id/events/instance_view         calendar:calendar.event:read
  read  GET    calendar/v4/calendars/:id/events/:event                calendar:calendar.event:read
  read  POST   calendar/v4/freebusy/list                              calendar:calendar.free_busy:read
  read  POST   calendar/v4/freebusy/batch                             calendar:calendar.free_busy:read
  keyed POST   calendar/v4/calendars/:id/events                       calendar:calendar.event:create
  write PATCH  calendar/v4/calendars/:id/events/:event                calendar:calendar.event:update
  write POST   calendar/v4/calendars/:id/events/:event/attendees      calendar:calendar.event:update
tasks
  read  GET    task/v2/tasks                                          task:task:read
  read  GET    task/v2/tasks/:guid                                    task:task:read
  keyed POST   task/v2/tasks                                          task:task:write
  write PATCH  task/v2/tasks/:guid                                    task:task:write
contacts
  read  GET    search/v1/user                                         contact:user:search
  read  GET    contact/v3/users/:id                                   contact:user.base:readonly
messages
  read  GET    im/v1/chats                                            im:chat:read
  read  GET    im/v1/messages                                         im:message:readonly im:message.group_msg:get_as_user
"""
KEYS = {"calendar/v4/calendars/:id/events": ("query", "idempotency_key"), "task/v2/tasks": ("body", "client_token")}
"""Map each path marked `keyed` to the place of its idempotency key and to its name. Feishu answers a repeated
key with the first result."""
_SEGMENT = re.compile(r"[A-Za-z0-9_.:!@,~$=-]{1,200}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Endpoint:
    """`path` has `:name` where any one segment may be."""

    area: str
    kind: str
    method: str
    path: str
    scopes: tuple[str, ...]

    @property
    def writes(self) -> bool:
        return self.kind != "read"

    def matches(self, segments: Sequence[str]) -> bool:
        own = self.path.split("/")
        return len(own) == len(segments) and all(
            mine.startswith(":") or mine == given for mine, given in zip(own, segments, strict=True)
        )


def _parsed() -> tuple[Endpoint, ...]:
    endpoints, area = [], ""
    for line in _TABLE.splitlines():
        match line.split():
            case [name]:
                area = name
            case [kind, method, path, *scopes]:
                endpoints.append(Endpoint(area=area, kind=kind, method=method, path=path, scopes=tuple(scopes)))
    # A written segment comes before a free one, whatever the order of the lines.
    return tuple(sorted(endpoints, key=lambda it: it.path.count(":")))


ENDPOINTS = _parsed()


def segments_of(path: str) -> list[str]:
    """Normalise a path below `/open-apis/` to its segments. Raises ToolError for anything that a server could read in two
    ways: a host, a query, a dot segment, an empty segment, a character that is encoded twice."""
    stem = path.strip()
    stem = stem[len(ROOT) :] if stem.startswith(ROOT) else stem.removeprefix("/")
    segments = [unquote(it) for it in stem.split("/")]
    if len(path) > PATH_CHARS_MAX or not all(_SEGMENT.fullmatch(it) and it not in (".", "..") for it in segments):
        message = (
            "'path' must be plain, such as /open-apis/task/v2/tasks: no host, no '?' or '#', no '..', no empty part; "
            "put the query into 'query'"
        )
        raise ToolError("INVALID_ARGUMENT", message)
    return segments


def endpoint_of(method: str, segments: Sequence[str], areas: Sequence[str]) -> Endpoint:
    """Return the endpoint of a call in one of the areas. Raises ToolError."""
    found = [it for it in ENDPOINTS if it.matches(segments)]
    for endpoint in found:
        if endpoint.method == method and endpoint.area in areas:
            return endpoint
    if other := next((it for it in found if it.method == method), None):
        message = (
            f"the operator has not opened the area {other.area!r} (tools.feishu.areas); open are: {', '.join(areas)}"
        )
        raise ToolError("NOT_ALLOWED", message)
    if found:
        raise ToolError("INVALID_ARGUMENT", f"this path takes {', '.join(sorted({it.method for it in found}))}")
    there = "; ".join(f"{it.method} {ROOT}{it.path}" for it in ENDPOINTS if it.area in areas)
    raise ToolError("NOT_ALLOWED", f"this call is not among those of the open areas. There is: {there}")


def joined(segments: Sequence[str]) -> str:
    """Return the path that is sent."""
    return ROOT + "/".join(quote(it, safe="!:@,~$=") for it in segments)
