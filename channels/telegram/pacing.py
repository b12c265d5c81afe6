"""How fast a bot sends: Telegram counts its messages, those to one chat, and, more strictly, those to one group.

One refusal slows the chat that it was about; refusals in several chats at a time mean the bot, and all of it waits.
"""

import time
from collections.abc import Callable

from channels.pace import Pace

ACCOUNT_RATE, CHAT_RATE, GROUP_RATE = 30.0, 1.0, 20 / 60
"""Sends a second for one bot, to one chat and to one group, as documented."""
SLOW_SECONDS = 1.0
"""Where Telegram did not say for how long."""
MANY_CHATS = 3
TOGETHER_SECONDS = 10.0


class TelegramPace:
    def __init__(self, *, per_second: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._all = Pace(per_second=per_second, account_rate=ACCOUNT_RATE, chat_rate=CHAT_RATE, clock=clock)
        self._groups = Pace(per_second=None, account_rate=ACCOUNT_RATE, chat_rate=GROUP_RATE, clock=clock)
        self._refused: dict[str, float] = {}
        self._clock = clock

    async def wait(self, chat: str) -> None:
        """Return when a message may go to `chat`. Raises RateLimited where that is not soon."""
        if is_group(chat):
            await self._groups.wait(chat)
        await self._all.wait(chat)

    def slow(self, chat: str, seconds: float | None) -> None:
        """Telegram refused a message to `chat` and asked to wait."""
        now, seconds = self._clock(), SLOW_SECONDS if seconds is None else seconds
        self._refused = {one: at for one, at in self._refused.items() if now - at < TOGETHER_SECONDS} | {chat: now}
        (self._groups if is_group(chat) else self._all).slow(chat, seconds)
        if len(self._refused) >= MANY_CHATS:
            self._all.slow(None, seconds)


def is_group(chat: str) -> bool:
    """By its id: people's are positive. A public name may be a group's."""
    return not chat.isdecimal()
