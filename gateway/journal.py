"""`agents.loop.Journal` on the store: a step is durable, and then it is seen whether the turn may go on.

Every write returns the state of the session, so a stop, a drain and messages to steer by cost no query of their own.
`gateway.history` reads it back.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, assert_never

import structlog

from agents import sentences
from agents.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, message_json
from agents.prompt.internals import without_internals
from agents.prompt.reply import answered, is_voice, media, visible
from agents.providers.config import look_at
from agents.turn import Answered, Declined, LimitReached, ModelFailed, Outcome, OverBudget
from channels.message import Button, StoredFile, TurnFacts
from gateway.batch import Batch
from gateway.budgets import Account
from gateway.redaction import redacted
from gateway.runtime import Drained, Runtime, Stopped
from gateway.store.records import Entry, Kind, SessionState, Summary, Waiting
from gateway.store.spending import Spent

STEERED_MAX = 20
"""Waiting messages that one step of a turn takes in."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class TurnJournal:
    """The journal of one turn. `read` makes of a waiting message what the model reads; `numbers` are those of the turns of
    its history, oldest first. `kept` is what this run has journaled."""

    runtime: Runtime
    batch: Batch
    read: Callable[[Waiting], Awaitable[UserMessage]]
    numbers: Sequence[int]
    account: Account | None = None
    kept: list[Message] = field(default_factory=list)
    _pending: int = 0

    def __post_init__(self) -> None:
        self._lease, self._turn = self.batch.lease, self.batch.turn
        self._steps = self.batch.work.steps

    async def begin(self, *messages: Message, joined: Sequence[int]) -> None:
        """The turn's first rows, and the earlier messages that it answers as well. Raises Fenced or Stopped."""
        entries = [entry(self._turn, message) for message in messages]
        self._judge(await self.runtime.store.append(self._lease, entries, joined))
        self._steps += len(messages) - 1

    async def append(self, message: AssistantMessage | ToolResultMessage) -> None:
        """Raises Fenced, Stopped or Drained."""
        spent = self.account.spent() if self.account else None
        self._judge(await self.runtime.store.append(self._lease, [entry(self._turn, message, spent=spent)]))
        self.kept.append(message)
        self._steps += 1
        if self.runtime.control.draining:
            await self.runtime.store.append(self._lease, [Entry(turn=self._turn, kind="drained", content="{}")])
            raise Drained

    async def steered(self) -> Sequence[UserMessage]:
        """What people wrote meanwhile, journaled as part of this turn; nothing in the other queue modes."""
        if self.batch.queue.mode != "steer" or self._pending <= 1:
            return ()
        work = (await self.runtime.store.load(self._lease, history_turns=1, waiting_max=STEERED_MAX)).work
        others = [message for message in work.waiting if message.turn != self._turn] if work else []
        waiting = list(takewhile(self.batch.takes, others))
        if not waiting:
            return ()
        messages = [await self.read(message) for message in waiting]
        entries = [entry(self._turn, message, kind="steered") for message in messages]
        self._judge(await self.runtime.store.append(self._lease, entries, [message.turn for message in waiting]))
        return messages

    async def summarised(self, text: str, turns: int, answers: tuple[AssistantMessage, ...]) -> None:
        """A crash before it leaves the history whole, and after it the summary stands, with what it took."""
        made = Summary(text=text, by=self._turn, turns=turns, steps=self._steps, answers=answers)
        await self.runtime.store.mark(self._lease.sid, made.mark(self.numbers[turns - 1], self.runtime.now()))

    def _judge(self, state: SessionState) -> None:
        self._pending = state.pending
        if state.stopped > self._turn:
            raise Stopped


def entry(turn: int, message: Message, *, kind: Kind | None = None, spent: Spent | None = None) -> Entry:
    content = message_json.dump_json(message).decode()
    return Entry(turn=turn, kind=kind or message.role, content=content, spent=spent)


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
    voice: bool = False
    answers_to: str | None = None
    """The message that it is a reply to, instead of the current one: the model's word, until `gateway.turns` has seen it."""
    answers: tuple[AssistantMessage, ...] = ()
    """Of models, as far as they took tokens."""
    buttons: tuple[Button, ...] = ()
    replaces: str | None = None
    """The platform's id of the message that this one takes the place of."""
    notes: tuple[str, ...] = ()
    """The gateway's own lines beneath the text."""
    dropped: bool = False
    """Nobody had begun to answer it."""
    spent: Spent | None = None
    """What is still to be counted."""
    fault: str = ""
    """What failed and where to look, in the vendor's words: for the operator."""
    results: tuple[ToolResultMessage, ...] = ()
    """Of the tools that this run has called."""
    seed: str = ""
    """Of the pairing code that belongs into the text."""

    @property
    def shown(self) -> str | None:
        """What the person reads; None for nothing at all."""
        lines = [] if self.text is None else [self.text]
        return "\n\n".join((*lines, *self.notes)) if lines or self.notes else None

    def facts(self, seconds: float) -> TurnFacts:
        """The same for people, and whether it went wrong."""
        bill = self.bill()
        tokens = bill.get("tokens", {})
        return TurnFacts(
            failed=self.outcome == "failed",
            model=self.answers[-1].reference if self.answers else "",
            input=sum(tokens.get(name, 0) for name in ("input", "cache_read", "cache_write")),
            output=tokens.get("output", 0),
            cost=bill.get("cost"),
            seconds=round(seconds, 1),
        )

    def record(self, parts: int, at: float) -> str:
        """The content of the `final` row."""
        return json.dumps({"outcome": self.outcome, "reason": self.reason, "parts": parts, "at": at, **self.bill()})

    def bill(self) -> dict[str, Any]:
        """What the turn took, summed up; nothing where no model was called. The cost is there where prices are."""
        if not self.answers:
            return {}
        usages = [answer.usage for answer in self.answers]
        costs = [answer.cost for answer in self.answers if answer.cost is not None]
        tokens = {
            name: sum(getattr(usage, name) for usage in usages)
            for name in ("input", "cache_read", "cache_write", "output", "reasoning")
        }
        bill: dict[str, Any] = {"requests": len(usages), "tokens": tokens}
        if any(usage.estimated for usage in usages):
            bill["estimated"] = True
        return bill | ({"cost": round(sum(costs), 6)} if costs else {})


def stopped(by: int, *, begun: bool) -> Ending:
    """Silent: the stop's own reply says so, and finds by the reason what it has stopped. `by` is that command's turn."""
    return Ending(outcome="stopped", reason=stopped_by(by), text=None, dropped=not begun)


def stopped_by(turn: int) -> str:
    return f"by {turn}"


def ending_of(outcome: Outcome, request: str) -> Ending:
    """What the user sees of an outcome."""
    message: AssistantMessage | None = None
    fault = ""
    match outcome:
        case Answered(message=message, cut=cut):
            written = without_internals(outcome.text)
            if (text := visible(written)) is None:
                return Ending(outcome="silent", text=None, message=message)
            files = tuple(media(written))
            if text.strip() or files:
                voice = bool(files) and is_voice(written)
                reason, text = ("cut", f"{text}\n\n{sentences.cut_short(request)}") if cut else ("", text)
                return Ending(
                    outcome="replied",
                    reason=reason,
                    text=text,
                    message=message,
                    media=files,
                    voice=voice,
                    answers_to=answered(written),
                )
            reason = "empty"
        case Declined():
            return Ending(outcome="declined", text=sentences.failure(outcome, request))
        case ModelFailed(error=error, model=model):
            words, key = redacted(error.words), look_at(error.kind, model) if model else ""
            log.error("model_failed", model=model, kind=error.kind, summary=error.summary, words=words, look_at=key)
            reason = error.kind
            fault = f"{model}: {words or error.summary}" + (f" — {key}" if key else "")
        case LimitReached(limit=limit):
            reason = limit
        case OverBudget():
            reason = "budget"
        case _:
            assert_never(outcome)
    return Ending(
        outcome="failed", reason=reason, text=sentences.failure(outcome, request), message=message, fault=fault
    )
