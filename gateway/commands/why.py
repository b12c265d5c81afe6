"""`/why`: the last turn of the chat in five lines, for an owner: how it ended, who answered and why, what it cost, which
tools it called and who approved them.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

import orjson

from agents.messages import AssistantMessage, Message, ToolResultMessage, message_json
from gateway.approvals.display import Called, person, value
from gateway.approvals.surfaces import called
from gateway.commands.command import CommandContext
from gateway.config.exposure import has_page, openable
from gateway.program import program
from gateway.records.inbound import inbound_of, is_readable
from gateway.store.approval_records import Approval
from gateway.store.layers import StoredTurn

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
"""The outcomes and the reasons, which are English words of the journal."""


async def why(context: CommandContext) -> str:
    """Answers for the newest finished turn before the command, also if nothing was kept of it but the journal."""
    layers = context.runtime.store.layers
    number = await layers.last(context.session, context.turn)
    stored = None if number is None else await layers.get(number)
    if stored is None:
        return context.say("I have not answered anything here yet.", "这里还没有回答过。")
    return "\n".join([f"- {line}" async for line in _lines(context, stored)])


async def _lines(context: CommandContext, stored: StoredTurn) -> AsyncIterator[str]:
    say, kept = context.say, orjson.loads((stored.layer or {}).get("content", "{}"))
    final: dict[str, Any] = next((orjson.loads(it["content"]) for it in stored.rows if it["kind"] == "final"), {})
    took = _took(context, stored, final)
    ended, reason = final.get("outcome", ""), final.get("reason", "")
    yield say(
        f"Turn {stored.turn}: {ended}{f' ({reason})' if reason else ''}{took}",
        f"第 {stored.turn} 轮：{_chinese(ended)}{f'（{_chinese(reason)}）' if reason else ''}{took}",
    )
    yield _route(context, stored)
    tokens = final.get("tokens") or {}
    read = sum(tokens.get(name, 0) for name in ("input", "cache_read", "cache_write"))
    paid = "" if final.get("cost") is None else context.setup.config.money(final["cost"])
    cost = say(f", cost {paid}", f"，费用 {paid}") if paid else ""
    models = say(", ", "、").join(f"`{it}`" for it in final.get("models", {})) or say("no model", "未请求模型")
    written = tokens.get("output", 0)
    yield say(
        f"Requests: {final.get('requests', 0)} to {models}; {read:,} tokens in, {written:,} out{cost}",
        f"请求：{final.get('requests', 0)} 次，{models}；输入 {read:,} token，输出 {written:,}{cost}",
    )
    tools, approvals = _tools(context, stored, kept), await _approvals(context, stored)
    yield say(f"Tools: {tools or 'none'}", f"工具：{tools or '无'}") + approvals
    yield _more(context, stored.turn)


def _more(context: CommandContext, turn: int) -> str:
    """The link to the turn's layers, or what to do where no link can be opened."""
    config = context.setup.config
    if page := openable(config, context.message.channel):
        return f"{page}/console#turns/{turn}"
    here = f"{config.server.address}/console#turns/{turn}" if has_page(config) else f"{program()} turns show {turn}"
    return context.say(f"More, on the gateway's machine: `{here}`", f"更多内容，请在网关所在的机器上查看：`{here}`")


def _chinese(word: str) -> str:
    """The Chinese of an outcome or a reason; a word of a newer version stays as it is."""
    if late := re.fullmatch(r"(\d+) s late", word):
        return f"晚到 {late[1]} 秒"
    if by := re.fullmatch(r"by (\d+)", word):
        return f"由第 {by[1]} 条消息"
    return CHINESE.get(word, word)


def _took(context: CommandContext, stored: StoredTurn, final: Mapping[str, Any]) -> str:
    accepted = next((it["at"] for it in stored.messages if it["id"] == stored.turn), None)
    if accepted is None or "at" not in final:
        return ""
    seconds = f"{final['at'] - accepted:.1f}"
    return context.say(f" after {seconds} s", f"，用时 {seconds} 秒")


def _route(context: CommandContext, stored: StoredTurn) -> str:
    route = orjson.loads(stored.texts.get((stored.layer or {}).get("route", ""), "{}"))
    agent = route.get("agent") or {"value": context.agent, "reason": ""}
    why, because = agent["reason"], agent.get("zh", "")  # what an older version kept has no Chinese
    return context.say(
        f"Agent: `{agent['value']}`{f': {why}' if why else ''}",
        f"智能体：`{agent['value']}`{f'：{because}' if because else ''}",
    )


async def _approvals(context: CommandContext, stored: StoredTurn) -> str:
    """Each call of the turn that a person was asked for, and the one whose decision the turn continues with."""
    own = next((it["body"] for it in stored.messages if it["id"] == stored.turn), "")
    id_ = inbound_of(own).approval if own and is_readable(own) else ""
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
            return context.say(f"asked for {tool}: nobody could be shown it whole", f"已请求审批 {tool}：未能完整显示")
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


def _tools(context: CommandContext, stored: StoredTurn, kept: Mapping[str, Any]) -> str:
    """The calls in order, each with its time and whether it failed."""
    seconds, second = {it["id"]: it.get("s") for it in kept.get("calls", ())}, context.say("s", "秒")
    steps: list[Message] = [
        message_json.validate_json(it["content"]) for it in stored.rows if it["kind"] in ("assistant", "toolResult")
    ]
    failed = {it.call_id for it in steps if isinstance(it, ToolResultMessage) and it.is_error}
    calls = [call for it in steps if isinstance(it, AssistantMessage) for call in it.calls]
    lines = [
        f"`{call.name[:40].replace('`', '')}`"
        + (f" {seconds[call.id]:.1f} {second}" if seconds.get(call.id) is not None else "")
        + (" ✗" if call.id in failed else "")
        for call in calls[:TOOLS_SHOWN]
    ]
    return context.say(", ", "、").join([*lines, *(["…"] if len(calls) > TOOLS_SHOWN else [])])
