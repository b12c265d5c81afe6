"""The common part of all APIs' requests: limits, names, ids and the tool choice.

The tool choice sent is the agent's, or the nearest that the model supports, with the reason in the log. The prompt
also asks for a required tool (`agents.prompt.system`), so a degraded choice still has an effect.
"""

import hashlib
import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import orjson
import structlog

from agents.messages import AssistantMessage, Message, Text, ToolResultMessage, UserMessage, texts, with_parts
from agents.providers.models import Level
from agents.providers.payload import json_object, well_formed
from agents.providers.provider import ModelRequest, OneTool, SentTurn, System, ToolChoice, grown
from channels.marks import NOTE
from tools.tool import Image, ToolSpec

THINKING_SHARES: dict[Level, float] = {"minimal": 0.1, "low": 0.2, "medium": 0.4, "high": 0.6, "xhigh": 0.7, "max": 0.8}
"""Thinking budgets as shares of `max_tokens`, for models that want a number; `max_tokens` covers thinking and answer."""

log = structlog.get_logger()


def output_tokens(request: ModelRequest) -> int:
    return min(request.max_tokens, request.facts.max_output) if request.facts.known else request.max_tokens


def system_texts(system: System) -> list[str]:
    """Return the non-blank halves of the system prompt."""
    return [well_formed(half) for half in (system.stable, system.volatile) if half.strip()]


def description_of(tool: ToolSpec) -> str:
    return well_formed(tool.description or tool.summary or tool.name)


def written(
    turns: tuple[SentTurn, ...], convert: Callable[[Sequence[Message]], list[Any]], *depends: Hashable
) -> list[orjson.Fragment]:
    """Convert the settled turns to one cached piece of JSON. The cache key is all that the format `depends` on. Raises
    TypeError for a number that only the standard library writes."""

    def add(before: bytes, new: Sequence[SentTurn]) -> bytes:
        return b",".join([*([before] if before else ()), *(orjson.dumps(convert(turn))[1:-1] for turn in new)])

    data: bytes = grown(turns, depends, b"", add)
    return [orjson.Fragment(data)] if turns else []


def with_lost_tools(request: ModelRequest) -> ModelRequest:
    """Declare the tools that the history calls if the agent has none, with choice "none"; otherwise APIs refuse the
    request."""
    if request.tools or not (called := called_names(request)):
        return request
    names = dict.fromkeys(map(wire_name, called))
    schema = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
    lost = (ToolSpec(name=it, summary="No longer available.", description="", input_schema=schema) for it in names)
    return replace(request, tools=tuple(lost), tool_choice="none")


def called_names(request: ModelRequest) -> list[str]:
    """Return the names of the tools that the history calls."""

    def add(before: dict[str, None], turns: Sequence[Sequence[Message]]) -> dict[str, None]:
        answers = (it for turn in turns for it in turn if isinstance(it, AssistantMessage))
        return before | dict.fromkeys(call.name for answer in answers for call in answer.calls)

    return list(add(grown(request.settled, "names", {}, add), [request.unsettled]))


def with_pictures_behind(messages: Sequence[Message]) -> Iterator[Message]:
    """Move pictures of results into a user message after the last result, for APIs whose results are text."""
    pictures: list[Image] = []
    for message in (*messages, None):
        if isinstance(message, ToolResultMessage):
            images = [part for part in message.content if isinstance(part, Image)]
            below = (Text(text=_SHOWN_BELOW),) if images else ()
            yield with_parts(message, [*(it for it in message.content if isinstance(it, Text)), *below])
            pictures += images
            continue
        if pictures:
            yield UserMessage(content=(Text(text=_FROM_TOOLS), *pictures))
            pictures = []
        if message is not None:
            yield message


_SHOWN_BELOW = "(the picture follows in the next user message)"
_FROM_TOOLS = f"{NOTE}: pictures of the results above.)"


def result_text(message: ToolResultMessage) -> str:
    """Return the text of a result, with failures marked for APIs without a flag. Errors of our tools are marked already."""
    text = "\n".join(texts(message))
    if message.is_error and json_object(text).get("ok") is not False:
        return f"Error: {text or SILENT_FAILURE}"
    return text or "(no output)"


SILENT_FAILURE = "the tool failed and gave no reason"


def append(wire: list[dict[str, Any]], role: str, member: str, parts: list[dict[str, Any]]) -> None:
    """Append to the last message if it has this role, so that roles alternate; do nothing without parts."""
    if wire and wire[-1]["role"] == role:
        wire[-1][member] += parts
    elif parts:
        wire.append({"role": role, member: parts})


def cache_key(request: ModelRequest) -> str:
    """Return the chat's cache key: at most 64 characters, and pseudonymous."""
    return hashlib.sha256(request.conversation.encode(errors="surrogatepass")).hexdigest()


def data_url(image: Image) -> str:
    return f"data:{image.media_type};base64,{image.data}"


def wire_id(call_id: str, *, pattern: str = r"[a-zA-Z0-9_-]{1,64}") -> str:
    """Return the id if the API accepts it; else one derived from it, equal for a call and its result."""
    if re.fullmatch(pattern, call_id):
        return call_id
    digest = hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()
    made = f"call_{digest[:24]}"
    return made if re.fullmatch(pattern, made) else digest[:9]  # Mistral's


def wire_name(name: str) -> str:
    """Return the name, minimally changed to what APIs accept: a model may have called a tool by another name."""
    legal = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"
    return legal if re.match("[a-zA-Z_]", legal) else f"_{legal[1:]}"


def without_thinking(request: ModelRequest, reason: str) -> dict[str, Any]:
    """Return no members, and log the reason."""
    log.info("thinking_left_out", model=request.model, wanted=request.thinking, reason=reason)
    return {}


def sent_choice(request: ModelRequest, *, required: str = "", named: str = "") -> ToolChoice:
    """Return the tool choice to send. `required` and `named` say why the API does not support that form, or are empty.
    An unsupported `required` becomes the named form if there is one tool."""
    wanted = request.tool_choice
    names = [tool.name for tool in request.tools]
    if not request.facts.forced_tool:
        required = named = "this model cannot be forced to call a tool"
    if wanted in ("auto", "none"):
        return wanted
    if isinstance(wanted, OneTool):
        if wanted.name not in names:
            return _degraded(request, "auto", f"the agent has no tool {wanted.name}")
        return _degraded(request, "auto", named) if named else wanted
    if not required:
        return wanted
    if len(names) == 1 and not named:
        return _degraded(request, OneTool(name=names[0]), required)
    return _degraded(request, "auto", required)


def _degraded(request: ModelRequest, to: ToolChoice, reason: str) -> ToolChoice:
    wanted, chosen = (it.name if isinstance(it, OneTool) else it for it in (request.tool_choice, to))
    log.info("tool_choice_degraded", model=request.model, wanted=wanted, to=chosen, reason=reason)
    return to
