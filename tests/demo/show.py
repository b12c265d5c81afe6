"""The demo on a terminal, or as one JSON document. This is the one place that prints what a message says."""

import json
import sys
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from typing import Any, Literal, TypeAlias

from rich.console import Console
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

from tests.demo.play import Layer
from tests.demo.tale import NEXT, tell

Shape: TypeAlias = Literal["tale", "full", "json"]

TITLES = {
    "event": "1 · The event, as the platform sent it",
    "context": "2 · The message context: the same shape for every channel",
    "system_prompt": "3 · The system prompt",
    "user_message": "4 · The user's message, with its metadata blocks",
    "request": "5 · Request {round} to the model",
    "response": "    the model answers",
    "tool_call": "    the model calls a tool",
    "tool_result": "    the tool's result",
    "reply": "6 · The reply, as the platform received it",
}
STYLES = {"tool_call": "yellow", "tool_result": "green", "request": "blue", "response": "magenta", "reply": "cyan"}
LATER_MESSAGES_SHOWN = 2


def show(layers: list[Layer], shape: Shape) -> None:
    """`tale`: thirty lines; `full`: a panel for each layer; `json`: `{"layers": [{"name", "round", "data"}, …]}`."""
    if shape == "json":
        document = {"layers": [asdict(layer) for layer in layers]}
        sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, default=_plain) + "\n")
        return
    console = Console(soft_wrap=False, width=None if sys.stdout.isatty() else 120, highlight=False)
    if shape == "tale":
        tell(layers, console)
        return
    for layer in layers:
        console.print(_panel(layer))
    console.print(Text(NEXT, style="bold"))


def _panel(layer: Layer) -> Panel:
    title = TITLES[layer.name].format(round=layer.round)
    return Panel(
        Syntax(_shown(layer), "markdown" if isinstance(layer.data, str) else "json", word_wrap=True, theme="ansi_dark"),
        title=Text(title, style="bold"),
        title_align="left",
        border_style=STYLES.get(layer.name, "white"),
    )


def _shown(layer: Layer) -> str:
    """What a person wants to see of a layer; the JSON document has all of it."""
    data = layer.data
    if isinstance(data, str):
        return data
    if layer.name == "request":
        data = _abridged(data)
    if layer.name == "response":
        data = {"stop_reason": data["stop_reason"], "content": [_part(part) for part in data["content"]]}
    if layer.name == "tool_result":
        return "".join(part.get("text", f"[{part['type']}]") for part in data["content"])
    return json.dumps(data, ensure_ascii=False, indent=2, default=_plain)


def _abridged(body: dict[str, Any]) -> dict[str, Any]:
    """Any wire's request without what has a panel of its own: the system prompt, the schemas, the earlier messages."""
    return {key: _ABRIDGED.get(key, lambda value: value)(value) for key, value in body.items()}


def _latest(messages: list[dict[str, Any]]) -> list[Any]:
    """The system prompt of wires that send it as a message, and the newest messages."""
    system = [message | {"content": _lengths(message["content"])} for message in messages if _is_system(message)]
    others = [message for message in messages if not _is_system(message)]
    earlier = max(0, len(others) - LATER_MESSAGES_SHOWN)
    return [*system, *([f"… {earlier} earlier ones"] if earlier else []), *others[earlier:]]


def _is_system(message: dict[str, Any]) -> bool:
    return message.get("role") in {"system", "developer"}


def _lengths(value: Any) -> Any:
    """Texts as their lengths, in whatever form the wire has them."""
    match value:
        case str():
            return f"… {len(value)} characters"
        case list():
            return [_lengths(item) for item in value]
        case dict():
            return {key: _lengths(item) if key in {"text", "parts"} else item for key, item in value.items()}
        case _:
            return value


def _names(tools: list[dict[str, Any]]) -> list[str]:
    declared = [it for tool in tools for it in tool.get("functionDeclarations", [tool.get("function", tool)])]
    return [tool["name"] for tool in declared]


_ABRIDGED: dict[str, Callable[[Any], Any]] = {
    "system": _lengths,
    "instructions": _lengths,
    "systemInstruction": _lengths,
    "tools": _names,
    "messages": _latest,
    "input": _latest,
    "contents": _latest,
}
"""By the member's name on the wire; other members are shown as they are."""


def _part(part: dict[str, Any]) -> dict[str, Any]:
    return {key: part[key] for key in ("text", "name", "arguments") if key in part}


def _plain(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
