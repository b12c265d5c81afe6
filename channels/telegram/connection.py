"""How a bot stays in touch with Telegram: it learns its name, offers its menu, and then polls or keeps a webhook.

Each of these is tried until it works, and none ends while the gateway runs; whoever wants it to end cancels it.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import structlog

from channels.channel import Command, DeliveryError, Receipt, Refused
from channels.telegram.api import TelegramApi
from channels.telegram.config import TelegramAccount
from channels.telegram.errors import MethodError
from channels.telegram.polling import Deliver, Polling
from channels.telegram.registration import Registration
from channels.telegram.timing import Timing, meaning

COMMANDS_MAX = 100
DESCRIPTION_CHARS_MAX = 256

log = structlog.get_logger()


class Connection:
    """`learn` finds out who the bot is; `read` makes a receipt of an update and needs that."""

    def __init__(
        self,
        config: TelegramAccount,
        *,
        account: str,
        learn: Callable[[], Awaitable[None]],
        read: Callable[[Mapping[str, Any]], Receipt],
        timing: Timing,
    ) -> None:
        self._config = config
        self._account = account
        self._learn = learn
        self._read = read
        self._timing = timing

    async def run(self, *, public_url: str | None, commands: Sequence[Command], deliver: Deliver) -> None:
        """Until it is cancelled."""
        api = TelegramApi(self._config)  # of its own: a poll that hangs must not hold a send back
        try:
            await self._timing.until_done("telegram_identity_unknown", self._learn, account=self._account)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._offer(api, commands))
                tasks.create_task(self._kept(api, public_url, deliver))
        finally:
            await api.close()

    async def _kept(self, api: TelegramApi, public_url: str | None, deliver: Deliver) -> None:
        timing, account = self._timing, self._account
        if self._config.mode == "polling":
            await Polling(api, account=account, read=self._read, deliver=deliver, timing=timing).run()
        else:
            url = None if public_url is None else f"{public_url.rstrip('/')}/webhooks/telegram/{account}"
            secret = self._config.webhook_secret.get_secret_value()
            await Registration(api, account=account, url=url, secret=secret, timing=timing).run()

    async def _offer(self, api: TelegramApi, commands: Sequence[Command]) -> None:
        """The menu is a nicety: one that Telegram refuses is left out."""
        menu = [
            {"command": command.name, "description": command.description[:DESCRIPTION_CHARS_MAX]}
            for command in commands
            if re.fullmatch(r"[a-z0-9_]{1,32}", command.name) and command.description.strip()
        ]

        async def attempt() -> None:
            try:
                await api.call("setMyCommands", {"commands": menu[:COMMANDS_MAX]})
            except (MethodError, DeliveryError) as error:
                if not isinstance(meaning(error), Refused):
                    raise
                log.warning("telegram_menu_refused", account=self._account, reason=str(meaning(error)))

        await self._timing.until_done("telegram_menu_not_set", attempt, account=self._account)
