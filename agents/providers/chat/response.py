"""The chunks of a Chat answer put together into one assistant message. Pure: dicts in, our events out.

A finish reason is the proof of an end, or `[DONE]` for the vendors that send no reason at times. The servers that speak
this wire differ in every detail of it, so what a chunk lacks or says twice is borne; calls are told apart in `calls`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agents.messages import AssistantMessage, AssistantPart, ModelError, StopReason, Text, Thinking, Wire
from agents.providers.chat.calls import Calls
from agents.providers.chat.details import merge
from agents.providers.chat.places import Places
from agents.providers.chat.thinking import DETAILS
from agents.providers.chat.usage import usage_of
from agents.providers.chat.vendor import Vendor
from agents.providers.errors import AttemptFailed, BadStream, word
from agents.providers.growing import Growing
from agents.providers.http import END
from agents.providers.models import family_of
from agents.providers.openai.errors import from_event
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta

API = "openai-chat"
ANSWER_CHARS_MAX = 8_000_000
"""No model writes this much; a server that does is broken."""

_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "length": "max_tokens",
    "content_filter": "content_filter",
    "error": "error",
}


@dataclass(slots=True)
class Assembly:
    """One answer in the making. The wire has no order of parts: they stand in the order in which they began."""

    provider: str
    model: str
    timestamp: float
    vendor: Vendor
    response_id: str | None = None
    _places: Places = field(default_factory=Places)
    _calls: Calls = field(default_factory=Calls)
    _text: Growing = field(default_factory=Growing)
    _reasoning: Growing = field(default_factory=Growing)
    _reasoning_field: str = ""
    _details: list[dict[str, Any]] = field(default_factory=list)
    _refused: bool = False
    _finish: str = ""
    _done: bool = False
    _usage: Mapping[str, Any] = field(default_factory=dict)
    _chars: int = 0

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one chunk. Raises BadStream, and AttemptFailed for an error that is told before the end."""
        if event.get("error") and not self._finish:
            raise AttemptFailed(from_event(event))
        if event.get("type") == END:
            self._done = True
            yield from self._calls.close(self.response_id)
            return
        self.response_id = self.response_id or _text(event, "id") or None
        choice = first_choice(event)
        self._usage = _object(event, "usage") or _object(choice, "usage") or self._usage
        yield from self._extend(_object(choice, "delta"))
        if (reason := _text(choice, "finish_reason")) and not self._finish:
            self._finish = reason
            if self._stop_reason == "error":
                summary = f"status=200 finish_reason={word(reason)}"
                raise AttemptFailed(ModelError(kind="server", summary=summary, retryable=True))
            yield from self._calls.close(self.response_id)

    def _extend(self, delta: Mapping[str, Any]) -> Iterator[ModelEvent]:
        field_name = next((name for name in self.vendor.reasoning_fields if _text(delta, name)), "")
        if field_name:
            self._reasoning_field = self._reasoning_field or field_name
            yield from self._think(_text(delta, field_name))
        if isinstance(details := delta.get(DETAILS), list) and details:
            told = merge(self._details, details)
            yield from self._think("" if field_name else told)
        yield from self._say(_text(delta, "content"))
        if refusal := _text(delta, "refusal"):
            self._refused = True
            yield from self._say(refusal)
        if isinstance(pieces := delta.get("tool_calls"), list):
            for event in self._calls.add(pieces, self._places, self.response_id):
                self._grow(event.text if isinstance(event, ToolCallDelta) else "")
                yield event

    def _think(self, text: str) -> Iterator[ModelEvent]:
        self._grow(text)
        index = self._places.of("thinking")
        if shown := self._reasoning.add(text):
            yield ThinkingDelta(index=index, text=shown)

    def _say(self, text: str) -> Iterator[ModelEvent]:
        """Chat templates leave line ends before an answer; they are no part of it."""
        self._grow(text)
        text = text if self._text.raw else text.lstrip("\r\n")
        if not text:
            return
        index = self._places.of("text")
        if shown := self._text.add(text):
            yield TextDelta(index=index, text=shown)

    def _grow(self, text: str) -> None:
        self._chars += len(text)
        if self._chars > ANSWER_CHARS_MAX:
            raise BadStream("the answer has no end")

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where its end never came."""
        if not self._finish and not (self._done and self.vendor.finish_optional):
            raise BadStream("the stream ended without a finish reason")
        parts = {self._places.of(key): part for key, part in self._parts()}
        return self._message(tuple(parts[place] for place in sorted(parts)), self._reason())

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        """What was said before it broke, without calls and thinking, for neither is sure to be whole."""
        text = self._text.text
        return self._message((Text(text=text),) if text.strip() else (), reason, error)

    @property
    def _stop_reason(self) -> StopReason:
        """What the finish reason alone says; one that nobody knows is an end like any other."""
        return self.vendor.finish.get(self._finish) or _STOP_REASONS.get(self._finish, "end_turn")

    def _reason(self) -> StopReason:
        reason = self._stop_reason
        if self._refused and reason != "content_filter":
            return "refusal"
        if reason in ("end_turn", "tool_use"):
            return "tool_use" if self._calls.made else "end_turn"
        if reason == "max_tokens" and not self._places.taken and usage_of(self._usage).output <= 1:
            return "context_window"  # cut off before its first word: the window is full
        return reason

    def _parts(self) -> Iterator[tuple[str, AssistantPart]]:
        if (reasoning := self._reasoning.text) or self._details:
            kind, data = (self._reasoning_field, reasoning) if not self._details else (DETAILS, self._details)
            wire = Wire(api=API, family=family_of(self.model), kind=kind, data=data)
            yield "thinking", Thinking(text=reasoning, wire=wire)
        if text := self._text.text:
            yield "text", Text(text=text)
        yield from self._calls.made.items()

    def _message(
        self, parts: tuple[AssistantPart, ...], reason: StopReason, error: ModelError | None = None
    ) -> AssistantMessage:
        return AssistantMessage(
            content=parts,
            provider=self.provider,
            model=self.model,
            api=API,
            stop_reason=reason,
            usage=usage_of(self._usage),
            error=error,
            response_id=self.response_id,
            timestamp=self.timestamp,
        )


def first_choice(event: Mapping[str, Any]) -> Mapping[str, Any]:
    """We ask for one; an empty list is normal in chunks that bring something else."""
    choices = event.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def finishes(event: Mapping[str, Any]) -> bool:
    """Whether this chunk ends the answer; what comes behind it is its price."""
    return bool(_text(first_choice(event), "finish_reason"))


def _object(value: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    member = value.get(key)
    return member if isinstance(member, dict) else {}


def _text(value: Mapping[str, Any], key: str) -> str:
    text = value.get(key)
    return text if isinstance(text, str) else ""
