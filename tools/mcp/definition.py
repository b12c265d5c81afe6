"""A tool as its server defines it, and what of that reaches a model.

Names, descriptions and schemas are untrusted text in a place that models obey, so an owner reviews them once
(`tools.mcp.server`), and none can pose as the gateway's: names are ours, descriptions are made harmless and cut,
schemas are rewritten in the house form. One text is reviewed, hashed and sent to a model; invisible characters are
dropped first. What the house form cannot say, such as patterns and unions of a member, is left to the server. An
unusable tool is left out with a reason and does not affect the others.
"""

import asyncio
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from tools.policy import SEPARATOR
from tools.tool import NAME_CHARS_MAX, Effect, ToolError, ToolSpec

DEFINITION_BYTES_MAX = 64 * 1024
DESCRIPTION_CHARS_MAX = 2_000
"""Characters of a tool's or an argument's description that a model sees."""
TOOL_CHARS_MAX = 128
DEPTH_MAX = 8
MEMBERS_MAX = 100
ENUM_MAX = 100
DEFAULT_CHARS_MAX = 500
STEPS_MAX = 2_000
MISTAKES_MAX = 5
Schema: TypeAlias = Mapping[str, Any]
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")
_BOUNDS = ("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")
_TYPES = ("string", "number", "integer", "boolean", "object", "array")
_UNIONS = ("allOf", "anyOf", "oneOf")
_UNSEEN = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
"""Categories of invisible characters: controls, bidi and zero-width ones, surrogates, private use."""


class ServerGone(Exception):
    """The server cannot be reached any more."""


class UnusableTool(Exception):
    """A tool that is left out. `tool` is its name on the server; the message is the reason."""

    def __init__(self, tool: str, reason: str) -> None:
        super().__init__(reason)
        self.tool = tool


class ProgramEnd(asyncio.Event):
    """Set when the program of a server has ended; `reason` then says how."""

    reason = ""


@dataclass(frozen=True)
class Definition:
    """`tool` is its name on the server. `text` is all that the server says of it, in canonical form: what an owner
    accepts."""

    server: str
    tool: str
    text: str = field(repr=False)

    @classmethod
    def listed(cls, server: str, entry: object) -> "Definition":
        """Parse one entry of `tools/list`, checking only the members used here. Raises UnusableTool."""
        members = entry if isinstance(entry, Mapping) else {}
        tool, description, schema = members.get("name"), members.get("description"), members.get("inputSchema")
        if not isinstance(tool, str) or not 0 < len(tool) <= TOOL_CHARS_MAX or not tool.isprintable():
            raise UnusableTool("(no name)", f"it has no name of 1 to {TOOL_CHARS_MAX} visible characters")
        if not isinstance(schema, Mapping) or schema.get("type", "object") != "object":
            raise UnusableTool(tool, "its input schema is not that of an object")
        execution = members.get("execution")
        if isinstance(execution, Mapping) and execution.get("taskSupport") == "required":
            raise UnusableTool(tool, "it can be called as a task only, which this gateway does not do")
        return cls.of(server, tool, description if isinstance(description, str) else "", schema)

    @classmethod
    def of(cls, server: str, tool: str, description: str, schema: Schema) -> "Definition":
        """Build a definition. Raises UnusableTool."""
        definition = {"description": description, "inputSchema": schema}
        text = json.dumps(_visible(definition), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        data = text.encode(errors="replace")
        if len(data) > DEFINITION_BYTES_MAX:
            raise UnusableTool(tool, f"its definition is longer than {DEFINITION_BYTES_MAX // 1024} KiB")
        return cls(server, tool, data.decode())

    @cached_property
    def name(self) -> str:
        """Its name here. A name that does not fit gets a part of its hash, so that no two collide."""
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
        """Build the spec. `harmless` makes untrusted text safe for a prompt."""
        return ToolSpec(
            name=self.name,
            summary=f"a tool of the MCP server {self.server}",
            description=harmless(self.description[:DESCRIPTION_CHARS_MAX]),
            input_schema=_described(self.schema, harmless),
            effect=effect,
        )

    def parse(self, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """Validate the arguments by the house form. Raises ToolError, which names the first mistakes and shows no
        value."""
        from jsonschema import Draft202012Validator

        # Strict decoders send null for a member that is left out. It stays where the server's schema allows it.
        members, others = self.schema["properties"], {} if self.schema["additionalProperties"] else {"type": "none"}
        given = {
            name: value for name, value in raw.items() if value is not None or _allows_null(members.get(name, others))
        }
        mistakes = [
            f"{'.'.join(map(str, it.absolute_path))[:NAME_CHARS_MAX] or 'arguments'}: {_sentence(it)}"
            for it in Draft202012Validator(self.schema).iter_errors(given)
        ]
        if mistakes:
            raise ToolError("INVALID_ARGUMENT", "; ".join(mistakes[:MISTAKES_MAX]))
        return given


def _visible(value: Any) -> Any:
    if isinstance(value, str):
        if value.isascii() and value.isprintable():
            return value
        return "".join(it for it in value if it in "\n\t" or unicodedata.category(it) not in _UNSEEN)
    if isinstance(value, Mapping):
        return {_visible(name): _visible(it) for name, it in value.items()}
    return [_visible(it) for it in value] if isinstance(value, list | tuple) else value


def _allows_null(member: Schema) -> bool:
    kind = member.get("type")
    # without a type it may be anything
    return kind is None or (isinstance(kind, list) and "null" in kind)


def _described(schema: Schema, harmless: Callable[[str], str]) -> dict[str, Any]:
    """Make the schema harmless. A name or value that would pose as the gateway's is left out: the server knows no
    other."""
    copy = dict(schema)
    if isinstance(described := copy.get("description"), str):
        copy["description"] = harmless(described)
    if "properties" in copy:
        members = {name: it for name, it in copy["properties"].items() if harmless(name) == name}
        copy["properties"] = {name: _described(it, harmless) for name, it in members.items()}
        copy["required"] = [it for it in copy["required"] if it in members]
    if "enum" in copy:
        copy["enum"] = [it for it in copy["enum"] if not isinstance(it, str) or harmless(it) == it]
        if not copy["enum"]:
            del copy["enum"]
    if "default" in copy and harmless(default := json.dumps(copy["default"], ensure_ascii=False)) != default:
        del copy["default"]
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
    """Follows references within one schema, which may be circular: after a number of steps the rest is anything."""

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


@dataclass
class _Members:
    """The members of an object; those of a union's branches are optional, since only the server knows which go
    together."""

    schemas: dict[str, Any] = field(default_factory=dict)
    required: dict[str, None] = field(default_factory=dict)
    is_declared: bool = False
    """A part of the schema names the members, even if there are none."""
    is_open: bool = False
    """A part of the schema allows other members."""

    def add(self, schema: Schema, references: _References, depth: int, *, optional: bool = False) -> None:
        schema = references.resolved(schema)
        members, required = schema.get("properties"), schema.get("required")
        if isinstance(members, Mapping):
            self.is_declared = True
            for name, member in members.items():
                self.schemas[name] = member if self.schemas.get(name, member) == member else {}  # a conflict: anything
        if isinstance(required, Sequence) and not isinstance(required, str) and not optional:
            self.required |= dict.fromkeys(it for it in required if isinstance(it, str))
        extra = schema.get("additionalProperties", schema.get("unevaluatedProperties", False))
        self.is_open = self.is_open or bool(extra) or bool(schema.get("patternProperties"))
        if depth > DEPTH_MAX:
            return
        for union in _UNIONS:
            branches = schema.get(union)
            for branch in branches if isinstance(branches, list | tuple) else ():
                self.add(branch, references, depth + 1, optional=optional or union != "allOf")
        for name in ("then", "else"):
            if name in schema:
                self.add(schema[name], references, depth + 1, optional=True)


def _object(schema: Any, references: _References, depth: int) -> dict[str, Any]:
    whole = _Members()
    whole.add(schema, references, depth)
    names = [it for it in whole.schemas if 0 < len(it) <= NAME_CHARS_MAX and it.isprintable()][:MEMBERS_MAX]
    members = {name: _member(whole.schemas[name], references, depth + 1) for name in names}
    closed = references.resolved(schema).get("additionalProperties") is False
    return {
        "properties": members,
        # The server itself fills in defaults.
        "required": [it for it in whole.required if it in members and "default" not in members[it]],
        "additionalProperties": whole.is_open or not (whole.is_declared or closed),
    }


def _member(schema: Any, references: _References, depth: int) -> dict[str, Any]:
    schema = references.resolved(schema)
    member: dict[str, Any] = {}
    described = schema.get("description") or schema.get("title")
    if isinstance(described, str):
        member["description"] = described[:DESCRIPTION_CHARS_MAX]
    default = schema.get("default")
    if "default" in schema and len(json.dumps(default, ensure_ascii=False)) <= DEFAULT_CHARS_MAX:
        member["default"] = default
    if depth > DEPTH_MAX:
        return member
    for union in _UNIONS:  # the only branch besides null, or else anything
        if isinstance(branches := schema.get(union), list | tuple):
            resolved = [*map(references.resolved, branches)]
            sound = [it for it in resolved if it.get("type") != "null"]
            nullable = len(sound) < len(resolved) and union != "allOf"
            schema = {**sound[0], **schema} if len(sound) == 1 else {}
            made = {**_member({**schema, union: None}, references, depth + 1), **member} if schema else member
            return _or_null(made) if nullable else made
    kind, values = schema.get("type"), schema.get("enum")
    if "const" in schema:
        values = [schema["const"]]
    nullable = schema.get("nullable") is True
    if isinstance(kind, list | tuple):
        kinds = [it for it in kind if it != "null"]
        nullable = nullable or len(kinds) < len(kind)
        kind = kinds[0] if len(kinds) == 1 else None
    if kind in _TYPES:
        member["type"] = kind
    if isinstance(values, list | tuple) and (texts := [it for it in values if it is not None]):
        nullable = nullable or len(texts) < len(values)
        if all(isinstance(it, str) for it in texts):
            member |= {"type": "string", "enum": [str(it)[:DESCRIPTION_CHARS_MAX] for it in texts[:ENUM_MAX]]}
    member |= {it: schema[it] for it in _BOUNDS if isinstance(schema.get(it), int | float)}
    if kind == "array":
        member["items"] = _member(schema.get("items"), references, depth + 1)
    elif kind == "object":
        member |= _object(schema, references, depth)
    return _or_null(member) if nullable else member


def _or_null(member: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(kind := member.get("type"), str):
        return member
    return member | {"type": [kind, "null"]} | ({"enum": [*member["enum"], None]} if "enum" in member else {})
