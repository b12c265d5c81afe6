"""How often a bot may write: to one chat, to one group, and at all.

The official numbers are guidance, and short bursts pass; so each limit is a number of messages in a window that slides.
A bot that is told to wait and does not is told again; longer punishments are not here.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.emulators.telegram.rules import too_many_requests


@dataclass(frozen=True, kw_only=True, slots=True)
class Limit:
    """At most `count` messages in any `seconds`."""

    count: int
    seconds: float


ONE_CHAT = Limit(count=3, seconds=3.0)
"""One message a second, and a burst of three."""
ONE_GROUP = Limit(count=20, seconds=60.0)
WHOLE_BOT = Limit(count=30, seconds=1.0)
SET_WEBHOOK = Limit(count=1, seconds=1.0)


@dataclass(kw_only=True, slots=True)
class Rates:
    """What was done when, by whom it was done to."""

    now: Callable[[], float]
    _done: dict[str, list[float]] = field(default_factory=dict)

    def check_message(self, chat_id: int, *, group: bool) -> None:
        """One more message or edit. Raises Refusal, and then it does not count."""
        limits = {"bot": WHOLE_BOT, f"chat {chat_id}": ONE_CHAT}
        if group:
            limits[f"group {chat_id}"] = ONE_GROUP
        self._check(limits)

    def check_webhook(self) -> None:
        self._check({"webhook": SET_WEBHOOK})

    def _check(self, limits: dict[str, Limit]) -> None:
        now = self.now()
        for name, limit in limits.items():
            recent = [moment for moment in self._done.get(name, ()) if now - moment < limit.seconds]
            self._done[name] = recent
            if len(recent) >= limit.count:
                raise too_many_requests(max(1, math.ceil(recent[-limit.count] + limit.seconds - now)))
        for name in limits:
            self._done[name].append(now)
