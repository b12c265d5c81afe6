"""What Gemini's API refuses about a tool's schema: its own dialect is closed, plain JSON Schema only has to be one."""

from typing import Any

from agents.providers.gemini.schema import FORMATS, TYPES
from tests.emulators.models.gemini.refusals import closed, flag, listed, number, one_of, refuse, text, unset

_MEMBERS = frozenset(
    {"type", "format", "title", "description", "nullable", "enum", "items", "prefixItems", "properties", "required"}
    | {"additionalProperties", "propertyOrdering", "anyOf", "oneOf", "default", "example", "pattern", "ref", "defs"}
    | {"minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties"}
)
_COUNTS = ("minItems", "maxItems", "minLength", "maxLength", "minProperties", "maxProperties")
_TYPES = TYPES | {kind.upper() for kind in TYPES} | {"NULL", "null"}


def check_schema(schema: Any, path: str, *, root: bool = False) -> None:
    """The server's own dialect. Raises `Refusal`."""
    closed(schema, _MEMBERS, path)
    for combinator in ("anyOf", "oneOf"):
        for place, inner in enumerate(listed(schema.get(combinator, []), f"{path}.{combinator}")):
            check_schema(inner, f"{path}.{combinator}[{place}]")
    if "type" not in schema:
        if root or not schema.keys() & {"anyOf", "oneOf", "ref"}:
            unset(f"{path}.type", "must be specified")
        return
    kind = one_of(schema["type"], _TYPES, f"{path}.type", "Type").lower()
    if root and kind != "object":
        unset(f"{path}.type", "must be OBJECT")
    text(schema.get("description", ""), f"{path}.description")
    text(schema.get("title", ""), f"{path}.title")
    flag(schema.get("nullable", False), f"{path}.nullable")
    for name in _COUNTS:
        number(schema.get(name, 0), f"{path}.{name}")
    _check_enum(schema, kind, path)
    if "format" in schema and text(schema["format"], f"{path}.format") not in FORMATS.get(kind, ()):
        allowed = " and ".join(f"'{name}'" for name in sorted(FORMATS.get(kind, ())))
        unset(f"{path}.format", f"only {allowed} are supported for {kind.upper()} type")
    _check_object(schema, kind, path)
    if kind == "array":
        if "items" not in schema and "prefixItems" not in schema:
            unset(f"{path}.items", "missing field.")
        if "items" in schema:
            check_schema(schema["items"], f"{path}.items")


def _check_enum(schema: dict[str, Any], kind: str, path: str) -> None:
    if "enum" not in schema:
        return
    for place, value in enumerate(listed(schema["enum"], f"{path}.enum")):
        if not text(value, f"{path}.enum[{place}]"):
            unset(f"{path}.enum[{place}]", "cannot be empty")
    if kind != "string" or not schema["enum"]:
        unset(f"{path}.enum", "only allowed for STRING type")


def _check_object(schema: dict[str, Any], kind: str, path: str) -> None:
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        refuse(f"Invalid value at '{path}.properties' (Map), {properties!r}")
    if kind != "object":
        if properties:
            unset(f"{path}.properties", "only allowed for OBJECT type")
        return
    if not properties:
        unset(f"{path}.properties", "should be non-empty for OBJECT type")
    for name, inner in properties.items():
        check_schema(inner, f"{path}.properties[{name}]")
    for place, name in enumerate(listed(schema.get("required", []), f"{path}.required")):
        if text(name, f"{path}.required[{place}]") not in properties:
            unset(f"{path}.required[{place}]", "property is not defined")


def check_json_schema(schema: Any, path: str) -> None:
    """JSON Schema: whatever it says, it must be one, of an object."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        unset(path, "schema must be of type object")
    if not isinstance(schema.get("properties", {}), dict) or not isinstance(schema.get("required", []), list):
        unset(path, "schema is not valid")
