"""Commands that only report: what runs, what fills the prompt, what was spent, and who is asking."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, time
from itertools import chain

import orjson

from agents.messages import Message, UserMessage
from agents.prompt.fences import CALLER, TOOL_CALLS
from agents.prompt.system import build_system
from agents.providers.provider import System
from agents.runner import TurnPlan
from agents.tokens import WRAPPING_TOKENS, estimate, request_tokens, tokens
from agents.turn import Turn, settings_json
from channels.moment import local
from channels.plain import plain
from channels.queue import QueueMode
from gateway.approvals.display import name_of
from gateway.commands.command import CommandContext
from gateway.guard import VERSION
from gateway.store.records import Bill, Work
from gateway.turns.budgets import BudgetUse, used
from gateway.turns.history import TURNS_MAX, turns_of

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
    """The plan of the next request; None if no agent could answer it."""
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
    head = context.say("The next request holds, in tokens (estimated):", "下一次请求的构成（token 估算）：")
    total = (context.say("In all", "合计"), _fill(used, plan.window))
    rows = [(context.say(name, SECTIONS.get(name, name)), f"{count:,}") for name, count in shares]
    return f"{head}\n{context.listed([*rows, total])}"


def _shares(context: CommandContext, plan: TurnPlan, work: Work) -> Iterator[tuple[str, int]]:
    """The parts of the next request with their tokens: the prompt's sections, each workspace file, tools, what was said."""
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
    """The turns that the model is shown, without the blocks that belong to a running turn."""
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
    if context.is_owner and message.chat.kind == "direct":
        owners = [await context.named(it) for it in context.setup.owners]
        lines.append((say("Owners", "所有者"), say(", ", "、").join(owners)))
    return context.listed([(name, value) for name, value in lines if value])


async def _role(context: CommandContext) -> str:
    """Name the role of the sender where they write."""
    say, message = context.say, context.message
    place = message.channel, message.account, message.sender.id
    state = await context.runtime.store.contact_state(*place, context.runtime.now())
    if context.is_owner:
        role = say("owner", "所有者")
    elif state == "paired" and message.chat.kind == "direct":
        role = say("let in by an owner", "经所有者批准")
    else:
        role = say("guest", "访客")
    if context.approvals.may_decide_any(message):
        role += say(", approves commands", "，可批准命令")
    return role


@dataclass(slots=True)
class _Sum:
    """The sum of bills. `cost` is None if no bill has one: without prices there is no cost."""

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
    """Sums the usage of the conversation's turns and commands since it began, and of today in the gateway's time zone."""
    zone = context.setup.config.server.zone
    midnight = datetime.combine(local(context.runtime.now(), zone).date(), time(), zone).timestamp()
    bills = await context.runtime.store.bills(context.session, since=midnight)
    return _Sum.of(it for it in bills if it.current), _Sum.of(it for it in bills if it.recent)


def _fill(used: int, window: int) -> str:
    return f"{used:,} / {window:,} ({used / window:.0%})"
