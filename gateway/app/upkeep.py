"""The upkeep of a gateway, each part at its interval: it prunes the database, measures the loop, and watches the models."""

import asyncio
from collections.abc import Awaitable, Callable

from gateway.approvals.display import value
from gateway.approvals.notices import Notice
from gateway.observe.logs import logged
from gateway.state.runtime import Runtime

DAY_SECONDS = 24 * 3600
DEDUPE_SECONDS = 7 * DAY_SECONDS
PRUNE_EVERY_SECONDS = 3600
LAG_EVERY_SECONDS = 1.0
TROUBLE_EVERY_SECONDS = 5.0


class Upkeep:
    """Each method runs as long as the gateway does."""

    def __init__(self, runtime: Runtime, tell: Callable[[Notice], Awaitable[None]]) -> None:
        self._runtime = runtime
        self._tell = tell

    async def prune(self) -> None:
        """Deletes what is kept no longer. The rows that a turn's layers refer to stay as long as these."""
        store = self._runtime.store
        while True:
            with logged("prune_failed"):
                now, kept = self._runtime.now(), self._runtime.setup.config.console.keep_days * DAY_SECONDS
                await store.prune(now - max(DEDUPE_SECONDS, kept))
                while await store.layers.prune(now - kept):
                    pass
                await store.layers.prune_texts()
                await store.files.prune(now)
                for table in (store.chatter, store.tasks, store.later):
                    await table.prune(now - DEDUPE_SECONDS)
            await asyncio.sleep(PRUNE_EVERY_SECONDS)

    async def measure_lag(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            due = clock() + LAG_EVERY_SECONDS
            await asyncio.sleep(LAG_EVERY_SECONDS)
            with logged("lag_not_measured"):
                self._runtime.metrics.loop_lag.observe(max(0.0, clock() - due))

    async def watch_models(self) -> None:
        """Tells the owners of a model that refuses every request."""
        while True:
            await asyncio.sleep(TROUBLE_EVERY_SECONDS)
            for model, fault in self._runtime.trouble.lasting(self._runtime.now()):
                shown = value(fault)
                en, zh = f"The model refuses my requests: {shown}", f"模型拒绝了我的请求：{shown}"
                await self._tell(Notice(cause=f"model {model}", en=en, zh=zh))
