"""A built-in tool's arguments: a pydantic model, the schema made of it, and its mistakes as sentences for a model.

The schema is in the form that every provider takes: a closed object with its members' types and descriptions, no `$ref`,
no unions, no defaults, no titles. An optional member is simply not in `required`, and null for it counts as absent.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ValidationError

from tools.tool import Effect, ToolError, ToolSpec

MISTAKES_MAX = 20
NAME_CHARS_MAX = 64
_KEPT = ("type", "description", "enum", "items", "minimum", "maximum", "minLength", "maxLength")


class Arguments(BaseModel, extra="forbid", strict=True, frozen=True):
    """Base of every built-in tool's arguments: closed, strict, members described."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Self:
        """The arguments of a call. Raises ToolError, which names every mistake and shows no value."""
        fields = cls.model_fields
        given = {
            name: value
            for name, value in raw.items()
            if value is not None or name not in fields or fields[name].is_required()
        }  # strict decoders send null for what they leave out
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            mistakes = [_sentence(mistake) for mistake in error.errors()]
            if len(mistakes) > MISTAKES_MAX:
                mistakes[MISTAKES_MAX:] = [f"and {len(mistakes) - MISTAKES_MAX} more mistakes"]
            raise ToolError("INVALID_ARGUMENT", "; ".join(mistakes)) from None

    @classmethod
    def spec(cls, name: str, *, summary: str, description: str, effect: Effect) -> ToolSpec:
        """The spec of a tool that takes these arguments. Raises ValueError for a model that does not fit the schema form:
        a mistake of ours, seen by the tests."""
        full = cls.model_json_schema()
        if "$defs" in full:
            raise ValueError(f"{cls.__name__}: nested models do not fit the schema form")
        schema = {
            "type": "object",
            "properties": {name: _member(name, member) for name, member in full.get("properties", {}).items()},
            "required": list(full.get("required", ())),
            "additionalProperties": False,
        }
        return ToolSpec(name=name, summary=summary, description=description, effect=effect, input_schema=schema)


def _member(name: str, member: Mapping[str, Any]) -> dict[str, Any]:
    if "anyOf" in member:
        (only,) = (choice for choice in member["anyOf"] if choice.get("type") != "null")
        member = {**only, **{key: value for key, value in member.items() if key != "anyOf"}}
    if "const" in member:
        member = {**member, "enum": [member["const"]], "type": "string"}
    if "description" not in member:
        raise ValueError(f"the member {name!r} has no description")
    return {key: member[key] for key in _KEPT if key in member}


def _sentence(error: Any) -> str:
    """One mistake in the arguments, in few words and without the value."""
    name = ".".join(map(str, error["loc"]))[:NAME_CHARS_MAX] or "arguments"
    match error["type"]:
        case "missing":
            return f"'{name}' is required"
        case "extra_forbidden":
            return f"'{name}' is not an argument of this tool"
        case "literal_error":
            return f"'{name}' must be {error['ctx']['expected']}"
        case _:
            return f"'{name}': {error['msg'][0].lower()}{error['msg'][1:]}"
