"""A labelled block of JSON in a message: one line between two fences, from which no value can break out.

What a value means survives exactly: whatever could end a line or a fence, hide, or read as one of the gateway's own
words is written as a \\uXXXX escape, so reading the JSON gives the value back.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from agents.prompt.fences import unseen, weak_points

Value: TypeAlias = "str | bool | int | Sequence[Mapping[str, Value]]"

_SHORT = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def json_block(label: str, values: Mapping[str, Value]) -> str:
    """The label on its own line, then the fenced JSON, its members in the order given. Keys are ours, never people's."""
    return f"{label}\n```json\n{_written(values)}\n```"


def capped(text: str, chars_max: int) -> str:
    """At most so many characters; an ellipsis is the last where something was cut."""
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def _written(value: "Value | Mapping[str, Value]") -> str:
    match value:
        case str():
            return f'"{_quoted(value)}"'
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Mapping():
            return "{" + ", ".join(f'"{key}": {_written(member)}' for key, member in value.items()) + "}"
        case _:
            return "[" + ", ".join(map(_written, value)) + "]"


def _quoted(text: str) -> str:
    escaped = set(weak_points(text))
    for start in range(len(text)):
        if text.startswith("```", start):
            escaped.update((start, start + 1, start + 2))
    return "".join(
        _SHORT.get(char) or (_escape(char) if at in escaped or unseen(char) else char) for at, char in enumerate(text)
    )


def _escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
