"""Background tasks of a bot's connection: polling or the webhook, the menu, and answers to button presses.

Each is retried until it succeeds, and runs until it is cancelled.
"""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import structlog

from channels.abilities import MenuEntry
from channels.channel import Deliver, DeliveryError, Ignored, NotStored, Receipt, Refused, Unreachable
from channels.condition import Condition
from channels.message import ChatKind
from channels.telegram.api import TelegramApi, refusal_of
from channels.telegram.doctor import CAUSES, cause_of
from channels.telegram.timing import Timing
from channels.telegram.updates import ALLOWED_UPDATES, QUERY_CHARS_MAX
from channels.wire import number, text

CONFLICT_SECONDS_MAX = 30.0
STORE_SECONDS_MAX = 10.0
"""Maximum backoff while our own database is unavailable."""
PASSING_CONFLICTS = 2
"""A restart conflicts with the poll that the last process left open; more conflicts mean another process."""
BUSY_SECONDS = 1.0
"""An empty poll that ends sooner was not held open: some server or proxy does not support long polling."""
LIMIT = 100
TRIES_MAX = 3
"""Attempts to store an update that raises; later updates wait meanwhile."""
UNANSWERED_MAX = 1
"""Consecutive failed polls before Telegram counts as unreachable."""


@dataclass(kw_only=True, slots=True)
class Polling:
    """Long polling. Each poll confirms the updates that have been stored, so that none is lost.

    Unreadable updates are logged and skipped, since they would block the others; so are updates whose storing fails
    TRIES_MAX times. While the database is unavailable, updates are fetched again. `read` turns an update into a receipt."""

    api: TelegramApi
    account: str
    read: Callable[[Mapping[str, Any]], Receipt]
    deliver: Deliver
    timing: Timing
    condition: Condition
    _offset: int | None = None
    _tries: int = 0
    """Failed attempts to store the next update."""

    async def run(self) -> None:
        # Keep pending updates: no message may be dropped.
        await self.timing.until_done("telegram_webhook_not_removed", self._remove_webhook, account=self.account)
        failures = conflicts = 0
        while True:
            try:
                # After a failure, ask for an immediate answer; after a conflict, hold the poll, since a rival would end it.
                updates = await self._fetch(0 if failures and not conflicts else self.timing.poll_seconds)
            except DeliveryError as error:
                failures += 1
                if (refusal := refusal_of(error)) is not None:
                    conflicts = conflicts + 1 if refusal.is_conflict else 0
                passing = conflicts <= PASSING_CONFLICTS if conflicts else failures <= UNANSWERED_MAX
                if isinstance(error, Refused) or not passing:
                    self.condition.failed("events", error)
                await self._pause(error, conflicts or failures)
                continue
            conflicts = 0
            self.condition.ok("events")
            failures = 0 if await self._hand_over(updates) else failures + 1
            if failures:
                await self.timing.sleep(self.timing.backoff(failures, most=STORE_SECONDS_MAX))

    async def _remove_webhook(self) -> None:
        with self.condition.watching("events"):
            await self.api.call("deleteWebhook", {"drop_pending_updates": False})

    async def _fetch(self, seconds: int) -> list[object]:
        timing, began = self.timing, self.timing.clock()
        body = {"timeout": seconds, "limit": LIMIT, "allowed_updates": list(ALLOWED_UPDATES)}
        body |= {} if self._offset is None else {"offset": self._offset}
        updates = await self.api.call("getUpdates", body, timeout_seconds=timing.poll_seconds + timing.margin_seconds)
        if not isinstance(updates, list):
            raise Unreachable("Telegram's answer to a poll has no updates")
        if not updates and timing.clock() - began < BUSY_SECONDS:
            await timing.sleep(BUSY_SECONDS)
        return updates

    async def _hand_over(self, updates: list[object]) -> bool:
        readable = {
            update_id: update
            for update in updates
            if isinstance(update, dict) and (update_id := number(update, "update_id")) is not None
        }
        if len(readable) < len(updates):
            log.error("telegram_update_unreadable", account=self.account, count=len(updates) - len(readable))
        for update_id, update in sorted(readable.items()):
            try:
                receipt = self.read(update)
            except Exception as error:  # noqa: BLE001 - one odd update must not keep all later ones away
                self._log("telegram_update_unreadable", update_id, error)
            else:
                try:
                    await self.deliver(receipt)
                except Exception as error:  # noqa: BLE001 - whatever it was, the update is not stored
                    self._log("telegram_update_not_stored", update_id, error)
                    self._tries += not isinstance(error, NotStored)
                    if self._tries < TRIES_MAX:
                        return False
                    self._log("telegram_update_given_up", update_id, error)
                    with suppress(Exception):
                        await self.deliver(Ignored(kind="unknown", reason="given up"))  # counted
            self._offset, self._tries = update_id + 1, 0
        return bool(readable) or not updates

    def _log(self, event: str, update_id: int, error: Exception) -> None:
        log.error(event, account=self.account, update=update_id, error=type(error).__name__)

    async def _pause(self, error: DeliveryError, failures: int) -> None:
        refusal = refusal_of(error)
        if refusal is not None and refusal.is_conflict:
            wait = self.timing.backoff(failures, most=CONFLICT_SECONDS_MAX)
            write = log.warning if failures <= PASSING_CONFLICTS else log.error
            reason = ": ".join(it.en for it in CAUSES[cause_of(error)][1:]).replace("{at}.", "")
            write("telegram_conflict", account=self.account, reason=reason, failures=failures, seconds=round(wait, 1))
        else:
            wait = error.retry_after_seconds or self.timing.backoff(failures)
            log.warning("telegram_poll_failed", account=self.account, reason=str(error), seconds=round(wait, 1))
            if isinstance(error, Unreachable):
                await self.api.close()  # the next call opens new connections
        await self.timing.sleep(wait)


COMMANDS_MAX = 100
KINDS: tuple[ChatKind, ...] = ("direct", "group")
DESCRIPTION_CHARS_MAX = 256
WAITING_MAX = 100
KNOWN_MAX = 1_000
ANSWER_SECONDS = 5.0
"""Timeout of the answer to a press; later it has no effect."""

log = structlog.get_logger()


async def offer_menus(
    api: TelegramApi, commands: Sequence[MenuEntry], owners: Sequence[str], *, account: str, timing: Timing
) -> None:
    """Set the menus of direct chats, groups, and each owner (with owners' commands), in each language. Skip a menu that
    Telegram refuses, such as that of an owner who has not written to the bot yet."""
    direct, group = ([it for it in commands if it.is_shown(kind, owner=False)] for kind in KINDS)
    theirs = [it for it in commands if it.is_shown("direct", owner=True)]
    menus: list[tuple[dict[str, Any], Sequence[MenuEntry]]] = [
        ({"type": "default"}, direct),
        ({"type": "all_group_chats"}, group),
    ]
    menus += [({"type": "chat", "chat_id": int(it)}, theirs) for it in owners if it.isascii() and it.isdigit()]
    for scope, entries in menus:
        for language in ("", "zh"):
            await _offer_menu(api, entries, scope, language, account=account, timing=timing)


async def _offer_menu(
    api: TelegramApi,
    entries: Sequence[MenuEntry],
    scope: Mapping[str, Any],
    language: str,
    *,
    account: str,
    timing: Timing,
) -> None:
    shown = [(it.name, it.zh if language == "zh" else it.en) for it in entries]
    menu = [
        {"command": name, "description": text[:DESCRIPTION_CHARS_MAX]}
        for name, text in shown
        if re.fullmatch(r"[a-z0-9_]{1,32}", name) and text.strip()
    ]
    body = {"commands": menu[:COMMANDS_MAX], "scope": scope} | ({"language_code": language} if language else {})

    async def attempt() -> None:
        try:
            await api.call("setMyCommands", body)
        except Refused as error:
            log.warning("telegram_menu_refused", account=account, scope=scope["type"], reason=str(error))

    await timing.until_done("telegram_menu_not_set", attempt, account=account)


@dataclass(kw_only=True, slots=True)
class Registration:
    """Keep the webhook registered, and log the delivery failures that Telegram reports.

    Set it only if it differs: every replica checks it, and frequent calls are refused. Without `url`, only watch."""

    api: TelegramApi
    account: str
    url: str | None
    secret: str = field(repr=False)
    timing: Timing
    condition: Condition
    _reported: int | None = None
    """Time of the last logged failure."""
    _watched: bool = False
    """True after the first check, whose findings may predate our start."""
    _refused: bool = False
    """True if we refused a delivery: Telegram has an old secret, which cannot be read back."""

    async def run(self) -> None:
        if self.url is None:
            fix = "set server.publicUrl to the https address under which Telegram reaches this server"
            log.error("telegram_webhook_not_set", account=self.account, reason=fix)
        failures = 0
        while True:
            try:
                with self.condition.watching("events"):
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
        self._watched = True
        if not number(info, "pending_update_count"):  # another replica may have handled them
            self.condition.ends("deliveries", "undelivered")
        updates, url = info.get("allowed_updates"), text(info, "url")
        is_set = url == self.url and isinstance(updates, list) and set(map(str, updates)) == set(ALLOWED_UPDATES)
        if self.url is not None and (self._refused or not is_set):
            await self._set(url, self.url)
        elif self.url is None and not url:
            self.condition.fails("deliveries", "address")

    def _report(self, info: Mapping[str, Any]) -> None:
        at, reason = number(info, "last_error_date"), text(info, "last_error_message")
        if at is None or at == self._reported:
            return
        is_new, self._reported = self._watched, at
        self._refused = self._refused or "401" in reason
        waiting = number(info, "pending_update_count")
        if is_new and waiting and not self._refused:
            detail = f"Telegram's last delivery failed: {reason[:200]}"
            self.condition.fails("deliveries", "undelivered", detail, reason[:200])
        log.warning("telegram_webhook_error", account=self.account, reason=reason[:200], at=at, waiting=waiting)

    async def _set(self, before: str, url: str) -> None:
        if before and before != url:
            log.warning("telegram_webhook_replaced", account=self.account, before=before[:200])
        body = {"url": url, "secret_token": self.secret, "allowed_updates": list(ALLOWED_UPDATES)}
        await self.api.call("setWebhook", body)
        self._refused = False
        log.info("telegram_webhook_set", account=self.account, url=url)


@dataclass(kw_only=True, slots=True)
class Callbacks:
    """Answer each button press once, so that the button stops spinning. Failures are not retried."""

    api: TelegramApi
    account: str
    _waiting: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(WAITING_MAX))
    _known: dict[str, None] = field(default_factory=dict)
    """The latest presses, to deduplicate redeliveries."""

    def note(self, query: str) -> None:
        """Queue the answer to a press, without blocking."""
        if not query or len(query) > QUERY_CHARS_MAX or query in self._known or self._waiting.full():
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
