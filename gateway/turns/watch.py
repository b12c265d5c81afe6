"""The view of a turn while it runs: the events of the loop, sent to a channel that can show them to people.

The channel gets the newest state as a whole, a few times a second at most; the answer does not need it. Text that the
reply will not have is not shown: directives, the silent token, and the text of a failed attempt.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import structlog

from agents import turn
from agents.language import language_for
from agents.messages import AssistantMessage, Message, Text, ToolCall, ToolResultMessage
from agents.prompt.reply import draft
from agents.providers.provider import Done, TextDelta
from agents.sentences import retrying
from agents.turn import Emit, TurnEvent
from channels.abilities import Progress, ToolUse
from channels.message import MessageContext
from gateway.observe.secrets import Scrubber

SHOW_SECONDS = 0.1
SHOW_SHARE = 0.1
"""The largest share of the time that goes into showing one turn: a long answer is shown more seldom."""
ABOUT_CHARS = 200
DETAIL_CHARS = 4_000
"""Characters of the arguments, and of the result, of a call."""

log = structlog.get_logger()


@dataclass(eq=False)
class Watch:
    """Watches one turn, for the length of the `with`. `tell` receives every event; `outcome` is the turn's. Without
    `shows`, events only pass to `emit`."""

    shows: Sequence[Callable[[Progress], None]]
    context: MessageContext
    emit: Emit
    scrubber: Scrubber
    resumed: bool = False
    outcome: str = "interrupted"
    _before: str = ""
    """The earlier text of an answer that is being continued."""
    _text: list[str] = field(default_factory=list)
    _tools: dict[str, ToolUse] = field(default_factory=dict)
    _began: dict[str, float] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)
    """The words before a call that the draft still shows, by its id."""
    _note: str = ""
    _timer: asyncio.TimerHandle | None = None
    _pause: float = SHOW_SECONDS

    @property
    def tell(self) -> Emit:
        return self._follow if self.shows else self.emit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """No outcome yet: the turn was handed over or stopped."""
        self._show(self.outcome)

    def _follow(self, event: TurnEvent) -> None:
        self.emit(event)
        match event:
            case turn.TurnStarted(turn=begun):
                self._recall(begun.so_far)
                self._show()
            case turn.ModelCalled():
                self._text.clear()
                self._place_words()
                self._soon()
            case turn.ModelStreamed(event=TextDelta(text=text)):
                self._note = ""
                self._text.append(text)
                self._soon()
            case turn.ModelStreamed(event=Done(message=message)) if message.error is not None:
                self._text.clear()
                self._soon()
            case turn.ModelRetried(error=error, seconds=seconds):
                self._note = retrying(error, seconds, language_for(self.context))
                self._show()
            case turn.ModelAnswered(message=message) if _is_cut(message):
                self._before += message.text
                self._text.clear()
            case turn.ModelAnswered(message=message):
                self._note = ""
                self._keep_words(message)
            case turn.ToolStarted(call=call):
                self._start(call)
                self._began[call.id] = time.perf_counter()
                self._show()
            case turn.ToolAdvanced(call=call, progress=progress) if call.id in self._tools:
                self._tools[call.id] = replace(self._tools[call.id], about=self.scrubber.scrub(_line(progress)))
                self._soon()
            case turn.ToolFinished(result=result):
                self._finish(result)
                self._show()

    def _recall(self, so_far: Sequence[Message]) -> None:
        for message in so_far:
            if isinstance(message, AssistantMessage):
                self._before += message.text if _is_cut(message) else ""
                self._keep_words(message)
                for call in message.calls:
                    self._start(call)
            elif isinstance(message, ToolResultMessage):
                self._finish(message)

    def _keep_words(self, message: AssistantMessage) -> None:
        """Keeps what was said before the first call, for that call's line: the answer will not have it."""
        if message.calls and (said := draft(message.text).strip()):
            self._said[message.calls[0].id] = self._detail(said)

    def _place_words(self) -> None:
        """Moves the words to their calls, as the draft shows them no more."""
        for id_, said in self._said.items():
            if id_ in self._tools:
                self._tools[id_] = replace(self._tools[id_], said=said)
        self._said.clear()

    def _start(self, call: ToolCall) -> None:
        self._tools[call.id] = ToolUse(
            id=call.id,
            name=self.scrubber.scrub(call.name)[:ABOUT_CHARS],
            about=self.scrubber.scrub(about(call)),
            state="running",
            arguments=self._detail(call.arguments_raw),
        )

    def _finish(self, result: ToolResultMessage) -> None:
        begun = self._tools.get(result.call_id) or ToolUse(id=result.call_id, name=result.tool, about="", state="done")
        began = self._began.pop(begun.id, None)
        self._tools[begun.id] = replace(
            begun,
            state="waiting" if "approval" in (result.details or {}) else "failed" if result.is_error else "done",
            result=self._detail("\n".join(it.text for it in result.content if isinstance(it, Text))),
            seconds=None if began is None else round(time.perf_counter() - began, 2),
        )

    def _detail(self, text: str) -> str:
        """The beginning of a text; if it is cut, no part of a cut secret remains."""
        return (
            self.scrubber.scrub(text) if len(text) <= DETAIL_CHARS else f"{self.scrubber.draft(text[:DETAIL_CHARS])}…"
        )

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._show)

    def _show(self, outcome: str | None = None) -> None:
        if not self.shows:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        began = time.perf_counter()
        try:
            text = self._before + "".join(self._text)
            text = self.scrubber.draft(draft(text)) if text else ""
            tools = tuple(self._tools.values())
            note = "" if outcome else self._note
            progress = Progress(
                context=self.context, text=text, tools=tools, note=note, outcome=outcome, resumed=self.resumed
            )
            for show in self.shows:
                show(progress)
        except Exception as error:
            log.error("progress_not_shown", exc_info=error)
        self._pause = max(SHOW_SECONDS, (time.perf_counter() - began) / SHOW_SHARE)


def _is_cut(message: AssistantMessage) -> bool:
    return message.stop_reason in ("max_tokens", "context_window") and not message.calls


def about(call: ToolCall) -> str:
    """The first argument, on one line; of a task its title."""
    arguments = call.arguments or {}
    title = arguments.get("title") if call.name == "task" else ""
    return _line(str(title or next(iter(arguments.values()), "")))


def _line(text: str) -> str:
    return " ".join(text[: 2 * ABOUT_CHARS].split())[:ABOUT_CHARS]
