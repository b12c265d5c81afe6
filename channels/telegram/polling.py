"""Updates fetched by long polls: the next one confirms what has been stored, so that nothing is lost on the way.

An update is confirmed only after `deliver` has returned for it and for all before it. What cannot be read is logged and
passed over, or it would stand in the way for ever; what cannot be stored is fetched again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import structlog

from channels.channel import Deliver, DeliveryError, Receipt, Unreachable
from channels.telegram.api import TelegramApi, refusal_of
from channels.telegram.timing import Timing
from channels.telegram.updates import ALLOWED_UPDATES
from channels.wire import number

CONFLICT_SECONDS_MAX = 30.0
PASSING_CONFLICTS = 2
"""A restart overlaps with the poll that the last process left open; more than that is somebody else."""
BUSY_SECONDS = 1.0
"""A poll that ends empty sooner than this was not held open: some server or proxy does not know how."""
LIMIT = 100
_ANOTHER = "another process polls with this bot token: stop it, or give one of the two a bot of its own"
_WEBHOOK = "a webhook is set for this bot: stop the deployment that sets it, or choose mode: webhook here"

log = structlog.get_logger()


@dataclass(kw_only=True, slots=True)
class Polling:
    """`read` makes a receipt of an update."""

    api: TelegramApi
    account: str
    read: Callable[[Mapping[str, Any]], Receipt]
    deliver: Deliver
    timing: Timing
    _offset: int | None = None

    async def run(self) -> None:
        # What waits behind the webhook stays: nothing a person wrote is dropped.
        remove = partial(self.api.call, "deleteWebhook", {"drop_pending_updates": False})
        await self.timing.until_done("telegram_webhook_not_removed", remove, account=self.account)
        failures = conflicts = 0
        while True:
            try:
                updates = await self._fetch()
            except DeliveryError as error:
                failures += 1
                if (refusal := refusal_of(error)) is not None:
                    conflicts = conflicts + 1 if refusal.is_conflict else 0
                await self._pause(error, conflicts or failures)
                continue
            conflicts = 0
            failures = 0 if await self._hand_over(updates) else failures + 1
            if failures:
                await self.timing.sleep(self.timing.backoff(failures))

    async def _fetch(self) -> list[object]:
        timing, began = self.timing, self.timing.clock()
        body = {"timeout": timing.poll_seconds, "limit": LIMIT, "allowed_updates": list(ALLOWED_UPDATES)}
        body |= {} if self._offset is None else {"offset": self._offset}
        found = await self.api.call("getUpdates", body, timeout_seconds=timing.poll_seconds + timing.margin_seconds)
        if not isinstance(found, list):
            raise Unreachable("Telegram's answer to a poll has no updates")
        if not found and timing.clock() - began < BUSY_SECONDS:
            await timing.sleep(BUSY_SECONDS)
        return found

    async def _hand_over(self, updates: list[object]) -> bool:
        """False where one could not be stored: it and those behind it will come again."""
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
                    return False
            self._offset = update_id + 1
        return bool(readable) or not updates

    def _log(self, event: str, update_id: int, error: Exception) -> None:
        log.error(event, account=self.account, update=update_id, error=type(error).__name__)

    async def _pause(self, error: DeliveryError, failures: int) -> None:
        """With new connections where the old ones brought nothing."""
        refusal = refusal_of(error)
        if refusal is not None and refusal.is_conflict:
            wait = self.timing.backoff(failures, most=CONFLICT_SECONDS_MAX)
            write = log.warning if failures <= PASSING_CONFLICTS else log.error
            reason = _WEBHOOK if "webhook" in refusal.description.lower() else _ANOTHER
            write("telegram_conflict", account=self.account, reason=reason, failures=failures, seconds=round(wait, 1))
        else:
            wait = error.retry_after_seconds or self.timing.backoff(failures)
            log.warning("telegram_poll_failed", account=self.account, reason=str(error), seconds=round(wait, 1))
            if isinstance(error, Unreachable):
                await self.api.close()  # the next call opens new connections
        await self.timing.sleep(wait)
