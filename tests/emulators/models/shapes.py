"""What the closed shapes of every wire's requests are built on, and what all wires carry: pictures and JSON schemas.

A shape says which members an object has, of which types and within which limits. What one object alone cannot show
(who speaks when, pairs of calls and results) is in the wires' `rules`.
"""

import base64
import binascii
from typing import Any, ClassVar

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import ErrorDetails

IMAGE_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}
_SCHEMA_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_NOT_AT_ROOT = ("anyOf", "oneOf", "allOf", "enum", "not")


class Shape(BaseModel):
    """An object with no members but its own. `also` names those that are known and not looked into; without `nulls` a
    member that is left out must not be null instead."""

    model_config = ConfigDict(extra="forbid", strict=True)
    also: ClassVar[str] = ""
    nulls: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _without_also(cls, value: Any) -> Any:
        if isinstance(value, dict):
            known = cls.also.split()
            value = {name: member for name, member in value.items() if name not in known}
            if not cls.nulls and None in value.values():
                raise ValueError("null where there should be a value")
        return value


class Open(Shape):
    """One that a lenient server takes with members that nobody knows."""

    model_config = ConfigDict(extra="ignore")


def fault_of(shape: type[BaseModel], value: object, *, closed: bool = False) -> ErrorDetails | None:
    """What is wrong with `value`, None where nothing is. Of a union's faults it is that of the branch that fits best.
    With `closed` open shapes are closed as well."""
    try:
        shape.model_validate(value, extra="forbid" if closed else None)
    except ValidationError as error:
        return max(error.errors(), key=lambda it: (len(it["loc"]), not it["type"].endswith("_type")))
    return None


def words_of(fault: ErrorDetails) -> str:
    return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"


def parsed(raw: bytes) -> dict[str, Any] | str:
    """The body as an object, or why it is none. Strict JSON: half an emoji is refused."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return f"The body is not valid JSON: {error}"
    return body if isinstance(body, dict) else "The body should be an object"


def decoded(data: str) -> bytes | None:
    """The bytes of strict base64; None where it is none."""
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def is_image(media_type: str, data: str) -> bool:
    """Whether this is base64 that begins as a picture of that type does."""
    head, raw = IMAGE_HEADS.get(media_type), decoded(data)
    return head is not None and raw is not None and raw.startswith(head)


def is_pdf(data: str) -> bool:
    """Whether this is base64 of a PDF from its beginning to its end; vendors refuse one with rights of its own."""
    raw = decoded(data) or b""
    return raw.startswith(b"%PDF-") and b"%%EOF" in raw[-1024:] and b"/Encrypt" not in raw


def root_fault(schema: object, *, refs: bool = True) -> str:
    """What is wrong with the schema of a tool's arguments; empty where it is sound."""
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return "schema must be a JSON Schema of 'type: \"object\"'"
    if banned := next((name for name in _NOT_AT_ROOT if name in schema), None):
        return f"schema must not have '{banned}' at the top level"
    return schema_fault(schema, refs=refs)


def schema_fault(schema: object, *, items: bool = True, refs: bool = True) -> str:
    """What is wrong with a JSON schema, as far as a wrong tool definition trips over it; empty where it is sound.
    With `items` an array must name its items; without `refs` there may be no references."""
    if isinstance(schema, bool):
        return ""
    if not isinstance(schema, dict):
        return f"{schema!r} is not of type 'object', 'boolean'"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or any(not isinstance(it, str) or it not in _SCHEMA_TYPES for it in types):
        return f"{types!r} is not valid under any of the given schemas"
    if items and "array" in types and "items" not in schema:
        return "array schema missing items"
    if not refs and schema.keys() & {"$ref", "$defs"}:
        return "'$ref' is not supported"
    members, required, choices = schema.get("properties", {}), schema.get("required", []), schema.get("anyOf", [])
    if not isinstance(members, dict) or not all(isinstance(it, list) for it in (required, choices)):
        return "'properties' is an object, 'required' and 'anyOf' are arrays"
    if any(not isinstance(name, str) for name in required) or len(set(required)) != len(required):
        return f"{required!r} has non-unique elements, or such that are no strings"
    if not isinstance(schema.get("enum", []), list) or not isinstance(schema.get("description", ""), str):
        return "'enum' is an array and 'description' a string"
    inner = [*members.values(), *choices, schema.get("items", True), schema.get("additionalProperties", True)]
    inner += schema["$defs"].values() if isinstance(schema.get("$defs"), dict) else []
    return next((fault for it in inner if (fault := schema_fault(it, items=items, refs=refs))), "")
