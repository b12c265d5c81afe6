"""What Mistral's chat API refuses, as pure functions: the request around the messages.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status, type and wording:
400 for what the models' tokenizers refuse, 422 for what does not fit the schema of a request.
"""

from collections.abc import Callable, Mapping
from typing import Any

import orjson

from agents.providers.models import facts_of
from tests.emulators.models.mistral.chunk_rules import Place, closed, invalid, refuse, text_at
from tests.emulators.models.mistral.message_rules import check_messages, check_name
from tests.emulators.models.server import Refusal

_MEMBERS = frozenset(
    {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_tokens",
        "min_tokens",
        "stream",
        "stop",
        "temperature",
        "top_p",
        "top_k",
        "random_seed",
        "metadata",
        "response_format",
        "presence_penalty",
        "frequency_penalty",
        "repetition_penalty",
        "logprobs",
        "top_logprobs",
        "prompt_logprobs",
        "top_prompt_logprobs",
        "n",
        "prediction",
        "reasoning_effort",
        "prompt_mode",
        "guardrails",
        "prompt_cache_key",
        "service_tier",
        "safe_prompt",
    }
)
_MODELS = ("mistral-", "ministral-", "magistral-", "pixtral-", "codestral-", "devstral-", "voxtral-", "open-", "ft:")
_CHOICES = ("auto", "none", "any", "required")
_SCHEMA_TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})


def is_model(name: str) -> bool:
    return name.startswith(_MODELS)


def check_headers(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in, without it any."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not key.strip() or (api_key is not None and key != api_key):
        raise Refusal(401, "unauthorized", "Unauthorized")
    if not headers.get("content-type", "").startswith("application/json"):
        invalid((), "model_attributes_type", "Input should be a valid dictionary or object to extract fields from")


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is no strict JSON, half an emoji included."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        invalid((), "json_invalid", f"JSON decode error: {error}")
    if not isinstance(body, dict):
        invalid((), "model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
    return body


def check_body(body: dict[str, Any], is_model: Callable[[str], bool] = is_model) -> None:
    """Everything about a parsed request: first its schema, then its sense. Raises `Refusal`."""
    closed(body, _MEMBERS, ())
    model = text_at(body, "model", ())
    _check_numbers(body)
    if not is_model(model):
        refuse(f"Invalid model: {model}", type_="invalid_model", code="1500")
    facts = facts_of(model)
    if facts.known and (body.get("max_tokens") or 0) > facts.max_output:
        refuse(f"max_tokens is too large for model {model}: it can write {facts.max_output} tokens")
    if body.get("reasoning_effort") is not None and not facts.thinking:
        refuse(f"reasoning_effort={body['reasoning_effort']!r} is not supported for this model")
    names = _check_tools(body.get("tools"))
    _check_tool_choice(body, names)
    check_messages(body.get("messages"), vision=facts.vision or not facts.known)


def _check_numbers(body: dict[str, Any]) -> None:
    for name in ("max_tokens", "n", "random_seed"):
        value = body.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            invalid((name,), "int_type", "Input should be a valid integer")
    if (limit := body.get("max_tokens")) is not None and limit < 0:
        invalid(("max_tokens",), "greater_than_equal", "Input should be greater than or equal to 0")
    for name in ("stream", "parallel_tool_calls", "safe_prompt"):
        if not isinstance(body.get(name, False), bool):
            invalid((name,), "bool_type", "Input should be a valid boolean")
    temperature = body.get("temperature")
    if temperature is not None and (not isinstance(temperature, int | float) or not 0 <= temperature <= 1.5):
        invalid(("temperature",), "less_than_equal", "Input should be less than or equal to 1.5")


def _check_tools(tools: Any) -> list[str]:
    if tools is None:
        return []
    if not isinstance(tools, list):
        invalid(("tools",), "list_type", "Input should be a valid list")
    if not tools:
        invalid(("tools",), "too_short", "List should have at least 1 item after validation, not 0")
    for number, tool in enumerate(tools):
        place: Place = ("tools", number)
        closed(tool, {"type", "function"}, place)
        if tool.get("type") != "function":
            invalid((*place, "type"), "literal_error", "Input should be 'function'")
        _check_function(tool.get("function"), (*place, "function"))
    names = [tool["function"]["name"] for tool in tools]
    if len(set(names)) != len(names):
        refuse("Function names must be unique.", type_="invalid_tools")
    return names


def _check_function(function: Any, place: Place) -> None:
    closed(function, {"name", "description", "parameters", "strict"}, place)
    check_name(text_at(function, "name", place))
    if "description" in function:
        text_at(function, "description", place)
    if not isinstance(function.get("strict", False), bool):
        invalid((*place, "strict"), "bool_type", "Input should be a valid boolean")
    parameters = function.get("parameters")
    if not isinstance(parameters, dict):
        invalid((*place, "parameters"), "missing", "Field required")
    reason = _schema_fault(parameters, root=True)
    if reason:
        refuse(f"Invalid tool schema: {reason}", type_="invalid_tool_schema")


def _schema_fault(schema: object, *, root: bool = False) -> str:
    """What is wrong with a JSON schema; empty where it is sound. The part that a wrong tool definition trips over."""
    if isinstance(schema, bool) and not root:
        return ""
    if not isinstance(schema, dict):
        return f"{schema!r} is not of type 'object', 'boolean'"
    if root and (schema.get("type") != "object" or schema.keys() & {"anyOf", "oneOf", "allOf", "enum", "not"}):
        return f"schema must be a JSON Schema of 'type: \"object\"', got {schema.get('type')!r}"
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if not isinstance(types, list) or any(not isinstance(it, str) or it not in _SCHEMA_TYPES for it in types):
        return f"{schema['type']!r} is not valid under any of the given schemas"
    if "array" in types and "items" not in schema:
        return "array schema missing items"
    required = schema.get("required", [])
    if not isinstance(required, list) or len(set(map(str, required))) != len(required):
        return f"{required!r} has non-unique elements"
    if any(not isinstance(name, str) for name in required) or not isinstance(schema.get("enum", [None]), list):
        return f"{schema!r} is not valid"
    if not isinstance(schema.get("description", ""), str):
        return f"{schema['description']!r} is not of type 'string'"
    members = schema.get("properties", {})
    if not isinstance(members, dict):
        return f"{members!r} is not of type 'object'"
    inner = [*members.values(), schema.get("items", True), schema.get("additionalProperties", True)]
    return next((fault for it in inner if (fault := _schema_fault(it))), "")


def _check_tool_choice(body: dict[str, Any], names: list[str]) -> None:
    if "tool_choice" not in body:
        return
    choice = body["tool_choice"]
    if isinstance(choice, dict):
        closed(choice, {"type", "function"}, ("tool_choice", "ToolChoice"))
        closed(choice.get("function"), {"name"}, ("tool_choice", "ToolChoice", "function"))
        text_at(choice["function"], "name", ("tool_choice", "ToolChoice", "function"))
        if choice.get("type", "function") != "function":
            invalid(("tool_choice", "ToolChoice", "type"), "literal_error", "Input should be 'function'")
    elif choice not in _CHOICES:
        expected = ", ".join(f"'{name}'" for name in _CHOICES)
        invalid(("tool_choice", "ToolChoiceEnum"), "enum", f"Input should be {expected}")
    if not names:
        refuse("tool_choice can only be used with tools", type_="invalid_tool_choice")
    if isinstance(choice, dict) and choice["function"]["name"] not in names:
        refuse(f"Function {choice['function']['name']} of tool_choice is not in tools", type_="invalid_tool_choice")
