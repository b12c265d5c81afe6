"""Truncate long texts for the console, so that no response exceeds a few hundred kilobytes.

The full text of a turn's layer has a separate URL, and is in `turns show --json`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import orjson

from channels.web.views import LINE_CHARS, beginning
from gateway.observe.secrets import Mask
from gateway.operate.turns import cleaned

Scrub: TypeAlias = Callable[[str], str]
TEXT_CHARS = (4_000, 400, 40)
"""The limits for each text of a turn, tried in order until the response is small enough."""
PIECE_CHARS = 50_000
"""Page size of the full text, in characters."""
MARGIN_CHARS = 4_000
"""Characters after the cut that are also scrubbed, since a secret may cross it."""
ITEMS_MAX = 500
ANSWER_BYTES = 300_000
_JSON = re.compile(
    r"/(?:events/\d+/body|contexts/\d+|route/[^/]+/value|tools/\d+/parameters|requests/\d+/options"
    r"|calls/\d+/(?:arguments|details))"
)
"""JSON pointers of values with any shape; a long one is shown as truncated JSON."""


def brief(value: Any, chars: int = LINE_CHARS) -> Any:
    """Truncate every text in plain data; a truncated text ends with the count of missing characters."""
    if isinstance(value, str):
        return beginning(value, chars)
    if isinstance(value, Mapping):
        return {brief(name, chars): brief(it, chars) for name, it in value.items()}
    return [brief(it, chars) for it in value[:ITEMS_MAX]] if isinstance(value, list | tuple) else value


def clipped(turn: Mapping[str, Any], scrub: Scrub) -> dict[str, Any]:
    """Truncate and scrub the texts of a turn's JSON. `clipped` maps the JSON pointer of each truncated text or list to its
    original length."""
    for chars in TEXT_CHARS:
        cut = _Cut(chars, mask := Mask(scrub))
        view: dict[str, Any] = cut.value(turn, "") | {"clipped": cut.lengths, "masked": mask.count}
        if len(orjson.dumps(view)) <= ANSWER_BYTES:
            break
    return view


def text_at(turn: Mapping[str, Any], pointer: str, scrub: Scrub) -> str | None:
    """Return the full, scrubbed text at a JSON pointer of a turn; None if there is none."""
    value: Any = turn
    for step in pointer.split("/")[1:]:
        if isinstance(value, Mapping):
            value = value.get(step.replace("~1", "/").replace("~0", "~"))
        elif isinstance(value, list | tuple) and step.isdecimal() and len(step) < 9:
            value = next(iter(value[int(step) : int(step) + 1]), None)
        else:
            return None
    if isinstance(value, str):
        return Mask(scrub)(value)
    return _written(cleaned(value, Mask(scrub))) if value is not None and _JSON.fullmatch(pointer) else None


class _Cut:
    """Truncates before it scrubs, since scrubbing megabytes would take seconds."""

    def __init__(self, chars: int, scrub: Scrub) -> None:
        self.lengths: dict[str, int] = {}
        self._chars, self._scrub = chars, scrub

    def value(self, value: Any, at: str) -> Any:
        if isinstance(value, str):
            return self._text(value, len(value), at)
        if _JSON.fullmatch(at) and (length := len(_written(value))) > self._chars:
            return self._text(_written(self._begun(value)), length, at)
        if isinstance(value, Mapping):
            return {name: self.value(it, f"{at}/{_step(name)}") for name, it in value.items()}
        if not isinstance(value, list | tuple):
            return value
        if len(value) > ITEMS_MAX:
            self.lengths[at] = len(value)
        return [self.value(it, f"{at}/{number}") for number, it in enumerate(value[:ITEMS_MAX])]

    def _text(self, text: str, length: int, at: str) -> str:
        if length > self._chars:
            self.lengths[at] = length
        return self._scrub(text[: self._chars + MARGIN_CHARS])[: self._chars]

    def _begun(self, value: Any) -> Any:
        # Scrub before serializing, since JSON escapes could hide a secret.
        if isinstance(value, str):
            return self._scrub(value[: self._chars + MARGIN_CHARS])
        if isinstance(value, Mapping):
            return {self._begun(name): self._begun(it) for name, it in value.items()}
        return [self._begun(it) for it in value] if isinstance(value, list | tuple) else value


def _step(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1")


def _written(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
