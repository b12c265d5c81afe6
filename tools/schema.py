"""The schema of a tool's arguments, in the form that every provider takes.

A closed object with its members' types and descriptions: no `$ref`, no unions, no defaults, no titles; an optional
member is simply not in `required`, and null for it counts as absent.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

_KEPT = ("type", "description", "enum", "items", "minimum", "maximum", "minLength", "maxLength")


def input_schema(arguments: type[BaseModel]) -> dict[str, Any]:
    """Raises ValueError for a model that does not fit the form: a mistake of ours, seen by the tests."""
    full = arguments.model_json_schema()
    if "$defs" in full:
        raise ValueError(f"{arguments.__name__}: nested models do not fit the schema form")
    properties = {name: _member(name, member) for name, member in full.get("properties", {}).items()}
    return {
        "type": "object",
        "properties": properties,
        "required": list(full.get("required", ())),
        "additionalProperties": False,
    }


def without_nulls(arguments: Mapping[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """Strict decoders send null for what they leave out."""
    fields = model.model_fields
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in fields or fields[name].is_required()
    }


def _member(name: str, member: Mapping[str, Any]) -> dict[str, Any]:
    if "anyOf" in member:
        (only,) = (choice for choice in member["anyOf"] if choice.get("type") != "null")
        member = {**only, **{key: value for key, value in member.items() if key != "anyOf"}}
    if "const" in member:
        member = {**member, "enum": [member["const"]], "type": "string"}
    if "description" not in member:
        raise ValueError(f"the member {name!r} has no description")
    return {key: member[key] for key in _KEPT if key in member}
