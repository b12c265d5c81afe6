"""A program's additions to its message, kept with it in the inbox: its system prompt, and the conversation so far."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from agents.messages import AssistantMessage, Message, Text, UserMessage
from agents.prompt.fences import harmless
from agents.prompt.inbound import cut_here

CALLER = "api"
"""Names the maker of an answer that the program says an assistant gave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """`earlier` is empty where the gateway itself keeps the conversation."""

    instructions: str = ""
    earlier: tuple[Earlier, ...] = ()

    def turns(self, message_chars: int) -> Sequence[Sequence[Message]]:
        """The conversation so far as history; each turn begins with a user's message."""
        turns: list[list[Message]] = []
        for it in self.earlier:
            if it.role == "user":
                cut = len(it.text) - message_chars
                note = f"\n{cut_here(cut)}" if cut > 0 else ""
                turns.append([UserMessage(content=(Text(text=harmless(it.text[:message_chars]) + note),))])
                continue
            if not turns:  # a greeting that nobody asked for
                turns.append([UserMessage(content=(Text(text="…"),))])
            answer = Text(text=it.text)
            turns[-1].append(
                AssistantMessage(content=(answer,), provider=CALLER, model=CALLER, api=CALLER, stop_reason="end_turn")
            )
        return turns
