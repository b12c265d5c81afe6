"""What every wire does with a request before it is sent: pure, and judged by the emulator's rules."""

import hashlib
import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import AssistantMessage, AssistantPart, Message, Text, Thinking, UserMessage
from agents.providers.catalog import build_provider
from agents.providers.models import Level, facts_of, family_of
from agents.providers.network import NetworkProvider
from agents.providers.provider import ModelRequest, OneTool, SentTurn, System, ToolChoice
from agents.repair import repair
from tests.agents.histories import broken_histories
from tests.agents.providers.contract.bodies import Body, thought
from tests.agents.providers.contract.subjects import SUBJECTS, WIRES, Subject
from tests.agents.providers.requests import LS, PIXEL, READ, asking, assistant, call, result, user
from tools.tool import Image, ToolSpec

WIRE = pytest.mark.parametrize("subject", WIRES.values(), ids=WIRES.keys())
ANY = pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS.keys())
CHOICES: list[ToolChoice] = ["auto", "none", "required", OneTool(name="ls"), OneTool(name="gone")]


def body(subject: Subject, *messages: Message, thinking: Level | None = None, **members: Any) -> Body:
    request = asking(*messages, model=subject.model, **members)
    return subject.body(replace(request, thinking=thinking, max_tokens=8192))  # more than any budget of thought


def _own(subject: Subject, history: Sequence[Message]) -> list[Message]:
    """The histories are Claude's; here its thoughts are this model's."""

    def own(part: AssistantPart, name: str) -> AssistantPart:
        mine = isinstance(part, Thinking) and part.wire is not None and part.wire.api == "anthropic-messages"
        return thought(subject.wire, subject.model, name=name) if mine else part

    return [
        replace(message, content=tuple(own(part, f"rs_{at}_{place}") for place, part in enumerate(message.content)))
        if isinstance(message, AssistantMessage)
        else message
        for at, message in enumerate(history)
    ]


@ANY
@given(
    history=broken_histories,
    tools=st.sampled_from([(), (LS,), (LS, READ)]),
    choice=st.sampled_from(CHOICES),
    level=st.sampled_from([None, "off", "high"]),
    end=st.sampled_from([[user("and now?")], [user("go"), assistant(Text(text="x"), call("now")), result("now")], []]),
)
def test_any_history_is_accepted_once_repaired(
    subject: Subject,
    history: list[Message],
    tools: tuple[ToolSpec, ...],
    choice: ToolChoice,
    level: Level | None,
    end: list[Message],
) -> None:
    facts = facts_of(subject.model)
    repaired = repair(
        [*_own(subject, history), *end],
        api=subject.wire,
        family=family_of(subject.model),
        images_max=20 if facts.vision else 0,
    )
    if repaired and not isinstance(repaired[-1], AssistantMessage):
        body(subject, *repaired, tools=tools, tool_choice=choice, thinking=level if level in facts.thinking else None)


@ANY
def test_every_tool_choice_is_said_or_degraded_at_every_level_of_thought(subject: Subject) -> None:
    for choice, level in itertools.product(CHOICES, (None, *facts_of(subject.model).thinking)):
        body(subject, tool_choice=choice, thinking=level)


def rich(subject: Subject) -> ModelRequest:
    """With everything that this wire has a place for."""
    own = assistant(thought(subject.wire, subject.model), Text(text="So."), call("1"), call("2"))
    picture = Image(media_type="image/png", data=PIXEL, name="a.png")
    seen = replace(result("1"), content=(Text(text="a"), picture))
    question = UserMessage(content=(Text(text="a"), picture), metadata="M")
    history: Sequence[Message] = [question, own, seen, result("2", is_error=True), user("b")]
    if not subject.sees:
        history = repair(history, api=subject.wire, family=family_of(subject.model), images_max=0)
    request = asking(*history, tools=(LS, READ), model=subject.model, tool_choice=OneTool(name="ls"))
    return replace(request, conversation="c")


@ANY
def test_turns_that_were_written_before_are_the_same_bytes(subject: Subject) -> None:
    provider = build_provider(subject.name, subject.config("http://127.0.0.1:9", {}), now=lambda: 0.0)
    assert isinstance(provider, NetworkProvider)
    ids = ("one", "x" * 70, "123456789", "2", "3", "4")
    turns = [
        SentTurn((user("look"), assistant(call(it, "read")), result(it, "中"), assistant(Text(text="seen"))))
        for it in ids
    ]
    for count in range(len(turns) + 1):
        messages = [it for turn in turns for it in turn] + [user("now"), assistant(call("n")), result("n")]
        for members in ({"tools": (LS,)}, {"tools": ()}):
            request = asking(*messages, model=subject.model, **members)
            written = provider._body(replace(request, settled=tuple(turns[:count])))
            assert written == provider._body(request)


@ANY
def test_equal_requests_are_equal_bytes_and_nothing_of_ours_is_changed(subject: Subject) -> None:
    request = rich(subject)
    before = repr(request)
    assert json.dumps(subject.body(request)) == json.dumps(subject.body(request))
    assert repr(request) == before


@WIRE
def test_empty_halves_of_the_system_prompt_are_left_out(subject: Subject) -> None:
    both, late, none = (
        json.dumps(body(subject, tools=(), system=System(stable=stable, volatile=volatile)))
        for stable, volatile in (("ALPHA", "OMEGA"), (" ", "OMEGA"), (" ", ""))
    )
    assert both.index("ALPHA") < both.index("OMEGA")
    assert '"OMEGA"' in late
    assert len(none) < len(late)
    assert not any(empty in none + late for empty in ('""', '" "', "[]", "{}"))


@WIRE
def test_without_tools_neither_tools_nor_a_choice_are_sent(subject: Subject) -> None:
    sent = body(subject, tools=(), tool_choice="required")
    assert not sent.keys() & {"tools", "tool_choice", "toolConfig"}


def _gemini(mode: str, **more: Any) -> Body:
    return {"functionCallingConfig": {"mode": mode} | more}


_FUNCTION = {"type": "function", "function": {"name": "ls"}}
_CHOSEN: dict[str, tuple[Any, Any, Any, Any]] = {
    "anthropic": (None, {"type": "none"}, {"type": "any"}, {"type": "tool", "name": "ls"}),
    "responses": (None, "none", "required", {"type": "function", "name": "ls"}),
    "gemini": (_gemini("AUTO"), _gemini("NONE"), _gemini("ANY"), _gemini("ANY", allowedFunctionNames=["ls"])),
    "mistral": (None, "none", "any", _FUNCTION),
    "openai chat": (None, "none", "required", _FUNCTION),
}
"""How each wire says auto, none, required and this one."""


@pytest.mark.parametrize("name", _CHOSEN)
def test_a_tool_choice_is_said_in_the_wires_own_words(name: str) -> None:
    for choice, sent in zip(CHOICES, (*_CHOSEN[name], _CHOSEN[name][0]), strict=True):
        made = body(SUBJECTS[name], tool_choice=choice, tools=(LS, READ))
        assert made.get("tool_choice", made.get("toolConfig")) == sent, choice


@pytest.mark.parametrize("name", _CHOSEN)
def test_an_agent_that_lost_its_tools_declares_what_its_history_calls(name: str) -> None:
    called = assistant(call("1", "cat"), call("2", "目录"), call("3", "cat"))
    made = body(SUBJECTS[name], user("a"), called, *(result(number) for number in "123"), tools=())
    assert re.findall(r'"name": "([^"]*)"', json.dumps(made["tools"])) == ["cat", "__"]
    assert made.get("tool_choice", made.get("toolConfig")) == _CHOSEN[name][1]


@pytest.mark.parametrize("name", ["responses", "openai chat"])
def test_a_chat_is_named_to_the_cache_without_telling_who_it_is(name: str) -> None:
    request = asking(model=SUBJECTS[name].model)
    key = SUBJECTS[name].body(replace(request, conversation="feishu:张三"))["prompt_cache_key"]
    assert key == hashlib.sha256("feishu:张三".encode()).hexdigest()
    assert "prompt_cache_key" not in SUBJECTS[name].body(request)


@WIRE
def test_a_tool_is_described_by_its_summary_or_else_its_name(subject: Subject) -> None:
    tools = [
        ToolSpec(name=name, summary=summary, description="", input_schema={"type": "object"})
        for name, summary in (("ls", "list"), ("now", ""))
    ]
    sent = json.dumps(body(subject, tools=tools))
    assert '"description": "list"' in sent
    assert '"description": "now"' in sent


@WIRE
@pytest.mark.parametrize(("limit", "sent"), [(99, 99), (500_000, None)])
def test_the_output_limit_is_the_models_own_where_it_is_known(subject: Subject, limit: int, sent: int | None) -> None:
    request = replace(asking(model=subject.model), max_tokens=limit)
    known = facts_of(subject.model)
    assert str(sent or known.max_output) in json.dumps(subject.body(request))
    assert f" {limit}" in json.dumps(subject.body(replace(request, model=_NEW[subject.wire], facts=facts_of("new"))))


_NEW = {
    "anthropic-messages": "claude-new-9",
    "openai-responses": "gpt-unheard-of",
    "google-gemini": "gemini-new",
    "mistral": "ministral-9",
    "openai-chat": "some-model",
}
