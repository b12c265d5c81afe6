"""The webhook that Telegram is told of, kept as it should be and watched.

It is set only where Telegram has another one: every replica does this, and setting it often is refused. What Telegram
reports about failed deliveries goes to the log, as nobody else sees it.
"""

from collections.abc import Mapping
from typing import Any

import structlog

from channels.channel import DeliveryError, Unreachable
from channels.telegram.api import TelegramApi
from channels.telegram.errors import MethodError
from channels.telegram.timing import Timing, meaning, requested_wait
from channels.telegram.updates import ALLOWED_UPDATES
from channels.telegram.wire import number, text

log = structlog.get_logger()


class Registration:
    """`url` is None where the gateway's own address is not known: then it only watches."""

    def __init__(self, api: TelegramApi, *, account: str, url: str | None, secret: str, timing: Timing) -> None:
        self._api = api
        self._account = account
        self._url = url
        self._secret = secret
        self._timing = timing
        self._reported: int | None = None
        """When the failure happened that has been logged."""
        self._refused = False
        """We refused a delivery: the secret that Telegram has is not the one of now. It cannot be read back."""

    async def run(self) -> None:
        """Until it is cancelled."""
        if self._url is None:
            fix = "set server.publicUrl to the https address under which Telegram reaches this server"
            log.error("telegram_webhook_not_set", account=self._account, reason=fix)
        failures = 0
        while True:
            try:
                await self._look()
                failures, wait = 0, self._timing.watch_seconds
            except (MethodError, DeliveryError) as error:
                failures, reason = failures + 1, meaning(error)
                wait = requested_wait(reason) or self._timing.backoff(failures)
                shown = error.shown if isinstance(error, MethodError) else str(reason)
                log.error("telegram_webhook_failed", account=self._account, reason=shown, seconds=round(wait, 1))
            await self._timing.sleep(wait)

    async def _look(self) -> None:
        info = await self._api.call("getWebhookInfo")
        if not isinstance(info, dict):
            raise Unreachable("Telegram's answer about the webhook cannot be read")
        self._report(info)
        if self._url is not None and (self._refused or not _is_set(info, self._url)):
            await self._set(text(info, "url"), self._url)

    def _report(self, info: Mapping[str, Any]) -> None:
        """Log a failure that is new."""
        at, reason = number(info, "last_error_date"), text(info, "last_error_message")
        if at is None or at == self._reported:
            return
        self._reported = at
        self._refused = self._refused or "401" in reason
        waiting = number(info, "pending_update_count")
        log.warning("telegram_webhook_error", account=self._account, reason=reason[:200], at=at, waiting=waiting)

    async def _set(self, before: str, url: str) -> None:
        if before and before != url:
            log.warning("telegram_webhook_replaced", account=self._account, before=before[:200])
        body = {"url": url, "secret_token": self._secret, "allowed_updates": list(ALLOWED_UPDATES)}
        await self._api.call("setWebhook", body)
        self._refused = False
        log.info("telegram_webhook_set", account=self._account, url=url)


def _is_set(info: Mapping[str, Any], url: str) -> bool:
    updates = info.get("allowed_updates")
    return text(info, "url") == url and isinstance(updates, list) and set(map(str, updates)) == set(ALLOWED_UPDATES)
