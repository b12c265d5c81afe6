"""How a bot asks an emulated Telegram for its updates: setWebhook and what belongs to it, and getUpdates.

A bot has the one or the other, and of pollers only the last; the three conflicts say so. How an update travels is in
`emulator_delivery`. Self-signed certificates are not here.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.emulators.telegram import models
from tests.emulators.telegram.delivery import RETENTION_SECONDS, UpdateDelivery, Webhook
from tests.emulators.telegram.rates import Rates
from tests.emulators.telegram.rules import DEFAULT_KINDS, Refusal, check_webhook_url

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
    polls: int = 0
    """How many were begun; only the last one goes on."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rates = Rates(now=lambda: self.now())

    async def _set_webhook(self, call: models.SetWebhook) -> Described:
        if not call.url:
            return await self._delete_webhook(call)
        check_webhook_url(call.url, local=self.local)
        if self.limit_rates:
            self.rates.check_webhook()
        before, allowed = self.webhook, self.allowed
        self._subscribe(call.allowed_updates)
        if call.drop_pending_updates:
            self.pending.clear()
        if (before.url, before.secret, allowed) == (call.url, call.secret_token, self.allowed):
            return Described("Webhook is already set")
        self.webhook = Webhook(
            url=call.url,
            secret=call.secret_token,
            ip_address=call.ip_address,
            connections=asyncio.Semaphore(call.max_connections),
        )
        await self._notify()
        return Described("Webhook was set")

    async def _delete_webhook(self, call: models.DeleteWebhook) -> Described:
        if call.drop_pending_updates:
            self.pending.clear()
        was_set, self.webhook = bool(self.webhook.url), Webhook()
        return Described("Webhook was deleted" if was_set else "Webhook is already deleted")

    async def _get_webhook_info(self, call: models.Call) -> dict[str, Any]:
        webhook = self.webhook
        info = {"url": webhook.url, "has_custom_certificate": False, "pending_update_count": len(self.pending)}
        optional = {
            "ip_address": webhook.ip_address,
            "last_error_date": webhook.last_error_date,
            "last_error_message": webhook.last_error_message,
            "allowed_updates": sorted(self.allowed) if self.allowed != DEFAULT_KINDS else None,
        }
        return info | {name: value for name, value in optional.items() if value}

    # by polling

    async def _get_updates(self, call: models.GetUpdates) -> list[Mapping[str, Any]]:
        if self.webhook.url:
            raise Refusal(409, WEBHOOK_IS_ACTIVE)
        self._subscribe(call.allowed_updates)
        self._confirm(call.offset)
        self.polls += 1
        mine = self.polls
        await self._notify()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(min(call.timeout, POLL_SECONDS_MAX)), self._changed:
                await self._changed.wait_for(lambda: self.pending or self.webhook.url or self.polls != mine)
        if self.webhook.url:
            raise Refusal(409, WEBHOOK_SET)
        if self.polls != mine:
            raise Refusal(409, OTHER_POLL)
        return [pending.update for pending in self.pending[: min(max(call.limit, 1), UPDATES_MAX)]]

    def _confirm(self, offset: int) -> None:
        """What the bot has handled is forgotten, and what is a day old; a negative offset keeps only the last ones."""
        fresh = [pending for pending in self.pending if self.now() - pending.since < RETENTION_SECONDS]
        if offset < 0:
            self.pending[:] = fresh[offset:]
        else:
            self.pending[:] = [pending for pending in fresh if pending.update["update_id"] >= offset]

    def _subscribe(self, kinds: Sequence[str] | None) -> None:
        """Which updates come from now on. Left out, it stays as it was; what already waits is not looked at."""
        if kinds is not None:
            self.allowed = frozenset(kinds) or DEFAULT_KINDS
