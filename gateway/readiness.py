"""Whether this worker should be sent messages: what `/readyz` says, and a balancer goes by."""

import asyncio
import time
from collections.abc import Mapping

from gateway.runtime import Runtime
from gateway.store.store import StoreUnavailable
from gateway.sweep import Sweep

PROBE_SECONDS = 0.5
PROBE_EVERY_SECONDS = 0.25


class Readiness:
    """`started` is set when the gateway has taken up what an earlier process left."""

    def __init__(self, runtime: Runtime, sweep: Sweep) -> None:
        self.started = False
        self._runtime = runtime
        self._sweep = sweep
        self._probed, self._writes = float("-inf"), False

    async def failing(self) -> Mapping[str, str]:
        """What is amiss, by check; nothing where all is well."""
        if not self.started:
            return {"start": "not started"}
        if self._runtime.control.draining:
            return {"drain": "stopping"}
        if not await self._takes_writes():
            return {"database": "takes no writes"}
        if not self._runtime.store.lease_valid():
            return {"lease": "not renewed in time"}
        if (waited := self._sweep.oldest_seconds) > self._runtime.setup.limits.unanswered_seconds:
            return {"unanswered": f"the oldest message has waited {waited:.0f} s"}
        return {}

    async def _takes_writes(self) -> bool:
        """Tried once in a while only: whoever may ask for readiness must not make us write at will."""
        if (now := time.monotonic()) - self._probed >= PROBE_EVERY_SECONDS:
            self._probed = now
            try:
                async with asyncio.timeout(PROBE_SECONDS):
                    await self._runtime.store.probe()
                self._writes = True
            except (StoreUnavailable, TimeoutError):
                self._writes = False
        return self._writes
