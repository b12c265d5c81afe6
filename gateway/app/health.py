"""The watch over the channels: what changes is logged, counted and shown to the operator on the page.

The channels know their state themselves; here it is looked at once a second, so that a state which nobody asks for is
noticed, too.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import structlog

from channels.condition import ChannelState
from channels.web.channel import WebChannel
from gateway.observe.logs import logged
from gateway.state.runtime import Runtime

LOOK_SECONDS = 1.0

States: TypeAlias = Mapping[tuple[str, str], ChannelState]
log = structlog.get_logger()


class HealthWatch:
    """`page` is the web chat of now, if there is one."""

    def __init__(self, runtime: Runtime, page: Callable[[], WebChannel | None]) -> None:
        self._runtime = runtime
        self._page = page
        self._seen: dict[tuple[str, str], ChannelState] = {}

    async def run(self) -> None:
        while True:
            with logged("channels_not_looked_at"):
                self.look()
            await asyncio.sleep(LOOK_SECONDS)

    def look(self) -> None:
        states = self._runtime.channel_states()
        for key in self._seen.keys() - states.keys():
            self._runtime.metrics.channel_up.remove(*key)
        for key, state in states.items():
            self._runtime.metrics.channel_up.labels(*key).set(state.state == "ok")
            if (before := self._seen.get(key)) is None or before.state != state.state:
                _log(key, state, before)
        self._seen = dict(states)
        if page := self._page():
            page.report(self._faults(states))

    def _faults(self, states: States) -> dict[str, Any]:
        """The faults that the page shows the operator: a config that cannot be used, and channels that are not ok."""
        channels = [
            {"name": ":".join(key), "state": it.state, "reason": it.reason._asdict(), "fix": it.fix._asdict()}
            for key, it in states.items()
            if it.is_bad
        ]
        return {"text": self._runtime.config_state.error or "", "channels": channels}


def _log(key: tuple[str, str], state: ChannelState, before: ChannelState | None) -> None:
    facts = {"channel": key[0], "account": key[1], "state": state.state}
    if state.is_bad:
        log.error("channel_state", **facts, reason=state.reason.en, fix=state.fix.en)
    elif before is not None and before.is_bad:
        log.warning("channel_state", **facts)
    else:
        log.info("channel_state", **facts)
