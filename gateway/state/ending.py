"""The end of a turn or a command: the reply, what is stored, and its cost."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents import sentences
from agents.language import language_for
from agents.messages import AssistantMessage, ToolResultMessage
from channels.bilingual import Finding
from channels.message import Button, ChoiceForm, Folded, MessageContext, StoredFile, TurnFacts
from gateway.state.runtime import AGENT_CLOSED
from gateway.store.records import Spent

UNFINISHED = {("replied", "cut"), ("failed", "rounds"), ("failed", "turn-time")}
"""Outcomes and reasons whose reply offers to "continue"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The answer to a user. `text` is None for silence, or if an agent will answer instead."""

    text: str | None = None
    notes: tuple[str, ...] = ()
    """The gateway's own lines below the text."""
    files: tuple[StoredFile, ...] = ()
    voice: bool = False
    spoken: str = ""
    """The part of the text that a voice message speaks after it; empty for none."""
    buttons: tuple[Button, ...] = ()
    folded: Folded | None = None
    form: ChoiceForm | None = None
    answers_to: str | None = None
    """The message to reply to instead of the current one, as requested by the model; not validated yet."""
    replaces: str | None = None
    """The platform's id of the message that this reply replaces."""
    dropped: bool = False
    """The message was dropped before its turn started."""
    seed: str = ""
    """`{code}` is replaced at send time by the code derived from this seed."""

    @property
    def shown(self) -> str | None:
        """The text that the user reads; None for no reply."""
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
    """Workspace files to send, as the model named them."""
    answers: tuple[AssistantMessage, ...] = ()
    """The model answers that used tokens."""
    spent: Spent | None = None
    """Tokens and cost that are not counted yet."""
    speech_cost: float = 0.0
    """The price of speaking the answer."""
    results: tuple[ToolResultMessage, ...] = ()
    """Results of the tools that this run called."""
    fault: Finding | None = None
    """The failure with the vendor's text and the next step, for the operator, in the reader's language."""
    external: bool = False
    """True if the turn has read external content, which may have influenced the answer."""

    def saying(self, **changes: Any) -> "Ending":
        return replace(self, reply=replace(self.reply, **changes))

    def facts(self, seconds: float) -> TurnFacts:
        """Return the attributes that users see, and whether the turn failed."""
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
        """Return the content of the `final` row."""
        row = {"outcome": self.outcome, "reason": self.reason, "parts": parts, "at": at, **self.bill()}
        row |= {"external": True} if self.external else {}
        names = dict.fromkeys(it.reference for it in self.answers)
        models = {name: _taken([it for it in self.answers if it.reference == name]) for name in names}
        return json.dumps(row | ({"models": models} if models else {}))

    def bill(self) -> dict[str, Any]:
        """Sum up the turn's usage; empty if no model was called. The cost is included if prices are known."""
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
