"""Our request as Gemini's body. Pure: nothing is sent here, and the history is taken as repaired.

Roles alternate: the results of one answer are all in the user content after it, in call order, and what a person
said next follows in the same content. A signature stays on its part, and a part that had to be changed
goes without, for it would be refused.
"""

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

from agents.messages import (
    AssistantMessage,
    Message,
    Opaque,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
)
from agents.providers import request as shared
from agents.providers.models import Level
from agents.providers.payload import well_formed_json
from agents.providers.provider import ModelRequest, OneTool
from tools.tool import NativeDocument, ToolSpec

API = "google-gemini"

GeminiPart: TypeAlias = dict[str, Any]


def wire_request(request: ModelRequest) -> dict[str, Any]:
    """The body of `POST …/models/{model}:streamGenerateContent`."""
    request = shared.with_lost_tools(request)
    limit = shared.output_tokens(request)
    generation: dict[str, Any] = {"maxOutputTokens": limit}
    if thinking := thinking_config(request, limit):
        generation["thinkingConfig"] = thinking
    signed = signs(request.model)
    convert = partial(_contents, signed=signed)
    contents = [*shared.written(request.settled, convert, API, signed), *convert(request.unsettled)]
    body: dict[str, Any] = {"contents": contents}
    if system := shared.system_texts(request.system):
        body["systemInstruction"] = {"parts": [{"text": text} for text in system]}
    if request.tools:
        body["tools"] = [{"functionDeclarations": [_declaration(tool) for tool in request.tools]}]
        body["toolConfig"] = {"functionCallingConfig": _choice(request)}
    return body | {"generationConfig": generation}


def _declaration(tool: ToolSpec) -> GeminiPart:
    """The schema goes as it is; a tool that takes nothing has none."""
    schema, declared = dict(tool.input_schema), {"name": tool.name, "description": shared.description_of(tool)}
    closed = schema.keys() <= {"type", "properties", "required"} or not schema.get("additionalProperties", True)
    if closed and not schema.get("properties"):
        return declared
    return declared | {"parametersJsonSchema": well_formed_json(schema)}


def _choice(request: ModelRequest) -> GeminiPart:
    choice = shared.sent_choice(request)
    if isinstance(choice, OneTool):
        return {"mode": "ANY", "allowedFunctionNames": [choice.name]}
    return {"mode": "ANY" if choice == "required" else choice.upper()}


def _contents(messages: Sequence[Message], *, signed: bool) -> list[GeminiPart]:
    contents: list[GeminiPart] = []
    names: dict[str, str] = {}
    for message in messages if signed else shared.with_pictures_behind(messages):
        match message:
            case UserMessage():
                shared.append(contents, "user", "parts", [_spoken(part) for part in message.sent_parts])
            case AssistantMessage():
                names |= {call.id: shared.wire_name(call.name) for call in message.calls}
                shared.append(contents, "model", "parts", _model_parts(message, signed=signed))
            case ToolResultMessage():
                name = names.get(message.call_id) or shared.wire_name(message.tool)
                shared.append(contents, "user", "parts", [_result_part(message, name)])
    return contents


def _spoken(part: UserPart) -> GeminiPart:
    if isinstance(part, Text):
        return {"text": part.text}
    if isinstance(part, NativeDocument):
        return {"inlineData": {"mimeType": "application/pdf", "data": part.data}}
    if part.media_type in SPOKEN_IMAGES:
        return {"inlineData": {"mimeType": part.media_type, "data": part.data}}
    return {"text": shared.image_label(part)}


def _model_parts(message: AssistantMessage, *, signed: bool) -> list[GeminiPart]:
    parts: list[GeminiPart] = []
    first_call = True
    for part in message.content:
        signature = _signature(part)
        match part:
            case Text():
                if part.text.strip() or signature:
                    parts.append({"text": part.text} | signature)
            case Thinking():
                if signature:  # a mere summary is for people
                    parts.append({"text": part.text, "thought": True} | signature)
            case ToolCall():
                # Any signature would do behind the first; the placeholder is for the one that is demanded.
                if signed and first_call and not signature:
                    signature = {"thoughtSignature": PLACEHOLDER_SIGNATURE}
                first_call = False
                parts.append(_call_part(part) | signature)
            case Opaque():
                if part.wire.api == API:
                    parts.append(dict(part.wire.data))
    return parts


def _signature(part: Text | Thinking | ToolCall | Opaque) -> GeminiPart:
    """The member that gives a part its signature back; empty if it has none, or is no longer what was signed."""
    if part.wire is None or part.wire.api != API or part.wire.kind != "thought_signature":
        return {}
    if isinstance(part, ToolCall) and (part.arguments is None or shared.wire_name(part.name) != part.name):
        return {}
    return {"thoughtSignature": part.wire.data}


def _call_part(call: ToolCall) -> GeminiPart:
    """The id pairs a call with its result in any order, so both always carry it; Gemini takes ids of any making."""
    return {
        "functionCall": {
            "id": shared.wire_id(call.id),
            "name": shared.wire_name(call.name),
            "args": call.arguments or {},
        }
    }


def _result_part(message: ToolResultMessage, name: str) -> GeminiPart:
    spoken = [_spoken(part) for part in message.content]
    text = "\n".join(wire["text"] for wire in spoken if "text" in wire)
    pictures = [wire for wire in spoken if "inlineData" in wire]
    answer = {"error": text or "The tool failed and gave no reason."} if message.is_error else {"output": text}
    response: dict[str, Any] = {"id": shared.wire_id(message.call_id), "name": name, "response": answer}
    return {"functionResponse": response | ({"parts": pictures} if pictures else {})}


PLACEHOLDER_SIGNATURE = "skip_thought_signature_validator"
"""The value that a call may carry in place of its own signature, if another model made it or it is long past."""

SPOKEN_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
"""The types of pictures that Gemini takes; GIF is not among them."""


def signs(model: str) -> bool:
    """True if the first call of each step must have a signature; those models also take pictures in results."""
    return re.match(r"gemini-(?![12](?:\.|-|$))", _bare(model)) is not None


def resource(model: str) -> str:
    """The model as the path names it: `models/…`, or `tunedModels/…` as it was given."""
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


def _bare(model: str) -> str:
    return model.rpartition("/")[2]


BUDGET_MIN = 512
"""The least budget in tokens: 2.5 Flash-Lite takes no less, the others do."""
BUDGET_MAX = 24_576
"""The largest budget in tokens: 2.5 Flash takes no more, 2.5 Pro would."""
LEAST_OF_PRO = 128
"""2.5 Pro's own minimum; it refuses to think not at all."""

_LEVELS: dict[Level, str] = {
    "off": "MINIMAL",  # the least there is: a level can not be none
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
    "max": "XHIGH",
}


def thinking_config(request: ModelRequest, max_tokens: int) -> dict[str, Any]:
    """The member `thinkingConfig`; empty if the model decides."""
    level = request.thinking
    if level is None:
        return {}
    if request.facts.thinking_style != "budget":
        shown = {} if level == "off" else {"includeThoughts": True}
        return {"thinkingLevel": _LEVELS[level]} | shown
    if level == "off":
        return {"thinkingBudget": LEAST_OF_PRO if _bare(request.model).startswith("gemini-2.5-pro") else 0}
    budget = min(BUDGET_MAX, max(BUDGET_MIN, int(max_tokens * shared.THINKING_SHARES[level])))
    if budget >= max_tokens:
        return shared.without_thinking(request, "maxTokens leaves no room for it")
    return {"thinkingBudget": budget, "includeThoughts": True}
