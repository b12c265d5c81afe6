"""`/approve` and `/approvals`, their buttons, and the gateway's own messages about requests: one that asks, and one
that replaces it once the request is closed.

A decision is one strict line, or the press of a button created for it. Someone who may not decide learns nothing: a
guessed id, another user's id and a closed one get the same answer.
"""

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from typing import Any

from channels.message import Button
from gateway.approvals.approvals import dedupe, id_of
from gateway.approvals.display import answers, outcome_text, request_details, request_text, value
from gateway.approvals.notices import OWN, called, is_approver, message_of, surfaces_of
from gateway.approvals.questions import TOKEN
from gateway.commands import ask as questions
from gateway.commands import handover, own
from gateway.commands.command import CommandContext, Perform
from gateway.commands.own import accept_tools, join, tell, unheard
from gateway.state.ending import Reply
from gateway.state.queues import BUTTON
from gateway.store.approvals import Approval, Decider, Token
from gateway.store.inbound import ASK, INTRODUCTION, NOTICE, OUTCOME, PRESSED, UNHEARD
from gateway.store.sessions import chat_of, person_of
from tools.ask import NAME as QUESTION

_DECISION = re.compile(r" */approve(?:@\S+)? ([0-9A-HJKMNP-TV-Z-]{12,14}) (allow-once|allow-always|deny) *")
"""A name after the @ is this bot's: `command_of` has checked it."""
_TOOLS = re.compile(r" */approve(?:@\S+)? mcp ([a-z0-9_-]{1,64}) ([0-9a-f]{16}) *")
_BUTTONS: Mapping[str, tuple[str, str, Any]] = {
    "allow-once": ("允许一次", "Allow once", "primary"),
    "allow-always": ("始终允许", "Allow always", "default"),
    "deny": ("拒绝", "Deny", "danger"),
}


async def approve(context: CommandContext) -> str | None:
    message = context.message
    if (about := _TOOLS.fullmatch(message.text)) and not message.press:
        return await accept_tools(context, about[1], about[2])
    match = _DECISION.fullmatch(message.text)
    if match is None or message.attachments or message.press:
        return context.say(
            "No decision was made. The message must be exactly one line: `/approve XXXX-XXXX-XXXX allow-once`, "
            "with `allow-always` or `deny` in the place of `allow-once`.",
            "未作任何决定。整条消息必须只有一行：`/approve XXXX-XXXX-XXXX allow-once`，"
            "其中 `allow-once` 可换成 `allow-always` 或 `deny`。",
        )
    by = _decider(context)
    if await context.runtime.store.approvals.is_muted(by, at=context.runtime.now()):
        return None
    approval = await context.approvals.get(id_of(match[1]))
    if approval is None or not context.approvals.may_decide(approval, message):
        return await _unknown(context, by)
    return (await _decide(context, approval, match[2], by))[1]


async def _unknown(context: CommandContext, by: Decider) -> str | None:
    if await context.runtime.store.approvals.count_wrong(by, at=context.runtime.now()):
        return None
    if context.message.press and context.message.press.token.startswith(BUTTON):
        return context.not_your_button
    return context.say("You have no pending request with this ID.", "没有此编号的待审批请求。")


async def _decide(context: CommandContext, approval: Approval, decision: str, by: Decider) -> tuple[bool, str]:
    """Apply a decision. Return whether this call decided the request, and the answer."""
    if decision != "deny" and approval.state == "pending" and await context.approvals.is_lost(approval):
        return False, context.say(
            f"{approval.id} could not be shown to you in full, so it can only be denied.",
            f"{approval.id} 未能完整显示，只能拒绝。",
        )
    if decision == "allow-always" and not approval.always:
        return False, context.say(
            f"{approval.id} can only be allowed once, because what it runs may change. No decision was made.",
            f"{approval.id} 只能单次允许（无法确定其执行的全部内容）。未作任何决定。",
        )
    won, approval = await context.approvals.decide(approval, decision, by)
    text = await _outcome(context, approval, reader=context.reader)
    return won, text if won else context.say(f"Already decided. {text}", f"已有结果。{text}")


async def _outcome(context: CommandContext, approval: Approval, *, reader: str) -> str:
    decider = approval.decided_by or ""
    names = await called(context.runtime, [decider]) if decider and decider != reader else {}
    return outcome_text(approval, context.language, names.get(decider), reader=reader)


async def list_approvals(context: CommandContext) -> str:
    """List the pending requests and grants of agents whose requests the sender may decide, or revoke some of the
    grants."""
    service, store = context.approvals, context.runtime.store.approvals
    waiting, grants = await store.listed(context.runtime.now())
    waiting = [it for it in waiting if service.may_decide(it, context.message)]
    grants = [it for it in grants if is_approver(context.message, service.approvers(it.agent))]
    word, _, wanted = context.arguments.partition(" ")
    if word == "revoke":
        ids = [it.id for it in grants if wanted.strip().upper() in ("ALL", it.id)]
        by = _decider(context)
        for id_ in ids:
            await store.revoke(id_, by=by.person, turn=by.turn, at=context.runtime.now())
        revoked = ", ".join(await store.revoked_by(by))
        return context.say(f"Revoked: {revoked or 'nothing'}.", f"已撤销：{revoked or '无'}。")
    if context.message.chat.kind == "group":  # of other conversations, too
        return context.say("Ask me in a direct chat.", "请在私聊中查看。")
    if not waiting and not grants:
        return context.say(
            "You have no pending requests, and nothing is always allowed.", "没有待审批的请求，也没有始终允许的调用。"
        )
    lines = [context.say("Pending requests:", "待审批：")] if waiting else []
    lines += [f"- `{it.id}` {it.agent} {it.tool} {value(_text(it.request))}" for it in waiting]
    lines += (
        [
            context.say(
                "Always allowed (revoke with `/approvals revoke ID`):",
                "始终允许（发送 `/approvals revoke ID` 可撤销）：",
            )
        ]
        if grants
        else []
    )
    lines += [f"- `{it.id}` {it.agent} {value(_text(it.request))} × {it.uses}" for it in grants]
    return "\n".join(lines)


def _text(request: str) -> str:
    text: str = json.loads(request)["text"]
    return text


def _decider(context: CommandContext) -> Decider:
    message = context.message
    surface = chat_of(message)
    return Decider(person=person_of(message), surface=surface, turn=context.turn)


async def ask(context: CommandContext) -> str | Reply | None:
    """Ask in the reader's language. Return None if the request was decided meanwhile."""
    id_, _, number = context.arguments.partition(" ")
    approval = await context.approvals.get(id_)
    if approval is None or approval.state != "pending":
        return None
    if approval.tool == QUESTION:
        return questions.ask(context, approval)
    origin, language = message_of(approval), context.language
    people, reader = approval.requester.split(", "), surfaces_of(approval)[int(number)].approver
    names = await called(context.runtime, [it for it in people if it != reader])
    config = context.setup.config
    agent = next((it for it in config.agents.list if it.id == approval.agent), None)
    text = request_text(approval, origin, language, called=names, reader=reader, agent=agent)
    details = request_details(approval, origin, language, config.server.zone, names)
    if not context.has_buttons:
        return f"{text}\n\n{details.text}"
    buttons = await _buttons(context, approval, int(number), reader)
    return Reply(text=text, folded=details, buttons=buttons)


async def _buttons(context: CommandContext, approval: Approval, surface: int, approver: str) -> tuple[Button, ...]:
    """Create the buttons for one surface, with new tokens; only their hashes are stored."""
    buttons, tokens = [], []
    for answer in answers(approval):
        token, (zh, en, style) = secrets.token_urlsafe(24), _BUTTONS[answer]
        buttons.append(Button(label=context.say(en, zh), token=token, style=style))
        tokens.append(
            Token(hash=_hash(token), approval=approval.id, decision=answer, approver=approver, surface=surface)
        )
    await context.runtime.store.approvals.set_tokens(tokens)
    return tuple(buttons)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def replace_request(context: CommandContext) -> str | Reply | None:
    """Replace the request message if the channel can; otherwise add a line, unless that chat got the decision's
    reply."""
    id_, _, number = context.arguments.partition(" ")
    store, request = context.runtime.store.approvals, dedupe(id_, f"ask:{number}")
    approval, sent = await context.approvals.get(id_), await store.sent(request)
    if approval is None or not sent:
        return None
    surface = surfaces_of(approval)[int(number)]
    if approval.tool == QUESTION:
        text = await questions.answered(context, approval, reader=context.reader)
    else:
        text = await _outcome(context, approval, reader=surface.approver)
    if context.has_buttons and not await store.given_up([request]):  # of several messages the last one has them
        return Reply(text=text, replaces=sent[-1])
    here = approval.decided_in == chat_of(surface.context)
    return None if here else text


async def settle(context: CommandContext) -> None:
    """Apply the decision of a pressed button, without requests to the platform."""
    if context.arguments.startswith(TOKEN):
        await questions.settle(context)
    elif context.arguments.startswith(handover.TOKEN):
        await handover.settle(context)
    else:
        await (own.settle if context.arguments.startswith(OWN) else press)(context)


async def press(context: CommandContext) -> str | Reply | None:
    """Handle a press. A button carries only a token: the platform's event says who pressed it, and `settled`
    replaces the request."""
    if context.arguments.startswith(OWN):
        return await own.press(context, context.arguments)
    if context.arguments.startswith(TOKEN):
        return await questions.press(context)
    if context.arguments.startswith(handover.TOKEN):
        return await handover.press(context)
    store, by, message = context.runtime.store.approvals, _decider(context), context.message
    token = await store.token(_hash(message.press.token)) if message.press and message.press.token else None
    approval = await context.approvals.get(token.approval) if token else None
    theirs = token is not None and token.approver in ("", by.person)
    if token is None or approval is None or not theirs:
        muted = await store.is_muted(by, at=context.runtime.now())
        return None if muted else await _unknown(context, by)
    if not context.approvals.may_decide(approval, message):
        return await _unknown(context, by)
    won, text = await _decide(context, approval, token.decision, by)
    is_replaced = not await store.given_up([dedupe(approval.id, f"ask:{token.surface}")])
    return None if won and is_replaced else text


NOTICE_RUNS: Mapping[str, Perform] = {
    ASK: ask,
    OUTCOME: replace_request,
    PRESSED: press,
    INTRODUCTION: join,
    NOTICE: tell,
    UNHEARD: unheard,
}
"""The gateway's own messages, by internal command."""
