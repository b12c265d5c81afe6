"""Sends what the `message` tool writes to a chat: at once, through the same channel accounts as replies.

Unlike a reply it does not pass the outbox, because the model waits for the result. A send that may have arrived is
repeated only where the platform recognises the key; the model is never invited to repeat it with a new one.
"""

import asyncio
from collections.abc import Callable, Mapping

from channels.channel import Channel, DeliveryError, RateLimited, Unreachable
from channels.message import Outbound, Target
from gateway.outbox import idempotency_key, may_repeat
from tools.tool import ToolError

ATTEMPTS_MAX = 3
WAIT_SECONDS_MAX = 5.0
IN_DOUBT = "it may have arrived, so do not send it again unasked"


class ChannelMessenger:
    """`tools.tool.Messenger` over the configured channel accounts."""

    def __init__(self, channels: Mapping[tuple[str, str], Channel], *, now: Callable[[], float]) -> None:
        self._channels = channels
        self._now = now

    async def send(
        self, *, channel: str, account: str, chat: str, thread: str | None, text: str, key: str, begun_at: float | None
    ) -> str:
        carrier = self._channels.get((channel, account))
        if carrier is None:
            known = ", ".join(f"{name}:{account}" for name, account in sorted(self._channels))
            raise ToolError("UNKNOWN_CHANNEL", f"there is no channel {channel}:{account}; there is: {known}")
        if begun_at is not None and not may_repeat(carrier, self._now() - begun_at):
            raise ToolError("INTERRUPTED", f"a restart interrupted the sending: {IN_DOUBT}")
        target, parts, sent = Target(chat=chat, thread=thread), carrier.split(text), list[str]()
        for number, part in enumerate(parts):
            try:
                outbound = Outbound(target=target, text=part)
                sent.append(await self._send(carrier, outbound, idempotency_key(key, str(number))))
            except ToolError as error:
                if sent:
                    message = f"the first {number} of {len(parts)} parts were sent; of the next: {error.message}"
                    raise ToolError(error.code, message) from error
                raise
        return sent[0]

    async def _send(self, carrier: Channel, part: Outbound, key: str) -> str:
        in_doubt, began = False, self._now()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await carrier.send(part, key)
            except (RateLimited, Unreachable) as error:
                in_doubt = in_doubt or (isinstance(error, Unreachable) and error.maybe_arrived)
                retry_after = error.retry_after_seconds if isinstance(error, RateLimited) else None
                wait = retry_after if retry_after is not None else float(2 ** (attempt - 1))
                if in_doubt and not may_repeat(carrier, self._now() - began):
                    raise ToolError("NOT_DELIVERED", IN_DOUBT) from error
                if attempt == ATTEMPTS_MAX or wait > WAIT_SECONDS_MAX:
                    message = IN_DOUBT if in_doubt else "the platform cannot be reached now"
                    raise ToolError("NOT_DELIVERED", message, retryable=not in_doubt) from error
                await asyncio.sleep(wait)
            except DeliveryError as error:
                raise ToolError("NOT_DELIVERED", f"the platform refused it ({error.code or 'no code'})") from error
        raise AssertionError("unreachable")
