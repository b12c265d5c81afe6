"""What of the past the model is shown: whole turns, newest first, as far as the window goes.

Finished turns hold the plain body and the tool traffic; the metadata blocks belong to the running turn alone. A turn is
kept or left out as a whole, so calls and results are never cut apart. Summaries of what is left out are not made here.
"""

from collections.abc import Sequence
from dataclasses import replace

from agents.messages import Message, UserMessage
from agents.tokens import tokens


def plain(turn: Sequence[Message]) -> list[Message]:
    """A finished turn without its metadata blocks."""
    return [replace(message, metadata="") if isinstance(message, UserMessage) else message for message in turn]


def fitting(turns: Sequence[Sequence[Message]], budget_tokens: int) -> list[Message]:
    """The newest of `turns` (oldest first) that fit into the budget together, as one list of messages."""
    kept: list[Sequence[Message]] = []
    for turn in reversed(turns):
        budget_tokens -= sum(tokens(message) for message in turn)
        if budget_tokens < 0:
            break
        kept.append(turn)
    return [message for turn in reversed(kept) for message in turn]
