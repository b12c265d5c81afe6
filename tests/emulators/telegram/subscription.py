"""How a bot asks an emulated Telegram for its updates: setWebhook and what belongs to it, and getUpdates.

A bot has the one or the other, and of pollers only the last; the three conflicts say so. How an update travels is in
`emulator_delivery`. Self-signed certificates are not here.
"""

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.emulators.telegram.delivery import RETENTION_SECONDS, UpdateDelivery, Webhook
from tests.emulators.telegram.rates import Rates
from tests.emulators.telegram.requests import Asked
from tests.emulators.telegram.rules import (
    NOT_BY_DEFAULT,
    UPDATE_KINDS,
    Refusal,
    bad_request,
    check_secret,
    check_update_kinds,
    check_webhook_url,
)

CONNECTIONS_MAX = 100
UPDATES_MAX = 100
POLL_SECONDS_MAX = 50

WEBHOOK_IS_ACTIVE = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"
)
OTHER_POLL = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
WEBHOOK_SET = "Conflict: terminated by setWebhook request"


@dataclass(frozen=True, slots=True)
class Described:
    """A result with words to it."""

    description: str
    result: bool = True


@dataclass(kw_only=True)
class Subscription(UpdateDelivery):
    """What the bot asked for."""

    local: bool = False
    """As a server of one's own: webhooks may go to any address."""
    limit_rates: bool = False
    _polls: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rates = Rates(now=lambda: self.now())

    async def _set_webhook(self, asked: Asked) -> Described:
        url = asked.text("url") or ""
        if not url:
            return await self._delete_webhook(asked)
        check_webhook_url(url, local=self.local)
        secret = check_secret(asked.text("secret_token"))
        connections = asked.number("max_connections") or 40
        if not 1 <= connections <= (CONNECTIONS_MAX if not self.local else 100_000):
            raise bad_request("wrong parameter max_connections in request")  # stricter than the real server
        if self.limit_rates:
            self.rates.check_webhook()
        before, allowed = self.webhook, self.allowed
        self._ask_for(asked)
        if asked.flag("drop_pending_updates"):
            self.pending.clear()
        same = (before.url, before.secret, before.max_connections) == (url, secret, connections)
        if same and allowed == self.allowed:
            return Described("Webhook is already set")
        self.webhook = Webhook(
            url=url,
            secret=secret,
            max_connections=connections,
            ip_address=asked.text("ip_address") or "",
            connections=asyncio.Semaphore(connections),
        )
        await self._tell()
        return Described("Webhook was set")

    async def _delete_webhook(self, asked: Asked) -> Described:
        if asked.flag("drop_pending_updates"):
            self.pending.clear()
        was_set, self.webhook = bool(self.webhook.url), Webhook()
        return Described("Webhook was deleted" if was_set else "Webhook is already deleted")

    async def _get_webhook_info(self, asked: Asked) -> dict[str, Any]:
        webhook = self.webhook
        info = {
            "url": webhook.url,
            "has_custom_certificate": False,
            "pending_update_count": len(self.pending),
        }
        if webhook.url:
            info["max_connections"] = webhook.max_connections
        optional = {
            "ip_address": webhook.ip_address,
            "last_error_date": webhook.last_error_date,
            "last_error_message": webhook.last_error_message,
            "allowed_updates": sorted(self.allowed) if self.allowed != UPDATE_KINDS - NOT_BY_DEFAULT else None,
        }
        return info | {name: value for name, value in optional.items() if value}

    # by polling

    async def _get_updates(self, asked: Asked) -> list[Mapping[str, Any]]:
        offset = asked.number("offset") or 0
        limit = min(max(asked.number("limit") or UPDATES_MAX, 1), UPDATES_MAX)
        if self.webhook.url:
            raise Refusal(409, WEBHOOK_IS_ACTIVE)
        self._ask_for(asked)
        self._confirm(offset)
        self._polls += 1
        mine = self._polls
        await self._tell()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(asked.number("timeout") or 0, POLL_SECONDS_MAX)), self._changed:
                await self._changed.wait_for(lambda: self.pending or self.webhook.url or self._polls != mine)
        if self.webhook.url:
            raise Refusal(409, WEBHOOK_SET)
        if self._polls != mine:
            raise Refusal(409, OTHER_POLL)
        return [pending.update for pending in self.pending[:limit]]

    def _confirm(self, offset: int) -> None:
        """What the bot has handled is forgotten, and what is a day old; a negative offset keeps only the last ones."""
        fresh = [pending for pending in self.pending if self.now() - pending.since < RETENTION_SECONDS]
        if offset < 0:
            self.pending[:] = fresh[offset:]
        else:
            self.pending[:] = [pending for pending in fresh if pending.update["update_id"] >= offset]

    def _ask_for(self, asked: Asked) -> None:
        """Which updates come from now on. Left out, it stays as it was; what already waits is not looked at."""
        kinds = asked.rows("allowed_updates")
        if kinds is not None:
            self.allowed = check_update_kinds(kinds)
