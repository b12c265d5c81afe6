"""The journal of a turn (`agents.loop.Journal`) on the store: write a step durably, then check whether the turn may
continue.

Every write returns the session's state, so stops, drains and steering messages need no extra query.
`gateway.turns.history` reads the journal back.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import assert_never

import structlog

from agents import sentences
from agents.language import Language
from agents.messages import AssistantMessage, Message, ToolResultMessage, UserMessage, message_json
from agents.prompt.reply import answered, is_voice, media, visible, without_internals
from agents.providers.config import look_at, model_outage
from agents.turn import Answered, Declined, LimitReached, ModelFailed, Outcome, OverBudget, RunnerFailed
from channels.bilingual import NO_WORDS, Bilingual, Finding
from gateway.observe.secrets import redacted
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import Drained, Runtime, Stopped
from gateway.store.errors import Revised
from gateway.store.records import Entry, Kind, Lease, SessionState, Spent, Spoken, Summary, WaitingMessage
from gateway.turns.batch import Batch, is_report
from gateway.turns.budgets import BudgetAccount
from tools.handover import NAME as HANDOVER
from tools.tool import turn_source

STEERED_MAX = 20
"""Most waiting messages that one step of a turn takes in."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class TurnJournal:
    """The journal of one turn. `read` turns a waiting message into a user message; `numbers` are the turns of the
    history, oldest first. `kept` is what this run has journaled."""

    runtime: Runtime
    batch: Batch
    read: Callable[[WaitingMessage], Awaitable[tuple[UserMessage, Sequence[Spoken]]]]
    numbers: Sequence[int]
    account: BudgetAccount | None = None
    kept: list[Message] = field(default_factory=list)
    _pending: int = 0
    _open: int = 0
    """Tool calls without a result."""

    def __post_init__(self) -> None:
        self._lease, self._turn = self.batch.lease, self.batch.turn
        self._steps, self._revision = self.batch.work.steps, self.batch.work.revision

    async def begin(self, *messages: Message, joined: Sequence[int], spoken: Sequence[Spoken] = ()) -> None:
        """Write the turn's first rows and mark the earlier messages it also answers; `spoken` goes with the first
        row. Raises Fenced or Stopped."""
        first, *others = (entry(self._turn, message) for message in messages)
        entries = [replace(first, spoken=spoken), *others]
        self._check(await self.runtime.store.append(self._lease, entries, joined, revision=self._revision))
        self._steps += len(messages) - 1

    async def append(self, message: AssistantMessage | ToolResultMessage) -> None:
        """Journal a step. Raises Fenced, Stopped or Drained. A tool result is stored even if the conversation was
        revised, without its content if it repeats older text. An answer based on removed text is not stored."""
        spent = self.account.spent() if self.account else None
        is_result = isinstance(message, ToolResultMessage)
        new = entry(self._turn, message, spent=spent)
        revision = None if is_result and not new.spoken else self._revision
        try:
            state = await self.runtime.store.append(self._lease, [new], revision=revision)
        except Revised:
            if isinstance(message, ToolResultMessage):  # what it repeats may be what was removed meanwhile
                new = entry(self._turn, message.withdrawn, spent=spent)
                await self.runtime.store.append(self._lease, [new])
                spent = None
            await hand_over(self.runtime, self._lease, self._turn, spent)
            raise
        self._check(state)
        self.kept.append(message)
        self._steps += 1
        self.follow(message)
        if state.revision != self._revision or self.runtime.control.draining:
            await hand_over(self.runtime, self._lease, self._turn)
            raise Drained if self.runtime.control.draining else Revised

    def follow(self, *messages: Message) -> None:
        """Track whether tool calls are open after these steps of the turn."""
        for message in messages:
            if isinstance(message, AssistantMessage):
                self._open = len(message.calls)
            self._open -= isinstance(message, ToolResultMessage)
        if lane := self.runtime.control.lanes.get(self._lease.sid):
            lane.calling = self._open > 0

    async def steered(self) -> Sequence[UserMessage]:
        """Return the messages that arrived during the turn, journaled as part of it; empty in the other queue modes."""
        if self.batch.queue.mode != "steer" or self._pending <= 1 or self._hands_over:
            return ()
        work = (await self.runtime.store.load(self._lease, history_turns=1, waiting_max=STEERED_MAX)).work
        waits = work.waiting if work and not work.has_question else ()  # they may answer the question
        others = [message for message in waits if message.turn != self._turn and not is_report(message)]
        waiting = list(takewhile(self.batch.may_join, others))
        if not waiting:
            return ()
        await self.runtime.store.begun(self._lease, waiting[-1].turn)
        read = [await self.read(message) for message in waiting]
        entries = [replace(entry(self._turn, it, kind="steered"), spoken=spoken) for it, spoken in read]
        joined = [message.turn for message in waiting]
        self._check(await self.runtime.store.append(self._lease, entries, joined, revision=self._revision))
        return [message for message, _ in read]

    @property
    def _hands_over(self) -> bool:
        """True if this run has handed the chat over; what arrives now is for the colleague."""
        return any(isinstance(it, ToolResultMessage) and it.tool == HANDOVER and not it.is_error for it in self.kept)

    async def summarised(
        self, text: str, turns: int, answers: tuple[AssistantMessage, ...], *, external: bool = False
    ) -> None:
        """Journal a summary with its cost. A crash before this write leaves the history unchanged."""
        made = Summary(text=text, by=self._turn, turns=turns, steps=self._steps, answers=answers, external=external)
        mark = made.mark(self.numbers[turns - 1], self.runtime.now())
        if not await self.runtime.store.changes.summarise(self._lease.sid, mark, self._revision):
            raise Revised

    def _check(self, state: SessionState) -> None:
        self._pending = state.pending
        if state.stopped > self._turn:
            raise Stopped


async def hand_over(runtime: Runtime, lease: Lease, turn: int, spent: Spent | None = None) -> None:
    """End this run between two steps; the next run continues from the journal."""
    await runtime.store.append(lease, [Entry(turn=turn, kind="drained", content="{}", spent=spent)])


def entry(turn: int, message: Message, *, kind: Kind | None = None, spent: Spent | None = None) -> Entry:
    content = message_json.dump_json(message).decode()
    spoken: Sequence[Spoken] = ()
    if isinstance(message, ToolResultMessage):
        spoken = [copied(it) for it in message.sources if it != turn_source(turn)]
    return Entry(turn=turn, kind=kind or message.role, content=content, spent=spent, spoken=spoken)


def copied(source: str) -> Spoken:
    """Return the row by which recalling or erasing `source` finds the text copied from it."""
    return Spoken(message=source, person="", how="copied")


def stopped(by: int, *, begun: bool) -> Ending:
    """End silently, since the stop command replies itself and finds what it stopped by the reason. `by` is the
    command's turn."""
    return Ending(outcome="stopped", reply=Reply(dropped=not begun), reason=stopped_by(by))


def stopped_by(turn: int) -> str:
    return f"by {turn}"


def ending_of(outcome: Outcome, language: Language) -> Ending:
    """Convert an outcome into the ending that the sender sees."""
    message: AssistantMessage | None = None
    fault: Finding | None = None
    match outcome:
        case Answered(message=message, cut=cut):
            written = without_internals(outcome.text)
            if (text := visible(written)) is None:
                return Ending(outcome="silent", message=message)
            files = tuple(media(written))
            if text.strip() or files:
                voice = bool(files) and is_voice(written)
                reason, text = ("cut", f"{text}\n\n{sentences.cut_off(language)}") if cut else ("", text)
                reply = Reply(text=text, voice=voice, answers_to=answered(written))
                return Ending(outcome="replied", reply=reply, reason=reason, message=message, media=files)
            reason = "empty"
        case Declined():
            return Ending(outcome="declined", reply=Reply(text=sentences.failure(outcome, language)))
        case ModelFailed(error=error, model=model):
            words, key = redacted(error.words), look_at(error.kind, model) if model else NO_WORDS
            log.error("model_failed", model=model, kind=error.kind, summary=error.summary, words=words, look_at=key.en)
            reason = error.kind
            fault = model_outage(error.kind, model, words or error.summary).finding("model", model)
        case RunnerFailed(reason=words):
            reason, message_of = "runner", Bilingual(redacted(words), redacted(words))
            fix = Bilingual("`doctor` tries the program (runner.acp)", "`doctor` 会试运行该程序（runner.acp）")
            fault = Finding("runner", "error", message_of, fix)
        case LimitReached(limit=limit):
            reason = limit
        case OverBudget():
            reason = "budget"
        case _:
            assert_never(outcome)
    reply = Reply(text=sentences.failure(outcome, language))
    return Ending(outcome="failed", reply=reply, reason=reason, message=message, fault=fault)
