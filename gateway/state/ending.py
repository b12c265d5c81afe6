"""The end of a turn or a command: what is said, what is kept of it, and what it took."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents import sentences
from agents.language import language_for
from agents.messages import AssistantMessage, ToolResultMessage
from channels.bilingual import Finding
from channels.message import Button, Folded, MessageContext, StoredFile, TurnFacts
from gateway.state.runtime import AGENT_CLOSED
from gateway.store.records import Spent

UNFINISHED = {("replied", "cut"), ("failed", "rounds"), ("failed", "turn-time")}
"""Outcomes and reasons whose sentence says that "continue" is possible."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The answer to a person. `text` is None for silence, or if an agent will answer instead."""

    text: str | None = None
    notes: tuple[str, ...] = ()
    """The gateway's own lines beneath the text."""
    files: tuple[StoredFile, ...] = ()
    voice: bool = False
    spoken: str = ""
    """The part of the text that a voice message speaks after it; empty for none."""
    buttons: tuple[Button, ...] = ()
    folded: Folded | None = None
    answers_to: str | None = None
    """The message to reply to instead of the current one, as the model requests; not validated yet."""
    replaces: str | None = None
    """The platform's id of the message that this one takes the place of."""
    dropped: bool = False
    """Dropped before its turn started."""
    seed: str = ""
    """The code in the place of `{code}` is derived from it at send time."""

    @property
    def shown(self) -> str | None:
        """The text that the person reads; None for nothing at all."""
        lines = [] if self.text is None else [self.text]
        return "\n\n".join((*lines, *self.notes)) if lines or self.notes else None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """The end of a turn or a command. A `dead` message is kept for the operator to replay."""

    outcome: str
    reply: Reply = Reply()
    reason: str = ""
    dead: bool = False
    message: AssistantMessage | None = None
    media: tuple[str, ...] = ()
    """Files of the workspace to send along, as the model named them."""
    answers: tuple[AssistantMessage, ...] = ()
    """The models' answers that took tokens."""
    spent: Spent | None = None
    """Tokens and cost that are still to be counted."""
    speech_cost: float = 0.0
    """The price of speaking the answer."""
    results: tuple[ToolResultMessage, ...] = ()
    """Results of the tools that this run has called."""
    fault: Finding | None = None
    """The failure with the vendor's words and the next step: for the operator, in the language of its reader."""
    external: bool = False
    """True if the turn has read external content: what it has said may be that content's doing."""

    def saying(self, **changes: Any) -> "Ending":
        return replace(self, reply=replace(self.reply, **changes))

    def facts(self, seconds: float) -> TurnFacts:
        """The facts that people read, and whether it went wrong."""
        bill = self.bill()
        tokens = bill.get("tokens", {})
        return TurnFacts(
            failed=self.outcome == "failed",
            unfinished=(self.outcome, self.reason) in UNFINISHED,
            model=self.answers[-1].reference if self.answers else "",
            input=sum(tokens.get(name, 0) for name in ("input", "cache_read", "cache_write")),
            output=tokens.get("output", 0),
            cost=bill.get("cost"),
            seconds=round(seconds, 1),
        )

    def record(self, parts: int, at: float) -> str:
        """The content of the `final` row."""
        row = {"outcome": self.outcome, "reason": self.reason, "parts": parts, "at": at, **self.bill()}
        row |= {"external": True} if self.external else {}
        names = dict.fromkeys(it.reference for it in self.answers)
        models = {name: _taken([it for it in self.answers if it.reference == name]) for name in names}
        return json.dumps(row | ({"models": models} if models else {}))

    def bill(self) -> dict[str, Any]:
        """Sums up what the turn took; empty if no model was called. The cost is there if prices are."""
        if not self.answers:
            return {}
        bill: dict[str, Any] = {"requests": len(self.answers)}
        if any(answer.usage.estimated for answer in self.answers):
            bill["estimated"] = True
        bill |= _taken(self.answers)
        return bill | ({"cost": round(bill.get("cost", 0.0) + self.speech_cost, 6)} if self.speech_cost else {})


def _taken(answers: Sequence[AssistantMessage]) -> dict[str, Any]:
    costs = [answer.cost for answer in answers if answer.cost is not None]
    tokens = {
        name: sum(getattr(answer.usage, name) for answer in answers)
        for name in ("input", "cache_read", "cache_write", "output", "reasoning")
    }
    return {"tokens": tokens} | ({"cost": round(sum(costs), 6)} if costs else {})


def lost_access(reason: str, context: MessageContext) -> str | None:
    """Return the sentence for a sender who may no longer use the agent; None for one who may not write here at all."""
    return sentences.unknown_agent(language_for(context)) if reason == AGENT_CLOSED else None
