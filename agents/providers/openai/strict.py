"""A tool's schema in the form that OpenAI's constrained decoding takes, where the schema allows it.

There every member is required, so an optional one may be null instead (the toolbox drops those nulls), and every object
is closed. What says more than the decoder knows is left as it is, without strictness: nothing is dropped to make it
fit, and every call is validated on our side in any case.
"""

from collections.abc import Iterator, Mapping
from typing import Any

DEPTH_MAX = 10
"""Objects and lists inside each other."""
PROPERTIES_MAX = 5000
ENUM_VALUES_MAX = 1000

_SAID_OF_ALL = frozenset({"type", "description", "title", "enum", "const"})
_SAID_OF: dict[str, frozenset[str]] = {
    "object": frozenset({"properties", "required", "additionalProperties"}),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "string": frozenset(),
    "number": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "integer": frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}),
    "boolean": frozenset(),
    "null": frozenset(),
}


class _DoesNotFit(Exception):
    """The schema says what the strict form cannot."""


def strict_schema(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """The strict form of the schema of a tool's arguments; None where it has none. The schema itself is not touched."""
    try:
        derived = _derived(schema, depth=0)
    except _DoesNotFit:
        return None
    parts = list(_parts(derived))
    properties = sum(len(part.get("properties", ())) for part in parts)
    values = sum(len(part.get("enum", ())) for part in parts)
    small = properties <= PROPERTIES_MAX and values <= ENUM_VALUES_MAX
    return derived if derived["type"] == "object" and "enum" not in derived and small else None


def _derived(schema: object, *, depth: int) -> dict[str, Any]:
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        raise _DoesNotFit
    types = _types(schema)
    known = _SAID_OF_ALL.union(*(_SAID_OF[name] for name in types))
    if not schema.keys() <= known or not isinstance(schema.get("enum", []), list):
        raise _DoesNotFit
    derived = dict(schema)
    if "const" in derived:
        derived["enum"] = [derived.pop("const")]
    if "object" in types:
        derived |= _closed(schema, depth)
    if "array" in types:
        derived["items"] = _derived(schema.get("items"), depth=depth + 1)
    return derived


def _types(schema: Mapping[str, Any]) -> list[str]:
    declared = schema.get("type")
    types = [declared] if isinstance(declared, str) else declared
    if not isinstance(types, list) or not types:
        raise _DoesNotFit
    if not all(isinstance(name, str) and name in _SAID_OF for name in types):
        raise _DoesNotFit
    return types


def _closed(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    """An object that is open, or says nothing of it, takes more than its properties, so closing it would not fit."""
    properties, required = schema.get("properties"), schema.get("required", [])
    if schema.get("additionalProperties") is not False or not isinstance(properties, Mapping):
        raise _DoesNotFit
    if not isinstance(required, list) or not all(isinstance(name, str) and name in properties for name in required):
        raise _DoesNotFit
    members = {name: _derived(member, depth=depth + 1) for name, member in properties.items()}
    optional = {name: _or_null(member) for name, member in members.items() if name not in required}
    return {"properties": members | optional, "required": list(members), "additionalProperties": False}


def _or_null(member: dict[str, Any]) -> dict[str, Any]:
    types = _types(member)
    nullable = member | {"type": types if "null" in types else [*types, "null"]}
    if "enum" in member and None not in member["enum"]:
        nullable["enum"] = [*member["enum"], None]
    return nullable


def _parts(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for member in schema.get("properties", {}).values():
        yield from _parts(member)
    if "items" in schema:
        yield from _parts(schema["items"])
