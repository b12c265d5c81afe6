"""Show a running turn: send the loop's events to channels that can display progress.

The channel gets the complete newest state, at most a few times a second, and the answer does not depend on it. Text
that will not be in the reply is not shown: directives, the silent token, and the text of a failed attempt.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from channels.abilities import Progress, ShowsDrafts, ToolUse, can
from channels.channel import DeliveryError, RateLimited, Refused, Unreachable
from channels.message import MessageContext, Outbound, Target
from gateway.observe.secrets import Scrubber
from gateway.outbox.outbox import idempotency_key
from gateway.state.runtime import Runtime
from gateway.store.records import SessionMark
from gateway.store.sessions import is_control, task_of
from gateway.turns.batch import Batch

log = structlog.get_logger()


SHOW_SECONDS = 0.1
SHOW_SHARE = 0.1
"""The largest share of time spent on showing one turn: long answers are shown less often."""
ABOUT_CHARS = 200
DETAIL_CHARS = 4_000
"""Characters of the arguments and of the result of a call."""


@dataclass(eq=False)
class Watch:
    """Watch one turn for the length of the `with`. `tell` receives every event; `outcome` is the turn's. Without
    `shows`, events are only forwarded to `emit`."""

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
    """The text before a call that the draft still shows, by call id."""
    _note: str = ""
    _timer: asyncio.TimerHandle | None = None
    _pause: float = SHOW_SECONDS

    @property
    def tell(self) -> Emit:
        return self._follow if self.shows else self.emit

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Show the interrupted state if there is no outcome: the turn was handed over or stopped."""
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
        """Keep the text before the first call for that call's line: the answer will not contain it."""
        if message.calls and (said := draft(message.text).strip()):
            self._said[message.calls[0].id] = self._detail(said)

    def _place_words(self) -> None:
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
        """Return the beginning of a text. If it is cut, no part of a cut secret remains."""
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
    """Return the first argument on one line; for a task, its title."""
    arguments = call.arguments or {}
    title = arguments.get("title") if call.name == "task" else ""
    return _line(str(title or next(iter(arguments.values()), "")))


def _line(text: str) -> str:
    return " ".join(text[: 2 * ABOUT_CHARS].split())[:ABOUT_CHARS]


OPEN_SECONDS = 1.0
"""An answer that is complete sooner needs no draft."""
REFRESH_SECONDS = 15.0
"""Half the lifetime of a draft that expires by itself."""
PACE_SECONDS = 3.0
"""The update interval of a draft that the chat should no longer show."""
FAILURES_MAX = 3
STATUS_CHARS = 80
NOTHING_NEW = "…"
"""The line to show while there is no tool to name and no text."""


async def draft_of(runtime: Runtime, batch: Batch, *, awaited: bool) -> "TurnDraft | None":
    """Return the turn's draft; after a crash, the one already opened. None if the chat shows no drafts, or if
    another turn waits for this one and reports it. A task shows its title and its calls."""
    context, sid = batch.inbound.context, batch.lease.sid
    channel = batch.setup.channel(context)
    if not can(channel, ShowsDrafts) or is_control(sid):
        return None
    opened = await runtime.store.draft(sid, batch.turn) if batch.work.so_far else None
    seconds = None if awaited else channel.draft_seconds(context)
    if seconds is None and opened is None:
        return None
    return TurnDraft(
        runtime=runtime,
        channel=channel,
        context=context,
        sid=sid,
        turn=batch.turn,
        seconds=seconds or PACE_SECONDS,
        whole=seconds is None or task_of(sid) is not None or channel.draft_is_whole(context),
        handle=opened,
        title=title_of(context),
    )


def title_of(context: MessageContext) -> str:
    """Return the title of the task that a message starts, on one line; empty if it starts none."""
    origin = context.origin
    return " ".join(origin.title.replace("`", "'").split()) if origin and origin.kind == "task" else ""


def task_status(progress: Progress) -> Progress:
    """Convert a task's progress for a channel that shows progress outside the messages: as a separate entry, without
    text, removed when the task ends."""
    context = progress.context
    own = replace(context, message_id=f"task:{context.origin.id if context.origin else ''}")
    outcome = "interrupted" if progress.outcome else None
    return replace(progress, context=own, text="", note=f"⏳ {title_of(context)}", outcome=outcome)


@dataclass(kw_only=True)
class TurnDraft:
    """The draft of one turn, for the length of its `async with`: a message that is edited as it grows, until the answer
    replaces it.

    It is opened a second after there is something to show. Its handle is stored as a mark of the conversation, so that
    a crash opens no second draft. It shows the newest state at the channel's pace; if it fails, the answer is sent as a
    new message. `seconds` is the pace; `whole` shows only the turn's calls, not the answer.
    """

    runtime: Runtime
    channel: ShowsDrafts
    context: MessageContext
    sid: str
    turn: int
    seconds: float
    whole: bool
    handle: str | None = None
    title: str = ""
    """The title of the task, if this is a turn of one."""
    _shown: str = ""
    _newest: str = ""
    _failures: int = 0
    _opening: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _over: asyncio.Event = field(default_factory=asyncio.Event)
    _task: asyncio.Task[None] | None = None

    def show(self, progress: Progress) -> None:
        if progress.outcome is not None or self._over.is_set():
            return
        self._newest = self._state(progress)
        self._changed.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        """End the draft. Await an edit in progress, which would otherwise arrive after the answer, unless the turn
        was cancelled. Always await an opening: its message appears in the chat, and only its mark allows removing
        it."""
        self._over.set()
        self._changed.set()
        if self._task is not None and isinstance(error, asyncio.CancelledError) and not self._opening:
            self._task.cancel()
        elif self._task is not None:
            await asyncio.wait([self._task])

    def _state(self, progress: Progress) -> str:
        tool = next((it for it in reversed(progress.tools) if it.state == "running"), None)
        if tool is None and progress.tools and not progress.text:
            tool = progress.tools[-1]  # also one that took a moment is seen, until text follows
        calls = f"{tool.name} {tool.about}".strip() if tool else ""
        does = ": ".join(filter(None, (self.title, calls)))
        status = progress.note or (f"⏳ {does}"[:STATUS_CHARS] if does else "")
        texts = [] if self.whole else self.channel.split(progress.text)
        text = texts[0] + (" …" if len(texts) > 1 else "") if texts else ""
        return "\n\n".join(filter(None, (text.strip(), status)))

    async def _run(self) -> None:
        await self._pause(OPEN_SECONDS)
        while not self._over.is_set() and self._failures < FAILURES_MAX:
            self._changed.clear()
            wait, newest = self.seconds, self._newest or (self._shown and NOTHING_NEW)
            try:
                if newest and newest != self._shown:
                    await self._bring(newest)
                self._failures = 0
            except RateLimited as error:
                wait = max(wait, error.retry_after_seconds or wait)
            except DeliveryError as error:
                self._failures = FAILURES_MAX if self._is_final(error) else self._failures + 1
                log.info("draft_not_shown", channel=self.channel.name, reason=str(error), failures=self._failures)
            except Exception as error:  # the draft's edge: the answer does not need it
                self._failures = FAILURES_MAX
                log.error("draft_failed", exc_info=error)
            await self._pause(wait)
            if newest != self._shown:
                continue  # it did not come to be shown, and nothing newer may come for long
            try:
                async with asyncio.timeout(REFRESH_SECONDS if self.handle == "" else None):
                    await self._changed.wait()
            except TimeoutError:
                self._shown = ""

    def _is_final(self, error: DeliveryError) -> bool:
        """Return whether to stop retrying. An ambiguous opening would appear twice if the platform does not
        deduplicate."""
        recognised = self.channel.capabilities.repeat_seconds > 0
        in_doubt = self.handle is None and isinstance(error, Unreachable) and error.maybe_arrived and not recognised
        return isinstance(error, Refused) or in_doubt

    async def _pause(self, seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def _bring(self, text: str) -> None:
        context = self.context
        names = (context.channel, context.account, context.chat.id, context.message_id, str(self.turn))
        key = idempotency_key("draft", *names)
        quoted = None if self.channel.capabilities.quotes_in(context) == "off" else context.message_id or None
        target = Target(chat=context.chat.id, thread=context.chat.thread, reply_to=quoted)
        part = Outbound(target=target, text=text)
        if self.handle is None:
            self._opening = True
            try:
                await self._keep(await self.channel.open_draft(part, key))
                if not self._over.is_set() and not self.channel.capabilities.shows_new_drafts:
                    await self._keep(await self.channel.update_draft(replace(part, replaces=self.handle), key))
            finally:
                self._opening = False
            if self._over.is_set():
                return
            if self.channel.capabilities.shows_new_drafts:
                self._shown = text
                return
        before = self.handle
        await self._keep(await self.channel.update_draft(replace(part, replaces=before), key))
        self._shown = text if self.handle == before else ""  # else an earlier process has opened it, for another text

    async def _keep(self, handle: str) -> None:
        before, self.handle = self.handle, handle  # known to the answer even if the mark fails
        if handle and handle != before:
            mark = SessionMark(turn=self.turn, kind="draft", content=handle, at=self.runtime.now())
            await self.runtime.store.mark(self.sid, mark)
