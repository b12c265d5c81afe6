"""The emulator refuses what Anthropic refuses, with the same status and words, and streams what it streams."""

from typing import Any

import pytest

from tests.agents.providers.requests import MODEL, PIXEL, without
from tests.emulators.models.anthropic.rules import check_body
from tests.emulators.models.anthropic.script import thinking_block
from tests.emulators.models.server import Refusal

MARK = {"type": "ephemeral"}
TOOL: dict[str, Any] = {"name": "ls", "description": "List.", "input_schema": {"type": "object", "properties": {}}}


def use(call_id: str = "a", **members: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "ls", "input": {}} | members


def answer(call_id: str = "a", **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"} | members


def text(words: str = "hi", **members: Any) -> dict[str, Any]:
    return {"type": "text", "text": words} | members


def image(**source: Any) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL} | source}


def talk(*contents: Any, **members: Any) -> dict[str, Any]:
    """A request whose messages alternate, beginning with the user."""
    roles = ["user", "assistant"] * len(contents)
    messages = [{"role": role, "content": content} for role, content in zip(roles, contents, strict=False)]
    return {"model": MODEL, "max_tokens": 100, "messages": messages, "tools": [TOOL]} | members


BUDGET: dict[str, Any] = {"thinking": {"type": "enabled", "budget_tokens": 2000}, "max_tokens": 8192}
OLD = "claude-haiku-4-5"
LOOP = talk("go", [text(), use("a"), use("b")], [answer("a"), answer("b", is_error=True)])

REFUSED: list[dict[str, Any]] = [
    talk("go", [text(), use()], [answer()], model=OLD, **BUDGET),
    talk("hi", **BUDGET),
    talk("hi", model=OLD, **BUDGET | {"max_tokens": 2000}),
    talk("hi", model=OLD, **BUDGET | {"tool_choice": {"type": "any"}}),
    talk("hi", model=OLD, thinking={"type": "adaptive"}),
    talk("hi", model="claude-fable-5-1", thinking={"type": "disabled"}),
    talk("hi", model="claude-opus-5", thinking={"type": "between_tools"}),
    talk("hi", model=OLD, output_config={"effort": "low"}),
    talk("hi", max_tokens=999999),
    talk(""),
    talk("hi", [], "go"),
    {**talk(), "messages": [{"role": "assistant", "content": "x"}]},
    talk("go", [use("a"), use("b")], [answer("a")]),
    talk("go", [use()], [text(), answer()]),
    talk("go", [use()], [answer(), answer()]),
    talk("go", [use()], [answer()], [use()], [answer()]),
    talk("go", [use()], [answer(is_error=True, content="")]),
    talk("go", [use()], [answer(is_error=True, content=[image()])]),
    talk("hi", tools=[TOOL, TOOL]),
    talk("hi", tools=[TOOL | {"input_schema": {}}]),
    talk("hi", tools=[TOOL | {"input_schema": {"type": "object", "anyOf": []}}]),
    talk("hi", tools=[TOOL | {"input_schema": {"type": "object", "properties": {"a": {"type": "text"}}}}]),
    without(talk("hi", tool_choice={"type": "auto"}), "tools"),
    talk("hi", tool_choice={"type": "tool", "name": "rm"}),
    talk("hi", tool_choice={"type": "any"}, model="claude-opus-5-5"),
    without(LOOP, "tools"),
    talk("hi", "Well,"),
    talk("hi", "Well, ", model=OLD),
    talk([text(cache_control=MARK)] * 5),
    talk([text(cache_control=MARK), text(cache_control=MARK | {"ttl": "1h"})]),
    talk("go", [thinking_block("x") | {"thinking": "y"}, use()], [answer()]),
    talk("go", [text(), thinking_block("x")], "go on"),
    talk([image(media_type="image/jpeg")]),
    talk([image(data="A" * 6000000)]),
]


@pytest.mark.parametrize("body", REFUSED, ids=range(len(REFUSED)))
def test_refused(body: dict[str, Any]) -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(body)
    assert (refusal.value.status, refusal.value.type) == (400, "invalid_request_error")


def test_a_model_that_does_not_exist() -> None:
    with pytest.raises(Refusal) as refusal:
        check_body(talk("hi", model="gpt-4"))
    assert (refusal.value.status, refusal.value.type) == (404, "not_found_error")
