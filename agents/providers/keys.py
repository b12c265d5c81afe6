"""The keys of one provider: chats are spread over them, and one that is refused rests while another is ready.

A chat stays with its key as long as that works, because prompt caches belong to a key's account.
"""

import time
import zlib
from collections.abc import Callable, Sequence

from agents.messages import ErrorKind, ModelError

RATE_LIMITED_SECONDS = 30.0
"""How long a key rests that has had too many requests, where the server names no time."""
REFUSED_SECONDS = 600.0
"""How long a key rests that is not accepted or has no money left: somebody has to do something about it."""

_RESTS: dict[ErrorKind, float] = {
    "rate_limited": RATE_LIMITED_SECONDS,
    "auth": REFUSED_SECONDS,
    "billing": REFUSED_SECONDS,
}


class KeyRing:
    def __init__(self, keys: Sequence[str], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._keys = tuple(keys)
        self._clock = clock
        self._ready_at = dict.fromkeys(self._keys, float("-inf"))

    def pick(self, conversation: str) -> str | None:
        """The chat's key, or the next one that is ready, or the one that will be ready first; None without any."""
        if not self._keys:
            return None
        start = zlib.crc32(conversation.encode(errors="replace")) % len(self._keys)
        order = self._keys[start:] + self._keys[:start]
        now = self._clock()
        ready = next((key for key in order if self._ready_at[key] <= now), None)
        return ready or min(order, key=lambda key: self._ready_at[key])

    def refused(self, key: str, error: ModelError) -> bool:
        """Let a key rest where `error` is about it. True where another one is ready, so that asking again is worth it."""
        if error.kind not in _RESTS:
            return False
        now = self._clock()
        self._ready_at[key] = now + (error.retry_after_seconds or _RESTS[error.kind])
        return any(ready_at <= now for ready_at in self._ready_at.values())
