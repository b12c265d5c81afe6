"""One call as a program makes it, in either of OpenAI's two shapes, and what it is refused with.

What would change the meaning of an answer and is not done is refused by name; what only tunes a model (temperature, limits
of tokens), and what a front end adds for itself, is taken and left: the agent's own settings hold.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import BaseModel, ValidationError

from gateway.api.caller import Caller, Earlier

SESSION = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
_NOTHING: Sequence[Any] = (None, False, 0, "", [], {})
_TAKEN: Mapping[str, Sequence[Any]] = {
    "n": (None, 1),
    "tool_choice": (None, "auto", "none"),
    "function_call": (None, "auto", "none"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    **dict.fromkeys(("tools", "functions", "logprobs", "top_logprobs", "logit_bias", "stop", "audio"), _NOTHING),
    **dict.fromkeys(("previous_response_id", "conversation", "background", "prompt", "web_search_options"), _NOTHING),
}
"""Of the parameters that would change what an answer is, the values that ask for nothing."""
_TEXTS = ("text", "input_text", "output_text")
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """`text` is what is to be answered. `session` names the conversation of which it is a part, None for none."""

    agent: str
    text: str
    caller: Caller
    session: str | None
    stream: bool
    with_usage: bool = True
    """Whether a stream of chunks ends with what the answer took."""


class Part(BaseModel):
    type: str
    text: str = ""


class Message(BaseModel):
    role: str = ""
    type: str = "message"
    content: str | list[Part] | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class Format(BaseModel):
    format: dict[str, Any] | None = None


class Body(BaseModel):
    """What both shapes have."""

    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    instructions: str | None = None
    messages: list[Message] | None = None
    input: str | list[Message] | None = None
    text: Format | None = None


def parsed(raw: bytes, field: str, session: str | None) -> Call:
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
            raise _unsupported(name, f"{name} is not supported here: the agent has its own settings and tools.")
    if body.text and body.text.format and body.text.format.get("type") != "text":
        raise _unsupported("text.format", "text.format: only text is supported.")
    messages = body.messages if field == "messages" else body.input
    if messages is None:
        raise ApiError(400, f"{field} is missing.", param=field, code="missing_required_parameter")
    if isinstance(messages, str):
        messages = [Message(role="user", content=messages)]
    instructions, turns = _split(messages, field)
    if not turns or turns[-1].role != "user" or not turns[-1].text.strip():
        raise ApiError(400, f"{field}: the last message must be the user's, with words.", param=field)
    session = _session(session or body.user or None)
    caller = Caller(
        instructions="\n\n".join(filter(str.strip, (body.instructions or "", *instructions))),
        earlier=() if session else tuple(turns[:-1]),
    )
    return Call(
        agent=body.model,
        text=turns[-1].text,
        caller=caller,
        session=session,
        stream=bool(body.stream),
        with_usage=bool(body.stream_options and body.stream_options.include_usage),
    )


def _split(messages: Sequence[Message], field: str) -> tuple[list[str], list[Earlier]]:
    """What the program commands, and the messages of both sides."""
    instructions, turns = list[str](), list[Earlier]()
    for number, message in enumerate(messages):
        place = f"{field}[{number}]"
        text = _text(message, place).replace("\0", "\ufffd")
        if message.role in _SYSTEM:
            instructions.append(text)
        elif message.role == "user":
            turns.append(Earlier(role="user", text=text))
        elif message.role == "assistant":
            if text.strip():
                turns.append(Earlier(role="assistant", text=text))
        else:
            raise _unsupported(f"{place}.role", f"{place}.role: expected system, developer, user or assistant.")
    return instructions, turns


def _text(message: Message, place: str) -> str:
    if message.type != "message":
        raise _unsupported(f"{place}.type", f"{place}.type: only messages are supported; tools are the agent's own.")
    if message.tool_calls or message.function_call:
        raise _unsupported(f"{place}.tool_calls", f"{place}.tool_calls: tools are the agent's own.")
    if not isinstance(message.content, list):
        return message.content or ""
    for number, part in enumerate(message.content):
        if part.type not in _TEXTS:
            at = f"{place}.content[{number}].type"
            raise _unsupported(at, f"{at}: only text is supported, not {part.type[:40]}.")
    return "".join(part.text for part in message.content)


def _session(name: str | None) -> str | None:
    if name is not None and not SESSION.fullmatch(name):
        raise ApiError(
            400, "The session's name has 1 to 200 characters, none of them a control character.", param="user"
        )
    return name


def _unsupported(param: str, message: str) -> ApiError:
    return ApiError(400, message, param=param, code="unsupported_parameter")


def _place(location: Sequence[int | str]) -> str:
    """`messages[0].content`, without the names of alternatives."""
    names = [it for it in location if isinstance(it, int) or it.isidentifier()]
    text = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in names if it not in ("str", "list"))
    return text.removeprefix(".")
