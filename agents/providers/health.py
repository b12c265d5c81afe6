"""Which models rest: one that could not answer is passed over for a while, as long as another one can be asked.

Shared by all agents, because it is the model that is down and not the agent. A model that has failed again right after
its rest rests longer; one answer, and all is forgotten.
"""

import time
from collections.abc import Callable

RESTS_SECONDS = (30.0, 60.0, 300.0)
"""After the first failure, the second, and every one behind it."""


class Health:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: dict[tuple[str, str], tuple[int, float]] = {}
        """By provider and model: failures in a row, and until when it rests."""

    def rests(self, provider: str, model: str) -> bool:
        _, until = self._failures.get((provider, model), (0, 0.0))
        return self._clock() < until

    def failed(self, provider: str, model: str) -> None:
        count, _ = self._failures.get((provider, model), (0, 0.0))
        seconds = RESTS_SECONDS[min(count, len(RESTS_SECONDS) - 1)]
        self._failures[provider, model] = count + 1, self._clock() + seconds

    def answered(self, provider: str, model: str) -> None:
        self._failures.pop((provider, model), None)
