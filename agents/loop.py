"""The tool loop: call the model, run its tool calls and answer each one, until it replies.

All I/O goes through ports: `Complete` (one repaired request with retries), `Journal` (durable before the next step)
and the toolbox. Each response is one decision: its stop reason is checked before any call is run. Failed, refused and
cut-off calls also get a result, so calls and results are always paired.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, assert_never

import structlog

from agents.context import truncate_result
from agents.messages import (
    EXTERNAL,
    AssistantMessage,
    Message,
    ModelError,
    Text,
    ToolCall,
    ToolResultMessage,
    UserMessage,
    UserPart,
    begins_external,
)
from agents.prompt.fences import external
from agents.repair import substitute
from agents.turn import (
    Answered,
    Budget,
    Declined,
    Emit,
    Journal,
    LimitReached,
    ModelAnswered,
    ModelFailed,
    Outcome,
    ToolAdvanced,
    ToolFinished,
    ToolReturned,
    ToolStarted,
    TurnLimits,
)
from channels.message import MessageContext
from tools.catalog import Toolbox
from tools.tool import Call, Image, ToolError, ToolResult, failed

log = structlog.get_logger()

PAUSES_MAX = 5
NUDGE = "You ended without an answer. Tell the user, in a few words, what you found or did."
CONTINUE = "Your answer was cut off at its length limit. Go on exactly where it stopped, without repeating anything."

Complete: TypeAlias = Callable[[Sequence[Message], int], Awaitable[AssistantMessage]]
"""Return the model's answer to these messages in this round. Model errors are returned, not raised."""


@dataclass(kw_only=True)
class ToolLoop:
    """One turn. `turn` is its part of idempotency keys; `context` is the message it answers."""

    turn: str
    context: MessageContext
    complete: Complete
    toolbox: Toolbox
    journal: Journal
    limits: TurnLimits
    result_chars: int
    emit: Emit
    now: Callable[[], float]
    budget: Budget | None = None
    session: str = ""
    several: bool = False
    """True if the turn answers several people."""
    tainted: bool = False
    """True if the turn has read external content; restored from the journal after a restart."""
    _messages: list[Message] = field(default_factory=list)
    _failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    _failed_now: set[tuple[str, str]] = field(default_factory=set)
    """The failed calls of the last answer. Equal calls of one answer count as one attempt, since the model has not
    read their results yet."""
    _calls_made: int = 0
    _pauses: int = 0
    _nudged: bool = False
    _cut: bool = False
    _cut_texts: list[str] = field(default_factory=list)
    """Truncated answers that are being continued."""

    async def run(self, so_far: Sequence[Message], *, interrupted: bool) -> Outcome:
        """Continue from `so_far`: the running user message and what is journaled after it.

        `interrupted`: a process died during the first call that has no result.
        """
        outcome = await self._run(so_far, interrupted=interrupted)
        if isinstance(outcome, Answered) or not self._cut_texts:
            return outcome
        log.warning("continuation_failed", outcome=type(outcome).__name__, answers=len(self._cut_texts))
        return Answered(message=None, before="".join(self._cut_texts), cut=True)

    async def _run(self, so_far: Sequence[Message], *, interrupted: bool) -> Outcome:
        self._recall(so_far)
        begun = sum(isinstance(message, AssistantMessage) for message in so_far)
        outcome = await self._resume(interrupted=interrupted)
        for number in range(begun + 1, self.limits.rounds + 1):
            if outcome is not None:
                return outcome
            if isinstance(self._messages[-1], ToolResultMessage):
                steered = await self.journal.steered()
                self.tainted = self.tainted or begins_external(steered)
                self._messages += steered
            if self.budget and (spent := await self.budget.exhausted()):
                return spent
            answer = await self.complete(self._messages, number)
            self.emit(ModelAnswered(round=number, message=answer))
            outcome = await self._decide(answer)
        return outcome or LimitReached(limit="rounds")

    async def _decide(self, answer: AssistantMessage) -> Outcome | None:
        """Return the outcome of this response; None to continue the loop."""
        before = "".join(self._cut_texts)
        match answer.stop_reason:
            case "error" | "aborted":
                return ModelFailed(error=answer.error or _UNEXPLAINED, model=answer.reference)
            case "refusal" | "content_filter":
                return Declined()
            case "max_tokens" | "context_window" if answer.calls:  # run none; the model may split the work, once
                if self._cut:
                    return LimitReached(limit="cut")
                self._cut = True
                await self._keep(answer)
                await self._answer_cut(answer.calls)
                return None
            case "max_tokens" | "context_window":
                if not answer.text.strip():
                    return LimitReached(limit="cut")
                if answer.stop_reason == "context_window" or len(self._cut_texts) >= self.limits.continuations:
                    return Answered(message=answer, before=before, cut=True)
                await self._keep(answer)
                self._cut_texts.append(answer.text)
                self._ask(CONTINUE)
                return None
            case "pause":
                self._pauses += 1
                await self._keep(answer)
                outcome = await self._run_calls(answer.calls)
                return LimitReached(limit="pauses") if self._pauses > PAUSES_MAX else outcome
            case "end_turn" | "tool_use" | "stop_sequence":
                if answer.calls:
                    await self._keep(answer)
                    return await self._run_calls(answer.calls)
                if answer.text.strip():
                    return Answered(message=answer, before=before)
                if self._nudged or before:
                    return LimitReached(limit="empty")
                self._nudged = True
                self._ask(NUDGE)
                return None
            case _:
                assert_never(answer.stop_reason)

    def _ask(self, text: str) -> None:
        self._messages.append(UserMessage(content=(Text(text=text),), timestamp=self.now()))  # not journaled

    async def _answer_cut(self, calls: Sequence[ToolCall]) -> None:
        for call in calls:
            message = "the answer was cut off at the output limit, so this call was not run; split the work"
            await self._answer(call, failed(ToolError("CUT_OFF", message, retryable=True)))

    def _recall(self, so_far: Sequence[Message]) -> None:
        """Restore the counts and limits of this turn from the journal."""
        self._messages = list(so_far)
        self.tainted = self.tainted or begins_external(so_far)
        calls: dict[str, ToolCall] = {}
        for message in so_far:
            if isinstance(message, AssistantMessage):
                calls = {call.id: call for call in message.calls}
                self._failed_now.clear()
                self._pauses += message.stop_reason == "pause"
                if message.stop_reason in _CUT and message.calls:
                    self._cut = True
                elif message.stop_reason in _CUT:
                    self._cut_texts.append(message.text)
            elif isinstance(message, ToolResultMessage):
                self._calls_made += 1
                if call := calls.get(message.call_id):
                    self._count(call, message)

    async def _resume(self, *, interrupted: bool) -> Outcome | None:
        """Answer the calls that a crash or hand-over left open. A tool's declared effect decides whether it may run
        again."""
        answer, calls = _unanswered(self._messages)
        if answer is not None and answer is self._messages[-1] and answer.stop_reason in _CUT and not calls:
            self._ask(CONTINUE)
        if answer is None or not calls:
            return None
        if answer.stop_reason in _CUT:
            await self._answer_cut(calls)
            return None
        if not interrupted or all(self.toolbox.effect(call.name, call.arguments) == "safe" for call in calls):
            return await self._run_calls(calls)
        first, *others = calls
        once = self.toolbox.effect(first.name, first.arguments) == "once"
        await self._answer(
            first, failed(substitute(begun=True)) if once else await self._run_call(first, answer.timestamp)
        )
        return await self._run_calls(others)

    async def _run_calls(self, calls: Sequence[ToolCall]) -> Outcome | None:
        """Run calls in order, or concurrently if all of them are read-only. Results are journaled in call order."""
        if len(calls) > 1 and all(self.toolbox.effect(call.name, call.arguments) == "safe" for call in calls):
            results = await asyncio.gather(*(self._run_call(call) for call in calls))
            for call, result in zip(calls, results, strict=True):
                await self._answer(call, result)
        else:
            for call in calls:
                await self._answer(call, await self._run_call(call))
        repeated = max(self._failures.values(), default=0)
        return LimitReached(limit="repeating") if repeated >= self.limits.identical_failures else None

    async def _run_call(self, call: ToolCall, begun_at: float | None = None) -> ToolResult:
        self._calls_made += 1
        if self._calls_made > self.limits.tool_calls:
            message = f"this turn's {self.limits.tool_calls} tool calls are used up; answer with what you have"
            return failed(ToolError("TOOL_CALLS_EXHAUSTED", message))
        self.emit(ToolStarted(call=call))
        # The key is stable if the call is run again, and differs if a model reuses the id for a second call.
        earlier = sum(isinstance(it, ToolResultMessage) and it.call_id == call.id for it in self._messages)
        circumstances = Call(
            id=call.id,
            key=f"{self.turn}:{call.id}:{earlier}" if earlier else f"{self.turn}:{call.id}",
            message=self.context,
            session=self.session,
            begun_at=begun_at,
            several=self.several,
            tainted=self.tainted,
            progress=lambda text: self.emit(ToolAdvanced(call=call, progress=text)),
        )
        result = await self.toolbox.call(call.name, call.arguments, call.arguments_raw, circumstances)
        self.emit(ToolReturned(call=call))
        return result

    async def _answer(self, call: ToolCall, result: ToolResult) -> None:
        message = ToolResultMessage(
            call_id=call.id,
            tool=call.name,
            content=self._fitting(result),
            is_error=result.is_error,
            details={**result.details, **({EXTERNAL: True} if result.external else {})} or None,
            timestamp=self.now(),
        )
        self.tainted = self.tainted or message.is_external
        await self._keep(message)
        sizes = [len(it) for it in result.content if isinstance(it, str)]
        self.emit(ToolFinished(result=message, chars=sum(sizes), cut=max(sizes, default=0) > self._room(result)))
        self._count(call, message)

    def _count(self, call: ToolCall, result: ToolResultMessage) -> None:
        """Count repeated failures. A successful side effect resets them: tests fail until fixed."""
        if result.is_error:
            if (key := (call.name, call.arguments_raw)) not in self._failed_now:
                self._failed_now.add(key)
                self._failures[key] += 1
        elif self.toolbox.effect(call.name, call.arguments) != "safe":
            self._failures.clear()

    def _room(self, result: ToolResult) -> int:
        if not result.external:
            return self.result_chars
        return max(1, self.result_chars - len(external("", str(result.details.get("url", "")), "0" * 16)))

    def _fitting(self, result: ToolResult) -> tuple[UserPart, ...]:
        chars = self._room(result)
        if result.external:
            boundary, source = secrets.token_hex(8), str(result.details.get("url", ""))
            texts = (it if isinstance(it, Image) else truncate_result(it, chars) for it in result.content)
            fenced = (it if isinstance(it, Image) else Text(text=external(it, source, boundary)) for it in texts)
            return (*fenced, *([Text(text=result.note)] if result.note else ()))
        parts = (it if isinstance(it, Image) else Text(text=truncate_result(it, chars)) for it in result.content if it)
        return tuple(parts) or (Text(text="(no output)"),)

    async def _keep(self, message: AssistantMessage | ToolResultMessage) -> None:
        await self.journal.append(message)
        self._messages.append(message)
        if isinstance(message, AssistantMessage):
            self._failed_now.clear()


_CUT = ("max_tokens", "context_window")
_UNEXPLAINED = ModelError(kind="incomplete", summary="no reason given", retryable=False)


def _unanswered(messages: Sequence[Message]) -> tuple[AssistantMessage | None, list[ToolCall]]:
    """Return the last assistant message and its calls without a result, matched by order if ids repeat."""
    answered: Counter[str] = Counter()
    for message in reversed(messages):
        if isinstance(message, AssistantMessage):
            left = []
            for call in message.calls:
                answered[call.id] -= 1
                left += [call] if answered[call.id] < 0 else []
            return message, left
        if not isinstance(message, ToolResultMessage):
            break
        answered[message.call_id] += 1
    return None, []
