"""One answer as it comes: first what is thought, then what is said, and in the end the message made of both.

Two kinds of wrapper differ in what they let pass and in which cuts are calls: that is their `Said`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from agents.messages import AssistantMessage, AssistantPart, StopReason, Thinking, ToolCall
from agents.providers.provider import ModelRequest
from agents.providers.textcalls.grammar import WrittenCall
from agents.providers.textcalls.identity import new_ids
from agents.providers.textcalls.thinking import Thoughts
from agents.providers.textcalls.visible import Cut, Shown, assemble

DONE_WELL: frozenset[StopReason] = frozenset({"end_turn", "stop_sequence", "tool_use"})
"""With calls, these mean tool use. Any other reason to stop says more than that calls were made, so it stays."""
_BROKEN: frozenset[StopReason] = frozenset({"error", "aborted"})


class Said(Protocol):
    """What follows the thoughts, from some place of the answer on."""

    @property
    def cuts(self) -> Sequence[Cut]:
        """What was not shown, in order; complete after `finish`."""

    def feed(self, piece: str) -> Iterator[Shown]: ...

    def finish(self, message: AssistantMessage) -> Iterator[Shown]:
        """What is left to show, now that the provider's own final message is known."""

    def calls(self, cut: Cut) -> Sequence[WrittenCall]:
        """The calls to be made in place of this cut."""


class Everything:
    """Said, and shown as it is."""

    def __init__(self, start: int) -> None:
        self.cuts: Sequence[Cut] = ()
        self._at = start

    def feed(self, piece: str) -> Iterator[Shown]:
        yield Shown(start=self._at, text=piece)
        self._at += len(piece)

    def finish(self, message: AssistantMessage) -> Iterator[Shown]:
        return iter(())

    def calls(self, cut: Cut) -> Sequence[WrittenCall]:
        return ()


class Answer:
    """Thoughts are given as plain strings, what is said as `Shown`."""

    def __init__(self, request: ModelRequest, new_said: Callable[[int], Said]) -> None:
        self._request = request
        self._thoughts = Thoughts()
        self._new_said = new_said
        self._said: Said | None = None

    def feed(self, piece: str) -> Iterator[Shown | str]:
        yield from self._pass(*self._thoughts.feed(piece))

    def finish(self, message: AssistantMessage) -> Iterator[Shown | str]:
        yield from self._pass(*self._thoughts.finish())
        if self._said is not None:
            yield from self._said.finish(message)

    def _pass(self, thought: str, said: str) -> Iterator[Shown | str]:
        if thought:
            yield thought
        if said:
            if self._said is None:
                self._said = self._new_said(self._thoughts.end)
            yield from self._said.feed(said)

    def message(self, message: AssistantMessage) -> AssistantMessage:
        """The final message, after `finish`; the same object where nothing changed."""
        cuts = [*self._thought(), *(self._said.cuts if self._said is not None else ())]
        if not cuts:
            return message
        ids = new_ids(self._request, message)
        made = 0

        def parts_of(cut: Cut) -> tuple[AssistantPart, ...]:
            nonlocal made
            if message.stop_reason in _BROKEN or cut.kind == "space":
                return ()
            if cut.kind == "thoughts":
                return (Thinking(text=cut.text),) if cut.text else ()
            written = self._said.calls(cut) if self._said is not None else ()
            calls = tuple(_call(next(ids), call) for call in written)
            made += len(calls)
            return calls

        content = assemble(message.content, cuts, parts_of)
        reason = "tool_use" if made and message.stop_reason in DONE_WELL else message.stop_reason
        return replace(message, content=content, stop_reason=reason)

    def _thought(self) -> Iterator[Cut]:
        if self._thoughts.end:
            yield Cut(start=0, end=self._thoughts.end, kind="thoughts", text=self._thoughts.text)


def _call(call_id: str, call: WrittenCall) -> ToolCall:
    return ToolCall(id=call_id, name=call.name, arguments=call.arguments, arguments_raw=call.raw)
