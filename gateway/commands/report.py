"""Commands that only report: current work, the contents of the prompt, usage, and the sender's identity."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from itertools import chain

import orjson
import structlog

from agents.messages import Message, UserMessage
from agents.prompt.fences import CALLER, TOOL_CALLS
from agents.prompt.system import build_system
from agents.providers.provider import System
from agents.runner import TurnPlan
from agents.tokens import WRAPPING_TOKENS, estimate, request_tokens, tokens
from agents.turn import Turn, settings_json
from channels.moment import local
from channels.plain import plain
from channels.section import QueueMode
from gateway.approvals.display import Called, name_of, person, value
from gateway.approvals.notices import called
from gateway.commands.command import CommandContext
from gateway.commands.handover import handed_over
from gateway.commands.login import login_line
from gateway.config.exposure import has_page, openable
from gateway.program import VERSION, program
from gateway.store.approvals import Approval
from gateway.store.layers import StoredTurn
from gateway.store.records import Bill, Work
from gateway.store.sessions import sender_of
from gateway.turns.budgets import BudgetUse, used
from gateway.turns.history import TURNS_MAX, turns_of
from gateway.turns.record import CallLayer, TurnRecord, read_inbound, turn_record

SECTIONS = {
    "Identity": "身份",
    "Tooling": "工具说明",
    "Tool Call Style": "工具调用方式",
    "Execution Bias": "执行方式",
    "Safety": "安全",
    "Gateway Control": "网关控制",
    "Agent Instructions": "智能体指令",
    "Skills": "技能",
    "Workspace": "工作区",
    "Documentation": "文档",
    "Workspace Files (injected)": "工作区文件",
    "Assistant Output Directives": "输出指令",
    "Silent Replies": "静默回复",
    "Messaging": "消息",
    CALLER: "调用方指令",
    "Runtime": "运行环境",
    TOOL_CALLS: "工具调用",
}
"""The sections of the prompt in Chinese."""
_MODES: dict[QueueMode, str] = {
    "collect": "合并连续消息",
    "followup": "逐条回答",
    "steer": "新消息并入正在进行的回答",
    "interrupt": "新消息打断正在进行的回答",
}


async def plan_of(context: CommandContext, work: Work) -> TurnPlan | None:
    """Return the plan of the next request; None if no agent could answer it."""
    channel = context.setup.channel(context.message)
    if context.runner is None or channel is None:
        return None
    turn = Turn(
        context=context.message,
        session=context.session,
        capabilities=channel.capabilities.names,
        directives=channel.capabilities.directives,
        actions=channel.capabilities.actions,
        history=(),
        user=UserMessage(content=()),
        sees_private=await context.runtime.sees_private(context.setup, context.message),
        layers=context.setup.layers.of(context.message),
        settings=settings_json.validate_json(work.settings),
        summary=work.summary.text,
    )
    return context.runner.plan(turn)


async def status(context: CommandContext) -> str:
    work = await context.conversation(TURNS_MAX)
    plan = await plan_of(context, work)
    if plan is None:
        return context.nobody
    say, agent, (spent, _) = context.say, plan.facts.agent, await _spent(context)
    mode = context.runtime.queue(context.session, agent.id, context.message).mode
    runs, waits = bool(work.so_far), len(work.waiting) - bool(work.so_far)
    used = sum(count for _, count in _shares(context, plan, work))
    lines = (
        (say("Agent", "智能体"), agent.name + context.aside(f"`{agent.id}`") if agent.name else f"`{agent.id}`"),
        (say("Model", "模型"), f"`{plan.model.reference}`"),
        (say("Thinking", "思考强度"), f"`{agent.thinking}`" if agent.thinking else say("as the agent is set", "默认")),
        (say("Context", "上下文"), _fill(used, plan.window)),
        (say("Conversation", "本次对话"), spent.shown(context)),
        (say("Cache", "缓存"), spent.cache(context)),
        (say("Queue", "队列"), _queue(context, mode, runs, waits)),
        *await handed_over(context),
        ("Clawgate", VERSION),
    )
    return context.listed(lines)


def _queue(context: CommandContext, mode: QueueMode, runs: bool, waits: int) -> str:
    counts = ((int(runs), "running", "处理中"), (waits, "waiting", "排队"))
    some = [context.say(f"{count} {en}", f"{zh} {count}") for count, en, zh in counts if count]
    work = context.say(", ", "，").join(some) or context.say("idle", "空闲")
    return work + context.aside(context.say(f"`{mode}`", _MODES[mode]))


async def context(context: CommandContext) -> str:
    work = await context.conversation(TURNS_MAX)
    plan = await plan_of(context, work)
    if plan is None:
        return context.nobody
    shares = list(_shares(context, plan, work))
    used = sum(count for _, count in shares)
    head = context.say("Contents of the next request, in estimated tokens:", "下一次请求的构成（token 估算）：")
    total = (context.say("Total", "合计"), _fill(used, plan.window))
    rows = [(context.say(name, SECTIONS.get(name, name)), f"{count:,}") for name, count in shares]
    return f"{head}\n{context.listed([*rows, total])}"


def _shares(context: CommandContext, plan: TurnPlan, work: Work) -> Iterator[tuple[str, int]]:
    """Yield the parts of the next request with their tokens: the prompt's sections, each workspace file, the tools
    and the history."""
    facts = plan.facts

    def corrected(count: int) -> int:
        return context.runner.models.calibration.corrected(plan.model.name, count) if context.runner else count

    files = {name: round(estimate(text)) for name, text in facts.workspace_files}
    for section in chain(*build_system(facts).sections):
        heading, _, _ = section.partition("\n")
        own = round(estimate(section))
        if heading.startswith("## Workspace Files"):
            own = max(0, own - sum(files.values()))
        yield heading.removeprefix("## ") if heading.startswith("## ") else "Identity", corrected(own)
        if heading.startswith("## Workspace Files"):
            yield from ((name, corrected(count)) for name, count in files.items())
    if facts.tools:
        yield context.say("Tools", "工具"), corrected(request_tokens(System(stable="", volatile=""), facts.tools, ()))
    if summary := work.summary.text:
        yield context.say("Summary", "摘要"), corrected(round(estimate(summary)) + WRAPPING_TOKENS)
    history = _history(plan, work)
    name = context.say(f"History ({len(history)} turns)", f"历史（{len(history)} 轮）")
    yield name, corrected(sum(tokens(message) for turn in history for message in turn))


def _history(plan: TurnPlan, work: Work) -> Sequence[Sequence[Message]]:
    """Return the turns that the model would see, without the blocks of a running turn."""
    turns, kept = turns_of(work.history), plan.facts.agent.history_turns
    shown = turns if kept is None else turns[max(0, len(turns) - kept) :]
    return [[replace(it, metadata="") if isinstance(it, UserMessage) else it for it in turn] for turn in shown]


async def usage(context: CommandContext) -> str:
    conversation, today = await _spent(context)
    config = context.setup.config
    budgets = await used(context.runtime, config, context.agent, context.message)
    lines = context.listed(
        (
            (context.say("This conversation", "本次对话"), conversation.shown(context)),
            (context.say("Today in this chat", "今天这个聊天"), today.shown(context)),
            *(_budget(context, it) for it in budgets),
        )
    )
    days = context.say(", ", "、").join(config.price_days(conversation.models | today.models))
    return f"{lines}\n\n{context.say(f'Prices of {days}.', f'价格日期：{days}。')}" if days else lines


def _budget(context: CommandContext, budget: BudgetUse) -> tuple[str, str]:
    whose = {"agent": ("agent", "智能体"), "chat": ("chat", "聊天"), "sender": ("you", "你")}[budget.whose]
    period, at = {"day": (("today", "今天"), "at"), "month": (("this month", "本月"), "on")}[budget.period]
    percent, money = f"{budget.share:.0%}", context.setup.config.money
    if budget.cost_max is not None:
        percent += context.aside(f"{money(budget.cost)} / {money(budget.cost_max)}")
    head = context.say(f"Budget of {period[0]} ({whose[0]})", f"{period[1]}额度（{whose[1]}）")
    return head, context.say(f"{percent} used, resets {at} {budget.until}", f"已用 {percent}，{budget.until} 重置")


async def whoami(context: CommandContext) -> str:
    say, message, channel = context.say, context.message, context.setup.channel(context.message)
    agent = next((it for it in context.setup.config.agents.list if it.id == context.agent), None)
    named = (await channel.enrich(message)).sender.name if channel else message.sender.name
    lines = [
        (say("Name", "名字"), plain(name_of(named))),
        (say("Role", "角色"), await _role(context)),
        (say("Agent", "智能体"), (plain(agent.name) if agent and agent.name else f"`{context.agent}`")),
        (say("Language", "语言"), say("English", "中文")),
        (say("Id", "ID"), f"`{context.person}`"),
    ]
    lines.append(await login_line(context))
    if context.is_owner and message.chat.kind == "direct":
        owners = [await context.named(it) for it in context.setup.owners]
        lines.append((say("Owners", "所有者"), say(", ", "、").join(owners)))
    return context.listed([(name, value) for name, value in lines if value])


async def _role(context: CommandContext) -> str:
    say, message = context.say, context.message
    place = message.channel, message.account, message.sender.id
    state = await context.runtime.store.contact_state(*place, context.runtime.now())
    if context.is_owner:
        role = say("owner", "所有者")
    elif state == "paired" and message.chat.kind == "direct":
        role = say("approved by an owner", "经所有者批准")
    else:
        role = say("guest", "访客")
    if context.approvals.may_decide_any(message):
        role += say(", approves commands", "，可批准命令")
    return role


@dataclass(slots=True)
class _Sum:
    """A sum of bills. `cost` is None if no bill has one, because no prices are set."""

    tokens: Counter[str] = field(default_factory=Counter)
    cost: float | None = None
    models: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, bills: Iterable[Bill]) -> "_Sum":
        total = cls()
        for final in (orjson.loads(bill.content) for bill in bills):
            total.tokens.update(final.get("tokens", {}))
            total.models.update(final.get("models", {}))
            if (cost := final.get("cost")) is not None:
                total.cost = (total.cost or 0.0) + cost
        return total

    def shown(self, context: CommandContext) -> str:
        read = sum(self.tokens[name] for name in ("input", "cache_read", "cache_write"))
        text = context.say(
            f"{read:,} tokens in, {self.tokens['output']:,} out", f"输入 {read:,} token，输出 {self.tokens['output']:,}"
        )
        if self.cost is None:
            return text
        cost = context.setup.config.money(self.cost)
        return text + context.say(f", cost {cost}", f"，费用 {cost}")

    def cache(self, context: CommandContext) -> str:
        read, written = self.tokens["cache_read"], self.tokens["cache_write"]
        return context.say(f"{read:,} tokens read, {written:,} written", f"读取 {read:,} token，写入 {written:,}")


async def _spent(context: CommandContext) -> tuple[_Sum, _Sum]:
    """Return the usage of the current conversation, and of today in the gateway's time zone."""
    zone = context.setup.config.server.zone
    midnight = datetime.combine(local(context.runtime.now(), zone).date(), time(), zone).timestamp()
    bills = await context.runtime.store.bills(context.session, since=midnight)
    return _Sum.of(it for it in bills if it.current), _Sum.of(it for it in bills if it.recent)


def _fill(used: int, window: int) -> str:
    return f"{used:,} / {window:,} ({used / window:.0%})"


TOOLS_SHOWN = 8
APPROVALS_SHOWN = 3
CHINESE = {
    "replied": "已回答",
    "silent": "无需回答",
    "failed": "失败",
    "declined": "已拒绝",
    "stopped": "已停止",
    "recalled": "已撤回",
    "over-budget": "超出额度",
    "stale": "已过时",
    "too-many": "排队的消息太多",
    "erased": "已删除",
    "reported": "已报告",
    "auth": "模型拒绝访问",
    "billing": "模型账户需要处理",
    "invalid": "模型不接受该请求",
    "not_found": "模型不存在",
    "too_large": "对话太长",
    "message_too_long": "消息太长",
    "stale_thinking": "模型不接受先前的思考",
    "no_tools": "模型不支持工具",
    "rate_limited": "模型的请求太多",
    "overloaded": "模型繁忙",
    "server": "模型服务出现故障",
    "network": "连接不上模型",
    "timeout": "模型超时",
    "incomplete": "模型的回答中途中断",
    "unconfigured": "没有配置模型",
    "rounds": "工具调用轮数已达上限",
    "turn-time": "时间已达上限",
    "repeating": "一再重复同一个调用",
    "pauses": "模型一再暂停",
    "empty": "模型没有回答",
    "cut": "回答被截断",
    "budget": "额度已用完",
    "not configured": "没有这个智能体",
    "refused": "不再有权使用",
    "agent-closed": "智能体只供他人使用",
    "unreadable": "消息无法读取",
    "attempts": "多次重试失败",
    "restored": "从备份恢复时未完成",
    "stuck": "卡住不动",
    "internal": "内部错误",
    "sender": "发送者的额度",
    "chat": "聊天的额度",
    "agent": "智能体的额度",
}
"""Outcomes and reasons, which the journal stores in English."""


WHY_CHARS_MAX = 1_000
log = structlog.get_logger()


async def good(context: CommandContext) -> str:
    return await _rate(context, "👍")


async def bad(context: CommandContext) -> str:
    return await _rate(context, "👎")


async def _rate(context: CommandContext, emoji: str) -> str:
    """Rate the newest finished turn before the command; the last rating of a person counts."""
    runtime, why = context.runtime, context.arguments[:WHY_CHARS_MAX]
    number = await runtime.store.layers.last(context.session, context.turn)
    if number is None:
        return context.say("I have not answered anything here yet.", "这里还没有回答过。")
    person = sender_of(context.message)
    await runtime.store.chatter.react(context.session, number, person, emoji, runtime.now(), why)
    log.info("answer_rated", turn=number, session=context.session, good=emoji == "👍")
    return context.say("Thank you, noted.", "谢谢，已记录。")


async def why(context: CommandContext) -> str:
    """Explain the newest finished turn before the command, even if only the journal has it."""
    layers = context.runtime.store.layers
    number = await layers.last(context.session, context.turn)
    stored = None if number is None else await layers.get(number)
    if stored is None:
        return context.say("I have not answered anything here yet.", "这里还没有回答过。")
    config = context.setup.config
    record = turn_record(stored, config.server.zone, config.currency)
    return "\n".join([f"- {line}" async for line in _lines(context, stored, record)])


async def _lines(context: CommandContext, stored: StoredTurn, record: TurnRecord) -> AsyncIterator[str]:
    say, turn = context.say, record.turn
    took = "" if turn.seconds is None else say(f" after {turn.seconds:.1f} s", f"，用时 {turn.seconds:.1f} 秒")
    yield say(
        f"Turn {turn.id}: {turn.outcome}{f' ({turn.reason})' if turn.reason else ''}{took}",
        f"第 {turn.id} 轮：{_chinese(turn.outcome)}{f'（{_chinese(turn.reason)}）' if turn.reason else ''}{took}",
    )
    agent = record.route.get("agent") or {"value": context.agent, "reason": ""}
    why, because = agent["reason"], agent.get("zh", "")
    yield say(
        f"Agent: `{agent['value']}`{f': {why}' if why else ''}",
        f"智能体：`{agent['value']}`{f'：{because}' if because else ''}",
    )
    read = turn.tokens.input + turn.tokens.cache_read + turn.tokens.cache_write
    paid = "" if turn.cost is None else context.setup.config.money(turn.cost)
    cost = say(f", cost {paid}", f"，费用 {paid}") if paid else ""
    models = say(", ", "、").join(f"`{it}`" for it in turn.models) or say("no model", "未请求模型")
    yield say(
        f"Requests: {turn.requests} to {models}; {read:,} tokens in, {turn.tokens.output:,} out{cost}",
        f"请求：{turn.requests} 次，{models}；输入 {read:,} token，输出 {turn.tokens.output:,}{cost}",
    )
    tools, approvals = _tools(context, record.calls), await _approvals(context, stored)
    yield say(f"Tools: {tools or 'none'}", f"工具：{tools or '无'}") + approvals
    yield _more(context, turn.id)


def _more(context: CommandContext, turn: int) -> str:
    """The link to the turn's layers, or what to do where no link can be opened."""
    config = context.setup.config
    if page := openable(config, context.message.channel):
        return f"{page}/console#turns/{turn}"
    here = f"{config.server.address}/console#turns/{turn}" if has_page(config) else f"{program()} turns show {turn}"
    return context.say(
        f"For more, run this on the gateway's machine: `{here}`", f"更多内容，请在网关所在的机器上查看：`{here}`"
    )


def _chinese(word: str) -> str:
    """Return the Chinese name of an outcome or a reason; a name that is unknown here stays unchanged."""
    if late := re.fullmatch(r"(\d+) s late", word):
        return f"晚到 {late[1]} 秒"
    if by := re.fullmatch(r"by (\d+)", word):
        return f"由第 {by[1]} 条消息"
    return CHINESE.get(word, word)


async def _approvals(context: CommandContext, stored: StoredTurn) -> str:
    """Return the turn's calls that needed an approval, and the call whose decision the turn continues with."""
    inbound = read_inbound(stored.body or "")
    id_ = inbound.approval if inbound else ""
    ids = [it for it in dict.fromkeys([id_, *(it["id"] for it in stored.approvals)]) if it]
    asked = [it for it in [await context.approvals.get(it) for it in ids[:APPROVALS_SHOWN]] if it is not None]
    names = await called(context.runtime, [*dict.fromkeys(it.decided_by for it in asked if it.decided_by)])
    lines = [_approval(context, it, names) for it in asked] + ["…"] * (len(ids) > APPROVALS_SHOWN)
    return "".join(context.say("; ", "；") + it for it in lines)


def _approval(context: CommandContext, approval: Approval, names: Called) -> str:
    tool, who = value(approval.tool), approval.decided_by or ""
    by = person(who, names.get(who), context.language, reader=context.reader)
    match approval.state:
        case "pending":
            return context.say(f"asked for {tool}: nobody has decided yet", f"已请求审批 {tool}：尚无人决定")
        case "denied":
            return context.say(f"asked for {tool}: denied by {by}", f"已请求审批 {tool}：已被 {by} 拒绝")
        case "expired":
            return context.say(f"asked for {tool}: nobody decided in time", f"已请求审批 {tool}：无人在时限内决定")
        case "undeliverable":
            return context.say(f"asked for {tool}: it could not be shown in full", f"已请求审批 {tool}：未能完整显示")
        case "cancelled":
            return context.say(f"asked for {tool}: cancelled, nothing ran", f"已请求审批 {tool}：已取消，没有执行")
        case _ if approval.decision == "grant":
            return context.say(
                f"not asked for {tool}: {by} has allowed it always", f"未请求审批 {tool}：{by} 已始终允许"
            )
        case _ if approval.decision == "allow-always":
            return context.say(f"asked for {tool}: allowed always by {by}", f"已请求审批 {tool}：已由 {by} 始终允许")
        case _:
            return context.say(f"asked for {tool}: allowed once by {by}", f"已请求审批 {tool}：已由 {by} 允许一次")


def _tools(context: CommandContext, calls: Sequence[CallLayer]) -> str:
    second = context.say("s", "秒")
    lines = [
        f"`{call.tool[:40].replace('`', '')}`"
        + (f" {call.seconds:.1f} {second}" if call.seconds is not None else "")
        + (" ✗" if call.state == "failed" else "")
        for call in calls[:TOOLS_SHOWN]
    ]
    return context.say(", ", "、").join([*lines, *(["…"] if len(calls) > TOOLS_SHOWN else [])])
