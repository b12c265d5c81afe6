"""Commands about the conversation: start a new one, stop running work, and repeat or undo an answer."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo

from agents.messages import AssistantMessage, Message, UserMessage, texts
from channels.message import File
from channels.moment import timestamp
from gateway.approvals.display import value
from gateway.commands.command import CommandContext, dropped_lines, first_words
from gateway.commands.report import plan_of
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import Stopped
from gateway.store.approvals import Approval
from gateway.store.inbound import REPORT, SAY, Inbound, inbound_of, is_readable
from gateway.store.records import Concerned, Delivery, SessionMark, Summary
from gateway.store.sessions import control_session, sender_of
from gateway.store.tasks import Task
from gateway.turns.batch import asks_beside, is_report
from gateway.turns.history import TURNS_MAX, numbered_turns, turns_of
from gateway.turns.journal import stopped_by
from gateway.turns.memory import StoredMemory

EXPORTED_CHARS_MAX = 200_000
"""The limit if the export is not a file: more than any channel sends in one reply."""


async def start(context: CommandContext) -> str:
    config = context.runner.config if context.runner else None
    if config and config.greeting.strip():
        return config.greeting.strip()
    name = config.name or config.id if config else context.agent
    return context.say(
        f"Hello! I am {name}. Ask me anything; /help shows what I can do.",
        f"你好！我是{name}。有什么需要直接告诉我，发送 /help 查看我能做什么。",
    )


async def new(context: CommandContext) -> str:
    ended = await _stop(context)
    content = json.dumps({"message": context.message.message_id})
    mark = SessionMark(turn=context.turn, kind="new", content=content, at=context.runtime.now())
    await context.runtime.store.mark(context.session, mark)
    await context.runtime.choices.choose_queue(context.session, "", turn=context.turn, at=context.runtime.now())
    begins = context.say("New conversation started.", "已开始新的对话。")
    for words in (
        first_words(inbound_of(it.body).context.text) for it in ended.messages if it.begun and is_readable(it.body)
    ):
        begins += context.say(f" I stopped answering: {words}.", f"已停止回答：{words}。")
    return begins + ended.lines


async def stop(context: CommandContext) -> str:
    if context.arguments:
        return await _stop_task(context, context.arguments)
    ended = await _stop(context)
    if ended.nothing:
        return context.say("Nothing is running.", "现在没有正在进行的内容。") + ended.kept
    return context.say("Stopped.", "已停止。") + ended.lines


async def _stop_task(context: CommandContext, id_: str) -> str:
    tasks = [it for it in await context.tasks.of(context.session) if it.id == id_.strip("`").lower()]
    if not tasks:
        return context.say(
            f"There is no task {value(id_)} here. /tasks lists them all.",
            f"这里没有任务 {value(id_)}。发送 /tasks 可查看全部任务。",
        )
    name = value(tasks[0].title)
    if not await context.tasks.halt(tasks, by=context.turn):
        return context.say(f"The task {name} has already ended.", f"任务 {name} 已经结束。")
    return context.say(f"The task {name} is stopped.", f"任务 {name} 已停止。")


async def tasks(context: CommandContext) -> str:
    listed, now = await context.tasks.of(context.session), context.runtime.now()
    if not listed:
        return context.say("This conversation has no tasks.", "本次对话没有任务。")
    lines = [f"- `{it.id}` {_state(context, it, now)} {value(it.title)}" for it in listed]
    if any(it.ended is None for it in listed):
        lines.append(context.say("`/stop ID` stops one of them.", "`/stop 编号` 可停止其中一个。"))
    return "\n".join(lines)


def _state(context: CommandContext, task: Task, now: float) -> str:
    seconds = f"{max(0.0, (task.ended or now) - task.started):.0f} s"
    return {
        "running": context.say(f"⏳ runs for {seconds}:", f"⏳ 已运行 {seconds}："),
        "ended": context.say(f"✓ ended after {seconds}:", f"✓ 用时 {seconds}："),
        "failed": context.say(f"✗ failed after {seconds}:", f"✗ {seconds} 后失败："),
        "stopped": context.say("was stopped:", "已停止："),
    }.get(task.state, context.say("is gone:", "已不存在："))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ended:
    """The work that a stop ended: its messages and the lines about it. `kept` is the line about what continues."""

    messages: Sequence[Concerned]
    nothing: bool
    lines: str
    kept: str


async def _stop(context: CommandContext) -> _Ended:
    """Stop what began before the command: turns, tasks, model requests of commands, background commands with a
    report, and approval requests that the sender may cancel. What was stopped is read after the stop, so an answer
    that finished just before it does not count. Idempotent: a second run finds what the first one stopped."""
    by, runtime, turn, session = stopped_by(context.turn), context.runtime, context.turn, context.session
    tasks = [it for it in await context.tasks.of(session) if it.turn < turn]
    asked = await runtime.store.approvals.open_in([session, *(it.sid for it in tasks if it.ended is None)])
    others = [it for it in asked if (it.sid != session or it.turn < turn) and not _may_cancel(context, it)]
    waits = {it.sid for it in others} - {session}  # such a task does nothing that a stop could end
    cancelled = [*await context.approvals.cancel(session, turn, lambda it: it.turn < turn and _may_cancel(context, it))]
    await runtime.control.stop(session, turn)
    stopped = await context.tasks.halt([it for it in tasks if it.sid not in waits], by=turn)
    commands = await context.ends.halt(session, by=turn)
    concerned = await runtime.store.concerned(session, before=turn, by=by)
    concerned = [it for it in concerned if not _is_recalled(it) and not is_report(it)]  # nothing stops a report
    beside = await runtime.store.concerned(control_session(session), before=turn, by=by)
    asking = [it for it in beside if not _is_recalled(it) and asks_beside(it)]
    lines = dropped_lines(context, [it for it in concerned if not it.begun])
    lines += _ended_tasks(context, stopped)
    lines += _listed(
        context.say("These commands were stopped too:", "以下命令也已停止："),
        [
            *(f"`/{inbound_of(it.body).command}`" for it in asking),
            *(f"`{it.id}` {value(it.command)}" for it in commands),
        ],
    )
    lines += _listed(
        context.say("These approval requests were cancelled too:", "以下审批请求已取消："),
        [f"`{it.id}` {it.tool}" for it in cancelled],
    )
    kept = _listed(
        context.say(
            "These approval requests belong to someone else and are still pending:",
            "以下审批请求属于其他人，仍在等待：",
        ),
        [f"`{it.id}`" for it in others],
    )
    nothing = not (concerned or stopped or asking or commands or cancelled)
    return _Ended(messages=concerned, nothing=nothing, lines=lines + kept, kept=kept)


def _may_cancel(context: CommandContext, approval: Approval) -> bool:
    return context.is_owner or context.approvals.may_cancel(approval, context.message)


def _is_recalled(message: Concerned) -> bool:
    return is_readable(message.body) and inbound_of(message.body).recalled


def _listed(head: str, lines: Sequence[str]) -> str:
    return "\n\n" + "\n".join((head, *(f"- {it}" for it in lines))) if lines else ""


async def retry(context: CommandContext) -> str | None:
    return await _answer_again(context)


async def edit(context: CommandContext) -> str | None:
    if not context.arguments.strip():
        return context.say("Put the new text after /edit.", "请在 /edit 后面写上新的内容。")
    return await _answer_again(context, context.arguments.strip())


async def _answer_again(context: CommandContext, text: str = "") -> str | None:
    """Undo the last turn and answer its message again, with the new `text` if there is one. The new turn has the
    rights of the message's author, so only the author may ask for it."""
    turn = await _last_turn(
        context, context.say("There is no earlier message to answer again.", "没有可以重新回答的消息。")
    )
    if isinstance(turn, str):
        return turn
    bodies = await context.runtime.store.bodies(context.session, turn)
    if (own := bodies.get(turn)) is not None and inbound_of(own).command in (REPORT, SAY):
        return context.say(
            "The last message here is a report or a reminder. It cannot be answered again.",
            "最近一条是报告或提醒，无法重新回答。",
        )
    if own is None:
        return context.say(
            "That message is too old for this. Please send it again.",
            "那条消息太久了，请重新发送。",
        )
    contexts = tuple(it for body in bodies.values() for it in inbound_of(body).contexts)
    if {it.sender.id for it in contexts} != {context.message.sender.id}:
        return context.say(
            "Only the author of that message can ask for a new answer.",
            "只有发送那条消息的人可以要求重新回答。",
        )
    await _undo(context, turn)  # what the task that ends would say is of the message as it was
    again = replace(inbound_of(own).context, sent_at=context.message.sent_at)
    if text:  # the words are the person's now, whatever had begun that turn
        mark = again.mark if again.attachments else ""  # of forwarded files
        id_ = again.message_id or context.message.message_id
        again = replace(again, text=text, mark=mark, origin=None, message_id=id_)
    together = (*contexts[:-1], again) if len(contexts) > 1 else ()
    anew = replace(inbound_of(own), context=again, replays=context.turn, together=together)
    await _deliver(context, replace(anew, approval="") if text else anew)
    return None


async def undo(context: CommandContext) -> str:
    turn = await _last_turn(context, context.say("There is nothing to undo.", "没有可以撤销的对话。"))
    if isinstance(turn, str):
        return turn
    body = (await context.runtime.store.bodies(context.session, turn)).get(turn)
    stopped = await _undo(context, turn)
    words = first_words(inbound_of(body).context.text) if body else ""
    return context.say(f"Undone: {words or 'the last exchange'}.", f"已撤销：{words or '上一轮对话'}。") + stopped


async def _last_turn(context: CommandContext, nothing: str) -> int | str:
    """Return the turn that may be undone, or the reason why none may; `nothing` if the conversation is empty. A turn
    that another command repeats meanwhile counts, although it was accepted later; one that an earlier run of this
    command repeats does not."""
    work = await replace(context, turn=sys.maxsize).conversation()
    waiting = [(it.turn, inbound_of(it.body).replays) for it in work.waiting]
    if any(turn < context.turn or replays not in (0, context.turn) for turn, replays in waiting):
        return context.say("I am still answering. Send /stop to stop.", "我还在回答，发送 /stop 可停止。")
    turn = await context.runtime.store.last_turn(context.session, command=context.turn, by=_by(context))
    return nothing if turn is None else turn


def _by(context: CommandContext) -> str:
    return json.dumps({"by": context.turn})


async def _undo(context: CommandContext, turn: int) -> str:
    """Undo a turn and stop the tasks that it started. Return the lines that name them."""
    mark = SessionMark(turn=turn, kind="undone", content=_by(context), at=context.runtime.now())
    await context.runtime.store.mark(context.session, mark)
    return _ended_tasks(context, await context.tasks.halt_of(context.session, turn, by=context.turn))


def _ended_tasks(context: CommandContext, stopped: Sequence[Task]) -> str:
    head = context.say("These tasks were stopped too:", "以下任务也已停止：")
    return _listed(head, [f"`{it.id}` {value(it.title)}" for it in stopped])


async def _deliver(context: CommandContext, inbound: Inbound) -> None:
    """Deliver a message to the agent in place of this command. Idempotent."""
    names, at = [f"command:{context.turn}"], context.runtime.now()
    sender = sender_of(context.message)
    again = Delivery.of(inbound, sid=context.session, names=names, at=at, sender=sender, again=True)
    await context.runtime.accept(again)


async def use_skill(context: CommandContext) -> str | None:
    name, _, text = context.arguments.partition(" ")
    plan = await plan_of(context, await context.conversation())
    skills = plan.facts.skills if plan and plan.facts.has("read") else ()
    if name not in {it.name for it in skills}:
        lines = [f"- `{it.name}` {it.description}" for it in skills]
        if not lines:
            return context.say("I have no skills here.", "这里没有可用的技能。")
        return "\n".join((context.say("Skills:", "可用的技能："), *lines))
    words = context.say(
        f"Use the skill `{name}`: read its file first, then follow it.",
        f"请使用技能 `{name}`：先读取它的文件，然后照做。",
    )
    message = replace(context.message, text=f"{words}\n\n{text.strip()}".strip())
    await _deliver(context, Inbound(agent=context.agent, context=message))
    return None


async def compact(context: CommandContext) -> str | Ending:
    work = await context.conversation(TURNS_MAX)
    if work.summary.by == context.turn:  # marked, and then its process died
        return _compacted(context, work.summary)
    turns = numbered_turns(work.history)
    history = [messages for _, messages in turns]
    compacted = None
    if context.runner is not None:
        memory, at = StoredMemory(context.runtime.store, context.setup.config.server.zone), context.runtime.now()
        save = memory.saver(context.session, context.message, turn=context.turn, at=at, revision=work.revision)
        compacted = await context.runner.compact(
            history,
            session=context.session,
            summary=work.summary.text,
            focus=context.arguments,
            save=None if work.summary.external else save,
        )
    if await context.runtime.store.stopped_at(context.session) > context.turn:
        raise Stopped
    if compacted is None:
        return context.say("There is nothing to summarise yet.", "目前没有需要整理的内容。")
    if not compacted.turns:
        kept = "No summary was complete enough, so the conversation is unchanged."
        text = context.say(kept, "没有得到足够完整的摘要，对话保持原样。")
        return Ending(outcome="compact", reply=Reply(text=text), answers=compacted.answers)
    made = Summary(
        text=compacted.content,
        by=context.turn,
        turns=compacted.turns,
        answers=compacted.answers,
        external=work.summary.external or compacted.external,
    )
    mark = made.mark(turns[compacted.turns - 1][0], context.runtime.now())
    if not await context.runtime.store.changes.summarise(context.session, mark, work.revision):
        return await compact(context)  # something of it was taken back meanwhile
    return _compacted(context, made)


def _compacted(context: CommandContext, made: Summary) -> Ending:
    text = context.say(
        f"The older part of the conversation is summarised: {made.turns} turns.",
        f"已将较早的 {made.turns} 轮对话压缩为摘要。",
    )
    return Ending(outcome="compact", reply=Reply(text=text), answers=made.answers)


async def export(context: CommandContext) -> str | Reply:
    turns = turns_of(await context.runtime.store.transcript(context.session))
    if not turns:
        return context.say("There is nothing to export yet.", "还没有可以导出的内容。")
    zone = context.setup.config.server.zone
    markdown = "\n\n".join((f"# {context.agent}", *(line for turn in turns for line in _exported(turn, zone))))
    markdown = context.runtime.scrubber.scrub(markdown)
    channel = context.setup.channel(context.message)
    if channel is None or "media" not in channel.capabilities.directives:
        return markdown[:EXPORTED_CHARS_MAX]
    data = markdown.encode(errors="replace")[: context.setup.limits.file_bytes]
    file = File(name="conversation.md", type="text/markdown", data=data)
    stored = await context.runtime.store.files.put(file, context.runtime.now())
    return Reply(text=context.say("Here is the conversation as a file:", "对话已导出为文件："), files=(stored,))


def _exported(turn: Sequence[Message], zone: tzinfo) -> Iterator[str]:
    for message in turn:
        at = timestamp(message.timestamp, zone)
        if isinstance(message, UserMessage):
            yield from (f"## {at}\n\n{text.partition(chr(10))[2]}" for text in texts(message))
        elif isinstance(message, AssistantMessage):
            if message.text.strip():
                yield message.text.strip()
            yield from (f"*{call.name}*" for call in message.calls)
