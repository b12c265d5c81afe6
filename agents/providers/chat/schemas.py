"""A tool's schema in the form that every server of the Chat wire takes.

`properties` and `required` are always written out: there are servers that quietly forget a tool without them. Some
servers know no `$ref`; for those what is referred to is put in its place.
"""

from collections.abc import Mapping
from typing import Any

_DEFINITIONS = ("$defs", "definitions")


def parameters(schema: Mapping[str, Any], *, inline_defs: bool) -> dict[str, Any]:
    whole: dict[str, Any] = _inlined(dict(schema), schema, ()) if inline_defs else dict(schema)
    return whole | {
        "type": "object",
        "properties": whole.get("properties") or {},
        "required": whole.get("required") or [],
    }


def _inlined(value: Any, root: Mapping[str, Any], above: tuple[str, ...]) -> Any:
    """`above`: the references that led here; one that comes back to itself is left open."""
    if isinstance(value, list):
        return [_inlined(item, root, above) for item in value]
    if not isinstance(value, dict):
        return value
    here = {key: member for key, member in value.items() if key != "$ref" and not _defines(key, member)}
    reference = value.get("$ref")
    found = _found(reference, root) if isinstance(reference, str) and reference not in above else None
    inner = {key: _inlined(member, root, above) for key, member in here.items()}
    if found is None:
        return inner
    return _inlined(found, root, (*above, str(reference))) | inner


def _defines(key: str, member: Any) -> bool:
    """A block of definitions, and not a property of that name."""
    return key in _DEFINITIONS and isinstance(member, dict) and "type" not in member


def _found(reference: str, root: Mapping[str, Any]) -> dict[str, Any] | None:
    at: Any = root
    for step in reference.removeprefix("#").strip("/").split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        at = at.get(name) if isinstance(at, Mapping) and name else None
    return dict(at) if isinstance(at, Mapping) else None
