"""How an emulated Telegram gets updates to the bot: by webhook, one at a time for each chat and again until it is
taken, or into the queue that getUpdates empties. The clock and the sleep can be a test's own.

Nothing runs by itself: an update goes out while somebody awaits `push` or `deliver_pending`.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

import httpx
import orjson

from tests.emulators.telegram.rules import DEFAULT_KINDS
from tests.emulators.telegram.updates import UpdateSource

RETENTION_SECONDS = 24 * 3_600
GONE_SECONDS = 23 * 3_600
ANSWER_SECONDS = 60.0
RETRY_SECONDS_MAX = 120.0
RETRY_AFTER_MAX = 3_600.0


@dataclass(kw_only=True, slots=True)
class Webhook:
    """Where updates go, and how that went. Without a `url` there is none."""

    url: str = ""
    secret: str = ""
    ip_address: str = ""
    last_error_date: int | None = None
    last_error_message: str = ""
    gone_since: float | None = None
    connections: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(40))


@dataclass(kw_only=True, slots=True, eq=False)
class Pending:
    """An update that the bot does not have yet."""

    update: Mapping[str, Any]
    since: float

    @property
    def queue(self) -> str:
        """Updates of one queue go out one after the other: those of a chat, and the button presses of a person."""
        (body,) = (body for kind, body in self.update.items() if kind != "update_id")
        if "callback_query" in self.update:
            return f"callback_query {body['from']['id']}"
        if "poll_answer" in self.update:
            return f"poll_answer {body['poll_id']}"
        return f"chat {body.get('chat', {}).get('id')}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Delivery:
    """One attempt; `status` is None where nobody answered."""

    update_id: int
    status: int | None


@dataclass(kw_only=True)
class UpdateDelivery(UpdateSource):
    """The queue of one bot."""

    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    webhook: Webhook = field(default_factory=Webhook)
    pending: list[Pending] = field(default_factory=list)
    deliveries: list[Delivery] = field(default_factory=list)
    misuses: list[str] = field(default_factory=list)
    """Methods that the bot called in its answer to a webhook: they are not carried out here."""
    allowed: frozenset[str] = DEFAULT_KINDS
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _queues: dict[str, asyncio.Lock] = field(default_factory=dict)

    # what a test says

    async def push(self, update: Mapping[str, Any]) -> httpx.Response | None:
        """Something happened. With a webhook, wait until the bot has taken it and return its answer.

        None where it stays in the queue or where the bot did not ask for such updates. Recorded updates will do.
        """
        self.learn(update)
        if not self.allowed & set(update):
            return None
        pending = Pending(update=update, since=self.now())
        self.pending.append(pending)
        await self._notify()
        return await self._deliver(pending) if self.webhook.url else None

    async def deliver_pending(self) -> None:
        """Deliver what waits, as Telegram does by itself when a webhook is set."""
        await asyncio.gather(*(self._deliver(pending) for pending in list(self.pending)))

    async def deliver_once(self, url: str, update: Mapping[str, Any], *, secret: str | None = None) -> httpx.Response:
        """One POST as Telegram makes it, whatever becomes of it. Raises httpx's errors."""
        headers = {"content-type": "application/json", "accept-encoding": "gzip, deflate"}
        headers |= {"x-telegram-bot-api-secret-token": secret} if secret else {}
        async with httpx.AsyncClient(timeout=ANSWER_SECONDS, trust_env=False) as client:
            return await client.post(url, content=orjson.dumps(update), headers=headers)

    # by webhook

    async def _deliver(self, pending: Pending) -> httpx.Response | None:
        """This update, and before it those of its queue that came earlier."""
        answer = None
        async with self._queues.setdefault(pending.queue, asyncio.Lock()):
            ahead = self.pending[: self.pending.index(pending) + 1] if pending in self.pending else []
            for each in ahead:
                if each.queue == pending.queue:
                    answer = await self._deliver_until_taken(each)
        return answer

    async def _deliver_until_taken(self, pending: Pending) -> httpx.Response | None:
        waits = retry_seconds()
        while pending in self.pending and self.webhook.url:
            if self.now() - pending.since >= RETENTION_SECONDS:
                self.pending.remove(pending)
                break
            answer = await self._attempt(pending)
            if answer is not None and answer.is_success:
                self.pending.remove(pending)
                return answer
            wait = next(waits)
            asked_for = answer.headers.get("retry-after", "") if answer is not None else ""
            await self.sleep(min(float(asked_for), RETRY_AFTER_MAX) if asked_for.isdecimal() else wait)
        return None

    async def _attempt(self, pending: Pending) -> httpx.Response | None:
        webhook, update_id = self.webhook, pending.update["update_id"]
        answer, error = None, ""
        try:
            async with webhook.connections:
                answer = await self.deliver_once(webhook.url, pending.update, secret=webhook.secret)
        except httpx.ReadTimeout:
            error = "Read timeout expired"
        except httpx.TimeoutException:
            error = "Connection timed out"
        except httpx.TransportError:
            error = "Webhook connection closed"
        self.deliveries.append(Delivery(update_id=update_id, status=answer.status_code if answer is not None else None))
        if answer is not None and answer.is_success:
            self._look_for_misuse(answer)
        elif answer is not None:
            error = f"Wrong response from the webhook: {answer.status_code} {answer.reason_phrase}"
        if error:
            webhook.last_error_date, webhook.last_error_message = int(self.now()), error
        self._count_gone(webhook, is_gone=answer is not None and answer.status_code == HTTPStatus.GONE)
        return answer

    def _count_gone(self, webhook: Webhook, *, is_gone: bool) -> None:
        """A webhook that says 410 for a day, less an hour, is removed."""
        webhook.gone_since = (webhook.gone_since or self.now()) if is_gone else None
        if webhook.gone_since is not None and self.now() - webhook.gone_since >= GONE_SECONDS:
            self.webhook = Webhook()

    def _look_for_misuse(self, answer: httpx.Response) -> None:
        """Telegram would carry out a method in the answer and tell nobody how that went, so a bot must not use it."""
        if answer.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            self.misuses += parse_qs(answer.text).get("method", [])
            return
        try:
            body = orjson.loads(answer.content or b"{}")
        except orjson.JSONDecodeError:
            return
        if isinstance(body, dict) and "method" in body:
            self.misuses.append(str(body["method"]))

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()


def retry_seconds() -> Iterator[float]:
    """How long to wait after each failure: not at all, then 2, 4, 8 and so on up to two minutes."""
    yield 0.0
    wait = 2.0
    while True:
        yield wait
        wait = min(2 * wait, RETRY_SECONDS_MAX)
