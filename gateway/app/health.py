"""Watch the channels: log, count and show each change of state; notify owners of lasting faults.

Channels know their own state; it is polled once a second so that every change is noticed. If a webhook has received
nothing, the public address is probed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import structlog

from channels.abilities import HasCondition
from channels.bilingual import Bilingual
from channels.condition import ChannelState
from channels.web.channel import WebChannel
from gateway.approvals.display import value
from gateway.approvals.notices import Notice
from gateway.http.reach import unreachable_at
from gateway.later.watched import has_told
from gateway.observe.logs import logged
from gateway.state.runtime import Runtime
from gateway.store.errors import outage_of

LOOK_SECONDS = 1.0
LASTING_SECONDS = 60.0
"""Seconds before owners are notified of a failing channel."""
AGAIN_SECONDS = 3600.0
FIRST_REACH_SECONDS, REACH_SECONDS = 10.0, 300.0
"""First delay and interval of probes of the public address. A proxy may notice a start only by its own checks."""
KNOWN_SECONDS = 5.0
"""Seconds that the start waits for its channels before it reports them as connecting."""

States: TypeAlias = Mapping[tuple[str, str], ChannelState]
log = structlog.get_logger()


class HealthWatch:
    """`page` returns the current web chat, if any; `tell` notifies the owners."""

    def __init__(
        self, runtime: Runtime, page: Callable[[], WebChannel | None], tell: Callable[[Notice], Awaitable[None]]
    ) -> None:
        self._runtime = runtime
        self._page = page
        self._tell = tell
        self._seen: dict[tuple[str, str], ChannelState] = {}
        self._told: dict[tuple[str, str], tuple[float, bool]] = {}
        """The channels of faults, with the time of the notice, and whether it was the self-watch's."""

    async def run(self) -> None:
        while True:
            with logged("channels_not_looked_at"):
                self.look()
                await self._tell_owners()
            await asyncio.sleep(LOOK_SECONDS)

    async def reach(self) -> None:
        """Probe the public address while a webhook has received nothing."""
        await asyncio.sleep(FIRST_REACH_SECONDS)
        while True:
            with logged("public_url_not_tried"):
                setup, version = self._runtime.setup, self._runtime.config_state.version
                channels = [it for it in setup.channels.values() if isinstance(it, HasCondition)]
                unheard = [it.condition for it in channels if it.condition.is_unheard]
                if unheard and (url := setup.config.server.public_url):
                    reason = await unreachable_at(url, version)
                    for condition in unheard:
                        condition.reached(reason if condition.is_unheard else "")
            await asyncio.sleep(REACH_SECONDS)

    async def known(self) -> States:
        """Return the states of the platform channels once all are known, or after `KNOWN_SECONDS`."""
        ends = asyncio.get_running_loop().time() + KNOWN_SECONDS
        channels = self._runtime.setup.channels
        while True:
            states = self._runtime.channel_states()
            shown = {key: state for key, state in states.items() if isinstance(channels.get(key), HasCondition)}
            is_late = asyncio.get_running_loop().time() >= ends
            if is_late or not any(it.state == "starting" for it in shown.values()):
                return shown
            await asyncio.sleep(LOOK_SECONDS / 10)

    async def _tell_owners(self) -> None:
        now = self._runtime.now()
        for key, state in self._seen.items():
            name = ":".join(key)
            if state.is_bad and now - state.since >= LASTING_SECONDS:
                if now - self._told.get(key, (float("-inf"), False))[0] >= AGAIN_SECONDS:
                    self._told[key] = now, (is_watched := await has_told(self._runtime, name))
                    if not is_watched:
                        await self._tell(_broken(name, state))
            elif state.state == "ok" and self._told.pop(key, (0.0, True))[1] is False:
                await self._tell(
                    Notice(cause=f"channel {name} ok", en=f"{name} is working again.", zh=f"{name} 已恢复正常。")
                )

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
        channels = [
            {"name": ":".join(key), "state": it.state, "reason": _both(it.reason), "fix": _both(it.fix)}
            for key, it in states.items()
            if it.is_bad
        ]
        fault, at = self._runtime.store.failing, self._runtime.setup.config.database.shown
        database = outage_of(fault, at) if fault else None
        shown = {"reason": _both(database.reason), "fix": _both(database.fix)} if database else None
        return {"text": self._runtime.config_state.error or "", "database": shown, "channels": channels}


def _both(text: Bilingual) -> dict[str, str]:
    return {"en": text.en, "zh": text.zh}


def _log(key: tuple[str, str], state: ChannelState, before: ChannelState | None) -> None:
    facts = {"channel": key[0], "account": key[1], "state": state.state}
    if state.is_bad:
        log.error("channel_state", **facts, reason=state.reason.en, fix=state.fix.en)
    elif before is not None and before.is_bad:
        log.warning("channel_state", **facts)
    else:
        log.info("channel_state", **facts)


def _broken(name: str, state: ChannelState) -> Notice:
    return Notice(
        cause=f"channel {name} {state.state}",
        en=f"{name} is {state.state} and receives nothing: {value(state.reason.en)} — {state.fix.en}",
        zh=f"{name} 出现故障，收不到消息：{value(state.reason.zh)}——{state.fix.zh}",
    )
