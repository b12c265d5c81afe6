"""Gemini's API: build the request body, and assemble the stream into one assistant message. Pure.

Roles alternate: the results of one answer are all in the user content after it, in call order, and the user's next text
follows in the same content. A signature stays with its part; a part that had to be changed loses it, or it would be refused.

Each chunk is a whole response object: texts are appended, calls and signatures arrive whole. A signed part stays separate.
Only `finishReason` proves an end. Unknown members and parts are ignored.
"""

import json
import re
from collections.abc import Hashable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias

from agents.messages import (
    AssistantMessage,
    ErrorKind,
    Message,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
    UserPart,
)
from agents.providers import request as shared
from agents.providers.draft import Draft, Payload
from agents.providers.models import Level
from agents.providers.payload import (
    BadStream,
    arguments_of,
    count_of,
    object_of,
    text_of,
    well_formed,
    well_formed_json,
)
from agents.providers.provider import ModelEvent, ModelRequest, OneTool
from agents.providers.refusals import broken_off, failure_of
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
    """Return a tool with its schema unchanged; none if it takes no arguments."""
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
    return {"text": f"[image: {well_formed(part.name or 'not shown')}]"}  # an unsupported type


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
                if signature:  # an unsigned summary is only for display
                    parts.append({"text": part.text, "thought": True} | signature)
            case ToolCall():
                # Only the first call needs a signature; the placeholder satisfies that.
                if signed and first_call and not signature:
                    signature = {"thoughtSignature": PLACEHOLDER_SIGNATURE}
                first_call = False
                parts.append(_call_part(part) | signature)
            case Opaque():
                if part.wire.api == API:
                    parts.append(dict(part.wire.data))
    return parts


def _signature(part: Text | Thinking | ToolCall | Opaque) -> GeminiPart:
    """Return the signature member of a part; empty if it has none or was changed."""
    if part.wire is None or part.wire.api != API or part.wire.kind != "thought_signature":
        return {}
    if isinstance(part, ToolCall) and (part.arguments is None or shared.wire_name(part.name) != part.name):
        return {}
    return {"thoughtSignature": part.wire.data}


def _call_part(call: ToolCall) -> GeminiPart:
    """Return the call. Calls and results always have an id, which pairs them in any order; Gemini accepts any format."""
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
"""Replaces the signature of a call that another model made or that is old."""

SPOKEN_IMAGES = frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"})
"""Picture types that Gemini accepts; GIF is not among them."""


def signs(model: str) -> bool:
    """Return whether the first call of each step needs a signature; those models also accept pictures in results."""
    return re.match(r"gemini-(?![12](?:\.|-|$))", _bare(model)) is not None


def resource(model: str) -> str:
    """Return the model's resource path: `models/…`, or `tunedModels/…` as given."""
    return model if model.startswith(("models/", "tunedModels/")) else f"models/{model}"


def _bare(model: str) -> str:
    return model.rpartition("/")[2]


BUDGET_MIN = 512
"""The minimum budget in tokens, required by 2.5 Flash-Lite; other models accept less."""
BUDGET_MAX = 24_576
"""The maximum budget in tokens of 2.5 Flash; 2.5 Pro accepts more."""
LEAST_OF_PRO = 128
"""The minimum of 2.5 Pro, which cannot disable thinking."""

_LEVELS: dict[Level, str] = {
    "off": "MINIMAL",  # the lowest level: none cannot be sent
    "minimal": "MINIMAL",
    "low": "LOW",
    "medium": "MEDIUM",
    "high": "HIGH",
    "xhigh": "XHIGH",
    "max": "XHIGH",
}


def thinking_config(request: ModelRequest, max_tokens: int) -> dict[str, Any]:
    """Return `thinkingConfig`; empty if the model decides."""
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


_STOP_REASONS: dict[str, StopReason] = {
    "STOP": "end_turn",
    "MAX_TOKENS": "max_tokens",
    "SAFETY": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "IMAGE_SAFETY": "refusal",
    "IMAGE_PROHIBITED_CONTENT": "refusal",
    "MODEL_ARMOR": "refusal",
    "RECITATION": "content_filter",
    "BLOCKLIST": "content_filter",
    "SPII": "content_filter",
    "LANGUAGE": "content_filter",
    "IMAGE_RECITATION": "content_filter",
    "CONTINUATION": "pause",
}
_FAILURES: dict[str, ErrorKind] = {
    "MALFORMED_FUNCTION_CALL": "incomplete",
    "MALFORMED_RESPONSE": "incomplete",
    "UNEXPECTED_TOOL_CALL": "incomplete",
    "TOO_MANY_TOOL_CALLS": "incomplete",
    "MISSING_THOUGHT_SIGNATURE": "stale_thinking",
    "OTHER": "server",
}
_KEPT = frozenset({"executableCode", "codeExecutionResult", "toolCall", "toolResponse", "inlineData", "fileData"})
"""Parts specific to Gemini, which are resent unchanged."""


class GeminiAssembly:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._open: tuple[Hashable, bool] | None = None
        """The open unsigned text, and whether it is a thought; a signed one is complete."""
        self._finish_reason = ""
        self._blocked = False
        self._usage: dict[str, Any] = {}

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error") is not None:
            raise failure_of(event)
        self.draft.response_id = text_of(event, "responseId") or self.draft.response_id
        if usage := object_of(event, "usageMetadata"):
            self._usage |= usage
            self.draft.usage = _usage(self._usage)
        self._blocked = self._blocked or bool(object_of(event, "promptFeedback").get("blockReason"))
        candidate = _candidate(event)
        parts = object_of(candidate, "content").get("parts")
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict):
                raise BadStream("a part is not an object")
            yield from self._add_part(part)
        if (reason := text_of(candidate, "finishReason")) != "FINISH_REASON_UNSPECIFIED":
            self._finish_reason = reason or self._finish_reason
        self.draft.ended = bool(self._finish_reason)

    def _add_part(self, part: dict[str, Any]) -> Iterator[ModelEvent]:
        signature = text_of(part, "thoughtSignature")
        self.draft.count(len(signature))
        if isinstance(part.get("functionCall"), dict):
            yield from self._call(part["functionCall"], signature)
        elif known := next((name for name in part if name in _KEPT), ""):
            self.draft.count(len(json.dumps(part)))
            self._keep(known, part)
        elif text := text_of(part, "text"):
            yield from self._write(text, signature, thought=part.get("thought") is True)
        elif signature:
            # A signed empty text is kept as opaque, since an empty Text is never sent.
            self._keep("empty_text", {"text": "", "thoughtSignature": signature})

    def _keep(self, kind: str, data: dict[str, Any]) -> None:
        self._open = None
        self.draft.open(object(), "opaque", lambda _: (kind, data))

    def _write(self, text: str, signature: str, *, thought: bool) -> Iterator[ModelEvent]:
        if signature or self._open is None or self._open[1] != thought:
            self._open = object(), thought
            self.draft.open(self._open[0], "thinking" if thought else "text", lambda _: _signed(signature))
        key, _ = self._open
        if signature:
            self._open = None
        yield from self.draft.add(key, text)

    def _call(self, call: dict[str, Any], signature: str) -> Iterator[ModelEvent]:
        key, self._open = object(), None
        self.draft.open(key, "call", lambda _: _signed(signature))
        yield from self.draft.start(key, vendor_id=text_of(call, "id"), name=text_of(call, "name"))
        yield from self.draft.add(key, arguments_of(call, "args") or "{}")
        yield from self.draft.close(key)

    def finish(self) -> AssistantMessage:
        if not self._finish_reason and self._blocked:
            return self.draft.message((), "refusal")
        if not self._finish_reason:
            raise BadStream("the stream ended without finishReason")
        if kind := _FAILURES.get(self._finish_reason):
            raise broken_off(self._finish_reason, kind)
        return self.draft.finished(_STOP_REASONS.get(self._finish_reason))


def _signed(signature: str) -> Payload:
    return ("thought_signature", signature) if signature else None


def _usage(usage: dict[str, Any]) -> Usage:
    """Convert usage: Gemini includes cached tokens in the prompt, and excludes thoughts from the answer."""
    cached, thoughts = count_of(usage, "cachedContentTokenCount"), count_of(usage, "thoughtsTokenCount")
    prompt = count_of(usage, "promptTokenCount") + count_of(usage, "toolUsePromptTokenCount")
    return Usage(
        input=max(0, prompt - cached),
        cache_read=cached,
        output=count_of(usage, "candidatesTokenCount") + thoughts,
        reasoning=thoughts,
    )


def _candidate(event: dict[str, Any]) -> dict[str, Any]:
    """Return the only candidate."""
    candidates = event.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        return {}
    if not isinstance(candidates[0], dict):
        raise BadStream("a candidate is not an object")
    return candidates[0]
