"""Feishu's own MCP server for documents: streamable HTTP, the headers with the token and the allowed tools, and its codes.

It refuses what Feishu refuses: no token or two, one that is invalid or expired, a tool that the header does not allow, a
missing scope, a person without access. It keeps no session, and opens no stream.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.feishu.rules import Refusal
from tests.emulators.feishu.workplace import APP, DOC, Workplace

VERSION = "2024-11-05"
PERSON, TENANT, ALLOWED = "x-lark-mcp-uat", "x-lark-mcp-tat", "x-lark-mcp-allowed-tools"
STATUS = {-32700: 400, -32600: 400, -32601: 404, -32602: 400, -32603: 500, -32030: 429, -32011: 401, -32003: 400}
_WRITING = (
    *(
        "docx:document:create",
        "docx:document:write_only",
        "docx:document:readonly",
        "wiki:node:read",
        "wiki:node:create",
    ),
    *("docs:document.media:upload", "board:whiteboard:node:create"),
)
_COMMENTS = ("docs:document.comment:read", "contact:contact.base:readonly")
_TABLE: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "search-user": ("person", ("contact:user:search",), ("query",)),
    "get-user": ("both", ("contact:contact.base:readonly", "contact:user.base:readonly"), ()),
    "fetch-file": ("both", ("docs:document.media:download", "board:whiteboard:node:read"), ("resource_token",)),
    "search-doc": ("person", ("search:docs:read", "wiki:wiki:readonly"), ("query",)),
    "create-doc": ("both", _WRITING, ("title", "markdown")),
    "update-doc": ("both", _WRITING, ("doc_id", "markdown")),
    "fetch-doc": ("both", ("docx:document:readonly", "task:task:read", "im:chat:read"), ("doc_id",)),
    "list-docs": ("both", ("wiki:wiki:readonly",), ()),
    "get-comments": ("both", _COMMENTS, ("doc_id",)),
    "add-comments": ("both", (*_COMMENTS, "docs:document.comment:create"), ("doc_id", "text")),
}
"""Of each tool, whose token it takes, its scopes, and its required arguments."""


class Broken(Exception):
    """The request is answered with an error of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass(kw_only=True)
class DocumentsServer:
    workplace: Workplace
    called: list[tuple[str, str]] = field(default_factory=list)
    """Who called which tool, as far as it was permitted."""
    created: list[tuple[str, str]] = field(default_factory=list)
    """Who made which document."""
    asked: list[tuple[str, str, tuple[str, ...]]] = field(default_factory=list)
    """Of each request its method, whose token it had, and the allowed tools."""
    unlisted: set[str] = field(default_factory=set)
    """Tools that it does not have any more."""
    wraps: bool = False
    """A gateway before it wraps each result in a second envelope."""
    before: Callable[[str], Awaitable[object] | None] = lambda tool: None
    """Called before a tool runs, which is dropped if that is awaited."""
    _answers: list[tuple[str, Response]] = field(default_factory=list)

    def routes(self) -> list[Route]:
        return [Route("/mcp", self._post, methods=["POST"])]

    def answer_next(self, method: str, code: int) -> None:
        """Answer the next request of this method, or tool, with an error of the protocol."""
        self._answers.append((method, _error(None, code, "refused")))

    def redirect_next(self, method: str, url: str) -> None:
        self._answers.append((method, Response(status_code=307, headers={"location": url})))

    async def _post(self, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return _error(None, -32042, "content type", status=415)
        try:
            message = json.loads(await request.body())
        except ValueError:
            return _error(None, -32700, "parse error")
        if (
            not isinstance(message, dict)
            or message.get("jsonrpc") != "2.0"
            or not isinstance(message.get("method"), str)
        ):
            return _error(None, -32600, "invalid request")
        if "id" not in message:
            return Response(status_code=202)
        method, params = message["method"], message.get("params") or {}
        names = method, params.get("name")
        if other := next((it for it in self._answers if it[0] in names), None):
            self._answers.remove(other)
            return other[1]
        allowed = tuple(filter(None, request.headers.get(ALLOWED, "").split(",")))
        try:
            who = self._who(request, ())
            self.asked.append((method, who, allowed))
            result = await self._result(request, method, params, allowed)
        except Broken as error:
            return _error(message["id"], error.code, error.message)
        if self.wraps:
            result = {"jsonrpc": "2.0", "id": 0, "result": result}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result})

    async def _result(
        self, request: Request, method: str, params: Mapping[str, Any], allowed: tuple[str, ...]
    ) -> Mapping[str, Any]:
        match method:
            case "initialize":
                server = {"name": "lark-mcp", "version": "1"}
                return {"protocolVersion": VERSION, "capabilities": {"tools": {}}, "serverInfo": server}
            case "tools/list":
                return {"tools": [_definition(it) for it in _TABLE if it in allowed and it not in self.unlisted]}
            case "tools/call":
                tool, arguments = str(params.get("name")), params.get("arguments") or {}
                if tool not in _TABLE or tool in self.unlisted or tool not in allowed:
                    raise Broken(-32602, f"the tool {tool} is not allowed")
                if lacks := [it for it in _TABLE[tool][2] if not isinstance(arguments.get(it), str)]:
                    raise Broken(-32602, f"required: {', '.join(lacks)}")
                if (dropping := self.before(tool)) is not None:
                    await dropping
                    raise Broken(-32603, "internal error")
                try:
                    return _text(self._called(request, tool, arguments))
                except Refusal as refusal:
                    return _text(_failure(refusal)) | {"isError": True}
        raise Broken(-32601, "method not found")

    def _who(self, request: Request, scopes: tuple[str, ...]) -> str:
        """Whose token it is. Raises Broken, and Refusal for a missing scope."""
        person, tenant = request.headers.get(PERSON, ""), request.headers.get(TENANT, "")
        if not person and not tenant:
            raise Broken(-32011, "no token")
        if (person and tenant) or " " in person + tenant:
            raise Broken(-32600, "one token, without a scheme")
        if tenant:
            if not self.workplace.live(tenant):
                raise Broken(-32003, "the token is invalid")
            if lacks := [it for it in scopes if it not in self.workplace.app_scopes]:
                raise Refusal(
                    99991672, f"Access denied. One of the following scopes is required: [{', '.join(lacks)}]."
                )
            return APP
        try:
            return self.workplace.logins.person_of(person, scopes)
        except Refusal as refusal:
            if refusal.code in (99991668, 99991677):
                raise Broken(-32003, "the token is invalid or expired") from None
            raise

    def _called(self, request: Request, tool: str, arguments: Mapping[str, Any]) -> str:
        takes, scopes, _ = _TABLE[tool]
        who = self._who(request, scopes)
        if who == APP and takes == "person":
            raise Refusal(99991663, "this tool takes a user access token")
        doc = arguments.get("doc_id", DOC)
        if doc != DOC:
            raise Refusal(1770002, "not found")
        if "doc_id" in arguments and who not in self.workplace.access.get(DOC, ()):
            raise Refusal(1770032, "forBidden")
        self.called.append((who, tool))
        if tool == "create-doc":
            self.created.append((who, arguments["title"]))
        return "The plan of Ann\nBuy three lamps" if tool == "fetch-doc" else f"{tool}: done"


def _definition(name: str) -> dict[str, Any]:
    required = _TABLE[name][2]
    members = {it: {"type": "string", "description": it} for it in required}
    schema = {"type": "object", "properties": members, "required": [*required]}
    return {"name": name, "description": f"Feishu's {name}.", "inputSchema": schema}


def _failure(refusal: Refusal) -> str:
    """A tool's own failure: of the open platform as its JSON, of documents in words."""
    if refusal.code < 99990000:
        return f"request failed, code={refusal.code}, msg={refusal.message}"
    return json.dumps({"code": refusal.code, "msg": refusal.message})


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _error(id_: Any, code: int, message: str, *, status: int = 0) -> Response:
    body = {"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}
    return JSONResponse(body, status_code=status or STATUS[code])
