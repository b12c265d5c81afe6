"""Ids and names of calls in a form that the wires take."""

import hashlib
import re


def wire_id(call_id: str, *, chars_max: int = 64) -> str:
    """The id as it is where most wires take it; else one made from it, the same for the call and its result."""
    if re.fullmatch(r"[a-zA-Z0-9_-]+", call_id) and len(call_id) <= chars_max:
        return call_id
    return "call_" + hashlib.sha256(call_id.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def wire_name(name: str) -> str:
    """A model may have called a tool by a name that the wire refuses; what it is told stays close to that."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"
