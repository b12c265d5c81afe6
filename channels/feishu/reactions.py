"""A reaction on a message while it is being answered: Feishu has no "typing…".

It is there while the turn runs, and nothing waits for it. It is found by listing when it goes, so one that an earlier
process has left, or whose call got lost, goes with it. An app without the permission does without, and says so once.
"""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from urllib.parse import quote

import structlog

from channels.abilities import Progress
from channels.channel import DeliveryError, RateLimited, Refused, Unreachable
from channels.feishu.api import FeishuApi
from channels.message import MessageContext
from channels.wire import mapping, mappings, text

QUICK_SECONDS = 0.4
"""A reply that is there sooner needs no reaction."""
CALL_SECONDS = 4.0
AGAIN_SECONDS = 1.0
ATTEMPTS_MAX = 4
CLOSE_SECONDS = 2.0

EMOJI = {
    "👍": "THUMBSUP",
    "👎": "ThumbsDown",
    "👌": "OK",
    "❤": "HEART",
    "😊": "SMILE",
    "🙂": "SMILE",
    "👏": "APPLAUSE",
    "🎉": "PARTY",
    "🙏": "THANKS",
    "🔥": "Fire",
    "🤔": "THINKING",
    "👀": "GLANCE",
    "✅": "DONE",
    "❌": "CrossMark",
}
"""Feishu's names of what models know as emoji."""

log = structlog.get_logger()


async def react(api: FeishuApi, message_id: str, emoji: str) -> None:
    """Reacts with an emoji, or with Feishu's name of one. Raises DeliveryError."""
    name = EMOJI.get(emoji.strip().replace("\ufe0f", ""), emoji.strip())
    path = f"/open-apis/im/v1/messages/{quote(message_id, safe='')}/reactions"
    await api.call(path, body={"reaction_type": {"emoji_type": name}})


@dataclass(kw_only=True, slots=True)
class Reactions:
    """`emoji` is one of Feishu's, empty for none."""

    api: FeishuApi
    account: str
    app_id: str
    emoji: str
    _turns: dict[str, asyncio.Event] = field(default_factory=dict)
    """The messages being answered, by the message's id, and whether that is over."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def show(self, progress: Progress) -> None:
        """Never blocks and never raises. In a group only who addressed the bot is to see it."""
        context = progress.context
        if progress.outcome is not None:
            if over := self._turns.pop(context.message_id, None):
                over.set()
            return
        addressed = context.chat.kind == "direct" or context.mentioned
        if self.emoji and addressed and context.press is None and context.message_id not in {*self._turns, ""}:
            over = self._turns[context.message_id] = asyncio.Event()
            task = asyncio.create_task(self._present(progress, self.emoji, over))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def close(self) -> None:
        for over in self._turns.values():
            over.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()

    async def _present(self, progress: Progress, emoji: str, over: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if progress.resumed else QUICK_SECONDS):
                await over.wait()
            return
        path = f"/open-apis/im/v1/messages/{quote(progress.context.message_id, safe='')}/reactions"
        try:
            body = {"reaction_type": {"emoji_type": emoji}}
            await self.api.call(path, body=body, timeout_seconds=CALL_SECONDS)
        except DeliveryError as error:
            log.info("feishu_reaction_not_shown", account=self.account, code=error.code, reason=str(error))
            if isinstance(error, Refused):
                self.emoji = ""  # it would be refused for every message
            if not isinstance(error, Unreachable):
                return
        await over.wait()
        await self.remove(progress.context)

    async def remove(self, context: MessageContext) -> None:
        """Removes the reaction, but not while the message is being answered."""
        if not self.emoji or context.message_id in {*self._turns, ""} or context.press:
            return
        path = f"/open-apis/im/v1/messages/{quote(context.message_id, safe='')}/reactions"
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self._remove(path, self.emoji)
            except (RateLimited, Unreachable):
                await asyncio.sleep(AGAIN_SECONDS * 2**attempt)
            except DeliveryError:
                return  # the message was withdrawn, and this with it
            else:
                return

    async def _remove(self, path: str, emoji: str) -> None:
        listed = await self.api.call(path, {"reaction_type": emoji}, timeout_seconds=CALL_SECONDS)
        for item in mappings(mapping(listed, "data"), "items"):
            if text(mapping(item, "operator"), "operator_id") == self.app_id:
                one = f"{path}/{quote(text(item, 'reaction_id'), safe='')}"
                await self.api.call(one, method="DELETE", timeout_seconds=CALL_SECONDS)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("feishu_reaction_failed", exc_info=error)
