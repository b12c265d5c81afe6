"""What Anthropic's Messages API refuses about `thinking` and `effort`, model by model. Pure; raises `Refusal`."""

from typing import Any

from agents.providers.models import ModelFacts
from tests.emulators.models.anthropic.block_rules import closed, refuse

BUDGET_MIN = 1024
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
_MEMBERS = {
    "enabled": {"type", "budget_tokens", "display"},
    "adaptive": {"type", "display"},
    "disabled": {"type"},
    "between_tools": {"type"},
}


def check_thinking(body: dict[str, Any], facts: ModelFacts) -> None:
    """`messages` are taken as sound already."""
    _check_effort(body, facts)
    if "thinking" not in body:
        return
    thinking = body["thinking"]
    kind = thinking.get("type") if isinstance(thinking, dict) else None
    if not isinstance(kind, str) or kind not in _MEMBERS:
        refuse(
            "thinking: Input tag does not match any of the expected tags: " + ", ".join(f"'{it}'" for it in _MEMBERS)
        )
    closed(thinking, _MEMBERS[kind], f"thinking.{kind}")
    if thinking.get("display", "summarized") not in ("summarized", "omitted"):
        refuse(f"thinking.{kind}.display: Input should be 'summarized' or 'omitted'")
    style = facts.thinking_style or "adaptive"
    if kind == "enabled":
        _check_budget(body, thinking, style)
    elif kind == "adaptive" and style == "budget":
        refuse("adaptive thinking is not supported on this model")
    elif kind == "between_tools" and style != "between_tools":
        refuse('"thinking.type.between_tools" is not supported for this model.')
    elif kind == "disabled" and style in ("always", "between_tools"):
        refuse('"thinking.type.disabled" is not supported for this model.')


def _check_effort(body: dict[str, Any], facts: ModelFacts) -> None:
    if "output_config" not in body:
        return
    closed(body["output_config"], {"effort", "format"}, "output_config")
    effort = body["output_config"].get("effort", "high")
    if not isinstance(effort, str) or effort not in _EFFORTS:
        refuse("output_config.effort: Input should be " + ", ".join(f"'{it}'" for it in sorted(_EFFORTS)))
    if "effort" in body["output_config"] and (facts.thinking_style == "budget" or effort not in facts.thinking):
        refuse(f"output_config.effort: '{effort}' is not supported for this model")


def _check_budget(body: dict[str, Any], thinking: dict[str, Any], style: str) -> None:
    if style != "budget":
        refuse(
            '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive" and '
            '"output_config.effort" to control thinking behavior.'
        )
    budget = thinking.get("budget_tokens")
    if not isinstance(budget, int) or isinstance(budget, bool) or budget < BUDGET_MIN:
        refuse(f"thinking.enabled.budget_tokens: Input should be greater than or equal to {BUDGET_MIN}")
    if budget >= body["max_tokens"]:
        refuse("`max_tokens` must be greater than `thinking.budget_tokens`.")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") in ("any", "tool"):
        refuse("Thinking may not be enabled when tool_choice forces tool use.")
    _check_led_by_thinking(body["messages"])


def _check_led_by_thinking(messages: list[dict[str, Any]]) -> None:
    """The answers of the running tool turn each begin with their thinking."""
    for number in range(len(messages) - 1, -1, -1):
        content = messages[number]["content"]
        blocks = content if isinstance(content, list) else []
        if messages[number]["role"] == "user":
            if not any(block["type"] == "tool_result" for block in blocks):
                return
            continue
        first = blocks[0]["type"] if blocks else "text"
        if first not in ("thinking", "redacted_thinking"):
            refuse(
                f"messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. "
                "When `thinking` is enabled, a final `assistant` message must start with a thinking block"
            )
