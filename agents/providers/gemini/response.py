"""Gemini's stream put together into one assistant message. Pure: dicts in, our events out.

Each chunk is a whole response object: texts are appended, calls and signatures come whole. A part that is signed stays
its own part, for its signature is good for nothing else. `finishReason` is the only proof of an end. Unknown members
and parts are passed over. Nothing here knows a socket.
"""

import json
from collections.abc import Hashable, Iterator
from typing import Any

from agents.messages import AssistantMessage, ErrorKind, StopReason, Usage
from agents.providers.draft import Draft, Payload
from agents.providers.errors import BadStream
from agents.providers.payload import arguments_of, count_of, object_of, text_of
from agents.providers.provider import ModelEvent
from agents.providers.refusals import broken_off, failure_of

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
"""Parts that only Gemini understands: they go back as they came."""


class GeminiAssembly:
    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self._open: tuple[Hashable, bool] | None = None
        """The unsigned text that goes on, and whether it is a thought; a signed one is complete."""
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
            # Signed emptiness is kept apart from Text, of which an empty one is never sent to anybody.
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
    """Gemini counts the cached part into the prompt, and thoughts apart from the answer."""
    cached, thoughts = count_of(usage, "cachedContentTokenCount"), count_of(usage, "thoughtsTokenCount")
    prompt = count_of(usage, "promptTokenCount") + count_of(usage, "toolUsePromptTokenCount")
    return Usage(
        input=max(0, prompt - cached),
        cache_read=cached,
        output=count_of(usage, "candidatesTokenCount") + thoughts,
        reasoning=thoughts,
    )


def _candidate(event: dict[str, Any]) -> dict[str, Any]:
    """The first one: we never ask for more."""
    candidates = event.get("candidates")
    if not isinstance(candidates, list) or not candidates:
        return {}
    if not isinstance(candidates[0], dict):
        raise BadStream("a candidate is not an object")
    return candidates[0]
