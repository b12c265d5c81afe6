"""How a turn ended: what the user reads, and what the `final` row of the transcript says."""

import json
from dataclasses import dataclass
from typing import Any, assert_never

import structlog

from agents import sentences
from agents.completion import Spent
from agents.messages import AssistantMessage
from agents.prompt.reply import media, visible
from agents.turn import Answered, Declined, LimitReached, ModelFailed, Outcome
from channels.message import StoredFile

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ending:
    """`text` is None for a chosen silence. A `dead` message is kept for the operator to replay."""

    outcome: str
    text: str | None
    message: AssistantMessage | None = None
    reason: str = ""
    dead: bool = False
    media: tuple[str, ...] = ()
    """Files of the workspace to send along, as the model named them."""
    files: tuple[StoredFile, ...] = ()
    """The same, kept for the reply."""
    spent: tuple[Spent, ...] = ()

    def record(self, parts: int) -> str:
        """The content of the `final` row."""
        return json.dumps({"outcome": self.outcome, "reason": self.reason, "parts": parts, **self.bill()})

    def bill(self) -> dict[str, Any]:
        """What the turn took, summed up; nothing where no model was called. The cost is there where prices are."""
        if not self.spent:
            return {}
        usages = [spent.usage for spent in self.spent]
        costs = [spent.cost for spent in self.spent if spent.cost is not None]
        tokens = {
            name: sum(getattr(usage, name) for usage in usages)
            for name in ("input", "cache_read", "cache_write", "output", "reasoning")
        }
        bill: dict[str, Any] = {"requests": len(usages), "tokens": tokens}
        if any(usage.estimated for usage in usages):
            bill["estimated"] = True
        return bill | ({"cost": round(sum(costs), 6)} if costs else {})


def ending_of(outcome: Outcome, request: str) -> Ending:
    """What the user sees of an outcome."""
    match outcome:
        case Answered(message=message, cut=cut):
            if (text := visible(outcome.text)) is None:
                return Ending(outcome="silent", text=None, message=message)
            files = tuple(media(outcome.text))
            if not text.strip() and not files:
                return Ending(
                    outcome="failed", reason="empty", text=sentences.failure(outcome, request), message=message
                )
            return Ending(
                outcome="replied",
                reason="cut" if cut else "",
                text=f"{text}\n\n{sentences.cut_short(request)}" if cut else text,
                message=message,
                media=files,
            )
        case Declined():
            return Ending(outcome="declined", text=sentences.failure(outcome, request))
        case ModelFailed(error=error, model=model):
            log.error("model_failed", model=model, kind=error.kind, summary=error.summary)
            return Ending(outcome="failed", reason=error.kind, text=sentences.failure(outcome, request))
        case LimitReached(limit=limit):
            return Ending(outcome="failed", reason=limit, text=sentences.failure(outcome, request))
        case _:
            assert_never(outcome)
