"""What runs in the background as long as the gateway does outlives whatever goes wrong in one round of it, and says so."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.app.gateway import Upkeep
from gateway.app.serve import Reload
from gateway.config.load import load
from tests.running import SECRETS, Running, running
from tests.waiting import PATIENCE_SECONDS

PRUNE, LAG = "gateway.app.gateway.PRUNE_EVERY_SECONDS", "gateway.app.gateway.LAG_EVERY_SECONDS"
LOOPS: dict[str, tuple[Callable[[Running], tuple[Any, str]], str]] = {
    "Approvals.run": (lambda it: (it.gateway.runtime.store.approvals, "open_requests"), "approvals_round_failed"),
    "Sweep.run": (lambda it: (it.gateway.runtime.store, "claim"), "sweep_failed"),
    "Upkeep.prune": (lambda it: (it.gateway.runtime.store, "prune"), "prune_failed"),
    "Upkeep.measure_lag": (lambda it: (it.gateway.runtime.metrics.loop_lag, "observe"), "lag_not_measured"),
    "ChannelLinks._learn_identity": (lambda it: (feishu(it), "learn_identity"), "identity_unknown"),
    "ChannelLinks._keep_connected": (lambda it: (feishu(it), "connect"), "connection_failed"),
    "Reload.run": (lambda it: (it.gateway, "report"), "config_not_looked_at"),
}
"""Of each what breaks in it, and the event that says so."""


def feishu(it: Running) -> Any:
    return it.gateway.runtime.setup.channels["feishu", "default"]


@pytest.mark.parametrize("loop", LOOPS)
async def test_background_loop_survives_an_unexpected_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loop: str
) -> None:
    for name in (PRUNE, LAG, "gateway.turns.lanes.ALONE_SECONDS", "gateway.approvals.approvals.IDLE_SECONDS"):
        monkeypatch.setattr(name, 0.01)
    for name in ("gateway.inbox.links.IDENTITY_RETRY_SECONDS", "gateway.inbox.links.RECONNECT_SECONDS"):
        monkeypatch.setattr(name, 0.01)
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.01)
    async with running(tmp_path) as it:
        broken, rounds = asyncio.Event(), 0
        where, event = LOOPS[loop]
        thing, name = where(it)
        real = getattr(thing, name)

        def breaks(*given: Any, **more: Any) -> Any:
            nonlocal rounds
            rounds += 1
            if not broken.is_set():
                broken.set()
                raise KeyError("nobody foresaw this")
            return real(*given, **more)

        monkeypatch.setattr(thing, name, breaks)
        with capture_logs() as logs:
            if loop == "Reload.run":
                file = tmp_path / "config.yaml"
                reload = Reload(it.gateway, file, SECRETS, load(file, SECRETS), applied=lambda config: None)
                it.gateway.spawn(reload.run())
                reload.request()
                await broken.wait()
                reload.request()
            elif loop.startswith("ChannelLinks"):
                await it.gateway._links.end([feishu(it)])
                await it.gateway._links.begin(it.gateway.runtime.setup)
            await it.until(lambda: rounds >= 2)
        (told,) = [line for line in logs if line["event"] == event]
        assert isinstance(told["exc_info"], KeyError)


async def test_approval_that_cannot_be_settled_blocks_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.approvals.approvals.IDLE_SECONDS", 0.01)
    async with running(tmp_path) as it:
        approvals, looked = it.gateway.approvals, []

        class Request:
            def __init__(self, id_: str) -> None:
                self.id, self.state = id_, "approved"

        async def open_requests() -> Any:
            return [Request("one"), Request("two")]

        async def get(id_: str) -> Any:
            looked.append(id_)
            raise KeyError("a row of another version")

        monkeypatch.setattr(it.gateway.runtime.store.approvals, "open_requests", open_requests)
        monkeypatch.setattr(it.gateway.runtime.store.approvals, "get", get)
        with capture_logs() as logs:
            await it.until(lambda: "two" in looked)
        assert any(line["event"] == "approval_not_settled" for line in logs)
        assert approvals is it.gateway.approvals


async def test_background_loop_error_is_logged(tmp_path: Path) -> None:
    async def breaks() -> None:
        raise KeyError("nobody foresaw this")

    async with running(tmp_path) as it:
        with capture_logs() as logs:
            await asyncio.wait([it.gateway.spawn(breaks())])
            await it.until(lambda: any(line["event"] == "background_task_failed" for line in logs))


async def test_shutdown_ends_though_a_library_swallows_cancellation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the pool of PostgreSQL's connections does before Python 3.12, if a connection comes in the same moment."""
    monkeypatch.setattr("gateway.app.gateway.CANCEL_AGAIN_SECONDS", 0.01)
    swallowed = asyncio.Event()

    async def swallows() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            swallowed.set()
        await asyncio.Event().wait()

    async with running(tmp_path) as it:
        task = it.gateway.spawn(swallows())
        await asyncio.sleep(0)
    assert swallowed.is_set()
    assert task.cancelled()


async def test_upkeep_step_failure_blocks_no_other(house: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    store, pruned = house.gateway.runtime.store, asyncio.Event()

    async def fails(_: float) -> int:
        raise RuntimeError("a row that cannot be read")

    async def prunes(_: float) -> int:
        pruned.set()
        return 0

    monkeypatch.setattr(store, "prune", fails)
    monkeypatch.setattr(store.later, "prune", prunes)
    upkeep = asyncio.create_task(Upkeep(house.gateway.runtime, house.gateway.tell_owners).prune())
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await pruned.wait()
    finally:
        upkeep.cancel()
