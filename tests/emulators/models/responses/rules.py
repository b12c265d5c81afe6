"""What OpenAI's Responses API refuses, as pure functions.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status, type and, where it
decides something, code and words. What an object may hold is in `shapes`; here is what belongs together: calls and
outputs, reasoning and what it led to, models and their settings.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from agents.providers.models import ModelFacts, facts_of
from tests.emulators.models import openai
from tests.emulators.models.dialogue import Dialogue
from tests.emulators.models.openai import refuse
from tests.emulators.models.responses.schema_rules import check_schema
from tests.emulators.models.responses.sealing import is_sealed
from tests.emulators.models.responses.shapes import Request, kind_of

_MODELS = ("gpt-", "o1", "o3", "o4")
_MOVED = frozenset(
    {"messages", "max_tokens", "max_completion_tokens", "response_format", "reasoning_effort", "verbosity", "functions"}
)
"""Names of the Chat wire."""

parse_body = openai.parse_body


def check_headers(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    key = openai.bearer(headers)
    if not key:
        refuse("You didn't provide an API key.", status=401)
    openai.check_key(key, headers, api_key)


def check_body(body: dict[str, Any]) -> None:
    """Everything about a parsed request. Raises `Refusal`."""
    if moved := body.keys() & _MOVED:
        refuse(f"In the Responses API, the parameter '{min(moved)}' has moved.", "unsupported_parameter")
    openai.check_shape(Request, body)
    given = {name: value for name, value in body.items() if value is not None}
    model, facts = given["model"], facts_of(given["model"])
    if not model.startswith(_MODELS):
        message = f"The model `{model}` does not exist or you do not have access to it."
        refuse(message, "model_not_found", "model", status=404)
    if "stream_options" in given and not given.get("stream"):
        refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "invalid_value")
    if facts.known and given.get("max_output_tokens", 0) > facts.max_output:
        refuse(f"Expected a 'max_output_tokens' <= {facts.max_output}", "integer_above_max_value", "max_output_tokens")
    _check_reasoning(given, facts)
    _check_tools(given)
    _check_input(given)


def _check_reasoning(body: dict[str, Any], facts: ModelFacts) -> None:
    reasoning = body.get("reasoning", {})
    reasons = bool(facts.thinking) or not facts.known
    settings = [name for name in ("temperature", "top_p") if name in body] if facts.thinking else []
    settings += [name for name, value in reasoning.items() if value is not None] if not reasons else []
    if settings:
        refuse(f"Unsupported parameter: '{settings[0]}' is not supported with this model.", "unsupported_parameter")
    if not reasons and "reasoning.encrypted_content" in body.get("include", ()):
        refuse("Encrypted content is not supported with this model.", None, "include")
    effort = reasoning.get("effort")
    if effort is not None and facts.known and ("off" if effort == "none" else effort) not in facts.thinking:
        refuse(f"The effort '{effort}' is not supported with this model.", "unsupported_value", "reasoning.effort")


def _check_tools(body: dict[str, Any]) -> None:
    names = [tool["name"] for tool in body.get("tools", ())]
    for place, tool in enumerate(body.get("tools", ())):
        # Left out, the schema is taken as one that should be strict.
        strict = tool.get("strict") is not False
        check_schema(tool.get("parameters"), tool["name"], f"tools[{place}].parameters", strict=strict)
    if len(set(names)) != len(names):
        refuse("Tool names must be unique.", "invalid_value", "tools")
    choice = body.get("tool_choice", {})
    if "tool_choice" in body and not names:
        refuse("Tool choice is only allowed when 'tools' are specified.", None, "tool_choice")
    allowed = choice.get("tools", [choice]) if isinstance(choice, dict) and choice else []
    if missing := [tool["name"] for tool in allowed if tool["name"] not in names]:
        refuse(f"Tool choice '{missing[0]}' not found in 'tools' parameter.", None, "tool_choice")


def _check_input(body: dict[str, Any]) -> None:
    if "previous_response_id" in body:
        refuse("Previous response not found.", "previous_response_not_found", "previous_response_id")
    if "conversation" in body:
        refuse("Conversation not found.", None, "conversation", status=404)
    items = body.get("input")
    if not items:
        refuse('One of "input" or "previous_response_id" must be provided.', "missing_required_parameter", "input")
    if isinstance(items, str):
        return
    ids = [item["id"] for item in items if "id" in item]
    dialogue = Dialogue(refuse, unique_ids=True)
    for item, following in zip(items, [*items[1:], None], strict=True):
        match kind_of(item):
            case "function_call":
                dialogue.call(item["call_id"])
            case "function_call_output":
                dialogue.result(item["call_id"])
            case "message":  # of anybody but the model
                dialogue.close()
            case "reasoning":
                _check_sealed(item)
                if kind_of(following) not in ("function_call", "reasoning", "assistant"):
                    refuse(f"Item '{item['id']}' of type 'reasoning' was provided without its required following item.")
            case "item_reference":
                _refuse_unstored(item)
    dialogue.close()
    if len(set(ids)) != len(ids):
        refuse("Duplicate item found. Remove duplicate items from your input and try again.", None, "input")


def _check_sealed(item: dict[str, Any]) -> None:
    content = item.get("encrypted_content")
    if content is None:
        _refuse_unstored(item)
    elif not is_sealed(item["id"], item["summary"], content):
        refuse("The encrypted content could not be verified.", "invalid_encrypted_content")


def _refuse_unstored(item: dict[str, Any]) -> None:
    """The emulator stores nothing, whatever the request said."""
    message = f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is set to false."
    refuse(message, None, "input", status=404)


def led_by(items: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Of an answer: the id of each item that reasoning led to, with that of the reasoning."""
    before: Mapping[str, Any] = {}
    for item in items:
        if before.get("type") == "reasoning" and item["type"] in ("function_call", "message"):
            yield item["id"], before["id"]
        before = item


def check_led(items: list[dict[str, Any]], led: Mapping[str, str]) -> None:
    """An item that is named by its id needs the reasoning that led to it. Raises `Refusal`."""
    before: dict[str, Any] = {}
    for item in items:
        reasoning = led.get(item.get("id", ""))
        if reasoning is not None and before.get("id") != reasoning:
            refuse(f"Item '{item['id']}' was provided without its required 'reasoning' item: '{reasoning}'.")
        before = item
