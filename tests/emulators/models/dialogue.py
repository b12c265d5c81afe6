"""Who speaks when: the pairing of calls and results, which every wire demands, and the last text of the user."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

SUMS_UP = "You sum up the older part of a chat"
_NAMES = re.compile(r"must stand in the summary exactly as it is here:((?:\\n[^\\ ]+)+)")


def summary_names(body: Mapping[str, Any]) -> list[str] | None:
    """The identifiers that a summary is to hold, on whatever wire it is asked for; None where none is asked for."""
    text = json.dumps(body, ensure_ascii=False)
    if SUMS_UP not in text:
        return None
    found = _NAMES.search(text)
    return [name for name in found[1].split("\\n") if name] if found else []


class Dialogue:
    """Calls and results in the order of a request. `refuse` raises the vendor's refusal; with `unique_ids` no two calls
    of the whole conversation share an id, without it no two that are open at once."""

    def __init__(self, refuse: Callable[[str], NoReturn], *, unique_ids: bool = False) -> None:
        self._refuse = refuse
        self._unique_ids = unique_ids
        self._open: list[tuple[str, str]] = []
        self._ids: set[str] = set()

    def call(self, call_id: str, name: str = "") -> None:
        if call_id and call_id in self._ids:
            self._refuse(f"Duplicate tool call id {call_id}")
        self._ids.add(call_id)
        self._open.append((call_id, name))

    def result(self, call_id: str, name: str = "") -> None:
        """By id; by position where either has none."""
        fitting = next((call for call in self._open if call_id and call[0] == call_id), None)
        fitting = fitting or next((call for call in self._open if not (call_id and call[0])), None)
        if fitting is None:
            self._refuse(f"Unexpected or second result for the tool call id {call_id}")
        if fitting[1] != name:
            self._refuse(f"The result of {name} does not match the call of {fitting[1]}")
        self._open.remove(fitting)

    def close(self) -> None:
        """Somebody else speaks, or the request ends: every call must have its result by now."""
        if self._open:
            self._refuse(f"No result for the tool calls {', '.join(call_id for call_id, _ in self._open)}")
        if not self._unique_ids:
            self._ids.clear()


def last_user_text(messages: Sequence[dict[str, Any]]) -> str:
    """The last text that a user message of a sound request holds, metadata and all. Gemini's have parts for content."""
    for message in reversed(messages):
        if message.get("role", "user" if "parts" in message else None) == "user":
            content = message.get("content", message.get("parts", ()))
            if isinstance(content, str):
                return content
            if texts := [part["text"] for part in content if "text" in part]:
                return str(texts[-1])
    return ""
