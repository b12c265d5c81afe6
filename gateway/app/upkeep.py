"""The upkeep of a gateway, each part at its interval: it prunes the database, measures the loop, and watches the models."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

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
        """Deletes what is kept no longer. The rows that a turn's layers refer to stay as long as these. A step that fails
        holds up no other."""
        store = self._runtime.store
        while True:
            now, kept = self._runtime.now(), self._runtime.setup.config.console.keep_days * DAY_SECONDS
            steps: Sequence[Callable[[], Awaitable[object]]] = (
                partial(store.prune, now - max(DEDUPE_SECONDS, kept)),
                partial(self._prune_layers, now - kept),
                store.layers.prune_texts,
                partial(store.files.prune, now),
                *(partial(it.prune, now - DEDUPE_SECONDS) for it in (store.chatter, store.tasks, store.later)),
            )
            for step in steps:
                with logged("prune_failed"):
                    await step()
            await asyncio.sleep(PRUNE_EVERY_SECONDS)

    async def _prune_layers(self, before: float) -> None:
        while await self._runtime.store.layers.prune(before):
            pass

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
            for model, fault, readers in self._runtime.trouble.untold():
                en = f"I cannot answer: {value(fault.message.en)}. To do: {fault.fix.en}."
                zh = f"我无法回答：{value(fault.message.zh)}。处理办法：{fault.fix.zh}。"
                await self._tell(Notice(cause=f"model {model}", en=en, zh=zh, known=tuple(readers)))
