"""What Anthropic's Messages API refuses, as pure functions: the request around the messages.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status, type and wording.
The rules of the messages themselves are in `message_rules`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from agents.providers.models import facts_of
from tests.emulators.models.anthropic.block_rules import check_text, closed, refuse
from tests.emulators.models.anthropic.message_rules import check_messages, marks_of
from tests.emulators.models.anthropic.thinking_rules import check_thinking
from tests.emulators.models.server import Refusal

BODY_BYTES_MAX = 32 * 1024 * 1024
VERSIONS = frozenset({"2023-01-01", "2023-06-01", "2026-10-21"})
MARKS_MAX = 4

_MEMBERS = frozenset(
    {
        "model",
        "max_tokens",
        "messages",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "cache_control",
        "metadata",
        "stop_sequences",
        "stream",
        "service_tier",
        "inference_geo",
        "container",
        "diagnostics",
        "temperature",
        "top_p",
        "top_k",
        "speed",
    }
)
_TOOL_MEMBERS = frozenset(
    {
        "type",
        "name",
        "description",
        "input_schema",
        "cache_control",
        "strict",
        "input_examples",
        "eager_input_streaming",
        "defer_loading",
    }
)
_CHOICES = {
    "auto": {"type", "disable_parallel_tool_use"},
    "any": {"type", "disable_parallel_tool_use"},
    "tool": {"type", "name", "disable_parallel_tool_use"},
    "none": {"type"},
}
_SCHEMA_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def check_headers(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    key = headers.get("x-api-key", "") or headers.get("authorization", "").removeprefix("Bearer ")
    if not key.strip():
        raise Refusal(401, "authentication_error", "x-api-key header is required")
    if api_key is not None and key != api_key:
        raise Refusal(401, "authentication_error", "invalid x-api-key")
    version = headers.get("anthropic-version")
    if version is None:
        refuse("anthropic-version: header is required")
    if version not in VERSIONS:
        refuse(f'anthropic-version: "{version}" is not a valid version')
    if not headers.get("content-type", "").startswith("application/json"):
        refuse("Content-Type must be application/json")


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is too large or no strict JSON, half an emoji included."""
    if len(raw) > BODY_BYTES_MAX:
        raise Refusal(413, "request_too_large", "Request exceeds the maximum size")
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        refuse(f"The request body is not valid JSON: {error}")
    if not isinstance(body, dict):
        refuse("Input should be an object")
    return body


def check_body(body: dict[str, Any], is_model: Callable[[str], bool] = lambda name: name.startswith("claude-")) -> None:
    """Everything about a parsed request, in the order in which the server looks. Raises `Refusal`."""
    closed(body, _MEMBERS, "")
    model = body.get("model")
    if not isinstance(model, str) or not model:
        refuse("model: Field required")
    _check_numbers(body)
    if not is_model(model):
        raise Refusal(404, "not_found_error", f"model: {model}")
    facts = facts_of(model)
    if facts.known and body["max_tokens"] > facts.max_output:
        allowed = f"which is the maximum allowed number of output tokens for {model}"
        refuse(f"max_tokens: {body['max_tokens']} > {facts.max_output}, {allowed}")
    _check_system(body)
    names = _check_tools(body)
    _check_tool_choice(body, names, model)
    check_messages(body.get("messages"), model, has_tools=bool(names))
    check_thinking(body, facts)
    _check_marks(body)


def _check_numbers(body: dict[str, Any]) -> None:
    if "max_tokens" not in body:
        refuse("max_tokens: Field required")
    if not isinstance(body["max_tokens"], int) or isinstance(body["max_tokens"], bool) or body["max_tokens"] < 0:
        refuse("max_tokens: Input should be a valid integer")
    if not isinstance(body.get("stream", False), bool):
        refuse("stream: Input should be a valid boolean")
    for name in ("temperature", "top_p", "top_k"):
        if name in body:
            refuse(f"`{name}` is deprecated for this model.")
    if "metadata" in body:
        closed(body["metadata"], {"user_id"}, "metadata")
    for number, text in enumerate(body.get("stop_sequences", [])):
        if not isinstance(text, str) or not text.strip():
            refuse(f"stop_sequences.{number}: each stop sequence must contain non-whitespace")


def _check_system(body: dict[str, Any]) -> None:
    system = body.get("system", [])
    if isinstance(system, str):
        return
    if not isinstance(system, list):
        refuse("system: Input should be a valid list")
    for number, block in enumerate(system):
        path = f"system.{number}"
        closed(block, {"type", "text", "cache_control", "citations"}, path)
        if block.get("type") != "text":
            refuse(f"{path}.type: Input should be 'text'")
        check_text(block, path, "system")


def _check_tools(body: dict[str, Any]) -> list[str]:
    if "tools" not in body:
        return []
    tools = body["tools"]
    if not isinstance(tools, list) or not tools:
        refuse("tools: List should have at least 1 item after validation, not 0")
    for number, tool in enumerate(tools):
        path = f"tools.{number}.custom"
        closed(tool, _TOOL_MEMBERS, path)
        if not isinstance(tool.get("name"), str):
            refuse(f"{path}.name: Field required")
        if not re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", tool["name"]):
            refuse(f"{path}.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if tool.get("type", "custom") != "custom":
            refuse(f"tools.{number}: Input tag '{tool['type']}' found using 'type' does not match any expected tag")
        if not isinstance(tool.get("description", ""), str):
            refuse(f"{path}.description: Input should be a valid string")
        _check_schema(tool.get("input_schema"), f"{path}.input_schema")
    names = [tool["name"] for tool in tools]
    if len(set(names)) != len(names):
        refuse("tools: Tool names must be unique.")
    return names


def _check_schema(schema: object, path: str) -> None:
    if not isinstance(schema, dict):
        refuse(f"{path}: Field required")
    if "type" not in schema:
        refuse(f"{path}.type: Field required")
    if schema["type"] != "object":
        refuse(f"{path}.type: Input should be 'object'")
    if schema.keys() & {"oneOf", "anyOf", "allOf"}:
        refuse(f"{path}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    if not _is_schema(schema):
        refuse(f"{path.removesuffix('.input_schema')}: JSON schema is invalid. It must match JSON Schema draft 2020-12")


def _is_schema(schema: object) -> bool:
    """The part of the draft that a wrong tool definition usually trips over."""
    if isinstance(schema, bool):
        return True
    if not isinstance(schema, dict):
        return False
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    properties = schema.get("properties", {})
    required = schema.get("required", [])
    return (
        isinstance(types, list)
        and all(name in _SCHEMA_TYPES for name in types)
        and isinstance(properties, dict)
        and all(_is_schema(member) for member in properties.values())
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and len(set(required)) == len(required)
        and isinstance(schema.get("enum", [None]), list)
        and isinstance(schema.get("description", ""), str)
        and _is_schema(schema.get("items", True))
        and _is_schema(schema.get("additionalProperties", True))
    )


def _check_tool_choice(body: dict[str, Any], names: list[str], model: str) -> None:
    if "tool_choice" not in body:
        return
    choice = body["tool_choice"]
    if not names:
        refuse("tool_choice: may only be specified while providing tools.")
    kind = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(kind, str) or kind not in _CHOICES:
        refuse("tool_choice: Input tag does not match any of the expected tags: 'auto', 'any', 'tool', 'none'")
    closed(choice, _CHOICES[kind], f"tool_choice.{kind}")
    if kind in ("any", "tool") and not facts_of(model).forced_tool:
        refuse('tool_choice: type "tool" and "any" are not supported for this model')
    if kind == "tool" and choice.get("name") not in names:
        refuse(f"tool_choice: Tool '{choice.get('name')}' not found in provided tools")


def _check_marks(body: dict[str, Any]) -> None:
    """In the order of the prefix: tools, system, messages."""
    marks = [mark for key in ("tools", "system", "messages") for mark in marks_of(body.get(key))]
    marks += marks_of({"cache_control": body["cache_control"]}) if "cache_control" in body else []
    for mark in marks:
        closed(mark, {"type", "ttl"}, "cache_control")
        if mark.get("type") != "ephemeral" or mark.get("ttl", "5m") not in ("5m", "1h"):
            refuse("cache_control: Input should be an ephemeral mark with ttl '5m' or '1h'")
    if len(marks) > MARKS_MAX:
        refuse(f"A maximum of 4 blocks with cache_control may be provided. Found {len(marks)}.")
    lengths = [mark.get("ttl", "5m") for mark in marks]
    if "5m" in lengths and "1h" in lengths[lengths.index("5m") :]:
        refuse("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")
