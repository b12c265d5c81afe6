"""`POST /mcp`: other agents ask ours, by the Model Context Protocol over streamable HTTP. See docs/mcp.md.

Requests share no state except the stored conversation, so any replica can answer. The protocol is implemented here because
its SDK would cost 40 MB of memory in each gateway with a token. A long answer is a stream with keep-alive comments, so that
proxies do not close it.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import orjson
from pydantic import BaseModel, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from gateway.http.calls import SESSION, Answering, ApiCall, ApiError
from gateway.http.request import answer_json
from gateway.program import VERSION
from gateway.store.inbound import Caller

VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26")
"""Supported protocol versions, newest first."""
SILENT_PIECES = 10
"""Empty pieces, one per second, before a keep-alive comment."""
PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS = -32700, -32600, -32601, -32602
_STREAM = "text/event-stream"
Ask: TypeAlias = Callable[[ApiCall], Awaitable[Answering]]
Send: TypeAlias = Callable[[bytes], Awaitable[dict[str, object]]]
"""Takes a body in the format of `/v1/send`."""


class AskAgent(BaseModel, extra="forbid"):
    agent: str
    message: Annotated[str, Field(pattern=r"\S")]
    session: Annotated[str, Field(pattern=SESSION.pattern)] | None = None


class SendText(BaseModel, extra="forbid"):
    to: str
    text: Annotated[str, Field(min_length=1)]


class Envelope(BaseModel):
    jsonrpc: Literal["2.0"]
    method: str = ""
    id: str | int | None = None
    params: dict[str, Any] = {}


class RpcError(Exception):
    """Error response with a JSON-RPC code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def tools(agents: Sequence[str], *, sends: bool) -> list[dict[str, Any]]:
    asking = {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "enum": [*agents], "description": "The agent to ask."},
            "message": {"type": "string", "description": "The message, as a person would write it."},
            "session": {
                "type": "string",
                "description": "A name of yours for the conversation: the agent remembers what was said in it. Without "
                "one, each message is a separate conversation.",
            },
        },
        "required": ["agent", "message"],
        "additionalProperties": False,
    }
    description = (
        "Send a message to an agent of this gateway and get its answer. It may take minutes: it uses its own tools."
    )
    tools_listed = [{"name": "ask_agent", "description": description, "inputSchema": asking}]
    if sends:
        place = (
            "The chat, as channel[:account]:chat[#thread], such as feishu:oc_0123456789abcdef or telegram:123456789."
        )
        members = {
            "to": {"type": "string", "description": place},
            "text": {"type": "string", "description": "The text."},
        }
        sending = {
            "type": "object",
            "properties": members,
            "required": [*members],
            "additionalProperties": False,
        }
        words = "Send a message to a chat, as it is and without an agent."
        tools_listed.append({"name": "send", "description": words, "inputSchema": sending})
    return tools_listed


async def answered(request: Request, body: bytes, agents: Sequence[str], ask: Ask, send: Send | None) -> Response:
    """Answer one message of a client. Sending is not offered if `send` is None. Raises StoreUnavailable."""
    identifier: str | int | None = None
    try:
        message = _parsed(body)
        identifier = message.id
        if message.id is None:  # a notification, or a response to no request
            return Response(status_code=202)
        if message.method != "tools/call":
            return _answer(identifier, result=_result(message, agents, sends=send is not None))
        given = _arguments(message, sends=send is not None)
        if isinstance(given, SendText):
            assert send is not None
            return _answer(
                identifier, result=_text(orjson.dumps(await send(given.model_dump_json().encode())).decode())
            )
        text = given.message.replace("\0", "\ufffd")
        answering = await ask(
            ApiCall(agent=given.agent, text=text, caller=Caller(), session=given.session, stream=False)
        )
    except RpcError as error:
        return _answer(identifier, error={"code": error.code, "message": str(error)})
    except ApiError as error:
        return _answer(identifier, result=_text(str(error), is_error=True))
    if _STREAM in request.headers.get("accept", ""):
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(_events(identifier, answering), headers=headers, media_type=_STREAM)
    return _answer(identifier, result=await _whole(answering))


def _parsed(body: bytes) -> Envelope:
    try:
        return Envelope.model_validate(orjson.loads(body))
    except orjson.JSONDecodeError:
        raise RpcError(PARSE_ERROR, "The body is not JSON.") from None
    except ValidationError:
        raise RpcError(INVALID_REQUEST, "Expected one JSON-RPC 2.0 message.") from None


def _result(message: Envelope, agents: Sequence[str], *, sends: bool) -> dict[str, Any]:
    match message.method:
        case "initialize":
            version = message.params.get("protocolVersion")
            return {
                "protocolVersion": version if version in VERSIONS else VERSIONS[0],
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "clawgate", "version": VERSION},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": tools(agents, sends=sends)}
        case _:
            raise RpcError(METHOD_NOT_FOUND, f"There is no method {message.method[:64]!r} here.")


def _arguments(message: Envelope, *, sends: bool) -> AskAgent | SendText:
    name, arguments = message.params.get("name"), message.params.get("arguments", {})
    there: dict[Any, type[AskAgent | SendText]] = {"ask_agent": AskAgent, **({"send": SendText} if sends else {})}
    shape = there.get(name) if isinstance(name, str) else None
    if shape is None:
        raise RpcError(INVALID_PARAMS, f"There is no tool {str(name)[:64]!r}; there is: {', '.join(there)}.")
    try:
        return shape.model_validate(arguments)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise RpcError(INVALID_PARAMS, f"{'.'.join(map(str, first['loc'])) or 'arguments'}: {first['msg']}") from None


async def _whole(answering: Answering) -> dict[str, Any]:
    try:
        async for _ in answering.pieces():
            pass
    except ApiError as error:
        return _text(str(error), is_error=True)
    return _text(answering.text)


async def _events(identifier: str | int | None, answering: Answering) -> AsyncIterator[str]:
    silent = 0
    result = None
    try:
        async for piece in answering.pieces():
            silent = 0 if piece else silent + 1
            if silent >= SILENT_PIECES:
                silent = 0
                yield ": still at work\n\n"
    except ApiError as error:
        result = _text(str(error), is_error=True)
    whole = orjson.dumps(_envelope(identifier, result=result or _text(answering.text))).decode()
    yield f"event: message\ndata: {whole}\n\n"


def _text(text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _envelope(identifier: str | int | None, **members: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": identifier, **members}


def _answer(identifier: str | int | None, **members: Mapping[str, Any]) -> Response:
    return answer_json(_envelope(identifier, **members), 200)
