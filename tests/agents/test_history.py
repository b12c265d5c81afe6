"""What of the past is shown: whole turns, the newest, without their metadata."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.completion import fitting
from agents.messages import AssistantMessage, Message, Text, ToolCall, ToolResultMessage, UserMessage
from agents.tokens import tokens


def turn(text: str) -> list[Message]:
    call = ToolCall(id="c", name="ls", arguments={}, arguments_raw="{}")
    asked = AssistantMessage(content=(call,), provider="p", model="m", api="a", stop_reason="tool_use")
    return [
        UserMessage(content=(Text(text=text),), metadata="## Inbound Context"),
        asked,
        ToolResultMessage(call_id="c", tool="ls", content=(Text(text=text),)),
    ]


@given(st.lists(st.text(alphabet="a中", max_size=50), max_size=12), st.integers(0, 400))
@settings(max_examples=150, deadline=None)
def test_the_newest_turns_that_fit_are_kept_whole_and_in_order(texts: list[str], budget: int) -> None:
    turns = [turn(text) for text in texts]
    kept = fitting(turns, budget)
    assert sum(map(tokens, kept)) <= max(budget, 0)
    count = len(kept) // 3
    assert kept == [message for each in turns[len(turns) - count :] for message in each]
    if count < len(turns):
        assert sum(map(tokens, kept)) + sum(map(tokens, turns[len(turns) - count - 1])) > budget
