"""One call as a program makes it, in either of OpenAI's two shapes, and what it is refused with.

A parameter that an answer depends on is refused by name. A parameter that tunes a model or offers tools is ignored,
since the agent has its own settings and tools; the answer's header names it. Pictures come inside the call, as data
URLs: the gateway fetches nothing that a program names.
"""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from agents.attachments import actual_type
from channels.message import PICTURES, UNKNOWN_TYPE, File
from gateway.store.inbound import Caller, Earlier
from gateway.turns.attachments import FILES_MAX

SESSION = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
_NOTHING: Sequence[Any] = (None, False, 0, "", [], {})
_TAKEN: Mapping[str, Sequence[Any]] = {
    "n": (None, 1),
    "tool_choice": (None, "auto", "none"),
    "function_call": (None, "auto", "none"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    **dict.fromkeys(("audio", "previous_response_id", "conversation", "background", "prompt"), _NOTHING),
}
"""The values that ask for nothing, of the parameters that decide what an answer is."""
_HEEDED = ("model", "messages", "input", "instructions", "stream", "stream_options", "user", "text", *_TAKEN)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
IGNORED_MAX = 30
_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image")
_EARLIER = "[image]"
"""Replaces a picture of an earlier message: only those of the last one are shown."""
_DATA = re.compile(r"data:([a-z0-9.+/-]{1,80})?(?:;[a-z0-9=.-]{1,80}){0,3};base64,", re.IGNORECASE)
_SYSTEM = ("system", "developer")


class ApiError(Exception):
    """An answer with OpenAI's shape of an error. `final`: another attempt of the same call would only end the same way."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type_: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        final: bool = False,
        retry_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.final = final
        self.retry_seconds = retry_seconds
        self.body = {"message": message, "type": type_, "param": param, "code": code}


def unsupported(param: str, message: str) -> ApiError:
    return ApiError(400, message, param=param, code="unsupported_parameter")


@dataclass(frozen=True, kw_only=True, slots=True)
class ApiCall:
    """`text` is what is to be answered. `session` names the conversation it belongs to, if any. `ignored` are
    the parameters that ask for something and change nothing."""

    agent: str
    text: str
    caller: Caller
    session: str | None
    stream: bool
    pictures: tuple[File, ...] = ()
    ignored: tuple[str, ...] = ()
    with_usage: bool = True
    """True if a stream of chunks ends with what the answer took."""


class ApiPart(BaseModel):
    type: str
    text: str = ""
    image_url: Any = None


class ApiMessage(BaseModel):
    role: str = ""
    type: str = "message"
    content: str | list[ApiPart] | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class Format(BaseModel):
    format: dict[str, Any] | None = None


class Body(BaseModel):
    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    instructions: str | None = None
    messages: list[ApiMessage] | None = None
    input: str | list[ApiMessage] | None = None
    text: Format | None = None


def parsed(raw: bytes, field: str, session: str | None) -> ApiCall:
    """The call that a body is, with its messages in `field`. `session`: as the header says. Raises ApiError."""
    try:
        given = orjson.loads(raw)
        body = Body.model_validate(given)
    except orjson.JSONDecodeError:
        raise ApiError(400, "The body is not JSON.") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = _place(first["loc"])
        raise ApiError(400, f"{place or 'The body'}: {first['msg']}", param=place or None) from None
    for name, taken in _TAKEN.items():
        if given.get(name) not in taken:
            raise unsupported(name, f"{name} is not supported here: the agent has its own settings and tools.")
    if body.text and body.text.format and body.text.format.get("type") != "text":
        raise unsupported("text.format", "text.format: only text is supported.")
    messages = body.messages if field == "messages" else body.input
    if messages is None:
        raise ApiError(400, f"{field} is missing.", param=field, code="missing_required_parameter")
    if isinstance(messages, str):
        messages = [ApiMessage(role="user", content=messages)]
    instructions, turns = _split(messages, field)
    shown = _pictures(messages[-1], f"{field}[{len(messages) - 1}]") if messages else ()
    if not turns or messages[-1].role != "user" or not (turns[-1].text.strip() or shown):
        raise ApiError(400, f"{field}: the last message must be the user's, with words or a picture.", param=field)
    session = _session(session or body.user or None)
    caller = Caller(
        instructions="\n\n".join(filter(str.strip, (body.instructions or "", *instructions))),
        earlier=() if session else tuple(turns[:-1]),
    )
    return ApiCall(
        agent=body.model,
        text=turns[-1].text,
        caller=caller,
        session=session,
        stream=bool(body.stream),
        pictures=shown,
        ignored=_ignored(given),
        with_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def _split(messages: Sequence[ApiMessage], field: str) -> tuple[list[str], list[Earlier]]:
    """The program's instructions, and the messages of both sides."""
    instructions, turns = list[str](), list[Earlier]()
    for number, message in enumerate(messages):
        place = f"{field}[{number}]"
        is_last = number == len(messages) - 1
        text = _text(message, place, "" if is_last else _EARLIER).replace("\0", "\ufffd")
        if message.role in _SYSTEM:
            instructions.append(text)
        elif message.role == "user":
            turns.append(Earlier(role="user", text=text))
        elif message.role == "assistant":
            if text.strip():
                turns.append(Earlier(role="assistant", text=text))
        else:
            raise unsupported(f"{place}.role", f"{place}.role: expected system, developer, user or assistant.")
    return instructions, turns


def _text(message: ApiMessage, place: str, instead: str) -> str:
    """The words of a message, with `instead` in the place of each picture. Raises ApiError."""
    if message.type != "message":
        raise unsupported(f"{place}.type", f"{place}.type: only messages are supported; tools are the agent's own.")
    if message.tool_calls or message.function_call:
        raise unsupported(f"{place}.tool_calls", f"{place}.tool_calls: tools are the agent's own.")
    if not isinstance(message.content, list):
        return message.content or ""
    for number, part in enumerate(message.content):
        if part.type not in (*_TEXTS, *_PICTURES):
            at = f"{place}.content[{number}].type"
            raise unsupported(at, f"{at}: only text and pictures are supported, not {part.type[:40]}.")
    return "".join(instead if part.type in _PICTURES else part.text for part in message.content)


def _pictures(message: ApiMessage, place: str) -> tuple[File, ...]:
    parts = message.content if isinstance(message.content, list) else []
    pictures = [(at, part) for at, part in enumerate(parts) if part.type in _PICTURES]
    return tuple(
        _picture(part.image_url, number, f"{place}.content[{at}].image_url")
        for number, (at, part) in enumerate(pictures, 1)
    )


def _picture(part: Any, number: int, place: str) -> File:
    """The picture that a part of a message has, which names it directly or in an object. Raises ApiError."""
    url = part.get("url") if isinstance(part, dict) else part
    if not isinstance(url, str):
        raise unsupported(place, f"{place}: send the picture as a data URL in image_url; kept files are not supported.")
    if not (head := _DATA.match(url[:400])):
        sentence = "only data URLs with base64 are taken, since the gateway fetches nothing for a program"
        raise unsupported(place, f"{place}: {sentence}.")
    try:
        data = base64.b64decode(url[head.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise ApiError(400, f"{place}: this is not base64.", param=place) from None
    kind = actual_type((head[1] or UNKNOWN_TYPE).lower(), data)
    if kind not in PICTURES:
        raise unsupported(place, f"{place}: only pictures are taken (PNG, JPEG, GIF, WebP).")
    return File(name=f"picture-{number}", type=kind, data=data)


def check_pictures(pictures: tuple[File, ...], bytes_max: int) -> None:
    """The limits that hold for everybody's files. Raises ApiError."""
    if len(pictures) > FILES_MAX:
        raise ApiError(400, f"A message has at most {FILES_MAX} pictures.", param="messages")
    if any(len(it.data) > bytes_max for it in pictures):
        raise ApiError(413, f"A picture is larger than {bytes_max / 1_048_576:.0f} MiB (limits.fileBytes).")


def _ignored(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Names the parameters that have no effect, in alphabetical order; as many as fit into a header."""
    names = (name for name, value in body.items() if name not in _HEEDED and value not in _NOTHING)
    return tuple(sorted(name for name in names if _NAME.fullmatch(name))[:IGNORED_MAX])


def _session(name: str | None) -> str | None:
    if name is not None and not SESSION.fullmatch(name):
        raise ApiError(
            400, "The session's name has 1 to 200 characters, none of them a control character.", param="user"
        )
    return name


def _place(location: Sequence[int | str]) -> str:
    """`messages[0].content`, without the names of alternatives."""
    names = [it for it in location if isinstance(it, int) or it.isidentifier()]
    text = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in names if it not in ("str", "list"))
    return text.removeprefix(".")
