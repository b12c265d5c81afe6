"""The chunks of a Chat answer put together into one assistant message. Pure: dicts in, our events out.

A finish reason is the proof of an end, or `[DONE]` for the vendors that send no reason at times. The servers that speak
this wire differ in every detail of it, so what a chunk lacks or says twice is borne; `Calls` keeps calls apart.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from agents.messages import AssistantMessage, StopReason
from agents.providers.chat.thinking import DETAILS, merge
from agents.providers.chat.vendors import Vendor, for_model
from agents.providers.draft import Draft, Payload
from agents.providers.errors import BadStream
from agents.providers.http import END
from agents.providers.openai.answer import COMPLETION, Calls, content_of, usage_of, whole_message
from agents.providers.payload import object_of, text_of
from agents.providers.provider import ModelEvent
from agents.providers.refusals import broken_off, failure_of

API = "openai-chat"

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "error": "error",
}


class ChatAssembly:
    """One answer in the making. The wire has no order of parts: they have the order in which they began."""

    def __init__(self, draft: Draft, vendor: Vendor) -> None:
        self.draft = draft
        self._calls = Calls(self.draft)
        self._vendor = for_model(vendor, draft.model)
        self._reasoning_field = ""
        self._details: list[dict[str, Any]] = []
        self._refused = False
        self._finish_reason = ""
        self._done = False

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        if event.get("error") and not self._finish_reason:
            raise failure_of(event)
        if event.get("type") == END:
            self._done = True
            yield from self._calls.close()
            return
        self.draft.response_id = self.draft.response_id or text_of(event, "id") or None
        choice = first_choice(event)
        if usage := object_of(event, "usage") or object_of(choice, "usage"):
            self.draft.usage = usage_of(usage)
        message = whole_message(event, choice) if not self.draft.blocks else {}
        yield from self._extend(message or object_of(choice, "delta"))
        reason = text_of(choice, "finish_reason") or ("stop" if message and event.get("object") == COMPLETION else "")
        if reason and not self._finish_reason:
            self._finish_reason, self.draft.ended = reason, True
            if self._stop_reason == "error":
                raise broken_off(reason)
            yield from self._calls.close()

    def _extend(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        field_name = next((name for name in self._vendor.reasoning_fields if text_of(delta, name)), "")
        if field_name:
            self._reasoning_field = self._reasoning_field or field_name
            yield from self._think(text_of(delta, field_name))
        if isinstance(details := delta.get(DETAILS), list) and details:
            text = merge(self._details, details)
            yield from self._think("" if field_name else text)
        for kind, text in content_of(delta):
            yield from self._think(text) if kind == "thinking" else self._write(text)
        if refusal := text_of(delta, "refusal"):
            self._refused = True
            yield from self._write(refusal)
        if isinstance(pieces := delta.get("tool_calls"), list):
            yield from self._calls.add(pieces)

    def _think(self, text: str) -> Iterator[ModelEvent]:
        if "thinking" not in self.draft.blocks:
            self.draft.open("thinking", "thinking", self._reasoning_payload)
        yield from self.draft.add("thinking", text)

    def _reasoning_payload(self, text: str) -> Payload:
        return (DETAILS, self._details) if self._details else (self._reasoning_field, text) if text else None

    def _write(self, text: str) -> Iterator[ModelEvent]:
        """Chat templates leave line ends before an answer; they are no part of it."""
        if "text" not in self.draft.blocks:
            self.draft.count(len(text))
            if not (text := text.lstrip("\r\n")):
                return
            self.draft.open("text", "text")
        yield from self.draft.add("text", text)

    def finish(self) -> AssistantMessage:
        if not self._finish_reason and not (self._done and self._vendor.finish_optional):
            raise BadStream("the stream ended without a finish reason")
        return self.draft.finished(self._reason())

    @property
    def _stop_reason(self) -> StopReason:
        """The meaning of the finish reason alone; an unknown one is an end like any other."""
        return self._vendor.finish.get(self._finish_reason) or _STOP_REASONS.get(self._finish_reason, "end_turn")

    def _reason(self) -> StopReason:
        reason = self._stop_reason
        if self._refused and reason != "content_filter":
            return "refusal"
        if reason == "max_tokens" and not self.draft.blocks and self.draft.usage.output <= 1:
            return "context_window"  # cut off before its first word: the window is full
        return reason


def first_choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """We ask for one; an empty list is normal in chunks that bring something else."""
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
