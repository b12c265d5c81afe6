"""What keeps a bot in touch with Telegram besides polling: its menu, its webhook, and the answers to presses.

Each of these is tried until it works, and none ends while the gateway runs; whoever wants it to end cancels it.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import structlog

from channels.channel import Command, DeliveryError, Refused, Unreachable
from channels.telegram.api import TelegramApi, refusal_of
from channels.telegram.timing import Timing
from channels.telegram.updates import ALLOWED_UPDATES
from channels.wire import mapping, number, text

COMMANDS_MAX = 100
DESCRIPTION_CHARS_MAX = 256
WAITING_MAX = 100
KNOWN_MAX = 1_000
ID_CHARS_MAX = 64
ANSWER_SECONDS = 5.0
"""Later the button has given up by itself."""

log = structlog.get_logger()


async def offer_menu(api: TelegramApi, commands: Sequence[Command], *, account: str, timing: Timing) -> None:
    """The menu is a nicety: one that Telegram refuses is left out."""
    menu = [
        {"command": command.name, "description": command.description[:DESCRIPTION_CHARS_MAX]}
        for command in commands
        if re.fullmatch(r"[a-z0-9_]{1,32}", command.name) and command.description.strip()
    ]

    async def attempt() -> None:
        try:
            await api.call("setMyCommands", {"commands": menu[:COMMANDS_MAX]})
        except Refused as error:
            log.warning("telegram_menu_refused", account=account, reason=str(error))

    await timing.until_done("telegram_menu_not_set", attempt, account=account)


@dataclass(kw_only=True, slots=True)
class Registration:
    """Keeps the webhook set and logs the delivery failures that Telegram reports.

    It is set only where it differs, as every replica does this and setting it often is refused.
    `url` is None where the gateway's own address is not known: then it only watches."""

    api: TelegramApi
    account: str
    url: str | None
    secret: str = field(repr=False)
    timing: Timing
    _reported: int | None = None
    """When the failure happened that has been logged."""
    _refused: bool = False
    """We refused a delivery: the secret that Telegram has is not the one of now. It cannot be read back."""

    async def run(self) -> None:
        if self.url is None:
            fix = "set server.publicUrl to the https address under which Telegram reaches this server"
            log.error("telegram_webhook_not_set", account=self.account, reason=fix)
        failures = 0
        while True:
            try:
                await self._check()
                failures, wait = 0, self.timing.watch_seconds
            except DeliveryError as error:
                failures, refusal = failures + 1, refusal_of(error)
                wait = error.retry_after_seconds or self.timing.backoff(failures)
                reason = refusal.shown if refusal else str(error)
                log.error("telegram_webhook_failed", account=self.account, reason=reason, seconds=round(wait, 1))
            await self.timing.sleep(wait)

    async def _check(self) -> None:
        info = await self.api.call("getWebhookInfo")
        if not isinstance(info, dict):
            raise Unreachable("Telegram's answer about the webhook cannot be read")
        self._report(info)
        if self.url is not None and (self._refused or not _is_set(info, self.url)):
            await self._set(text(info, "url"), self.url)

    def _report(self, info: Mapping[str, Any]) -> None:
        """Log a failure that is new."""
        at, reason = number(info, "last_error_date"), text(info, "last_error_message")
        if at is None or at == self._reported:
            return
        self._reported = at
        self._refused = self._refused or "401" in reason
        waiting = number(info, "pending_update_count")
        log.warning("telegram_webhook_error", account=self.account, reason=reason[:200], at=at, waiting=waiting)

    async def _set(self, before: str, url: str) -> None:
        if before and before != url:
            log.warning("telegram_webhook_replaced", account=self.account, before=before[:200])
        body = {"url": url, "secret_token": self.secret, "allowed_updates": list(ALLOWED_UPDATES)}
        await self.api.call("setWebhook", body)
        self._refused = False
        log.info("telegram_webhook_set", account=self.account, url=url)


def _is_set(info: Mapping[str, Any], url: str) -> bool:
    updates = info.get("allowed_updates")
    return text(info, "url") == url and isinstance(updates, list) and set(map(str, updates)) == set(ALLOWED_UPDATES)


@dataclass(kw_only=True, slots=True)
class Callbacks:
    """Answers each button press once, or its button would spin; a press starts no turn. Failures are not repeated."""

    api: TelegramApi
    account: str
    _waiting: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))
    _known: dict[str, None] = field(default_factory=dict)
    """The latest ones, as an update may come again."""

    def note(self, update: Mapping[str, Any]) -> None:
        """Queues a press; returns at once and ignores other kinds of update."""
        query = text(mapping(update, "callback_query"), "id")
        if not query or len(query) > ID_CHARS_MAX or query in self._known or self._waiting.full():
            return
        self._known[query] = None
        if len(self._known) > KNOWN_MAX:
            del self._known[next(iter(self._known))]
        self._waiting.put_nowait(query)

    async def run(self) -> None:
        while True:
            body = {"callback_query_id": await self._waiting.get()}
            try:
                await self.api.call("answerCallbackQuery", body, timeout_seconds=ANSWER_SECONDS)
            except DeliveryError as error:
                log.info("telegram_press_unanswered", account=self.account, error=type(error).__name__)
