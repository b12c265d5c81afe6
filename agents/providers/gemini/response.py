"""Gemini's stream put together into one assistant message. Pure: dicts in, our events out.

Each chunk is a whole response object: texts are appended, calls and signatures come whole. A part that is signed stays
a part of its own, for its signature is good for nothing else. `finishReason` is the only proof of an end. Unknown
members and parts are passed over. Nothing here knows a socket.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from agents.messages import (
    AssistantMessage,
    AssistantPart,
    ErrorKind,
    ModelError,
    Opaque,
    StopReason,
    Text,
    Thinking,
    ToolCall,
    Usage,
    Wire,
)
from agents.providers.arguments import parse_arguments
from agents.providers.errors import RETRYABLE, AttemptFailed, BadStream, word
from agents.providers.gemini.errors import from_event
from agents.providers.gemini.request import API
from agents.providers.growing import Growing
from agents.providers.ids import CallIds
from agents.providers.models import family_of
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.providers.usage import count
from agents.providers.wellformed import well_formed

ANSWER_CHARS_MAX = 8_000_000
"""No model writes this much; a server that does is broken."""

_STOP_REASONS: dict[str, StopReason] = {
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
"""Parts that only Gemini understands: they go back as they came."""


def finish_reason(chunk: dict[str, Any]) -> str:
    """Why the answer ended, of the chunk that says it; else empty."""
    reason = _candidate(chunk).get("finishReason")
    return reason if isinstance(reason, str) and reason != "FINISH_REASON_UNSPECIFIED" else ""


@dataclass(slots=True)
class _Words:
    """A text or a thought under way; once signed it is complete."""

    thought: bool
    signature: str
    body: Growing = field(default_factory=Growing)


@dataclass(slots=True)
class Assembly:
    """One answer in the making."""

    provider: str
    model: str
    timestamp: float
    response_id: str | None = None
    _parts: list[_Words | ToolCall | Opaque] = field(default_factory=list)
    _call_ids: CallIds = field(default_factory=CallIds)
    _finish: str = ""
    _blocked: bool = False
    _usage: dict[str, Any] = field(default_factory=dict)
    _chars: int = 0

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one chunk. Raises BadStream, and AttemptFailed for an error that is told."""
        if event.get("error") is not None:
            raise AttemptFailed(from_event(event))
        self.response_id = _text(event, "responseId") or self.response_id
        usage = event.get("usageMetadata")
        self._usage |= usage if isinstance(usage, dict) else {}
        feedback = event.get("promptFeedback")
        self._blocked = self._blocked or (isinstance(feedback, dict) and bool(feedback.get("blockReason")))
        content = _candidate(event).get("content")
        parts = content.get("parts") if isinstance(content, dict) else None
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict):
                raise BadStream("a part is not an object")
            yield from self._take(part)
        self._finish = finish_reason(event) or self._finish

    def _take(self, part: dict[str, Any]) -> Iterator[ModelEvent]:
        signature = _text(part, "thoughtSignature")
        self._grow(len(signature))
        if isinstance(part.get("functionCall"), dict):
            yield from self._call(part["functionCall"], signature)
        elif known := next((name for name in part if name in _KEPT), ""):
            self._grow(len(json.dumps(part)))
            self._parts.append(Opaque(wire=self._wire(known, part)))
        elif text := _text(part, "text"):
            yield from self._words(text, signature, thought=part.get("thought") is True)
        elif signature:
            # Signed emptiness is kept apart from Text, of which an empty one is never sent to anybody.
            empty = {"text": "", "thoughtSignature": signature}
            self._parts.append(Opaque(wire=self._wire("empty_text", empty)))

    def _words(self, text: str, signature: str, *, thought: bool) -> Iterator[ModelEvent]:
        self._grow(len(text))
        words = self._parts[-1] if self._parts else None
        joins = isinstance(words, _Words) and words.thought == thought and not words.signature and not signature
        if not isinstance(words, _Words) or not joins:
            words = _Words(thought=thought, signature=signature)
            self._parts.append(words)
        index = len(self._parts) - 1
        if shown := words.body.add(text):
            yield ThinkingDelta(index=index, text=shown) if thought else TextDelta(index=index, text=shown)

    def _call(self, told: dict[str, Any], signature: str) -> Iterator[ModelEvent]:
        index = len(self._parts)
        args = told.get("args")
        raw = args if isinstance(args, str) else json.dumps({} if args is None else args, ensure_ascii=False)
        self._grow(len(raw))
        call = ToolCall(
            id=self._call_ids.unique(_text(told, "id"), answer=self.response_id, place=index),
            name=_text(told, "name"),
            arguments=parse_arguments(raw),
            arguments_raw=well_formed(raw),
            wire=self._wire("thought_signature", signature) if signature else None,
        )
        self._parts.append(call)
        yield ToolCallStart(index=index, id=call.id, name=call.name)
        if call.arguments_raw:
            yield ToolCallDelta(index=index, text=call.arguments_raw)
        yield ToolCallEnd(index=index, call=call)

    def _grow(self, chars: int) -> None:
        self._chars += chars
        if self._chars > ANSWER_CHARS_MAX:
            raise BadStream("the answer has no end")

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where its end never came, AttemptFailed where the model broke off."""
        if not self._finish and self._blocked:
            return self._message((), "refusal")
        if not self._finish:
            raise BadStream("the stream ended without finishReason")
        if kind := _FAILURES.get(self._finish):
            summary = f"status=200 finish={word(self._finish)}"
            raise AttemptFailed(ModelError(kind=kind, summary=summary, retryable=kind in RETRYABLE))
        parts = tuple(self._part(part) for part in self._parts)
        calls = any(isinstance(part, ToolCall) for part in parts)
        reason = _STOP_REASONS.get(self._finish)
        if reason is None and calls and self._finish != "STOP":
            raise BadStream("calls, and an unknown reason to stop")  # never run what may have been cut or refused
        return self._message(parts, reason or ("tool_use" if calls else "end_turn"))

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        """What was said before it broke, without calls and thinking, for neither is sure to be whole."""
        words = (part for part in self._parts if isinstance(part, _Words) and not part.thought)
        return self._message(
            tuple(Text(text=said.body.text) for said in words if said.body.text.strip()), reason, error
        )

    def _message(
        self, parts: tuple[AssistantPart, ...], reason: StopReason, error: ModelError | None = None
    ) -> AssistantMessage:
        return AssistantMessage(
            content=parts,
            provider=self.provider,
            model=self.model,
            api=API,
            stop_reason=reason,
            usage=_usage(self._usage),
            error=error,
            response_id=self.response_id,
            timestamp=self.timestamp,
        )

    def _part(self, part: _Words | ToolCall | Opaque) -> AssistantPart:
        if not isinstance(part, _Words):
            return part
        wire = self._wire("thought_signature", part.signature) if part.signature else None
        if part.thought:
            return Thinking(text=part.body.text, wire=wire)
        return Text(text=part.body.text, wire=wire)

    def _wire(self, kind: str, data: Any) -> Wire:
        return Wire(api=API, family=family_of(self.model), kind=kind, data=data)


def _usage(told: dict[str, Any]) -> Usage:
    """Gemini counts the cached part into the prompt, and thoughts apart from the answer."""
    cached = count(told.get("cachedContentTokenCount"))
    prompt = count(told.get("promptTokenCount")) + count(told.get("toolUsePromptTokenCount"))
    thoughts = count(told.get("thoughtsTokenCount"))
    return Usage(
        input=max(0, prompt - cached),
        cache_read=cached,
        output=count(told.get("candidatesTokenCount")) + thoughts,
        reasoning=thoughts,
        estimated=not told,
    )


def _candidate(event: dict[str, Any]) -> dict[str, Any]:
    """The first one: we never ask for more."""
    candidates = event.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        return {}
    if not isinstance(candidates[0], dict):
        raise BadStream("a candidate is not an object")
    return candidates[0]


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""
