"""What of the past the model is shown: whole turns, newest first, as far as the window goes.

Finished turns hold the plain body and the tool traffic; the metadata blocks belong to the running turn alone. A turn is
kept or left out as a whole, so calls and results are never cut apart. Summaries of what is left out are not made here.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from agents.messages import Message, Opaque, Text, Thinking, ToolCall, UserMessage
from tools.tool import Image

IMAGE_TOKENS = 1_500
_CJK = re.compile(r"[⺀-鿿가-힣豈-﫿︰-﹏＀-￯\U00020000-\U0003ffff]")


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


def tokens(message: Message) -> int:
    """A safe estimate: 1.0 a CJK character, 1 per 3.5 others; a picture counts 1,500 flat, never its base64."""
    total = 0.0
    for part in message.content:
        match part:
            case Text(text=text) | Thinking(text=text):
                total += _estimate(text)
            case ToolCall(arguments_raw=text):
                total += _estimate(text)
            case Image():
                total += IMAGE_TOKENS
            case Opaque():
                total += _estimate(str(part.wire.data))
    if isinstance(message, UserMessage):
        total += _estimate(message.metadata)
    return int(total) + 4


def _estimate(text: str) -> float:
    wide = 0 if text.isascii() else len(_CJK.findall(text))
    return wide + (len(text) - wide) / 3.5
