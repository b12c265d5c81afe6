"""What of the past is shown: whole turns, the newest, without their metadata."""

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.completion import fitting
from agents.messages import Message
from agents.tokens import tokens
from tests.agents.providers.requests import assistant, call, result, user


def turn(text: str) -> list[Message]:
    return [user(text, metadata="## Inbound Context"), assistant(call("c")), result("c", text)]


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
