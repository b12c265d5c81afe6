"""What servers of the Chat wire refuse about tools and their choice. Pure; raises `Refusal`.

A server that is mute about them refuses nothing here; which of its tools count is `registered`.
"""

import re
from typing import Any

from tests.emulators.models.chat.habits import Habits
from tests.emulators.models.chat.refusing import (
    mistyped,
    need_list,
    need_object,
    need_text,
    only,
    refuse,
    too_long,
    unsupported_value,
)

TOOLS_MAX = 128
_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def check_tools(body: dict[str, Any], habits: Habits, *, thinks: bool) -> None:
    if "tools" not in body:
        for name in ("tool_choice", "parallel_tool_calls"):
            if name in body:
                refuse(f"Invalid value for '{name}': '{name}' is only allowed when 'tools' are specified.", None, name)
        return
    tools = need_list(body["tools"], "tools")
    if len(tools) > TOOLS_MAX:
        told = f"Invalid 'tools': array too long. Expected an array with maximum length {TOOLS_MAX}"
        refuse(told, "array_above_max_length", "tools")
    names = [_check_tool(tool, f"tools[{number}]", habits) for number, tool in enumerate(tools)]
    if "tool_choice" in body and not habits.mute:
        _check_choice(body["tool_choice"], names, habits, thinks=thinks)


def registered(body: dict[str, Any]) -> set[str]:
    """The tools that a mute server takes note of: fully described, with `properties` and `required` written out."""
    names: set[str] = set()
    for tool in body.get("tools", []):
        function = tool.get("function", {})
        schema = function.get("parameters")
        described = bool(function.get("description")) and isinstance(schema, dict) and schema.get("type") == "object"
        if described and isinstance(schema.get("properties"), dict) and isinstance(schema.get("required"), list):
            names.add(function["name"])
    return names


def _check_tool(tool: Any, path: str, habits: Habits) -> str:
    need_object(tool, path)
    if need_text(tool, "type", path) != "function":
        unsupported_value(f"{path}.type", tool["type"], ["function", "custom"])
    function = need_object(tool.get("function"), f"{path}.function")
    if habits.closed:
        only(tool, frozenset({"type", "function"}), path)
        only(function, frozenset({"name", "description", "parameters", "strict"}), f"{path}.function")
    name = need_text(function, "name", f"{path}.function")
    check_name(name, f"{path}.function.name")
    if "description" in function:
        need_text(function, "description", f"{path}.function")
        if habits.closed and len(function["description"]) > 1024:
            too_long(f"{path}.function.description", 1024, len(function["description"]))
    schema = function.get("parameters", {"type": "object"})
    need_object(schema, f"{path}.function.parameters")
    if schema.get("type") != "object":
        of = f'"{schema.get("type")}"'
        _refuse_schema(name, f"schema must be a JSON Schema of 'type: \"object\"', got 'type: {of}'.")
    if banned := schema.keys() & {"anyOf", "oneOf", "allOf", "enum", "not"}:
        _refuse_schema(name, f"schema must not have '{min(banned)}' at the top level.")
    _check_schema(name, schema, (), habits)
    return name


def check_name(name: str, path: str) -> None:
    if not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
        pattern = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
        refuse(f"Invalid '{path}': string does not match pattern. {pattern}", "invalid_value", path)
    if len(name) > 64:
        too_long(path, 64, len(name))


def _check_schema(name: str, schema: Any, at: tuple[str, ...], habits: Habits) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        _refuse_schema(name, f"In context={at}, schema must be an object or a boolean.")
    if not habits.refs and schema.keys() & {"$ref", "$defs"}:
        _refuse_schema(name, f"In context={at}, '$ref' is not supported.")
    types = schema.get("type", [])
    if not all(isinstance(kind, str) and kind in _TYPES for kind in ([types] if isinstance(types, str) else types)):
        _refuse_schema(name, f"In context={at}, '{types}' is not valid under any of the given schemas.")
    if types == "array" and "items" not in schema:
        _refuse_schema(name, f"In context={at}, array schema missing items.")
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        _refuse_schema(name, f"In context={at}, 'properties' is an object and 'required' an array.")
    for key, member in properties.items():
        _check_schema(name, member, (*at, "properties", key), habits)
    if "items" in schema:
        _check_schema(name, schema["items"], (*at, "items"), habits)


def _refuse_schema(name: str, what: str) -> None:
    refuse(f"Invalid schema for function '{name}': {what}", "invalid_function_parameters", "tools")


def _check_choice(choice: Any, names: list[str], habits: Habits, *, thinks: bool) -> None:
    if isinstance(choice, str):
        if choice not in ("none", "auto", "required"):
            unsupported_value("tool_choice", choice, ["none", "auto", "required"])
        form = choice
    elif isinstance(choice, dict):
        form = "named"
        function = need_object(choice.get("function"), "tool_choice.function")
        if choice.get("type") != "function" or habits.closed:
            only(choice, frozenset({"type", "function"}), "tool_choice")
            only(function, frozenset({"name"}), "tool_choice.function")
        wanted = need_text(function, "name", "tool_choice.function")
        if wanted not in names:
            told = f"no function named '{wanted}' was specified in the 'functions' parameter."
            refuse(f"Invalid value for 'function_call': {told}", None, "function_call")
    else:
        mistyped("tool_choice", "one of a string or an object", choice)
    if thinks and habits.forced and form in ("required", "named"):
        refuse(habits.forced)
    if form not in habits.choices:
        refuse(f"{habits.name} does not support this tool_choice", "invalid_parameter_error", "tool_choice")
