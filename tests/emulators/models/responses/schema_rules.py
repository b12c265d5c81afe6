"""What OpenAI refuses about the schema of a function's parameters, plain and strict."""

from collections.abc import Iterator
from typing import Any

from tests.emulators.models.openai import refuse
from tests.emulators.models.shapes import root_fault

DEPTH_MAX = 10
PROPERTIES_MAX = 5000

_NOT_STRICT = (
    "default oneOf allOf not if then else dependentRequired dependentSchemas minLength maxLength patternProperties "
    "unevaluatedProperties propertyNames minProperties maxProperties unevaluatedItems contains minContains maxContains "
    "uniqueItems prefixItems"
)


def check_schema(schema: Any, function: str, param: str, *, strict: bool) -> None:
    """Raises `Refusal`."""
    fault = root_fault(schema)
    if not fault and "properties" not in schema:
        fault = "object schema missing properties"
    if not fault:
        fault = next((it for inner, depth in _all(schema, 0) if (it := _fault(inner, depth, strict=strict))), "")
    if not fault and strict and sum(len(inner.get("properties", ())) for inner, _ in _all(schema, 0)) > PROPERTIES_MAX:
        fault = f"more than {PROPERTIES_MAX} properties"
    if fault:
        refuse(f"Invalid schema for function '{function}': {fault}", "invalid_function_parameters", param)


def _all(schema: Any, depth: int) -> Iterator[tuple[Any, int]]:
    """The schema and every one inside, with how deep it is."""
    yield schema, depth
    if isinstance(schema, dict):
        inner = [*schema.get("properties", {}).values(), *schema.get("anyOf", ())]
        inner += [schema["items"]] if "items" in schema else []
        inner += schema["$defs"].values() if isinstance(schema.get("$defs"), dict) else []
        for it in inner:
            yield from _all(it, depth + 1)


def _fault(schema: Any, depth: int, *, strict: bool) -> str:
    if schema is False or (schema is True and strict):
        return f"{schema} is not of type 'object'"
    if not strict:
        return ""
    if depth > DEPTH_MAX:
        return f"{depth} levels of nesting exceeds limit of {DEPTH_MAX}"
    if banned := schema.keys() & set(_NOT_STRICT.split()):
        return f"'{min(banned)}' is not permitted"
    if "$ref" in schema:
        target = schema["$ref"]
        sound = isinstance(target, str) and (target == "#" or target.startswith("#/$defs/"))
        return "" if sound and len(schema) == 1 else "a reference stands alone, and points to definitions"
    if "type" not in schema and "anyOf" not in schema:
        return "schema must have a 'type' key"
    types = schema.get("type")
    if types != "object" and not (isinstance(types, list) and "object" in types):
        return ""
    if schema.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false"
    if "required" not in schema or set(schema["required"]) != schema.get("properties", {}).keys():
        return "'required' is required to be supplied and to be an array including every key in properties"
    return ""
