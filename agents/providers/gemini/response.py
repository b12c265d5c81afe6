"""Gemini's stream put together into one assistant message. Pure: dicts in, our events out.

Each chunk is a whole response object: texts are appended, calls and signatures come whole. A part that is signed stays
a part of its own, for its signature is good for nothing else. `finishReason` is the only proof of an end. Unknown
members and parts are passed over. Nothing here knows a socket.
"""

import json
import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from agents.messages import AssistantMessage, ErrorKind, ModelError, StopReason, Usage
from agents.providers.draft import Draft, Payload
from agents.providers.errors import (
    AttemptFailed,
    BadStream,
    error_of,
    failure,
    kind_of_status,
    message_of,
    overflows,
    word,
)
from agents.providers.gemini.request import API
from agents.providers.payload import arguments_of, count_of, object_of, objects_of, text_of
from agents.providers.provider import ModelEvent

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


def finish_reason(chunk: dict[str, Any]) -> str:
    """Why the answer ended, of the chunk that says it; else empty."""
    reason = text_of(_candidate(chunk), "finishReason")
    return "" if reason == "FINISH_REASON_UNSPECIFIED" else reason


class GeminiAssembly:
    def __init__(self, *, provider: str, model: str, timestamp: float) -> None:
        self.draft = Draft(api=API, provider=provider, model=model, timestamp=timestamp)
        self._open: tuple[Hashable, bool] | None = None
        """The unsigned text that goes on, and whether it is a thought; a signed one is complete."""
        self._finish_reason = ""
        self._blocked = False
        self._usage: dict[str, Any] = {}

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error") is not None:
            raise AttemptFailed(from_event(event))
        self.draft.response_id = text_of(event, "responseId") or self.draft.response_id
        if usage := object_of(event, "usageMetadata"):
            self._usage |= usage
            self.draft.usage = _usage(self._usage)
        self._blocked = self._blocked or bool(object_of(event, "promptFeedback").get("blockReason"))
        parts = object_of(_candidate(event), "content").get("parts")
        for part in parts if isinstance(parts, list) else ():
            if not isinstance(part, dict):
                raise BadStream("a part is not an object")
            yield from self._take(part)
        self._finish_reason = finish_reason(event) or self._finish_reason

    def _take(self, part: dict[str, Any]) -> Iterator[ModelEvent]:
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
            raise AttemptFailed(failure(kind, f"status=200 finish={word(self._finish_reason)}", {}, 0.0))
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


_CODES = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNKNOWN": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_BY_STATUS: dict[int, ErrorKind] = {499: "server", 504: "timeout"}
_SIGNATURE = re.compile(r"thought.?signature", re.IGNORECASE)
_PAYLOAD = re.compile(r"request payload size exceeds", re.IGNORECASE)
_DELAY = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")


def from_status(status: int, body: object, headers: Mapping[str, str], now: float) -> ModelError:
    error = error_of(body[0] if isinstance(body, list) and body else body)
    summary = f"status={status} type={word(error.get('status'))}"
    failed = failure(_kind(status, error), summary, headers, now)
    return (
        failed if failed.retry_after_seconds is not None else replace(failed, retry_after_seconds=_retry_delay(error))
    )


def from_event(event: object) -> ModelError:
    """An error in the middle of a stream that began with 200."""
    error = error_of(event)
    name, code = error.get("status"), error.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else _CODES.get(str(name), 500)
    failed = failure(_kind(status, error), f"status=200 type={word(name)}", {}, 0.0)
    return replace(failed, retry_after_seconds=_retry_delay(error))


def _kind(status: int, error: Mapping[str, Any]) -> ErrorKind:
    message = message_of(error)
    if status in (400, 413, 422) and (overflows(message) or _PAYLOAD.search(message)):
        return "too_large"
    if status == 400:
        if any(str(detail.get("reason")).startswith("API_KEY_") for detail in objects_of(error, "details")):
            return "auth"
        if error.get("status") == "FAILED_PRECONDITION":
            return "auth"  # the account, or the place it asks from: nothing that another wording would cure
        return "stale_thinking" if _SIGNATURE.search(message) else "invalid"
    violations = (it for detail in objects_of(error, "details") for it in objects_of(detail, "violations"))
    if status == 429 and any("PerDay" in str(violation.get("quotaId")) for violation in violations):
        return "billing"
    return _BY_STATUS.get(status) or kind_of_status(status)


def _retry_delay(error: Mapping[str, Any]) -> float | None:
    """Seconds, from `RetryInfo`."""
    for detail in objects_of(error, "details"):
        if (match := _DELAY.fullmatch(text_of(detail, "retryDelay"))) and float(match[1]) > 0:
            return float(match[1])
    return None
