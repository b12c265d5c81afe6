"""How a tool sends to a chat: at once, through the same channel accounts as replies, and told how it went.

Unlike a reply it does not pass the outbox: the model waits for the answer, and the idempotency key of the call makes a
repetition harmless where the platform honours it.
"""

import asyncio
from collections.abc import Mapping

from channels.channel import Channel, DeliveryError, RateLimited, Unreachable
from channels.message import Outbound, Target
from gateway.outbound import idempotency_key
from tools.tool import ToolError

ATTEMPTS_MAX = 3
WAIT_SECONDS_MAX = 5.0


class ChannelMessenger:
    """`tools.tool.Messenger` over the configured channel accounts."""

    def __init__(self, channels: Mapping[tuple[str, str], Channel]) -> None:
        self._channels = channels

    async def send(self, *, channel: str, account: str, chat: str, thread: str | None, text: str, key: str) -> str:
        carrier = self._channels.get((channel, account))
        if carrier is None:
            known = ", ".join(f"{name}:{account}" for name, account in sorted(self._channels))
            raise ToolError("UNKNOWN_CHANNEL", f"there is no channel {channel}:{account}; there is: {known}")
        target = Target(chat=chat, thread=thread)
        first = ""
        for number, part in enumerate(carrier.split(text)):
            sent = await self._send(carrier, Outbound(target=target, text=part), idempotency_key(key, str(number)))
            first = first or sent
        return first

    async def _send(self, carrier: Channel, part: Outbound, key: str) -> str:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await carrier.send(part, key)
            except (RateLimited, Unreachable) as error:
                told = error.retry_after_seconds if isinstance(error, RateLimited) else None
                wait = told if told is not None else float(2 ** (attempt - 1))
                if attempt == ATTEMPTS_MAX or wait > WAIT_SECONDS_MAX:
                    raise ToolError("NOT_DELIVERED", "the platform cannot be reached now", retryable=True) from error
                await asyncio.sleep(wait)
            except DeliveryError as error:
                raise ToolError("NOT_DELIVERED", f"the platform refused it ({error.code or 'no code'})") from error
        raise AssertionError("unreachable")
