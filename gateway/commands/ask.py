"""Questions with choices in a chat: shown, answered by a button or a form, and replaced by the answer."""

from gateway.approvals.notices import called
from gateway.approvals.questions import Questions, outcome, shown
from gateway.commands.command import CommandContext
from gateway.state.ending import Reply
from gateway.store.approvals import Approval, Decider
from gateway.store.sessions import chat_of


def questions(context: CommandContext) -> Questions:
    found = Questions()
    found.serve(context.runtime, context.approvals)
    return found


def ask(context: CommandContext, approval: Approval) -> Reply:
    channel = context.setup.channel(context.message)
    forms = channel is not None and channel.capabilities.forms
    return shown(approval, context.language, buttons=context.has_buttons, forms=forms)


async def settle(context: CommandContext) -> None:
    await questions(context).pressed(context.arguments, context.message, context.turn)


async def press(context: CommandContext) -> str | Reply | None:
    """Answer a press: a ticked option is shown in the question, an answer replaces it, anything else is a notice."""
    press = context.message.press
    approval, counts = await questions(context).pressed(context.arguments, context.message, context.turn)
    if approval is None or press is None:
        by = Decider(person=context.person, surface=chat_of(context.message), turn=context.turn)
        is_over = await context.runtime.store.approvals.count_wrong(by, at=context.runtime.now())
        return None if is_over else context.not_your_button
    if approval.state == "pending" and counts:
        current = await context.approvals.get(approval.id)
        if current is not None and current.state == "pending":
            reply = ask(context, current)
            return Reply(text=reply.text, buttons=reply.buttons, form=reply.form, replaces=press.message_id)
        return None
    if counts:
        return None
    if approval.state == "pending":
        return context.say("Choose at least one option first.", "请先选择至少一项。")
    return context.say("This question is closed already.", "这个问题已经结束。")


async def answered(context: CommandContext, approval: Approval, *, reader: str) -> str:
    who = approval.decided_by or ""
    names = await called(context.runtime, [who]) if ":" in who and who != reader else {}
    return outcome(approval, context.language, names.get(who), reader=reader)
