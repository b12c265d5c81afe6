"""`/remember`: a person's notes, shown to the agent in their direct chats and in no other chat.

`/remember TEXT` takes one, `/remember` lists them, `/remember forget N` deletes one. Each is done once, however often the
command is run again after a crash.
"""

import re

from channels.moment import day
from gateway.commands.command import CommandContext
from gateway.store.memory import NOTES_MAX
from gateway.store.sessions import agent_of, sender_of
from tools.memory import NOTE_CHARS_MAX

_FORGET = re.compile(r"(?:forget|忘记|忘掉|删除)\s*#?\s*([0-9]{1,9})", re.IGNORECASE)


async def remember(context: CommandContext) -> str:
    memory, words, say = context.runtime.store.memory, context.arguments.strip(), context.say
    sender, agent, turn = sender_of(context.message), agent_of(context.session), context.turn
    if not words and context.message.chat.kind != "direct":
        return say(
            "Others can read this chat. To see your notes, send me /remember in a direct chat.",
            "这里其他人也能看到。要查看笔记，请在私聊中向我发送 /remember。",
        )
    if not words:
        lines = [
            f"{it.number}. {' '.join(it.text.split())}{context.aside(day(it.at, context.setup.config.server.zone))}"
            for it in await memory.notes(sender, agent)
        ]
        if not lines:
            return say(
                "You have no notes yet. Write one: /remember TEXT", "你还没有笔记。发送“/remember 内容”即可记一条。"
            )
        head = say("Your notes (delete one: /remember forget N):", "你的笔记（删除：/remember forget 编号）：")
        return "\n".join((head, *lines))
    if match := _FORGET.fullmatch(words):
        number = int(match[1])
        if await memory.delete_note(sender, agent, number, turn=turn):
            return say(f"Note {number} deleted.", f"编号 {number} 的笔记已删除。")
        unknown = f"There is no note {number}. /remember lists your notes."
        return say(unknown, f"没有编号为 {number} 的笔记。/remember 可查看全部。")
    if len(words) > NOTE_CHARS_MAX:
        long = f"That is too long for a note: at most {NOTE_CHARS_MAX:,} characters."
        return say(long, f"这条笔记太长了：最多 {NOTE_CHARS_MAX:,} 个字符。")
    taken = await memory.take_note(sender, agent, words, turn=turn, at=context.runtime.now())
    if taken is None:
        many = f"There are {NOTES_MAX} notes already. Delete one first: /remember forget N"
        return say(many, f"已有 {NOTES_MAX} 条笔记。请先删除一条：/remember forget 编号")
    return say(f"Noted as number {taken}.", f"已记下，编号 {taken}。")
