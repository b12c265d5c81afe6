"""`usage`: tokens and cost of the stored turns, by agent, chat, person or model.

The sums come from the final row of each turn in the journal; erased turns are not counted.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from functools import cache
from typing import Any, Literal, NamedTuple, TypeAlias
from unicodedata import east_asian_width

from agents.language import Language
from channels.moment import iso, local, timestamp
from gateway.config.root import Config
from gateway.store.chatter import ratings_since
from gateway.store.conversations import ModelBill, bills
from gateway.store.opening import connected
from gateway.store.sessions import conversation, session_parts

By: TypeAlias = Literal["agent", "chat", "person", "model"]
UNKNOWN = "(not recorded)"
"""The model of a turn before version 1.1; the user of a turn whose text was erased."""


class _Share(NamedTuple):
    """The usage of one model in a turn, or of all its models. `unpriced`: some of it has no price."""

    input: int
    output: int
    cost: float
    unpriced: bool


@dataclass(kw_only=True, slots=True)
class UsageRow:
    """The turns of one agent, chat, person or model. `unpriced` of them used a model without prices, which `cost` lacks; the
    demo needs none."""

    name: str
    turns: int = 0
    input: int = 0
    output: int = 0
    cost: float = 0.0
    unpriced: int = 0

    def add(self, turn: _Share) -> None:
        self.turns += 1
        self.input += turn.input
        self.output += turn.output
        self.cost += turn.cost
        self.unpriced += turn.unpriced

    def money(self, config: Config, language: Language) -> str:
        if self.unpriced and not self.cost:
            return "没有价格" if language == "zh" else "no price"
        without = f" (no price for {self.unpriced:,} of the turns)", f"（其中 {self.unpriced:,} 轮没有价格）"
        return config.money(self.cost) + (without[language == "zh"] if self.unpriced else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class UsageReport:
    """`total` counts each turn once, even if it used two models."""

    by: By
    since: float
    rows: Sequence[UsageRow]
    total: UsageRow
    priced_on: Sequence[str]
    """The `as_of` dates of the models' prices."""
    feedback: Mapping[str, int]
    """The number of `good` and `bad` ratings since then."""


def beginning(since: str, config: Config, now: float) -> float:
    """Parse `--since`: `30d` is midnight of the day 30 days ago. Raise ValueError."""
    today = local(now, config.server.zone).date()
    if match := re.fullmatch(r"([0-9]{1,5})([hd])", since):
        if match[2] == "h":
            return now - int(match[1]) * 3600.0
        today -= min(timedelta(days=int(match[1])), today - today.min)
    else:
        today = date.fromisoformat(since)
    return _midnight(today, config)


def _midnight(day: date, config: Config) -> float:
    return datetime.combine(day, time(), config.server.zone).timestamp()


def usage(config: Config, by: By, since: float) -> UsageReport:
    """Return the usage since a time. Raise DatabaseUnusable."""
    rows, total, models = _summed(config, by, since)
    with connected(config.database) as connection:
        feedback = ratings_since(connection, since)
    days = config.price_days(models)
    return UsageReport(by=by, since=since, rows=_sorted(rows), total=total, priced_on=days, feedback=feedback)


def _summed(
    config: Config, by: By, since: float, days: Sequence[tuple[float, UsageRow]] = ()
) -> tuple[Mapping[str, UsageRow], UsageRow, set[str]]:
    """Return the rows by name, their total and the models. Add each turn to its day too; `days` has their beginnings."""
    rows, total, models = dict[str, UsageRow](), UsageRow(name="total"), set[str]()
    beginnings = [began for began, _ in days]

    @cache  # a session has many turns
    def place_of(sid: str) -> str:
        parts = session_parts(conversation(sid))
        return parts.agent if by == "agent" else parts.place

    with connected(config.database) as connection:
        for bill in bills(connection, since, people=by == "person"):
            taken = {it.model: _share(config, it) for it in bill.models}
            models.update(taken)
            turn = _together(list(taken.values()))
            total.add(turn)
            if days:
                days[bisect_right(beginnings, bill.at) - 1][1].add(turn)
            if by != "model":
                taken = {(bill.person if by == "person" else place_of(bill.sid)): turn}
            for name, share in taken.items():
                if (row := rows.get(name or UNKNOWN)) is None:
                    row = rows[name or UNKNOWN] = UsageRow(name=name or UNKNOWN)
                row.add(share)
    return rows, total, models


def _share(config: Config, bill: ModelBill) -> _Share:
    tokens, cost = bill.tokens.get, bill.cost
    read = tokens("input", 0) + tokens("cache_read", 0) + tokens("cache_write", 0)
    return _Share(read, tokens("output", 0), cost or 0.0, cost is None and not config.is_demo(bill.model))


def _together(taken: Sequence[_Share]) -> _Share:
    if len(taken) == 1:
        return taken[0]
    inputs, outputs, costs, unpriced = zip(*taken, strict=True) if taken else ((), (), (), ())
    return _Share(sum(inputs), sum(outputs), sum(costs), any(unpriced))


def table(report: UsageReport, config: Config, language: Language = "en") -> Iterator[str]:
    """Format the report as a table, the totals last."""
    since, zh = timestamp(report.since, config.server.zone), language == "zh"
    yield f"自 {since} 起" if zh else f"Since {since}"
    by = {"agent": "智能体", "chat": "聊天", "person": "用户", "model": "模型"}[report.by] if zh else report.by
    head = (by, *(("轮次", "输入 token", "输出 token", "费用") if zh else ("turns", "tokens in", "tokens out", "cost")))
    total = replace(report.total, name="合计" if zh else report.total.name)
    rows = [replace(it, name="（没有记录）") if zh and it.name == UNKNOWN else it for it in report.rows]
    body = [
        (it.name, f"{it.turns:,}", f"{it.input:,}", f"{it.output:,}", it.money(config, language))
        for it in (*rows, total)
    ]
    widths = [max(map(_width, column)) for column in zip(*((row[:4]) for row in (head, *body)), strict=True)]
    yield from ("", _line(head, widths), *(_line(row, widths) for row in body[:-1]))
    yield from (_line(tuple("-" * it for it in (*widths, len("cost"))), widths), _line(body[-1], widths))
    counts = f"👍 {report.feedback['good']:,}  👎 {report.feedback['bad']:,}"
    if any(report.feedback.values()):
        yield from ("", f"对回答的评价：{counts}" if zh else f"Ratings of answers: {counts}")
    if days := ("、" if zh else ", ").join(report.priced_on):
        en = f"Each request at the price when it was made; the prices now are of {days}."
        yield from ("", f"每次请求按当时的价格计算；现行价格的日期为 {days}。" if zh else en)


def _line(row: Sequence[str], widths: Iterable[int]) -> str:
    name, *numbers, cost = row
    first, *others = widths
    cells = (" " * (width - _width(it)) + it for it, width in zip(numbers, others, strict=True))
    return "  ".join((name + " " * (first - _width(name)), *cells, cost))


def _width(text: str) -> int:
    # A Chinese character takes two columns.
    return sum(2 if east_asian_width(it) in "WF" else 1 for it in text)


def facts(report: UsageReport, config: Config) -> dict[str, Any]:
    """Return the report as JSON."""
    rows = [_facts(it) | {report.by: it.name} for it in report.rows]
    since = iso(report.since, config.server.zone)
    sums = {"rows": rows, "total": _facts(report.total), "feedback": dict(report.feedback)}
    return {"since": since, "by": report.by, **sums, "currency": config.currency, "prices": report.priced_on}


def usage_view(config: Config, days: int, now: float, by: By) -> dict[str, Any]:
    """The last `days` days for the console, today included: each day, and as `rows` all of them by one of four. Raises
    DatabaseUnusable."""
    zone = config.server.zone
    since = beginning(f"{days - 1}d", config, now)
    today, first = local(now, zone).date(), local(since, zone).date()
    dates = [first + timedelta(days=it) for it in range((today - first).days + 1)]
    by_day = [(_midnight(it, config), UsageRow(name=it.isoformat())) for it in dates]
    later = _midnight(today + timedelta(days=1), config), UsageRow(name="")  # before the clock was set back
    rows, total, models = _summed(config, by, since, [*by_day, later])
    return {
        "days": [{"day": it.name} | _facts(it) for _, it in by_day],
        "rows": [{"name": it.name} | _facts(it) for it in _sorted(rows)],
        "most": max((it.input + it.output for it in rows.values()), default=0),
        "total": _facts(total),
        "currency": config.currency,
        "prices": config.price_days(models),
    }


def _sorted(rows: Mapping[str, UsageRow]) -> list[UsageRow]:
    return sorted(rows.values(), key=lambda it: (-it.cost, -it.input - it.output, it.name))


def _facts(row: UsageRow) -> dict[str, Any]:
    cost = None if row.unpriced and not row.cost else round(row.cost, 6)
    return {"turns": row.turns, "input": row.input, "output": row.output, "cost": cost, "unpriced": row.unpriced}
