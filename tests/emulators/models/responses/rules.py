"""What OpenAI's Responses API refuses, as pure functions: the request around the items.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status, type, code and
wording. The rules of the items themselves are in `item_rules` and `order_rules`.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from agents.providers.models import LEVELS, ModelFacts, facts_of
from tests.emulators.models.responses.item_rules import check_item
from tests.emulators.models.responses.order_rules import check_order
from tests.emulators.models.responses.refusals import closed, list_at, object_at, one_of, refuse, refuse_type, string_at
from tests.emulators.models.responses.schema_rules import check_schema

OUTPUT_TOKENS_MIN = 16

_MEMBERS = frozenset(
    {
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "max_output_tokens",
        "reasoning",
        "store",
        "include",
        "prompt_cache_key",
        "prompt_cache_options",
        "prompt_cache_retention",
        "safety_identifier",
        "user",
        "metadata",
        "text",
        "truncation",
        "stream",
        "stream_options",
        "service_tier",
        "background",
        "max_tool_calls",
        "context_management",
        "temperature",
        "top_p",
        "top_logprobs",
        "previous_response_id",
        "conversation",
        "prompt",
        "moderation",
    }
)
_MOVED = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
    "functions": "tools",
}
_BOOLEANS = ("parallel_tool_calls", "store", "stream", "background")
_INCLUDES = (
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
    "reasoning.encrypted_content",
    "message.output_text.logprobs",
)
_EFFORTS = ("none", *LEVELS[1:])
_NOTHING_TO_DO = """One of "input" or "previous_response_id" or 'prompt' or 'conversation' must be provided."""


def is_openai_model(name: str) -> bool:
    return name.startswith(("gpt-", "o1", "o3", "o4"))


def check_headers(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    scheme, _, key = headers.get("authorization", "").partition(" ")
    if scheme != "Bearer" or not key.strip():
        refuse("You didn't provide an API key.", status=401)
    if api_key is not None and key != api_key:
        refuse(f"Incorrect API key provided: {key[:2]}***.", code="invalid_api_key", status=401)
    if not headers.get("content-type", "").startswith("application/json"):
        refuse("Unsupported content type. This API only accepts 'application/json'.", code="unsupported_content_type")


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is no strict JSON, half an emoji included."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        refuse(f"We could not parse the JSON body of your request. ({error})")
    if not isinstance(body, dict):
        refuse("We could not parse the JSON body of your request. (HINT: it should be an object.)")
    return body


def check_body(body: dict[str, Any], is_model: Callable[[str], bool] = is_openai_model) -> None:
    """Everything about a parsed request, in the order in which the server looks. Raises `Refusal`."""
    for name in body:
        if name in _MOVED:
            refuse(
                f"Unsupported parameter: '{name}'. In the Responses API, this parameter has moved to '{_MOVED[name]}'. "
                "Try again with the new parameter.",
                code="unsupported_parameter",
                param=name,
            )
    closed(body, _MEMBERS)
    model = string_at(body, "model", "")
    told = {name: value for name, value in body.items() if value is not None}
    _check_plain(told)
    if not is_model(model):
        message = f"The model `{model}` does not exist or you do not have access to it."
        refuse(message, code="model_not_found", param="model", status=404)
    facts = facts_of(model)
    _check_limits(told, facts)
    _check_reasoning(told, model, facts)
    names = _check_tools(told)
    _check_tool_choice(told, names)
    _check_input(told)


def _check_plain(body: dict[str, Any]) -> None:
    for name in _BOOLEANS:
        if name in body and not isinstance(body[name], bool):
            refuse_type(body[name], "a boolean", name)
    if "instructions" in body:
        string_at(body, "instructions", "")
    for name, most in (("prompt_cache_key", 64), ("safety_identifier", 128)):
        if name in body:
            string_at(body, name, "", chars_max=most)
    if "truncation" in body:
        one_of(body["truncation"], ("auto", "disabled"), "truncation")
    if "stream_options" in body and not body.get("stream"):
        message = "The 'stream_options' parameter is only allowed when 'stream' is enabled."
        refuse(message, code="invalid_value", param="stream_options")
    if not isinstance(body.get("include", []), list):
        refuse_type(body["include"], "an array", "include")
    for place, name in enumerate(body.get("include", ())):
        one_of(name, _INCLUDES, f"include[{place}]")
    if "metadata" in body:
        _check_metadata(object_at(body["metadata"], "metadata"))


def _check_metadata(metadata: dict[str, Any]) -> None:
    if len(metadata) > 16:
        message = (
            f"Invalid 'metadata': too many properties. Expected an object with at most 16, but got {len(metadata)}."
        )
        refuse(message, code="object_above_max_properties", param="metadata")
    for name in metadata:
        string_at({"key": name}, "key", "metadata", chars_max=64)
        string_at(metadata, name, "metadata", chars_max=512)


def _check_limits(body: dict[str, Any], facts: ModelFacts) -> None:
    if "max_output_tokens" not in body:
        return
    most = body["max_output_tokens"]
    if not isinstance(most, int) or isinstance(most, bool):
        refuse_type(most, "an integer", "max_output_tokens")
    invalid = "Invalid 'max_output_tokens': integer"
    if most < OUTPUT_TOKENS_MIN:
        message = f"{invalid} below minimum value. Expected a value >= {OUTPUT_TOKENS_MIN}, but got {most} instead."
        refuse(message, code="integer_below_min_value", param="max_output_tokens")
    if facts.known and most > facts.max_output:
        message = f"{invalid} above maximum value. Expected a value <= {facts.max_output}, but got {most} instead."
        refuse(message, code="integer_above_max_value", param="max_output_tokens")


def _check_reasoning(body: dict[str, Any], model: str, facts: ModelFacts) -> None:
    reasons = bool(facts.thinking) or not facts.known
    for name in ("temperature", "top_p"):
        if name in body and facts.thinking:
            _refuse_parameter(name)
    if not reasons and "reasoning.encrypted_content" in body.get("include", ()):
        refuse("Encrypted content is not supported with this model.", param="include")
    if "reasoning" not in body:
        return
    reasoning = object_at(body["reasoning"], "reasoning")
    closed(reasoning, {"effort", "summary", "generate_summary", "context", "mode"}, "reasoning")
    if reasoning.get("summary") is not None:
        one_of(reasoning["summary"], ("auto", "concise", "detailed"), "reasoning.summary")
    if reasoning.get("context") is not None:
        one_of(reasoning["context"], ("auto", "current_turn", "all_turns"), "reasoning.context")
    for name, value in reasoning.items():
        if not reasons and value is not None:
            _refuse_parameter(f"reasoning.{name}")
    if reasoning.get("effort") is not None:
        effort = one_of(reasoning["effort"], _EFFORTS, "reasoning.effort")
        levels = ["none" if level == "off" else level for level in facts.thinking]
        if facts.known and effort not in levels:
            named = ", ".join(f"'{level}'" for level in levels)
            message = f"Unsupported value: '{effort}' is not supported with the '{model}' model."
            refuse(f"{message} Supported values are: {named}.", code="unsupported_value", param="reasoning.effort")


def _refuse_parameter(name: str) -> None:
    message = f"Unsupported parameter: '{name}' is not supported with this model."
    refuse(message, code="unsupported_parameter", param=name)


def _check_tools(body: dict[str, Any]) -> list[str]:
    if "tools" not in body:
        return []
    names: list[str] = []
    for place, tool in enumerate(list_at(body["tools"], "tools")):
        path = f"tools[{place}]"
        tool = object_at(tool, path)
        string_at(tool, "type", path)
        one_of(tool["type"], ("function",), f"{path}.type")
        name = string_at(tool, "name", path, chars_max=64)
        closed(tool, {"type", "name", "description", "parameters", "strict", "defer_loading"}, path)
        if not re.fullmatch(r"[a-zA-Z0-9_-]+", name):
            pattern = "Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
            message = f"Invalid '{path}.name': string does not match pattern. {pattern}"
            refuse(message, code="invalid_value", param=f"{path}.name")
        if tool.get("description") is not None:
            string_at(tool, "description", path)
        strict = tool.get("strict")
        if strict is not None and not isinstance(strict, bool):
            refuse_type(strict, "a boolean", f"{path}.strict")
        # Left out, the schema is taken as one that should be strict.
        check_schema(tool.get("parameters"), name, f"{path}.parameters", strict=strict is not False)
        names.append(name)
    if len(set(names)) != len(names):
        refuse("Tool names must be unique.", code="invalid_value", param="tools")
    return names


def _check_tool_choice(body: dict[str, Any], names: list[str]) -> None:
    if "tool_choice" not in body:
        return
    choice = body["tool_choice"]
    if not names:
        refuse("Tool choice is only allowed when 'tools' are specified.", param="tool_choice")
    if not isinstance(choice, dict):
        one_of(choice, ("none", "auto", "required"), "tool_choice")
        return
    string_at(choice, "type", "tool_choice")
    kind = one_of(choice["type"], ("function", "allowed_tools"), "tool_choice.type")
    allowed = choice.get("tools") if kind == "allowed_tools" else [choice]
    closed(choice, {"type", "name"} if kind == "function" else {"type", "mode", "tools"}, "tool_choice")
    for tool in list_at(allowed, "tool_choice.tools"):
        name = string_at(object_at(tool, "tool_choice.tools"), "name", "tool_choice")
        if name not in names:
            refuse(f"Tool choice '{name}' not found in 'tools' parameter.", param="tool_choice")


def _check_input(body: dict[str, Any]) -> None:
    if "previous_response_id" in body:
        named = body["previous_response_id"]
        message = f"Previous response with id '{named}' not found."
        refuse(message, code="previous_response_not_found", param="previous_response_id")
    if "conversation" in body:
        refuse("Conversation not found.", param="conversation", status=404)
    told = body.get("input")
    if not told:
        refuse(_NOTHING_TO_DO, code="missing_required_parameter", param="input")
    if isinstance(told, str):
        return
    if not isinstance(told, list):
        refuse_type(told, "a string or array", "input")
    for place, item in enumerate(told):
        check_item(item, f"input[{place}]")
    check_order(told)
