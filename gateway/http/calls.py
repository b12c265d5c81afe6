"""One call of OpenAI's chat completions API: its parsing, its errors, and its answer.

A parameter that an answer depends on is refused by name. A parameter that tunes a model or offers tools is ignored,
since the agent has its own settings and tools; the answer's header names it. Pictures come inside the call, as data
URLs: the gateway fetches nothing that a program names.

The answer is streamed while it grows and read from the store, so any replica may give it. Streamed text is never revoked:
a chunk is sent only if it continues the previous ones. After a failed attempt the next one is streamed once it exceeds the
text that was sent.
"""

import asyncio
import base64
import binascii
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
import structlog
from pydantic import BaseModel, ValidationError

from agents.attachments import actual_type
from channels.api.channel import ApiChannel, WaitingCall
from channels.message import PICTURES, UNKNOWN_TYPE, File, MessageContext
from gateway.inbox.intake import Intake
from gateway.outbox.outbox import payload_json
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.inbound import Caller, Earlier
from gateway.store.records import StoredAnswer
from gateway.store.sessions import session_key
from gateway.turns.attachments import FILES_MAX

log = structlog.get_logger()

SESSION = re.compile(r"[^\x00-\x1f\x7f-\x9f]{1,200}")
_NOTHING: Sequence[Any] = (None, False, 0, "", [], {})
_TAKEN: Mapping[str, Sequence[Any]] = {
    "n": (None, 1),
    "tool_choice": (None, "auto", "none"),
    "function_call": (None, "auto", "none"),
    "response_format": (None, {"type": "text"}),
    "modalities": (None, ["text"]),
    **dict.fromkeys(("audio", "input", "instructions", "previous_response_id", "conversation", "prompt"), _NOTHING),
}
"""No-op values of parameters that would change the answer; other values are refused."""
_HEEDED = ("model", "messages", "stream", "stream_options", "user", *_TAKEN)
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
IGNORED_MAX = 30
_EARLIER = "[image]"
"""Replaces pictures of earlier messages: the model sees only those of the last one."""
_DATA = re.compile(r"data:([a-z0-9.+/-]{1,80})?(?:;[a-z0-9=.-]{1,80}){0,3};base64,", re.IGNORECASE)
_SYSTEM = ("system", "developer")


class ApiError(Exception):
    """Error response in OpenAI's shape. `final`: a retry of the same call would fail in the same way."""

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
    """`text` is the message to answer. `session` names its conversation, if any. `ignored` lists the parameters that have
    no effect."""

    agent: str
    text: str
    caller: Caller
    session: str | None
    stream: bool
    pictures: tuple[File, ...] = ()
    ignored: tuple[str, ...] = ()
    with_usage: bool = True
    """True if a stream ends with the token usage."""


class ApiPart(BaseModel):
    type: str
    text: str = ""
    image_url: Any = None


class ApiMessage(BaseModel):
    role: str = ""
    content: str | list[ApiPart] | None = None
    tool_calls: list[Any] | None = None
    function_call: Any = None


class StreamOptions(BaseModel):
    include_usage: bool = False


class Body(BaseModel):
    model: str
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    user: str | None = None
    messages: list[ApiMessage] | None = None


def parsed(raw: bytes, session: str | None) -> ApiCall:
    """Parse the body of a call; `session` is from the header. Raises ApiError."""
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
    messages = body.messages
    if messages is None:
        raise ApiError(400, "messages is missing.", param="messages", code="missing_required_parameter")
    instructions, turns = _split(messages)
    shown = _pictures(messages[-1], f"messages[{len(messages) - 1}]") if messages else ()
    if not turns or messages[-1].role != "user" or not (turns[-1].text.strip() or shown):
        sentence = "messages: the last message must be the user's, with words or a picture."
        raise ApiError(400, sentence, param="messages")
    session = _session(session or body.user or None)
    caller = Caller(
        instructions="\n\n".join(filter(str.strip, instructions)), earlier=() if session else tuple(turns[:-1])
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


def _split(messages: Sequence[ApiMessage]) -> tuple[list[str], list[Earlier]]:
    instructions, turns = list[str](), list[Earlier]()
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
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
    if message.tool_calls or message.function_call:
        raise unsupported(f"{place}.tool_calls", f"{place}.tool_calls: tools are the agent's own.")
    if not isinstance(message.content, list):
        return message.content or ""
    for number, part in enumerate(message.content):
        if part.type not in ("text", "image_url"):
            at = f"{place}.content[{number}].type"
            raise unsupported(at, f"{at}: only text and pictures are supported, not {part.type[:40]}.")
    return "".join(instead if part.type == "image_url" else part.text for part in message.content)


def _pictures(message: ApiMessage, place: str) -> tuple[File, ...]:
    parts = message.content if isinstance(message.content, list) else []
    pictures = [(at, part) for at, part in enumerate(parts) if part.type == "image_url"]
    return tuple(
        _picture(part.image_url, number, f"{place}.content[{at}].image_url")
        for number, (at, part) in enumerate(pictures, 1)
    )


def _picture(part: Any, number: int, place: str) -> File:
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
    """Apply the limits of all files. Raises ApiError."""
    if len(pictures) > FILES_MAX:
        raise ApiError(400, f"A message has at most {FILES_MAX} pictures.", param="messages")
    if any(len(it.data) > bytes_max for it in pictures):
        raise ApiError(413, f"A picture is larger than {bytes_max / 1_048_576:.0f} MiB (limits.fileBytes).")


def _ignored(body: Mapping[str, Any]) -> tuple[str, ...]:
    names = (name for name, value in body.items() if name not in _HEEDED and value not in _NOTHING)
    return tuple(sorted(name for name in names if _NAME.fullmatch(name))[:IGNORED_MAX])


def _session(name: str | None) -> str | None:
    if name is not None and not SESSION.fullmatch(name):
        raise ApiError(
            400, "The session's name has 1 to 200 characters, none of them a control character.", param="user"
        )
    return name


def _place(location: Sequence[int | str]) -> str:
    names = [it for it in location if isinstance(it, int) or it.isidentifier()]
    text = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in names if it not in ("str", "list"))
    return text.removeprefix(".")


POLL_SECONDS = 1.0
"""Poll interval for an answer of another replica."""


@dataclass(kw_only=True)
class Answering:
    """One call, accepted when the first piece is requested. `final` and `text` are set once the pieces end."""

    runtime: Runtime
    intake: Intake
    channel: ApiChannel
    context: MessageContext
    call: ApiCall
    created: int
    final: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def id(self) -> str:
        return self.context.message_id.replace("-", "")

    async def pieces(self) -> AsyncGenerator[str]:
        """Yield the text as it grows, and now and then an empty piece. Raises ApiError if the call failed,
        StoreUnavailable."""
        with self.channel.waiting(self.context.message_id) as waiting:
            key = self.context.message_id
            acceptance = await self.intake.accept(self.context, self.call.agent, key, self.call.caller)
            if acceptance.overflow:
                raise ApiError(
                    429, "Too many calls wait already.", type_="rate_limit_error", code="rate_limit_exceeded"
                )
            shown, look = Shown(), acceptance.turn is None
            control, rules = self.runtime.control, self.runtime.setup.session_rules(self.call.agent)
            session = session_key(self.call.agent, self.context, rules.scope)
            while True:
                leaving = control.draining and session not in control.lanes
                if look and (answer := await self._answer(key)) is not None:
                    self._finish(answer)
                    yield shown.end(self.text)
                    return
                if leaving:
                    sentence = "The gateway is stopping; the answer is continued elsewhere, or after its next start."
                    raise ApiError(503, sentence, type_="server_error", code="stopping", retry_seconds=5)
                look = await self._changed(waiting)
                progress = waiting.progress
                yield shown.more(progress.text, len(progress.tools)) if progress and not look else ""

    async def _changed(self, waiting: WaitingCall) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(POLL_SECONDS):
                await waiting.changed.wait()
        if not waiting.changed.is_set():
            return True
        waiting.changed.clear()
        return waiting.progress is not None and waiting.progress.outcome is not None

    async def _answer(self, key: str) -> StoredAnswer | None:
        reading = self.runtime.store.answer(f"{self.channel.name}:{self.channel.account}:{key}")
        try:
            # A disconnecting client must not cancel the read: a cancelled driver call can hang.
            return await asyncio.shield(asyncio.ensure_future(reading))
        except StoreUnavailable as error:
            log.error("answer_unavailable", error=repr(error))
            return None

    def _finish(self, answer: StoredAnswer) -> None:
        self.final = json.loads(answer.final)
        self.text = "".join(payload_json.validate_json(it).part.text for it in answer.payloads)
        if self.channel.account not in self.runtime.setup.config.server.api.open:
            raise ApiError(401, "The token was revoked meanwhile.", code="invalid_api_key", final=True)
        if error := _error(self.final["outcome"], self.final.get("reason", ""), self.text):
            raise error


@dataclass(slots=True)
class Shown:
    """The text that a stream has shown: `step` is the text of the newest step, after `tools` tool calls."""

    step: str = ""
    tools: int = 0

    def more(self, text: str, tools: int) -> str:
        """Return the new text if it continues the text shown; a step after a tool's result begins a new paragraph."""
        text = text.rstrip()
        if text.startswith(self.step):
            new, self.step, self.tools = text[len(self.step) :], text, tools
            return new
        if tools > self.tools and text:
            self.step, self.tools = text, tools
            return f"\n\n{text}"
        return ""

    def end(self, text: str) -> str:
        """Return the rest of the final answer, or all of it as a new paragraph if other text was shown."""
        if text.startswith(self.step):
            return text[len(self.step) :]
        return f"\n\n{text}" if text else ""


def _error(outcome: str, reason: str, text: str) -> ApiError | None:
    message = text or f"The turn ended without an answer ({outcome})."
    match outcome, reason:
        case (("replied" | "silent" | "declined"), _):
            return None
        case ("over-budget", _) | ("failed", "budget"):
            return ApiError(429, message, type_="insufficient_quota", code="insufficient_quota", final=True)
        case (("too-many" | "too-fast"), _):
            return ApiError(429, message, type_="rate_limit_error", code="rate_limit_exceeded")
        case "failed", ("too_large" | "message_too_long"):
            return ApiError(400, message, code="context_length_exceeded", final=True)
        case "failed", ("not configured" | "agent-closed"):
            return ApiError(404, message, param="model", code="model_not_found", final=True)
        case "failed", ("internal" | "attempts" | "stuck"):
            return ApiError(500, message, type_="server_error", code=reason, final=True)
        case "failed", _:
            return ApiError(502, message, type_="server_error", code=reason or None, final=True)
        case _:
            return ApiError(409, message, type_="server_error", code=outcome, final=True)
