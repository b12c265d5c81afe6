"""What servers of the Chat wire refuse, as pure functions: the request around its messages and tools.

The emulator asks here before it answers, and tests ask directly. A refusal carries the real status, type, code and
wording where they are known.
"""

import re
from collections.abc import Mapping
from typing import Any

import orjson

from agents.providers.models import facts_of
from tests.emulators.models.chat.habits import HABITS, Habits
from tests.emulators.models.chat.message_rules import check_messages
from tests.emulators.models.chat.reasoning_rules import check_reasoning
from tests.emulators.models.chat.refusing import (
    missing,
    mistyped,
    need_object,
    need_text,
    only,
    refuse,
    too_long,
    unsupported_value,
)
from tests.emulators.models.chat.tool_rules import check_tools
from tests.emulators.models.server import Refusal

_MEMBERS = frozenset(
    """
    model messages audio frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens
    metadata modalities moderation n parallel_tool_calls prediction presence_penalty prompt_cache_key
    prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier
    stop store stream stream_options temperature tool_choice tools top_logprobs top_p user verbosity web_search_options
    """.split()  # noqa: SIM905 - forty lines otherwise
)
_EFFORTS = ["none", "minimal", "low", "medium", "high", "xhigh"]
_REASONING = re.compile(r"gpt-[56].*|o\d.*")
_UNARMED = re.compile(r"gpt-5\.[4-9].*|gpt-6.*")
"""Models that take no tools on this wire while they reason."""


def check_headers(headers: Mapping[str, str], habits: Habits, api_key: str | None = None) -> None:
    """Raises `Refusal`. Names in lower case; with `api_key` only that key is let in."""
    key = headers.get("authorization", "").removeprefix("Bearer ").strip()
    if habits.name == "azure":
        key = headers.get("api-key", key)
    if not key and not habits.keyless:
        told = "You didn't provide an API key. You need to provide your API key in an Authorization header."
        raise Refusal(401, "invalid_request_error", told)
    if api_key is not None and key != api_key:
        told = "Incorrect API key provided."
        raise Refusal(401, "invalid_request_error", told, code="invalid_api_key")
    if not headers.get("content-type", "").startswith("application/json"):
        refuse("Unsupported content type. This API method only accepts 'application/json' requests")


def parse_body(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises `Refusal` for what is no strict JSON, half an emoji included."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        refuse("We could not parse the JSON body of your request.")
    return need_object(body, "body")


def check_body(body: dict[str, Any], vendor: str) -> None:
    """Everything about a parsed request. Raises `Refusal`."""
    habits = HABITS[vendor]
    if habits.closed:
        only(body, _MEMBERS, "")
    model = need_text(body, "model", "")
    _check_stream(body)
    _check_limit(body, model, habits)
    _check_switch(body, model)
    if habits.closed:
        _check_effort(body, model)
        _check_sampling(body, model)
    check_tools(body, habits, thinks=_thinks(body, habits))
    if "messages" not in body:
        missing("messages")
    check_messages(body["messages"], habits, model)
    check_reasoning(body["messages"], habits, thinks=_thinks(body, habits))
    if "prompt_cache_key" in body and len(need_text(body, "prompt_cache_key", "")) > 64:
        too_long("prompt_cache_key", 64, len(body["prompt_cache_key"]))


def _check_stream(body: dict[str, Any]) -> None:
    if not isinstance(body.get("stream", False), bool):
        mistyped("stream", "a boolean", body["stream"])
    if "stream_options" in body:
        options = need_object(body["stream_options"], "stream_options")
        only(options, frozenset({"include_usage", "include_obfuscation"}), "stream_options")
        if not body.get("stream"):
            refuse("The 'stream_options' parameter is only allowed when 'stream' is enabled.", None, "stream_options")


def _check_limit(body: dict[str, Any], model: str, habits: Habits) -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        if name not in body:
            continue
        limit = body[name]
        if not isinstance(limit, int) or isinstance(limit, bool):
            mistyped(name, "an integer", limit)
        if limit < 1:
            expected = "Expected a value >= 1"
            told = f"Invalid '{name}': integer below minimum value. {expected}, but got {limit} instead."
            refuse(told, "integer_below_min_value", name)
        facts = facts_of(model)
        if facts.known and limit > facts.max_output:
            most = f"This model supports at most {facts.max_output} completion tokens, whereas you provided {limit}."
            refuse(f"{name} is too large: {limit}. {most}", "invalid_value", name)
    if habits.closed and "max_tokens" in body and _REASONING.fullmatch(model):
        told = "Unsupported parameter: 'max_tokens' is not supported with this model."
        refuse(f"{told} Use 'max_completion_tokens' instead.", "unsupported_parameter", "max_tokens")


def _check_switch(body: dict[str, Any], model: str) -> None:
    if "thinking" not in body:
        return
    switch, facts = need_object(body["thinking"], "thinking").get("type"), facts_of(model)
    if switch not in ("enabled", "disabled"):
        unsupported_value("thinking.type", switch, ["enabled", "disabled"])
    if switch == "disabled" and facts.known and "off" not in facts.thinking:
        refuse(f"{model} does not support thinking.type disabled")


def _check_effort(body: dict[str, Any], model: str) -> None:
    """OpenAI's own rules."""
    effort = body.get("reasoning_effort")
    if effort is not None and not _REASONING.fullmatch(model):
        told = "Unsupported parameter: 'reasoning_effort' is not supported with this model."
        refuse(told, "unsupported_parameter", "reasoning_effort")
    facts = facts_of(model)
    if effort is not None and (
        effort not in _EFFORTS or (effort == "none" and facts.known and "off" not in facts.thinking)
    ):
        told = f"Unsupported value: 'reasoning_effort' does not support '{effort}' with this model."
        refuse(told, "unsupported_value", "reasoning_effort")
    if "tools" in body and effort != "none" and _UNARMED.fullmatch(model):
        refuse(
            f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use "
            "function tools, use /v1/responses or set reasoning_effort to 'none'.",
            None,
            "reasoning_effort",
        )


def _check_sampling(body: dict[str, Any], model: str) -> None:
    if not _REASONING.fullmatch(model):
        return
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "stop"):
        if name in body and (name == "stop" or body.get("reasoning_effort") != "none"):
            told = f"Unsupported parameter: '{name}' is not supported with this model."
            refuse(told, "unsupported_parameter", name)


def _thinks(body: dict[str, Any], habits: Habits) -> bool:
    """On, unless it is switched off."""
    switch = body.get("thinking")
    off = isinstance(switch, dict) and switch.get("type") == "disabled"
    return not off and body.get("enable_thinking") is not False and bool(habits.forced or habits.reasoning == "absent")
