"""Thinking on Claude: what each model is asked, and what the emulated server refuses as the real one does."""

from dataclasses import replace
from typing import Any

import pytest

from agents.messages import Message, Text, Thinking, Wire
from agents.providers.anthropic.request import wire_request
from agents.providers.models import Level, facts_of
from agents.providers.provider import OneTool
from tests.agents.providers.requests import asking, assistant, call, result, user
from tests.emulators.models.anthropic.rules import check_body
from tests.emulators.models.anthropic.script import thinking_block

OLD = "claude-haiku-4-5"
MODELS = [
    "claude-fable-5-1",
    "claude-opus-5-5",
    "claude-sonnet-5-5",
    "claude-opus-5",
    "claude-sonnet-4-6",
    "claude-haiku-4-5",
]


def body(model: str, level: Level | None, *messages: Message, **more: Any) -> dict[str, Any]:
    request = replace(asking(*messages, model=model), thinking=level, max_tokens=8192, **more)
    made = wire_request(request)
    check_body(made)
    return {key: made[key] for key in ("thinking", "output_config") if key in made}


@pytest.mark.parametrize(
    ("model", "level", "sent"),
    [
        ("claude-sonnet-4-6", None, {}),
        ("claude-sonnet-4-6", "off", {"thinking": {"type": "disabled"}}),
        ("claude-sonnet-5-5", "off", {"thinking": {"type": "between_tools"}}),
        ("claude-opus-5-5", "low", {"output_config": {"effort": "low"}}),
        (
            "claude-opus-5",
            "max",
            {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}},
        ),
        ("claude-haiku-4-5", "off", {}),
        ("claude-haiku-4-5", "medium", {"thinking": {"type": "enabled", "budget_tokens": 3276}}),
    ],
)
def test_each_model_is_asked_in_its_own_way(model: str, level: Level | None, sent: dict[str, Any]) -> None:
    assert body(model, level) == sent


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("choice", ["auto", "required", OneTool(name="ls")], ids=str)
def test_every_level_a_model_takes_is_accepted_with_every_choice(model: str, choice: Any) -> None:
    for level in (None, *facts_of(model).thinking):
        body(model, level, tool_choice=choice)


def test_a_turn_begun_without_thinking_goes_on_without_it_where_a_budget_would_be_refused() -> None:
    history = (user("hi"), assistant(Text(text="Looking."), call("a")), result("a"))
    assert body("claude-haiku-4-5", "high", *history) == {}
    own = Thinking(
        text="hm",
        wire=Wire(api="anthropic-messages", family="claude-haiku-4-5", kind="thinking", data=thinking_block("hm")),
    )
    thought = replace(history[1], content=(own, *history[1].content))
    assert "thinking" in body("claude-haiku-4-5", "high", history[0], thought, history[2])


def test_a_budget_needs_room_for_an_answer() -> None:
    request = replace(asking(model="claude-haiku-4-5"), thinking="low", max_tokens=1024)
    assert "thinking" not in wire_request(request)
