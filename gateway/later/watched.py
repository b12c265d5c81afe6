"""The state of each account and model as the self-watch saw it, kept in its row of `later`: any replica shows it, and the
next round continues from it. `gateway.app.selfwatch` writes it.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from pydantic import TypeAdapter

from channels.bilingual import Finding
from channels.moment import iso
from gateway.state.runtime import Runtime
from gateway.store.errors import StoreUnavailable
from gateway.store.later import WATCH

MISSES = 2
"""Misses in a row that the owners are notified of."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Watched:
    """An account or a model. `misses`: in a row; `since`: the first of them; `told`: the owners have the notice of this
    outage, or it is owed to them; `waiting`: events that waited at the platform. `reason` and `fix` are in English and
    Chinese."""

    kind: Literal["account", "model"]
    misses: int = 0
    since: float = 0.0
    told: Literal["", "owed", "told"] = ""
    waiting: int = 0
    reason: tuple[str, str] = ("", "")
    fix: tuple[str, str] = ("", "")

    def missed(self, finding: Finding, now: float, *, is_known: bool) -> "Watched":
        """Return the state after a miss. `is_known`: another notice of this fault has gone out."""
        misses, told = self.misses + 1, self.told
        if misses >= MISSES and not told and not is_known:
            told = "owed"
        reason, fix = ((it.en, it.zh) for it in (finding.message, finding.fix))
        return replace(self, misses=misses, since=self.since or now, told=told, reason=reason, fix=fix)


_seen_json: TypeAdapter[dict[str, Watched]] = TypeAdapter(dict[str, Watched])


def seen_in(body: str) -> dict[str, Watched]:
    """Return what a row holds; nothing if it is new, or of another version."""
    with suppress(ValueError):
        return _seen_json.validate_json(body)
    return {}


def body_of(seen: Mapping[str, Watched]) -> str:
    return _seen_json.dump_json(dict(seen)).decode()


async def seen(runtime: Runtime) -> dict[str, Watched]:
    """Return what was last seen, and set the metrics by it; empty without a watch. Raises StoreUnavailable."""
    rows = await runtime.store.later.of_id(WATCH) if runtime.setup.config.watch.seconds else ()
    found = seen_in(rows[0].body) if rows else {}
    runtime.metrics.watch_up.clear()
    for name, it in found.items():
        account, model = (name, "") if it.kind == "account" else ("", name)
        runtime.metrics.watch_up.labels(account, model).set(not it.misses)
    return found


async def has_told(runtime: Runtime, name: str) -> bool:
    """Return whether the self-watch has notified the owners of this account or model, or will."""
    with suppress(StoreUnavailable):
        return bool(it.told) if (it := (await seen(runtime)).get(name)) else False
    return False


async def watch_view(runtime: Runtime) -> Mapping[str, Any]:
    """Return what was last seen as JSON, by name; `zh` has reason and fix in Chinese."""
    with suppress(StoreUnavailable):
        zone = runtime.setup.config.server.zone
        return {
            name: {"misses": it.misses, "since": iso(it.since, zone) if it.since else None}
            | (
                {"reason": it.reason[0], "fix": it.fix[0], "zh": {"reason": it.reason[1], "fix": it.fix[1]}}
                if it.misses
                else {}
            )
            for name, it in (await seen(runtime)).items()
        }
    return {}
