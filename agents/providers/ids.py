"""Ids and names of calls: unique inside one answer, and in a form that the wires take."""

import hashlib
import re


class CallIds:
    """Gives each call of one answer an id of its own; calls are paired by id, so none may share one or be without."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def unique(self, call_id: str, *, answer: str | None, place: int) -> str:
        """The vendor's id at its first use, else one made of it; without one, one made of the answer's id and the
        call's place in it."""
        call_id = call_id or f"call_{answer or 'x'}_{place}"
        if call_id in self._used:
            call_id = f"{call_id}_{place}"
        self._used.add(call_id)
        return call_id


def wire_id(call_id: str, *, chars_max: int = 64) -> str:
    """The id as it is where most wires take it; else one made from it, the same for the call and its result."""
    if re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) and len(call_id) <= chars_max:
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def wire_name(name: str) -> str:
    """A model may have called a tool by a name that the wire refuses; what it is told stays close to that."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"
