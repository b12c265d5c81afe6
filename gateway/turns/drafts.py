"""An unfinished answer as a message that grows, if the channel can show one, and that the answer replaces in the end.

The message is opened once a turn, a second after there is something to show; its handle is a mark of the conversation, so
that after a crash the same message is finished and no second one is sent. It takes the newest state at the channel's pace
and never a queue of old ones. The answer does not need it: if it fails, the answer comes whole.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Self

import structlog

from channels.abilities import Progress, ShowsDrafts, can
from channels.channel import DeliveryError, RateLimited, Refused, Unreachable
from channels.message import MessageContext, Outbound, Target
from gateway.outbox.outbox import idempotency_key
from gateway.state.runtime import Runtime
from gateway.store.records import SessionMark
from gateway.store.sessions import is_control, task_of
from gateway.turns.batch import Batch

OPEN_SECONDS = 1.0
"""An answer that is whole sooner needs no draft."""
REFRESH_SECONDS = 15.0
"""Half the lifetime of a draft that vanishes by itself."""
PACE_SECONDS = 3.0
"""The pace of a draft that the chat is not to see any more."""
FAILURES_MAX = 3
STATUS_CHARS = 80
NOTHING_NEW = "…"
"""The line if there is no tool to name, and no text to show yet."""

log = structlog.get_logger()


async def draft_of(runtime: Runtime, batch: Batch, *, awaited: bool) -> "TurnDraft | None":
    """Returns the turn's draft, after a crash the opened one; None if the chat is not to see it, or if another turn waits
    for it and says so. A task shows its title and its calls."""
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
    """The title of the task that a message begins, on one line; empty if it begins none."""
    origin = context.origin
    return " ".join(origin.title.replace("`", "'").split()) if origin and origin.kind == "task" else ""


def task_status(progress: Progress) -> Progress:
    """Shows a task's turn to a channel that shows turns beside the messages: in a separate place, without its text, and
    gone once it has ended."""
    context = progress.context
    own = replace(context, message_id=f"task:{context.origin.id if context.origin else ''}")
    outcome = "interrupted" if progress.outcome else None
    return replace(progress, context=own, text="", note=f"⏳ {title_of(context)}", outcome=outcome)


@dataclass(kw_only=True)
class TurnDraft:
    """The draft of one turn, for the length of its `async with`. `seconds` is its pace; `whole` shows the turn's calls
    and nothing of the answer. `handle` is the opened message's, also if an earlier process opened it."""

    runtime: Runtime
    channel: ShowsDrafts
    context: MessageContext
    sid: str
    turn: int
    seconds: float
    whole: bool
    handle: str | None = None
    title: str = ""
    """The title of the task that it is a turn of."""
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
        """Ends the draft. An edit under way is awaited, since it would come after the answer, unless the turn was cut
        off. An opening is awaited even then: its message appears in the chat, and only its mark tells how to remove it."""
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
        """Returns True if it is not tried again: an opening that may have arrived would appear twice if the platform
        recognises no repetition."""
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
        """Records a new handle, so that it outlives the process."""
        before, self.handle = self.handle, handle  # known to the answer even if the mark fails
        if handle and handle != before:
            mark = SessionMark(turn=self.turn, kind="draft", content=handle, at=self.runtime.now())
            await self.runtime.store.mark(self.sid, mark)
