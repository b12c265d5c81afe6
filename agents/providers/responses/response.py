"""The events of a Responses stream put together into one assistant message. Pure: dicts in, our events out.

Items may interleave, so everything goes by the item's place. `completed`, `incomplete` and `failed` are the only proof
of an end. Unknown events, members and parts are passed over, for the protocol grows; what is plainly broken raises
`BadStream`. Nothing here knows a socket.
"""

from collections.abc import Iterator, Mapping
from typing import Any, TypeGuard

from agents.messages import AssistantMessage, ModelError, StopReason, Text, Usage
from agents.providers.draft import Draft, TextBuffer
from agents.providers.errors import AttemptFailed, BadStream, error_of
from agents.providers.models import family_of
from agents.providers.openai.errors import from_event
from agents.providers.provider import ModelEvent, TextDelta, ThinkingDelta, ToolCallDelta, ToolCallEnd, ToolCallStart
from agents.providers.responses.items import OWNERS, ItemUnderWay, PartKind, final_arguments, final_parts, string
from agents.providers.responses.request import API
from agents.providers.usage import count
from agents.providers.wellformed import well_formed

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})

_DELTAS: dict[str, tuple[PartKind, str]] = {
    "response.output_text.delta": ("text", "content_index"),
    "response.refusal.delta": ("refusal", "content_index"),
    "response.reasoning_summary_text.delta": ("summary", "summary_index"),
    "response.reasoning_text.delta": ("reasoning", "content_index"),
    "response.function_call_arguments.delta": ("arguments", ""),
}
_INCOMPLETE: dict[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "content_filter"}


class ResponsesAssembly:
    """One answer in the making."""

    def __init__(self, *, provider: str, model: str, timestamp: float) -> None:
        self._draft = Draft(api=API, provider=provider, model=model, timestamp=timestamp)
        self._items: dict[int, ItemUnderWay] = {}
        self._places: dict[str, int] = {}
        self._incomplete: str | None = None
        self._ended = False

    def feed(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        """Take one event. Raises BadStream, or AttemptFailed for a failure that it reports."""
        match event.get("type"):
            case "response.created":
                self._note(_dict(event, "response"))
            case "response.output_item.added":
                yield from self._open(_index(event), _dict(event, "item"))
            case "response.output_item.done":
                yield from self._close(_index(event), _dict(event, "item"))
            case "response.function_call_arguments.done":
                yield from self._seal(event)
            case "response.completed" | "response.incomplete" as type_:
                yield from self._end(_dict(event, "response"), completed=type_ == "response.completed")
            case "response.failed" | "error":
                if isinstance(response := event.get("response"), dict):
                    self._note(response)
                raise failure_of(event)
            case None if isinstance(event.get("error"), dict):  # a proxy's, without any form
                raise failure_of(event)
            case str() as type_ if type_ in _DELTAS:
                kind, index = _DELTAS[type_]
                yield from self._extend(event, kind, _number(event.get(index)), string(event, "delta"))
            case _:
                pass

    def _note(self, response: dict[str, Any]) -> None:
        self._draft.response_id = string(response, "id") or self._draft.response_id
        if isinstance(usage := response.get("usage"), dict) and usage:
            self._draft.usage = _usage(usage)

    def _open(self, place: int, start: dict[str, Any]) -> Iterator[ModelEvent]:
        if place in self._items:
            raise BadStream("an item was opened twice")
        item = self._items[place] = ItemUnderWay(start=start)
        self._places[string(start, "id")] = place
        if item.type == "function_call":
            item.call_id = self._draft.unique_id(string(start, "call_id"), place)
            yield ToolCallStart(index=place, id=item.call_id, name=well_formed(string(start, "name")))

    def _extend(self, event: dict[str, Any], kind: PartKind, part: int, piece: str) -> Iterator[ModelEvent]:
        place = self._place(event)
        item = self._items[place]
        if item.type == OWNERS[kind]:
            yield from self._show(place, item, kind, part, piece)

    def _seal(self, event: dict[str, Any]) -> Iterator[ModelEvent]:
        place = self._place(event)
        item = self._items[place]
        item.sealed = final_arguments(event) or ""
        yield from self._catch_up(place, item, "arguments", 0, item.sealed)

    def _close(self, place: int, end: dict[str, Any]) -> Iterator[ModelEvent]:
        """Some servers send no pieces: then all of the item is news."""
        if place not in self._items:
            yield from self._open(place, end)
        item = self._items[place]
        if item.end is not None:
            raise BadStream("an item was closed twice")
        item.end = end
        for kind, part, text in final_parts(end):
            if item.type == OWNERS[kind]:
                yield from self._catch_up(place, item, kind, part, text)
        yield from self._finish_call(place, item, cut=False)

    def _end(self, response: dict[str, Any], *, completed: bool) -> Iterator[ModelEvent]:
        self._note(response)
        output = response.get("output")
        if not self._items and isinstance(output, list):
            for place, item in enumerate(output):
                if isinstance(item, dict):
                    yield from self._close(place, item)
        for place, item in self._items.items():
            yield from self._finish_call(place, item, cut=not completed and item.sealed is None)
        if not completed:
            details = response.get("incomplete_details")
            self._incomplete = string(details, "reason") if isinstance(details, dict) else ""
        self._ended = True

    def _finish_call(self, place: int, item: ItemUnderWay, *, cut: bool) -> Iterator[ModelEvent]:
        if item.type == "function_call" and item.call is None:
            item.call = item.finished_call(cut=cut)
            yield ToolCallEnd(index=place, call=item.call)

    def _catch_up(self, place: int, item: ItemUnderWay, kind: PartKind, part: int, whole: str) -> Iterator[ModelEvent]:
        """Show what the pieces have left out; where they said something else, only history learns of it."""
        before = item.parts[kind, part].raw if (kind, part) in item.parts else ""
        if len(whole) > len(before) and whole.startswith(before):
            yield from self._show(place, item, kind, part, whole[len(before) :])

    def _show(self, place: int, item: ItemUnderWay, kind: PartKind, part: int, piece: str) -> Iterator[ModelEvent]:
        self._draft.count(len(piece))
        follows = any(before.raw for before in item.parts.values())
        begins = (kind, part) not in item.parts
        shown = item.parts.setdefault((kind, part), TextBuffer()).add(piece)
        if not shown:
            return
        match kind:
            case "text":
                yield TextDelta(index=place, text=shown)
            case "arguments":
                yield ToolCallDelta(index=place, text=shown)
            case "summary" | "reasoning":
                yield ThinkingDelta(index=place, text=f"\n\n{shown}" if follows and begins else shown)
            case "refusal":
                pass  # what it says instead of an answer is not shown as one

    def _place(self, event: dict[str, Any]) -> int:
        """Where the item of this event stands. Raises BadStream where there is none."""
        index = event.get("output_index")
        place = index if _is_index(index) else self._places.get(string(event, "item_id"))
        if place not in self._items:
            raise BadStream("an event belongs to no item")
        return place

    def finish(self) -> AssistantMessage:
        """The whole answer. Raises BadStream where the end never came."""
        if not self._ended:
            raise BadStream("the stream ended without response.completed")
        family = family_of(self._draft.model)
        parts = [part for _, item in sorted(self._items.items()) for part in item.kept(API, family)]
        return self._draft.message(parts, self._reason())

    def _reason(self) -> StopReason:
        if any(item.refuses for item in self._items.values()):
            return "refusal"
        if self._incomplete is not None:
            return _INCOMPLETE.get(self._incomplete, "max_tokens")  # cut, for a reason of the future
        return "tool_use" if any(item.call for item in self._items.values()) else "end_turn"

    def failed(self, error: ModelError, reason: StopReason = "error") -> AssistantMessage:
        """What was said before it broke, without calls and thinking, for neither is sure to be whole."""
        texts = [Text(text=item.text) for _, item in sorted(self._items.items()) if item.type == "message"]
        return self._draft.message([part for part in texts if part.text.strip()], reason, error)


def _usage(usage: dict[str, Any]) -> Usage:
    """OpenAI's input is the sum; ours is what neither came from the cache nor went into it."""
    into, out = usage.get("input_tokens_details"), usage.get("output_tokens_details")
    read = count(into.get("cached_tokens")) if isinstance(into, dict) else 0
    written = count(into.get("cache_write_tokens")) if isinstance(into, dict) else 0
    return Usage(
        input=max(0, count(usage.get("input_tokens")) - read - written),
        cache_read=read,
        cache_write=written,
        output=count(usage.get("output_tokens")),
        reasoning=count(out.get("reasoning_tokens")) if isinstance(out, dict) else 0,
    )


def _dict(event: dict[str, Any], key: str) -> dict[str, Any]:
    value = event.get(key)
    if not isinstance(value, dict):
        raise BadStream(f"{key} is missing")
    return value


def _index(event: dict[str, Any]) -> int:
    index = event.get("output_index")
    if not _is_index(index):
        raise BadStream("output_index is missing")
    return index


def _number(value: object) -> int:
    return value if _is_index(value) else 0


def _is_index(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


_NOT_TAKEN = frozenset(
    {
        "invalid_prompt",
        "data_residency_mismatch",
        "invalid_image",
        "invalid_image_format",
        "invalid_base64_image",
        "invalid_image_url",
        "invalid_image_mode",
        "image_too_large",
        "image_too_small",
        "image_parse_error",
        "image_file_too_large",
        "unsupported_image_media_type",
        "empty_image_file",
        "failed_to_download_image",
        "image_file_not_found",
    }
)


def failure_of(event: Mapping[str, Any]) -> AttemptFailed:
    """`event` is a `response.failed`, or an `error`, flat or with its `error` inside."""
    response = event.get("response")
    error = error_of(response if isinstance(response, dict) else event)
    if not error and event.get("type") == "error":
        error = event
    code = str(error.get("code"))
    blocked = code.endswith("_policy") or "policy_violation" in code
    if blocked or code in _NOT_TAKEN:
        error = {**error, "type": "invalid_request_error"}
    return AttemptFailed(from_event(error), "content_filter" if blocked else "error")
