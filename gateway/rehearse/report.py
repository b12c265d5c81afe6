"""The report of a rehearsal: a paragraph for each turn, the totals, and the JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from agents.language import Language
from channels.bilingual import Bilingual
from gateway.config.root import Config
from gateway.operate.sessions import short
from gateway.rehearse.kept import Picked, RunFacts, Skip
from gateway.rehearse.rehearsal import Difference, Layer, Rehearsed, Verdict

LINES_MAX = 8
"""Lines shown of one difference; the JSON has all."""
VERDICTS: Mapping[Verdict, Bilingual] = {
    "same": Bilingual("same", "相同"),
    "different": Bilingual("different", "不同"),
    "failed": Bilingual("failed", "失败"),
    "not-asked": Bilingual("not asked", "未请求"),
}
LAYERS: Mapping[Layer, Bilingual] = {
    "access": Bilingual("access", "准入"),
    "agent": Bilingual("agent", "智能体"),
    "model": Bilingual("model", "模型"),
    "prompt": Bilingual("prompt", "提示词"),
    "tools": Bilingual("tools", "工具"),
    "calls": Bilingual("calls", "调用"),
    "outcome": Bilingual("outcome", "结果"),
    "reply": Bilingual("reply", "回复"),
}
SKIPS: Mapping[Skip, Bilingual] = {
    "not-kept": Bilingual("its layers were not stored", "未保留其各层"),
    "pruned": Bilingual("the inbox has forgotten its message", "收件箱已不再保留其消息"),
    "recalled": Bilingual("its message was recalled", "其消息已被撤回"),
    "no-model": Bilingual("it made no model request", "没有请求模型"),
    "interrupted": Bilingual("it was ended from outside the turn", "它是从外部被结束的"),
}


NO_TURNS = Bilingual(
    "no turn to rehearse: `console.keepDays` in the config says how long turns are kept",
    "没有可以排练的轮次：配置中的 `console.keepDays` 决定各轮保留多久",
)


def skipped(picked: Picked, language: Language) -> Iterator[str]:
    for number, reason in picked.skipped:
        yield Bilingual(f"{number}  skipped: {SKIPS[reason]}", f"{number}  跳过：{SKIPS[reason].zh}")(language)
    if count := picked.unkept:
        turns, why = _counted(count, "finished turn"), SKIPS["not-kept"]
        yield f"跳过 {count} 个已结束的轮次：{why.zh}" if language == "zh" else f"{turns} skipped: {why}"


def forecast(picked: Picked, config: Config, language: Language) -> str:
    """Describe how many requests the rehearsal may make, and what the original turns took."""
    turns = len(picked.turns)
    then, most = sum(it.before.requests for it in picked.turns), turns * config.limits.rounds
    cost = _cost([it.before for it in picked.turns], config)
    turns_then, requests = _counted(turns, "turn"), _counted(then, "request")
    if language == "zh":
        return (
            f"{turns} 轮：当时请求 {then} 次，费用 {cost}；现在最多请求 {most:,} 次（limits.rounds），"
            "不含重试和摘要。不会发送任何消息，也不会执行任何工具。"
        )
    return (
        f"{turns_then}: then {requests}, cost {cost}; now {most:,} requests at most "
        "(limits.rounds), without repeated attempts and summaries. Nothing is sent, and no tool runs."
    )


def lines(it: Rehearsed, config: Config, language: Language) -> Iterator[str]:
    before, after, first = it.kept.before, it.after, _first(it)
    verdict = VERDICTS[it.verdict](language) + (f" ({LAYERS[first](language)})" if first else "")
    tokens, cost = (
        f"{_tokens(before):,} → {_tokens(after):,} tokens",
        f"{_cost([before], config)} → {_cost([after], config)}",
    )
    yield f"{it.kept.id}  {verdict}  {after.agent}  {tokens}  {cost}  {short(it.kept.inbound.context.text)}".rstrip()
    if it.verdict == "failed":
        yield f"  {short(after.fault)}"
    for difference in () if it.verdict == "failed" else it.differences:
        yield from _difference(difference, it.similarity, language)
    if it.unknown:
        tools = ", ".join(dict.fromkeys(it.unknown))
        yield "  " + Bilingual(f"unknown tool answer: {tools}", f"没有可用的工具结果：{tools}")(language)


def _difference(it: Difference, similarity: int | None, language: Language) -> Iterator[str]:
    alike = Bilingual(f", {similarity} % alike", f"，相似度 {similarity}%")(language)
    more = alike if it.layer == "reply" and similarity is not None else ""
    yield f"  {LAYERS[it.layer](language)}: {short(it.before) or '-'} → {short(it.after) or '-'}{more}"
    yield from (f"    {line[:2]}{short(line[2:])}" for line in it.lines[:LINES_MAX])
    if (left := len(it.lines) - LINES_MAX) > 0:
        yield "    " + Bilingual(f"… and {left} more (--json)", f"……还有 {left} 行（--json）")(language)


def totals(picked: Picked, results: Sequence[Rehearsed], config: Config, language: Language) -> str:
    counted = [f"{VERDICTS[verdict](language)} {count}" for verdict, count in _counts(results).items() if count]
    skipped = len(picked.skipped) + picked.unkept
    counted += [Bilingual(f"skipped {skipped}", f"跳过 {skipped}")(language)] if skipped else []
    before, after = [it.kept.before for it in results], [it.after for it in results]
    tokens = f"{sum(map(_tokens, before)):,} → {sum(map(_tokens, after)):,} tokens"
    bill = f"{tokens}, {Bilingual('cost', '费用')(language)} {_cost(before, config)} → {_cost(after, config)}"
    return f"{', '.join(counted)}; {bill}"


def as_json(picked: Picked, results: Sequence[Rehearsed], config: Config) -> dict[str, Any]:
    before, after = [it.kept.before for it in results], [it.after for it in results]
    return {
        "turns": [_turn(it) for it in results],
        "skipped": [{"id": number, "reason": reason} for number, reason in picked.skipped],
        "totals": {
            **_counts(results),
            "skipped": len(picked.skipped) + picked.unkept,
            "currency": config.currency,
            "before": {"tokens": sum(map(_tokens, before)), "cost": _sum(before)},
            "after": {"tokens": sum(map(_tokens, after)), "cost": _sum(after)},
        },
    }


def _turn(it: Rehearsed) -> dict[str, Any]:
    return {
        "id": it.kept.id,
        "session": it.kept.sid,
        "text": it.kept.inbound.context.text,
        "verdict": it.verdict,
        "first": _first(it),
        "similarity": it.similarity,
        "unknownToolAnswers": list(it.unknown),
        "differences": [
            {"layer": one.layer, "counts": one.counts, "before": one.before, "after": one.after, "lines": one.lines}
            for one in it.differences
        ],
        "before": _run(it.kept.before),
        "after": _run(it.after),
    }


def _run(it: RunFacts) -> dict[str, Any]:
    calls = [{"tool": tool, "arguments": arguments} for tool, arguments in it.calls]
    facts = {"agent": it.agent, "model": it.model, "outcome": it.outcome, "fault": it.fault, "reply": it.reply}
    return facts | {"calls": calls, "requests": it.requests, "tokens": _tokens(it), "cost": it.cost}


def _first(it: Rehearsed) -> Layer | None:
    is_different = it.verdict == "different"
    return next((one.layer for one in it.differences), "calls") if is_different else None


def _counts(results: Sequence[Rehearsed]) -> dict[Verdict, int]:
    return {verdict: sum(it.verdict == verdict for it in results) for verdict in VERDICTS}


def _tokens(it: RunFacts) -> int:
    return sum(it.tokens.get(name, 0) for name in ("input", "cache_read", "cache_write", "output"))


def _sum(runs: Sequence[RunFacts]) -> float | None:
    costs = [it.cost for it in runs if it.cost is not None]
    return round(sum(costs), 6) if costs else None


def _cost(runs: Sequence[RunFacts], config: Config) -> str:
    cost = _sum(runs)
    return "-" if cost is None else config.money(cost)


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
