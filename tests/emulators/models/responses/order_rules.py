"""What the Responses API refuses about how items follow each other: calls and outputs, reasoning and what it led to."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from tests.emulators.models.responses.item_rules import kind_of_item
from tests.emulators.models.responses.refusals import refuse


def check_order(items: list[dict[str, Any]]) -> None:
    """Of items that are sound each for itself. Raises `Refusal`."""
    _check_ids(items)
    _check_pairs(items)
    _check_reasoning(items)


def led_by(items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Of an answer: the id of each item that reasoning led to, with that of the reasoning."""
    before: Mapping[str, Any] = {}
    for item in items:
        if before.get("type") == "reasoning" and item["type"] in ("function_call", "message"):
            yield item["id"], before["id"]
        before = item


def check_led(items: list[dict[str, Any]], led: Mapping[str, str]) -> None:
    """An item that is named by its id needs the reasoning that led to it. Raises `Refusal`."""
    before: dict[str, Any] = {}
    for item in items:
        reasoning = led.get(item.get("id", ""))
        if reasoning is not None and before.get("id") != reasoning:
            refuse(
                f"Item '{item['id']}' of type '{kind_of_item(item)}' was provided without its required 'reasoning' "
                f"item: '{reasoning}'.",
                param="input",
            )
        before = item


def _check_ids(items: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    for item in items:
        item_id = item.get("id")
        if item_id is not None and item_id in seen:
            told = f"Duplicate item found with id {item_id}. Remove duplicate items from your input and try again."
            refuse(told, param="input")
        seen.add(item_id or "")


def _check_pairs(items: list[dict[str, Any]]) -> None:
    """Every call has one output, behind it and before anybody but the model says something."""
    waiting: list[str] = []
    called: set[str] = set()
    for item in items:
        match kind_of_item(item):
            case "function_call":
                if item["call_id"] in called:
                    refuse(f"Duplicate function call found with call_id {item['call_id']}.", param="input")
                called.add(item["call_id"])
                waiting.append(item["call_id"])
            case "function_call_output":
                if item["call_id"] not in waiting:
                    told = f"No tool call found for function call output with call_id {item['call_id']}."
                    refuse(told, param="input")
                waiting.remove(item["call_id"])
            case "message" if item["role"] != "assistant" and waiting:
                break
    if waiting:
        refuse(f"No tool output found for function call {waiting[0]}.", param="input")


def _check_reasoning(items: list[dict[str, Any]]) -> None:
    for item, following in zip(items, [*items[1:], None], strict=True):
        if kind_of_item(item) != "reasoning":
            continue
        kind = kind_of_item(following) if following is not None else None
        led_on = kind in ("function_call", "reasoning") or (
            kind == "message" and following is not None and following["role"] == "assistant"
        )
        if not led_on:
            told = f"Item '{item['id']}' of type 'reasoning' was provided without its required following item."
            refuse(told, param="input")
