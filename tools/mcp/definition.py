"""A tool as its server defines it, and what of that reaches a model.

A server's name, description and schema are text of strangers in a place that models obey, so an owner sees them once
(`tools.mcp.servers`), and none of it poses as the gateway's: names are ours, descriptions are harmless and cut, schemas are
rewritten in the house form. What the house form cannot say, such as unions and patterns, is left to the server.
"""

import asyncio
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from tools.policy import SEPARATOR
from tools.tool import NAME_CHARS_MAX, Effect, ToolError, ToolSpec

DEFINITION_BYTES_MAX = 64 * 1024
DESCRIPTION_CHARS_MAX = 2_000
"""Characters of a description, of the tool or of an argument, that a model is shown."""
TOOL_CHARS_MAX = 128
DEPTH_MAX = 8
MEMBERS_MAX = 100
ENUM_MAX = 100
STEPS_MAX = 2_000
MISTAKES_MAX = 5
Schema: TypeAlias = Mapping[str, Any]
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_TYPES = ("string", "number", "integer", "boolean", "object", "array")


class ServerGone(Exception):
    """The server cannot be reached any more."""


class ProgramEnd(asyncio.Event):
    """Set when the program of a server has ended; `reason` then says how."""

    reason = ""


@dataclass(frozen=True)
class Definition:
    """`tool` is its name on the server. `text` is all that the server says of it, in one form: what an owner accepts."""

    server: str
    tool: str
    text: str = field(repr=False)

    @classmethod
    def of(cls, server: str, tool: str, description: str, schema: Schema) -> "Definition | None":
        """None if it is too long to be looked at, or has no name that could be."""
        definition = {"description": description, "inputSchema": dict(schema)}
        text = json.dumps(definition, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        data = text.encode(errors="replace")
        if len(data) > DEFINITION_BYTES_MAX or not 0 < len(tool) <= TOOL_CHARS_MAX or not tool.isprintable():
            return None
        return cls(server, tool, data.decode())

    @cached_property
    def name(self) -> str:
        """Its name here. One that does not fit keeps a part of its hash, so that two never become one."""
        plain = _UNFIT.sub("_", self.tool).strip("_")
        room = NAME_CHARS_MAX - len(self.server) - len(SEPARATOR)
        if plain != self.tool or len(plain) > room:
            mark = hashlib.sha256(self.tool.encode(errors="replace")).hexdigest()[:6]
            plain = f"{plain[: room - 7]}_{mark}"
        return f"{self.server}{SEPARATOR}{plain}"

    @cached_property
    def digest(self) -> str:
        return hashlib.sha256(f"{self.tool}\0{self.text}".encode(errors="replace")).hexdigest()

    @property
    def description(self) -> str:
        return str(json.loads(self.text)["description"])

    @cached_property
    def schema(self) -> Schema:
        whole = json.loads(self.text)["inputSchema"]
        return {"type": "object", **_object(whole, _References(whole), 0)}

    def spec(self, effect: Effect, harmless: Callable[[str], str]) -> ToolSpec:
        """`harmless` makes a stranger's text safe for a prompt."""
        return ToolSpec(
            name=self.name,
            summary=f"a tool of the MCP server {self.server}",
            description=harmless(self.description[:DESCRIPTION_CHARS_MAX]),
            input_schema=_described(self.schema, harmless),
            effect=effect,
        )

    def parse(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments, checked by the house form. Raises ToolError, which names every mistake and shows no value."""
        from jsonschema import Draft202012Validator

        given = {name: value for name, value in raw.items() if value is not None}  # strict decoders send null
        mistakes = [
            f"{'.'.join(map(str, it.absolute_path))[:NAME_CHARS_MAX] or 'arguments'}: {_sentence(it)}"
            for it in Draft202012Validator(self.schema).iter_errors(given)
        ]
        if mistakes:
            raise ToolError("INVALID_ARGUMENT", "; ".join(mistakes[:MISTAKES_MAX]))
        return given


def _described(schema: Schema, harmless: Callable[[str], str]) -> dict[str, Any]:
    copy = dict(schema)
    if isinstance(described := copy.get("description"), str):
        copy["description"] = harmless(described)
    if "properties" in copy:
        copy["properties"] = {name: _described(it, harmless) for name, it in copy["properties"].items()}
    if "items" in copy:
        copy["items"] = _described(copy["items"], harmless)
    return copy


def _sentence(error: Any) -> str:
    match error.validator:
        case "required":
            return f"{error.message.split(' is a ')[0][:NAME_CHARS_MAX]} is required"
        case "additionalProperties":
            return "only the arguments of the schema are taken"
        case "enum":
            return f"must be one of {', '.join(map(str, error.validator_value))}"[:300]
        case "type":
            return f"must be of type {error.validator_value}"
        case _:
            return f"breaks {error.validator} {error.validator_value}"[:300]


class _References:
    """Follows references within one schema, which may lead in circles: after a number of steps the rest is anything."""

    def __init__(self, whole: Any) -> None:
        self._whole = whole
        self._left = STEPS_MAX

    def resolved(self, schema: Any) -> Schema:
        for _ in range(DEPTH_MAX):
            self._left -= 1
            if self._left < 0:
                return {}
            if not isinstance(schema, Mapping):
                return {}
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            schema = self._at(reference)
        return {}

    def _at(self, reference: str) -> Any:
        part_of: Any = self._whole if reference.startswith("#/") else None
        for part in reference.removeprefix("#/").split("/"):
            part_of = part_of.get(part) if isinstance(part_of, Mapping) else None
        return part_of


def _object(schema: Any, references: _References, depth: int) -> dict[str, Any]:
    schema = references.resolved(schema)
    members = schema.get("properties")
    members = dict(list(members.items())[:MEMBERS_MAX]) if isinstance(members, Mapping) else {}
    required = schema.get("required")
    required = [it for it in required if it in members] if isinstance(required, Sequence) else []
    return {
        "properties": {name: _member(it, references, depth + 1) for name, it in members.items() if _is_name(name)},
        "required": [it for it in required if _is_name(it)],
        "additionalProperties": bool(depth and schema.get("additionalProperties", not members)),
    }


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARS_MAX and name.isprintable()


def _member(schema: Any, references: _References, depth: int) -> dict[str, Any]:
    """One member in the house form; of a union its only sound branch, else anything."""
    schema = references.resolved(schema)
    member: dict[str, Any] = {}
    described = schema.get("description") or schema.get("title")
    if isinstance(described, str):
        member["description"] = described[:DESCRIPTION_CHARS_MAX]
    if depth > DEPTH_MAX:
        return member
    for union in ("anyOf", "oneOf", "allOf"):
        if isinstance(branches := schema.get(union), Sequence) and not isinstance(branches, str):
            sound = [it for it in map(references.resolved, branches) if it.get("type") != "null"]
            schema = {**sound[0], **schema} if len(sound) == 1 else {}
            return {**_member({**schema, union: None}, references, depth + 1), **member} if schema else member
    kind, values = schema.get("type"), schema.get("enum")
    if "const" in schema:
        values = [schema["const"]]
    if isinstance(kind, Sequence) and not isinstance(kind, str):
        kinds = [it for it in kind if it != "null"]
        kind = kinds[0] if len(kinds) == 1 else None
    if kind in _TYPES:
        member["type"] = kind
    if isinstance(values, Sequence) and values and all(isinstance(it, str) for it in values):
        member |= {"type": "string", "enum": [str(it)[:DESCRIPTION_CHARS_MAX] for it in values[:ENUM_MAX]]}
    member |= {it: schema[it] for it in _BOUNDS if isinstance(schema.get(it), int | float)}
    if kind == "array":
        member["items"] = _member(schema.get("items"), references, depth + 1)
    elif kind == "object":
        member |= _object(schema, references, depth)
    return member
