"""An emulated answer as the events in which the Responses API streams it, `created` to `completed`.

Each item is opened, filled and closed; with `interleaved`, all of them side by side. There is no `[DONE]`.
"""

from collections.abc import Iterator, Mapping
from itertools import chain, zip_longest
from typing import Any, TypeAlias

from tests.emulators.models.responses.script import Item, Turn, response_of
from tests.emulators.models.responses.sealing import unfinished
from tests.emulators.models.script import pieces

Event: TypeAlias = dict[str, Any]


def events_of(turn: Turn, number: int, body: Mapping[str, Any], tokens: int) -> list[Event]:
    whole = response_of(turn, number, body, tokens)
    begun = whole | {"status": "in_progress", "output": [], "usage": None, "error": None, "incomplete_details": None}
    streams = [list(_item_events(place, item)) for place, item in enumerate(whole["output"])]
    if turn.interleaved:
        rounds = zip_longest(*streams)
        inner = [event for side_by_side in rounds for event in side_by_side if event is not None]
    else:
        inner = list(chain.from_iterable(streams))
    events: list[Event] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
        *(_noisy(inner) if turn.noise else inner),
        {"type": f"response.{turn.status}", "response": whole},
    ]
    return [event | {"sequence_number": place} for place, event in enumerate(events)]


def _noisy(events: list[Event]) -> Iterator[Event]:
    """Events, members and parts of the future."""
    yield {"type": "response.weather.reported", "sky": "clear", "output_index": 99}
    for event in events:
        if event["type"] == "response.output_item.done" and event["item"]["type"] != "reasoning":
            event = event | {"item": event["item"] | {"mood": "calm"}}
        yield event | {"scent": "pine"}
        if event["type"] == "response.output_item.added":
            yield {"type": "response.hologram.delta", "output_index": event["output_index"], "delta": "light"}


def _item_events(place: int, item: Item) -> Iterator[Event]:
    here = {"output_index": place}
    yield {"type": "response.output_item.added", **here, "item": _opened(item)}
    inside = here | {"item_id": item["id"]}
    match item["type"]:
        case "reasoning":
            for index, part in enumerate(item["summary"]):
                yield from _summary_events(inside | {"summary_index": index}, part)
        case "message":
            for index, part in enumerate(item["content"]):
                yield from _content_events(inside | {"content_index": index}, part)
        case "function_call":
            for piece in pieces(item["arguments"]):
                yield _delta("response.function_call_arguments.delta", inside, piece)
            if item["status"] != "incomplete":  # it does not come for a cut call
                yield {"type": "response.function_call_arguments.done", **inside, "arguments": item["arguments"]}
    yield {"type": "response.output_item.done", **here, "item": item}


def _opened(item: Item) -> Item:
    match item["type"]:
        case "reasoning":
            content = item["encrypted_content"]
            return item | {"summary": [], "encrypted_content": content and unfinished(content)}
        case "message":
            return item | {"status": "in_progress", "content": []}
        case "function_call":
            return item | {"status": "in_progress", "arguments": ""}
        case _:
            return item


def _summary_events(inside: Event, part: Item) -> Iterator[Event]:
    kind = "response.reasoning_summary"
    yield {"type": f"{kind}_part.added", **inside, "part": part | {"text": ""}}
    for piece in pieces(part["text"]):
        yield _delta(f"{kind}_text.delta", inside, piece)
    yield {"type": f"{kind}_text.done", **inside, "text": part["text"]}
    yield {"type": f"{kind}_part.done", **inside, "part": part}


def _content_events(inside: Event, part: Item) -> Iterator[Event]:
    kind, member = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
    beside: Event = {} if kind == "refusal" else {"logprobs": []}
    yield {"type": "response.content_part.added", **inside, "part": part | {member: ""}}
    for piece in pieces(part[member]):
        yield _delta(f"response.{kind}.delta", inside, piece) | beside
    yield {"type": f"response.{kind}.done", **inside, member: part[member], **beside}
    yield {"type": "response.content_part.done", **inside, "part": part}


def _delta(type_: str, inside: Event, piece: str) -> Event:
    """The obfuscation hides from a listener how long the piece is."""
    return {"type": type_, **inside, "delta": piece, "obfuscation": "x" * (16 - len(piece) % 16)}
