"""`/remember`: a person's notes, which his direct chats with the agent have before them and no other chat.

`/remember TEXT` takes one, `/remember` lists them, `/remember forget N` deletes one. Each is done once, however often the
command is run again after a crash.
"""

import re
from datetime import UTC, datetime

from agents.sentences import Language
from gateway.commands.command import CommandContext
from gateway.memory import person
from gateway.routing import agent_of
from gateway.store.memory import NOTES_MAX
from tools.memory import NOTE_CHARS_MAX

_FORGET = re.compile(r"(?:forget|忘记|忘掉|删除)\s*#?\s*([0-9]{1,9})", re.IGNORECASE)

_SENTENCES = {
    "taken": ("Noted as number {number}.", "已记下，编号 {number}。"),
    "too-long": (
        "That is too long for a note: at most {chars_max:,} characters.",
        "这条笔记太长了：最多 {chars_max:,} 个字符。",
    ),
    "too-many": (
        "There are {notes_max} notes already. Delete one first: /remember forget N",
        "已有 {notes_max} 条笔记。请先删除一条：/remember forget 编号",
    ),
    "deleted": ("Note {number} is deleted.", "编号 {number} 的笔记已删除。"),
    "unknown": (
        "There is no note {number}. /remember lists yours.",
        "没有编号为 {number} 的笔记。/remember 可查看全部。",
    ),
    "none": ("There are no notes of yours. Write one: /remember TEXT", "还没有笔记。这样记一条：/remember 内容"),
    "list": ("Your notes (delete one: /remember forget N):", "你的笔记（删除：/remember forget 编号）："),
    "group": (
        "Others read along here: send /remember in a direct chat with me to see your notes.",
        "这里其他人也能看到：请在与我的私聊中发送 /remember 查看你的笔记。",
    ),
}


async def remember(context: CommandContext) -> str:
    memory, words = context.runtime.store.memory, context.arguments.strip()
    sender, agent, turn = person(context.message), agent_of(context.session), context.turn
    language = context.language
    if not words:
        if context.message.chat.kind != "direct":
            return _sentence("group", language)
        notes = await memory.notes(sender, agent)
        lines = [
            f"{it.number}. {' '.join(it.text.split())} ({datetime.fromtimestamp(it.at, UTC):%Y-%m-%d})" for it in notes
        ]
        return "\n".join([_sentence("list" if lines else "none", language), *lines])
    if found := _FORGET.fullmatch(words):
        number = int(found[1])
        deleted = await memory.delete_note(sender, agent, number, turn=turn)
        return _sentence("deleted" if deleted else "unknown", language, number=number)
    if len(words) > NOTE_CHARS_MAX:
        return _sentence("too-long", language, chars_max=NOTE_CHARS_MAX)
    words = words.encode(errors="replace").decode().replace("\0", "\ufffd")  # else no database takes it
    taken = await memory.take_note(sender, agent, words, turn=turn, at=context.runtime.now())
    if taken is None:
        return _sentence("too-many", language, notes_max=NOTES_MAX)
    return _sentence("taken", language, number=taken)


def _sentence(key: str, language: Language, **values: int) -> str:
    english, chinese = _SENTENCES[key]
    return (chinese if language == "zh" else english).format(**values)
