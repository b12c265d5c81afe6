"""List and change the schedules in the database, with or without a running gateway."""

import time
from typing import Any

from agents.language import Language
from channels.bilingual import Bilingual
from channels.moment import iso
from gateway.config.root import Config
from gateway.later.schedule import KIND, NOT_READABLE, UNREADABLE, resumed_at, schedule_of
from gateway.program import OperatorError
from gateway.store import later as stored
from gateway.store.later import Later
from gateway.store.opening import connected
from gateway.store.statements import NEVER

WHY = {
    "gone": Bilingual("its chat is out of reach", "无法再联系该聊天"),
    "config": Bilingual("enabled: false", "enabled: false"),
}
"""The displayed reasons of a pause."""


def listed(config: Config) -> list[dict[str, Any]]:
    """List all schedules that are active, paused or recently ended. Raise DatabaseUnusable."""
    return page(config, first=0, most=NEVER)[0]


def page(config: Config, *, first: int, most: int) -> tuple[list[dict[str, Any]], int]:
    """Return up to `most` schedules from offset `first`, and the total number. Raise DatabaseUnusable."""
    with connected(config.database) as connection:
        rows = stored.schedules(connection, first=first, most=most)
        return [facts(it, config) for it in rows], stored.schedules_count(connection)


def facts(later: Later, config: Config) -> dict[str, Any]:
    """Return a schedule as JSON; one that a newer version wrote says so, and can be cancelled."""

    def at(moment: float | None) -> str | None:
        return None if moment is None else iso(moment, config.server.zone)

    try:
        schedule, due = schedule_of(later), at(later.due)
        when, to, agent, title = schedule.at, schedule.to or later.place, schedule.agent, schedule.shown
        does = "say" if schedule.say else "task"
    except UNREADABLE:
        when, to, agent, title, does, due = "", later.place, "", NOT_READABLE, "", None
    row = {"id": later.id, "state": later.state, "why": later.why, "due": due, "at": when, "to": to}
    row |= {"owner": later.owner, "agent": agent, "does": does, "title": title}
    return row | {"ran": at(later.ran), "runs": later.runs, "skipped": at(later.skipped), "skips": later.skips}


_STATES = {"active": "生效中", "paused": "已暂停", "done": "已结束", "cancelled": "已取消"}
_DOES = {"say": "发送", "task": "任务"}


def line(it: dict[str, Any], language: Language = "en") -> str:
    title, why = it["title"] if len(it["title"]) <= 60 else it["title"][:59] + "…", WHY.get(it["why"])
    if language == "zh":
        when = (
            f"下次 {it['due']}"
            if it["due"]
            else _STATES.get(it["state"], it["state"]) + (f"（{why.zh}）" if why else "")
        )
        ran = f"，已运行 {it['runs']} 次" if it["runs"] else ""
        skips = f"，跳过 {it['skips']} 次" if it["skips"] else ""
        does = f"{_DOES.get(it['does'], it['does'])}：{title}"
    else:
        when = f"due {it['due']}" if it["due"] else it["state"] + (f" ({why})" if why else "")
        ran = f", ran {it['runs']} times" if it["runs"] else ""
        skips = f", skipped {it['skips']} times" if it["skips"] else ""
        does = f"{it['does']}: {title}"
    return f"{it['id']}  {when}  {it['to']}  {it['at']}  {does}{ran}{skips}"


def one(config: Config, id_: str) -> dict[str, Any]:
    """Return a schedule. Raise OperatorError if there is none, or DatabaseUnusable."""
    with connected(config.database) as connection:
        return facts(_known(connection, id_), config)


def run(config: Config, id_: str) -> dict[str, Any]:
    """Make a schedule due now, in addition to its times; a running gateway begins within seconds."""
    with connected(config.database) as connection:
        if stored.still_waits(connection, _known(connection, id_)):
            raise OperatorError(f"{id_} has not ended its last run yet: run it again afterwards")
        stored.run_now(connection, id_, round(time.time(), 3))
        return facts(_known(connection, id_), config)


def pause(config: Config, id_: str) -> dict[str, Any]:
    """Pause a schedule, or resume a paused one."""
    with connected(config.database) as connection:
        row, now = _known(connection, id_), time.time()
        if row.state == "paused":
            try:
                stored.resume(connection, id_, resumed_at(row, now, config.server.zone))
            except UNREADABLE:
                raise OperatorError(f"{id_}: {NOT_READABLE}; update it, or cancel this schedule") from None
        elif row.due is None:
            raise OperatorError(f"{id_} is {row.state}: there is nothing to pause")
        else:
            stored.end(connection, id_, "paused", why="hand")
        return facts(_known(connection, id_), config)


def cancel(config: Config, id_: str) -> dict[str, Any]:
    """Cancel a user's schedule. One in the config is paused or removed there."""
    with connected(config.database) as connection:
        if _known(connection, id_).owner is None:
            raise OperatorError(f"{id_} is in the config: remove it there, or `schedules pause {id_}`")
        stored.end(connection, id_, "cancelled")
        return facts(_known(connection, id_), config)


def _known(connection: Any, id_: str) -> Later:
    row = stored.one(connection, id_)
    if row is None or row.kind != KIND:
        raise OperatorError(f"no schedule: {id_} — `schedules list` shows them")
    return row
