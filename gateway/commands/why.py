"""`/why`: the last turn of the chat in five lines, for an owner: how it ended, who answered and why, what it cost."""

from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from agents.messages import AssistantMessage, Message, ToolResultMessage, message_json
from gateway.commands.command import CommandContext
from gateway.store.layers import StoredTurn

TOOLS_SHOWN = 8


async def why(context: CommandContext) -> str:
    """Answers for the newest finished turn before the command, also if nothing was kept of it but the journal."""
    layers = context.runtime.store.layers
    number = await layers.last(context.session, context.turn)
    stored = None if number is None else await layers.get(number)
    if stored is None:
        return context.say("Nothing has been answered here yet.", "这里还没有回答过。")
    return "\n".join(f"- {line}" for line in _lines(context, stored))


def _lines(context: CommandContext, stored: StoredTurn) -> Iterator[str]:
    say, kept = context.say, orjson.loads((stored.layer or {}).get("content", "{}"))
    final: dict[str, Any] = next((orjson.loads(it["content"]) for it in stored.rows if it["kind"] == "final"), {})
    reason = f" ({final['reason']})" if final.get("reason") else ""
    took = _took(context, stored, final)
    outcome = f"{final.get('outcome')}{reason}{took}"
    yield say(f"Turn {stored.turn}: {outcome}", f"第 {stored.turn} 轮：{outcome}")
    yield _route(context, stored)
    tokens = final.get("tokens") or {}
    read = sum(tokens.get(name, 0) for name in ("input", "cache_read", "cache_write"))
    cost = say(f", cost {final['cost']:.4f}", f"，费用 {final['cost']:.4f}") if final.get("cost") is not None else ""
    models = ", ".join(f"`{it}`" for it in final.get("models", {})) or say("no model", "未请求模型")
    written = tokens.get("output", 0)
    yield say(
        f"Requests: {final.get('requests', 0)} to {models}; {read:,} tokens in, {written:,} out{cost}",
        f"请求：{final.get('requests', 0)} 次，{models}；输入 {read:,} token，输出 {written:,}{cost}",
    )
    yield say(f"Tools: {_tools(stored, kept) or 'none'}", f"工具：{_tools(stored, kept) or '无'}")
    server = context.setup.config.server
    yield f"{server.public_url or server.address}/console#turns/{stored.turn}"


def _took(context: CommandContext, stored: StoredTurn, final: Mapping[str, Any]) -> str:
    accepted = next((it["at"] for it in stored.messages if it["id"] == stored.turn), None)
    if accepted is None or "at" not in final:
        return ""
    seconds = f"{final['at'] - accepted:.1f}"
    return context.say(f" after {seconds} s", f"，用时 {seconds} 秒")


def _route(context: CommandContext, stored: StoredTurn) -> str:
    route = orjson.loads(stored.texts.get((stored.layer or {}).get("route", ""), "{}"))
    agent = route.get("agent") or {"value": context.agent, "reason": ""}
    why = f": {agent['reason']}" if agent["reason"] else ""
    return context.say(f"Agent: `{agent['value']}`{why}", f"助手：`{agent['value']}`{why}")


def _tools(stored: StoredTurn, kept: Mapping[str, Any]) -> str:
    """The calls in order, each with its time and whether it failed."""
    seconds = {it["id"]: it.get("s") for it in kept.get("calls", ())}
    steps: list[Message] = [
        message_json.validate_json(it["content"]) for it in stored.rows if it["kind"] in ("assistant", "toolResult")
    ]
    failed = {it.call_id for it in steps if isinstance(it, ToolResultMessage) and it.is_error}
    calls = [call for it in steps if isinstance(it, AssistantMessage) for call in it.calls]
    shown = [
        f"`{call.name[:40].replace('`', '')}`"
        + (f" {seconds[call.id]:.1f} s" if seconds.get(call.id) is not None else "")
        + (" ✗" if call.id in failed else "")
        for call in calls[:TOOLS_SHOWN]
    ]
    return ", ".join([*shown, *(["…"] if len(calls) > TOOLS_SHOWN else [])])
