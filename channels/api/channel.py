"""OpenAI API clients as a channel: one account per token.

Nothing is sent: the answer is in the store, where the waiting request finds it, whichever replica wrote it. This channel
only holds the progress that a request sees meanwhile.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime

from channels.abilities import Progress
from channels.access import AccessConfig
from channels.channel import Capabilities, Fetch, Receipt, Refused, Rejected, WebhookRequest, stored_file
from channels.message import Attachment, File, MessageContext, Outbound
from channels.section import QueueConfig


class WaitingCall:
    """A request that waits for a turn. `changed` is set whenever there is newer `progress`."""

    def __init__(self) -> None:
        self.progress: Progress | None = None
        self.changed = asyncio.Event()

    def tell(self, progress: Progress) -> None:
        self.progress = progress
        self.changed.set()


class ApiChannel:
    """`channels.channel.Channel`, `ShowsProgress` and `DownloadsFiles`."""

    name = "api"
    access = AccessConfig(dmPolicy="open", groupPolicy="disabled")
    """Access was checked by the token."""
    capabilities = Capabilities(names=("markdown",), programs=True, repeat_seconds=float("inf"))
    queue = QueueConfig()
    resend_ambiguous = True

    def __init__(self, account: str, stored: Fetch) -> None:
        self.account = account
        self._stored = stored
        self._waiting: dict[str, set[WaitingCall]] = {}

    @contextmanager
    def waiting(self, message_id: str) -> Iterator[WaitingCall]:
        """Register a request while it waits for the answer to that message."""
        waiting = WaitingCall()
        self._waiting.setdefault(message_id, set()).add(waiting)
        try:
            yield waiting
        finally:
            self._waiting[message_id].discard(waiting)
            if not self._waiting[message_id]:
                del self._waiting[message_id]

    def show(self, progress: Progress) -> None:
        for waiting in self._waiting.get(progress.context.message_id, ()):
            waiting.tell(progress)

    def receive(self, request: WebhookRequest, now: datetime) -> Receipt:
        raise Rejected("the api has no webhook", status=404)

    async def learn_identity(self, timeout_seconds: float) -> None:
        """No-op: there is no platform to ask."""

    async def enrich(self, context: MessageContext) -> MessageContext:
        return context

    async def fetch(self, attachment: Attachment, *, bytes_max: int) -> File:
        return await stored_file(self._stored, attachment, bytes_max)

    def split(self, text: str) -> list[str]:
        return [text]

    async def send(self, part: Outbound, key: str) -> str:
        """Raises Refused for a part that answers no request, since nobody would read it."""
        if part.target.reply_to is None:
            raise Refused("a program that uses the api cannot be written to: it only gets answers")
        return key

    async def close(self) -> None:
        """No-op: nothing to close."""
