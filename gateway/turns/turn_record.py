"""The record of one turn that runs: what was in each request, and when things happened.

It takes the loop's events and keeps numbers and references, no text that is journaled anyway. A process that dies takes its
record along; the journal's rows still tell the turn, and the row of the process that ends it says that it was resumed.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agents import turn as events
from agents.messages import AssistantMessage
from agents.providers.provider import Done, ModelRequest, OneTool
from agents.turn import Emit, TurnEvent
from gateway.observe.logs import logged
from gateway.observe.secrets import redacted
from gateway.state.runtime import Setup

WORDS_CHARS_MAX = 500


@dataclass(kw_only=True, slots=True)
class TurnRecord:
    """The facts that one process has seen of a turn. Times are seconds since `began`."""

    emit: Emit
    began: float
    setup: Setup
    numbers: Sequence[int]
    resumed: bool
    clock: Callable[[], float] = time.perf_counter
    zero: float = field(init=False)
    started: events.TurnStarted | None = None
    request: ModelRequest | None = None
    ready: float | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.zero = self.clock()

    def follow(self, event: TurnEvent) -> None:
        self.emit(event)
        if type(event) is events.ModelStreamed and type(event.event) is not Done:  # a piece: there may be hundreds
            if self.requests and "first" not in (last := self.requests[-1]):
                last["first"] = self._now()
            return
        with logged("layers_not_noted"):  # who watches a turn never ends it
            self._note(event)

    def _note(self, event: TurnEvent) -> None:
        match event:
            case events.ModelStreamed(event=Done(message=message)):
                self._done(message)
            case events.ModelCalled():
                self._called(event)
            case events.ToolStarted(call=call):
                round_ = self.requests[-1]["round"] if self.requests else 0
                self.calls.append({"id": call.id, "round": round_, "at": self._now()})
            case events.ToolReturned(call=call):
                if noted := self._call(call.id, "s"):
                    noted["s"] = round(self._now() - noted["at"], 4)
            case events.ToolFinished(result=result, chars=chars, cut=cut):
                if noted := self._call(result.call_id, "chars"):
                    noted |= {"chars": chars, "cut": cut}
            case events.TurnStarted():
                self.started, self.ready = event, self._now()
            case _:
                return

    def _now(self) -> float:
        return round(self.clock() - self.zero, 4)

    def _called(self, event: events.ModelCalled) -> None:
        request = self.request = event.request
        choice = request.tool_choice
        noted: dict[str, Any] = {"round": event.round, "provider": event.provider, "model": request.model}
        noted |= {"at": self._now(), "max": request.max_tokens, "own": event.own, "held": event.held}
        if event.held and self.numbers:
            held = self.numbers[-event.held :]
            noted |= {"from": held[0], "to": held[-1]}
        if event.summary:
            noted["summary"] = True
        if request.thinking:
            noted["think"] = request.thinking
        if choice != "auto":
            noted["choice"] = choice.name if isinstance(choice, OneTool) else choice
        self.requests.append(noted)

    def _done(self, message: AssistantMessage) -> None:
        """Notes the end of an attempt; a failed one stays as such."""
        if not self.requests:
            return
        noted, usage = self.requests[-1], message.usage
        if "stop" in noted:
            noted.setdefault("failed", []).append(
                {"at": noted["s"], "error": noted.pop("error", ""), "words": noted.pop("words", "")}
            )
        noted |= {"provider": message.provider or noted["provider"], "model": message.model or noted["model"]}
        noted |= {"s": round(self._now() - noted["at"], 4), "stop": message.stop_reason, "stamp": message.timestamp}
        noted["usage"] = [usage.input, usage.cache_read, usage.cache_write, usage.output, usage.reasoning]
        if usage.estimated:
            noted["estimated"] = True
        if message.cost is not None:
            noted["cost"] = message.cost
        if message.response_id:
            noted["id"] = message.response_id
        if message.error:
            noted |= {
                "error": message.error.kind,
                "words": redacted(message.error.words or message.error.summary)[:WORDS_CHARS_MAX],
            }

    def _call(self, id_: str, missing: str) -> dict[str, Any] | None:
        """The oldest call of that id without a fact."""
        return next((it for it in self.calls if it["id"] == id_ and missing not in it), None)
