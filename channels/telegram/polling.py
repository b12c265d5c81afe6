"""Updates fetched by long polls: the next one confirms what has been stored, so that nothing is lost on the way.

An update is confirmed only after `deliver` has returned for it and for all before it. What cannot be read is logged and
passed over, or it would stand in the way for ever; what cannot be stored is fetched again.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import structlog

from channels.channel import DeliveryError, Receipt, Unreachable
from channels.telegram.api import MethodError, TelegramApi
from channels.telegram.timing import Timing, meaning, requested_wait
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

Deliver: TypeAlias = Callable[[Receipt], Awaitable[None]]
log = structlog.get_logger()


class Polling:
    """`read` makes a receipt of an update."""

    def __init__(
        self,
        api: TelegramApi,
        *,
        account: str,
        read: Callable[[Mapping[str, Any]], Receipt],
        deliver: Deliver,
        timing: Timing,
    ) -> None:
        self._api = api
        self._account = account
        self._read = read
        self._deliver = deliver
        self._timing = timing
        self._offset: int | None = None

    async def run(self) -> None:
        """Until it is cancelled."""
        await self._timing.until_done("telegram_webhook_not_removed", self._remove_webhook, account=self._account)
        failures = conflicts = 0
        while True:
            try:
                updates = await self._fetch()
            except MethodError as error:
                failures, conflicts = failures + 1, conflicts + 1 if error.is_conflict else 0
                await self._pause(error, conflicts or failures)
                continue
            except DeliveryError as error:
                failures += 1
                await self._pause(error, failures)
                continue
            conflicts = 0
            if await self._hand_over(updates):
                failures = 0
            else:
                failures += 1
                await self._timing.sleep(self._timing.backoff(failures))

    async def _remove_webhook(self) -> None:
        """What waits behind it stays: nothing a person wrote is dropped."""
        await self._api.call("deleteWebhook", {"drop_pending_updates": False})

    async def _fetch(self) -> list[object]:
        timing, began = self._timing, self._timing.clock()
        body: dict[str, Any] = {
            "timeout": timing.poll_seconds,
            "limit": LIMIT,
            "allowed_updates": list(ALLOWED_UPDATES),
        }
        if self._offset is not None:
            body["offset"] = self._offset
        found = await self._api.call("getUpdates", body, timeout_seconds=timing.poll_seconds + timing.margin_seconds)
        if not isinstance(found, list):
            raise Unreachable("Telegram's answer to a poll has no updates")
        if not found and timing.clock() - began < BUSY_SECONDS:
            await timing.sleep(BUSY_SECONDS)
        return found

    async def _hand_over(self, updates: list[object]) -> bool:
        """False where one could not be stored: it and those behind it will come again."""
        readable = [
            update for update in updates if isinstance(update, dict) and number(update, "update_id") is not None
        ]
        if len(readable) < len(updates):
            log.error("telegram_update_unreadable", account=self._account, count=len(updates) - len(readable))
        for update in sorted(readable, key=lambda update: number(update, "update_id") or 0):
            update_id = number(update, "update_id") or 0
            if (receipt := self._receipt(update, update_id)) is not None:
                try:
                    await self._deliver(receipt)
                except Exception as error:  # noqa: BLE001 - whatever it was, the update is not stored
                    kind = type(error).__name__
                    log.error("telegram_update_not_stored", account=self._account, update=update_id, error=kind)
                    return False
            self._offset = update_id + 1
        return bool(readable) or not updates

    def _receipt(self, update: Mapping[str, Any], update_id: int) -> Receipt | None:
        try:
            return self._read(update)
        except Exception as error:  # noqa: BLE001 - one odd update must not keep all later ones away
            kind = type(error).__name__
            log.error("telegram_update_unreadable", account=self._account, update=update_id, error=kind)
            return None

    async def _pause(self, error: MethodError | DeliveryError, failures: int) -> None:
        """With new connections where the old ones brought nothing."""
        timing, reason = self._timing, meaning(error)
        if isinstance(error, MethodError) and error.is_conflict:
            wait = timing.backoff(failures, most=CONFLICT_SECONDS_MAX)
            say = log.warning if failures <= PASSING_CONFLICTS else log.error
            who = _WEBHOOK if "webhook" in error.description.lower() else _ANOTHER
            say("telegram_conflict", account=self._account, reason=who, failures=failures, seconds=round(wait, 1))
        else:
            wait = requested_wait(reason) or timing.backoff(failures)
            log.warning("telegram_poll_failed", account=self._account, reason=str(reason), seconds=round(wait, 1))
            if isinstance(reason, Unreachable):
                await self._api.renew()
        await timing.sleep(wait)
