"""What OpenAI refuses about the schema of a function's parameters, plain and strict."""

from collections.abc import Mapping
from typing import Any, NoReturn

from tests.emulators.models.responses.refusals import refuse

DEPTH_MAX = 10
PROPERTIES_MAX = 5000

_ROOT_COMBINATORS = ("oneOf", "anyOf", "allOf", "enum", "not")
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
_NOT_STRICT = frozenset(
    {
        "default",
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "dependentRequired",
        "dependentSchemas",
        "minLength",
        "maxLength",
        "patternProperties",
        "unevaluatedProperties",
        "propertyNames",
        "minProperties",
        "maxProperties",
        "unevaluatedItems",
        "contains",
        "minContains",
        "maxContains",
        "uniqueItems",
        "prefixItems",
    }
)


def check_schema(schema: Any, function: str, param: str, *, strict: bool) -> None:
    """Raises `Refusal`."""
    _Rules(function, param, strict).check(schema)


class _Rules:
    """One function's schema under judgement."""

    def __init__(self, function: str, param: str, strict: bool) -> None:
        self._function = function
        self._param = param
        self._strict = strict
        self._properties = 0

    def check(self, schema: Any) -> None:
        type_ = schema.get("type") if isinstance(schema, dict) else None
        if type_ != "object":
            self._refuse(f"schema must be a JSON Schema of 'type: \"object\"', got 'type: \"{type_}\"'.")
        for name in _ROOT_COMBINATORS:
            if name in schema:
                self._refuse(
                    "schema must have type 'object' and not have 'oneOf'/'anyOf'/'allOf'/'enum'/'not' at the top level."
                )
        if "properties" not in schema:
            self._refuse("In context=(), object schema missing properties.")
        self._check(schema, (), depth=0)

    def _check(self, schema: Any, context: tuple[str, ...], *, depth: int) -> None:
        if schema is True and not self._strict:
            return
        if not isinstance(schema, dict):
            self._refuse(f"In context={context}, {schema!r} is not of type 'object', 'boolean'.")
        if self._strict:
            self._check_strict(schema, context, depth)
        types = schema.get("type", [])
        types = [types] if isinstance(types, str) else types
        if not isinstance(types, list) or not all(isinstance(name, str) and name in _TYPES for name in types):
            self._refuse(f"In context={context}, {types!r} is not valid under any of the given schemas.")
        if "array" in types and "items" not in schema:
            self._refuse(f"In context={context}, array schema missing items.")
        if not isinstance(schema.get("enum", []), list) or not isinstance(schema.get("required", []), list):
            self._refuse(f"In context={context}, schema is invalid.")
        self._check_inside(schema, context, depth)

    def _check_inside(self, schema: Mapping[str, Any], context: tuple[str, ...], depth: int) -> None:
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            self._refuse(f"In context={(*context, 'properties')}, {properties!r} is not of type 'object'.")
        for name, member in properties.items():
            self._check(member, (*context, "properties", name), depth=depth + 1)
        if "items" in schema:
            self._check(schema["items"], (*context, "items"), depth=depth + 1)
        for place, choice in enumerate(schema.get("anyOf", ())):
            self._check(choice, (*context, "anyOf", str(place)), depth=depth + 1)
        if isinstance(schema.get("$defs"), dict):
            for name, definition in schema["$defs"].items():
                self._check(definition, (*context, "$defs", name), depth=depth + 1)

    def _check_strict(self, schema: Mapping[str, Any], context: tuple[str, ...], depth: int) -> None:
        if depth > DEPTH_MAX:
            self._refuse(f"In context={context}, {depth} levels of nesting exceeds limit of {DEPTH_MAX}.")
        for name in schema:
            if name in _NOT_STRICT:
                self._refuse(f"In context={context}, '{name}' is not permitted.")
        if "$ref" in schema:
            self._check_reference(schema, context)
        elif "type" not in schema and "anyOf" not in schema:
            self._refuse(f"In context={context}, schema must have a 'type' key.")
        types = schema.get("type")
        if types != "object" and not (isinstance(types, list) and "object" in types):
            return
        if schema.get("additionalProperties") is not False:
            self._refuse(f"In context={context}, 'additionalProperties' is required to be supplied and to be false.")
        properties, required = schema.get("properties", {}), schema.get("required", [])
        missing = [name for name in properties if name not in required]
        if missing or "required" not in schema:
            self._refuse(
                f"In context={context}, 'required' is required to be supplied and to be an array including every key "
                f"in properties. Missing '{missing[0] if missing else ''}'."
            )
        if extra := [name for name in required if name not in properties]:
            self._refuse(f"In context={context}, 'required' includes '{extra[0]}', which is not a property.")
        self._properties += len(properties)
        if self._properties > PROPERTIES_MAX:
            self._refuse(f"{self._properties} properties exceeds limit of {PROPERTIES_MAX}.")

    def _check_reference(self, schema: Mapping[str, Any], context: tuple[str, ...]) -> None:
        target = schema["$ref"]
        if not isinstance(target, str) or not (target == "#" or target.startswith("#/$defs/")):
            self._refuse(f"In context={context}, reference can only point to definitions.")
        if len(schema) > 1:
            self._refuse(f"In context={context}, $ref cannot have keywords {sorted(schema.keys() - {'$ref'})}.")

    def _refuse(self, told: str) -> NoReturn:
        message = f"Invalid schema for function '{self._function}': {told}"
        refuse(message, code="invalid_function_parameters", param=self._param)
