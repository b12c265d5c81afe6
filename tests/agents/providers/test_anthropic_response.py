"""Putting a stream together: arguments, halves of emoji, and servers that do it their own way."""

from typing import Any

import pytest

from agents.messages import AssistantMessage
from agents.providers.anthropic.response import AnthropicAssembly
from agents.providers.errors import BadStream
from agents.providers.provider import ModelEvent


def assemble(*events: dict[str, Any], stop: str = "end_turn") -> tuple[list[ModelEvent], AssistantMessage]:
    assembly = AnthropicAssembly(provider="anthropic", model="claude-sonnet-4-6", timestamp=0.0)
    end: list[dict[str, Any]] = [{"type": "message_delta", "delta": {"stop_reason": stop}}, {"type": "message_stop"}]
    pieces = [piece for event in [*events, *end] for piece in assembly.feed(event)]
    return pieces, assembly.finish()


def opened(block: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(change: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": change}


def test_half_an_emoji_alone_is_replaced() -> None:
    _, message = assemble(opened({"type": "text", "text": "x\ude42y\0"}))
    assert message.text == "x\ufffdy\ufffd"


def test_a_server_that_sends_the_input_at_once_is_understood() -> None:
    block = {"type": "tool_use", "id": "a", "name": "ls", "input": {"path": "."}}
    _, message = assemble(opened(block), {"type": "content_block_stop", "index": 0})
    assert (message.calls[0].arguments, message.stop_reason) == ({"path": "."}, "tool_use")


def test_a_call_without_id_or_name_can_still_be_answered() -> None:
    _, message = assemble(opened({"type": "tool_use"}), {"type": "content_block_stop", "index": 0})
    assert message.calls[0].id
    assert message.calls[0].name == ""


def test_a_block_left_open_is_closed_by_the_end() -> None:
    _, message = assemble(opened({"type": "tool_use", "id": "a", "name": "ls", "input": {}}))
    assert message.calls[0].arguments == {}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_start", "index": 0},
        {"type": "content_block_start", "content_block": {"type": "text"}},
        {"type": "content_block_start", "index": True, "content_block": {"type": "text"}},
        {"type": "content_block_delta", "index": 5, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_stop"},
        {"type": "message_start"},
        {"type": "message_delta", "delta": None},
    ],
)
def test_what_is_plainly_broken_is_no_answer(event: dict[str, Any]) -> None:
    with pytest.raises(BadStream):
        assemble(event)


def test_without_the_end_event_there_is_no_answer() -> None:
    assembly = AnthropicAssembly(provider="anthropic", model="claude-sonnet-4-6", timestamp=0.0)
    list(assembly.feed(opened({"type": "text", "text": "looks whole"})))
    with pytest.raises(BadStream, match="message_stop"):
        assembly.finish()


def test_nonsense_in_usage_counts_as_nothing() -> None:
    start = {"type": "message_start", "message": {"id": 7, "usage": {"input_tokens": "many", "output_tokens": -1}}}
    _, message = assemble(start)
    assert (message.usage.input, message.usage.output, message.response_id) == (0, 0, None)
