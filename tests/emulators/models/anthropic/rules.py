"""What Anthropic's Messages API refuses, as pure functions.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status and type. What an
object may hold is in `shapes`; here is what belongs together: calls and results, thinking and models, cache marks.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from agents.providers.models import ModelFacts, facts_of
from tests.emulators.models.anthropic.shapes import Request
from tests.emulators.models.dialogue import Dialogue
from tests.emulators.models.server import Refusal
from tests.emulators.models.shapes import fault_of, parsed, schema_fault, words_of

BODY_BYTES_MAX = 32 * 1024 * 1024
VERSIONS = frozenset({"2023-01-01", "2023-06-01", "2026-10-21"})
MARKS_MAX = 4


def refuse(message: str) -> NoReturn:
    raise Refusal(400, "invalid_request_error", message)


def check_headers(headers: Mapping[str, str], api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    key = headers.get("x-api-key", "") or headers.get("authorization", "").removeprefix("Bearer ")
    if not key.strip():
        raise Refusal(401, "authentication_error", "x-api-key header is required")
    if api_key is not None and key != api_key:
        raise Refusal(401, "authentication_error", "invalid x-api-key")
    if headers.get("anthropic-version") not in VERSIONS:
        refuse("anthropic-version: a valid version is required")
    if not headers.get("content-type", "").startswith("application/json"):
        refuse("Content-Type must be application/json")


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is too large or no strict JSON."""
    if len(raw) > BODY_BYTES_MAX:
        raise Refusal(413, "request_too_large", "Request exceeds the maximum size")
    body = parsed(raw)
    return refuse(body) if isinstance(body, str) else body


def check_body(body: dict[str, Any]) -> None:
    """Everything about a parsed request. Raises `Refusal`."""
    if fault := fault_of(Request, body):
        refuse(words_of(fault))
    model, messages = body["model"], body["messages"]
    if not model.startswith("claude-"):
        raise Refusal(404, "not_found_error", f"model: {model}")
    facts = facts_of(model)
    if facts.known and body["max_tokens"] > facts.max_output:
        refuse(f"max_tokens: {body['max_tokens']} > {facts.max_output}, the maximum allowed for {model}")
    _check_tools(body, facts)
    _check_dialogue(messages, has_tools="tools" in body)
    _check_end(messages, facts)
    _check_thinking(body, facts)
    _check_marks(body)


def _check_tools(body: dict[str, Any], facts: ModelFacts) -> None:
    names = [tool["name"] for tool in body.get("tools", ())]
    if len(set(names)) != len(names):
        refuse("tools: Tool names must be unique.")
    for tool in body.get("tools", ()):
        schema = tool["input_schema"]
        if schema.get("type") != "object" or schema.keys() & {"oneOf", "anyOf", "allOf"}:
            refuse("input_schema: an object without oneOf, allOf, or anyOf at the top level")
        if fault := schema_fault(schema, items=False):
            refuse(f"tools.{tool['name']}: JSON schema is invalid: {fault}")
    if "tool_choice" not in body:
        return
    choice = body["tool_choice"]
    if choice is None or not names:
        refuse("tool_choice: may only be specified while providing tools.")
    if choice["type"] in ("any", "tool") and not facts.forced_tool:
        refuse('tool_choice: type "tool" and "any" are not supported for this model')
    if choice["type"] == "tool" and choice["name"] not in names:
        refuse(f"tool_choice: Tool '{choice['name']}' not found in provided tools")


def _check_dialogue(messages: list[dict[str, Any]], *, has_tools: bool) -> None:
    """The results of one answer lead the very next user message. Messages of one role in a row are one."""
    dialogue = Dialogue(refuse, unique_ids=True)
    if messages[0]["role"] != "user":
        refuse('messages: first message must use the "user" role')
    if not all(message["content"] for message in messages[:-1]):
        refuse("messages: all must have non-empty content except for the optional final assistant message")
    speaker = "user"
    for message in messages:
        if message["role"] == "assistant" and speaker == "user":
            dialogue.close()
        speaker = message["role"]
        for block in blocks_of(message):
            if block["type"] in ("tool_use", "tool_result") and not has_tools:
                refuse("Requests which include `tool_use` or `tool_result` blocks must define tools.")
            if block["type"] == "tool_use":
                dialogue.call(block["id"])
            elif block["type"] == "tool_result":
                dialogue.result(block["tool_use_id"])
            elif speaker == "user":
                dialogue.close()
        if speaker == "assistant" and _is_thought(blocks_of(message)[-1:]):
            refuse("The final block in an assistant message cannot be `thinking`.")
    dialogue.close()


def _is_thought(blocks: list[dict[str, Any]]) -> bool:
    """Whether the first of these blocks is thinking."""
    return bool(blocks) and blocks[0]["type"] in ("thinking", "redacted_thinking")


def _check_end(messages: list[dict[str, Any]], facts: ModelFacts) -> None:
    if messages[-1]["role"] == "user":
        return
    last = next(reversed(blocks_of(messages[-1])), {"type": ""})
    if last["type"] in ("server_tool_use", "web_search_tool_result"):
        return  # a paused turn is sent back to be continued
    if not facts.prefill:
        refuse("This model does not support assistant message prefill. The conversation must end with a user message.")
    if last["type"] == "text" and last["text"] != last["text"].rstrip():
        refuse("messages: final assistant content cannot end with trailing whitespace")


def _check_thinking(body: dict[str, Any], facts: ModelFacts) -> None:
    effort = body.get("output_config", {}).get("effort")
    if effort is not None and (facts.thinking_style == "budget" or effort not in facts.thinking):
        refuse(f"output_config.effort: '{effort}' is not supported for this model")
    if "thinking" not in body:
        return
    kind, style = (body["thinking"] or {}).get("type", ""), facts.thinking_style or "adaptive"
    supported = {
        "enabled": style == "budget",
        "adaptive": style != "budget",
        "between_tools": style == "between_tools",
        "disabled": style not in ("always", "between_tools"),
    }
    if not supported.get(kind):
        refuse(f'"thinking.type.{kind}" is not supported for this model.')
    if kind != "enabled":
        return
    if body["thinking"]["budget_tokens"] >= body["max_tokens"]:
        refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        refuse("Thinking may not be enabled when tool_choice forces tool use.")
    _check_led_by_thinking(body["messages"])


def _check_led_by_thinking(messages: list[dict[str, Any]]) -> None:
    """The answers of the running tool turn each begin with their thinking."""
    for message in reversed(messages):
        blocks = blocks_of(message)
        if message["role"] == "user":
            if not any(block["type"] == "tool_result" for block in blocks):
                return
        elif not _is_thought(blocks):
            first = blocks[0]["type"] if blocks else "text"
            refuse(f"Expected `thinking` or `redacted_thinking`, but found `{first}`, when `thinking` is enabled")


def _check_marks(body: dict[str, Any]) -> None:
    """In the order of the prefix: tools, system, messages."""
    lengths = [mark.get("ttl", "5m") for key in ("tools", "system", "messages") for mark in _marks(body.get(key))]
    lengths += [mark.get("ttl", "5m") for mark in (body.get("cache_control"),) if mark]
    if len(lengths) > MARKS_MAX:
        refuse(f"A maximum of 4 blocks with cache_control may be provided. Found {len(lengths)}.")
    if "5m" in lengths and "1h" in lengths[lengths.index("5m") :]:
        refuse("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")


def _marks(value: Any) -> Iterator[dict[str, Any]]:
    """Every cache mark inside, in order. Tool arguments and schemas are data and are not looked into."""
    for item in value if isinstance(value, list) else ():
        yield from _marks(item.get("content"))
        if item.get("cache_control") is not None:
            yield item["cache_control"]


def blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message["content"]
    return [{"type": "text", "text": content}] if isinstance(content, str) else content
