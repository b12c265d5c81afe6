"""A tool's schema as Gemini takes it: in its own dialect where that says everything, else as JSON Schema.

`parameters` is a part of OpenAPI's dialect and refuses what it does not know; our house form fits it whole. What does
not fit (references, unions, open objects) goes as it is in `parametersJsonSchema`, for to leave anything out would tell
the model less than the tool checks. The two never go together.
"""

from collections.abc import Mapping
from typing import Any

from agents.providers.payload import well_formed_json

TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object"})
FORMATS = {
    "string": frozenset({"date-time", "enum"}),
    "number": frozenset({"float", "double"}),
    "integer": frozenset({"int32", "int64"}),
}
_PLAIN: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("title", "description", "pattern"), str),
    **dict.fromkeys(("minimum", "maximum"), (int, float)),
    **dict.fromkeys(("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"), int),
    "nullable": bool,
}


class _Beyond(Exception):
    """The schema says something that the dialect has no word for."""


def parameters(schema: Mapping[str, Any]) -> dict[str, Any]:
    """The members of a function declaration that say what it takes; none for a tool that takes nothing."""
    if not schema.get("properties") and not schema.get("additionalProperties", True):
        return {}
    if schema.keys() <= {"type", "properties", "required"} and not schema.get("properties"):
        return {}
    try:
        return {"parameters": _translated(well_formed_json(dict(schema)))}
    except _Beyond:
        return {"parametersJsonSchema": well_formed_json(dict(schema))}


def _translated(schema: object) -> dict[str, Any]:
    kind = schema.get("type") if isinstance(schema, Mapping) else None
    if not isinstance(schema, Mapping) or not isinstance(kind, str) or kind not in TYPES:
        raise _Beyond
    wire: dict[str, Any] = {"type": kind.upper()}
    for name, value in schema.items():
        match name:
            case "type":
                pass
            case "properties" if kind == "object" and isinstance(value, Mapping):
                wire[name] = {member: _translated(inner) for member, inner in value.items()}
            case "items" if kind == "array":
                wire[name] = _translated(value)
            case "additionalProperties" if isinstance(value, bool):
                wire[name] = value
            case "required" if _are_texts(value):
                if value:
                    wire[name] = list(value)
            case "enum" if kind == "string" and value and _are_texts(value):
                wire[name] = list(value)
            case "format" if isinstance(value, str) and value in FORMATS.get(kind, ()):
                wire[name] = value
            case _ if _is_plain(name, value):
                wire[name] = value
            case _:
                raise _Beyond
    _check_whole(wire)
    return wire


def _check_whole(wire: dict[str, Any]) -> None:
    """An object without members and a list without items are refused in this dialect."""
    if wire["type"] == "OBJECT":
        members = wire.get("properties", {})
        if not members or not set(wire.get("required", ())) <= members.keys():
            raise _Beyond
    if wire["type"] == "ARRAY" and "items" not in wire:
        raise _Beyond


def _is_plain(name: str, value: object) -> bool:
    wanted = _PLAIN.get(name)
    if wanted is None or (isinstance(value, bool) and wanted is not bool):
        return False
    return isinstance(value, wanted)


def _are_texts(value: object) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) and item for item in value)
