"""Commands that change a setting: of the conversation until a new one starts (model, thinking, progress display,
queue), or of the chat (its agent); and a user's own notes and schedules."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from agents.providers.models import LEVELS
from agents.runner import AgentRunner
from agents.turn import Settings, settings_json
from channels.moment import day
from gateway.approvals.display import value
from gateway.commands.command import CommandContext
from gateway.later.schedule import line_of, theirs
from gateway.state.choices import MODES
from gateway.state.runtime import Setup
from gateway.store.later import Later
from gateway.store.memory import NOTES_MAX
from gateway.store.records import SessionMark
from gateway.store.sessions import agent_of, chat_of, is_open, sender_of
from tools.memory import NOTE_CHARS_MAX

DEFAULT = "default"
ABOUT_CHARS_MAX = 100


async def model(context: CommandContext) -> str:
    config, words = context.setup.config, context.arguments
    if not words:
        return await models(context)
    if words.lower() == DEFAULT:
        await _set(context, model="")
        default = context.runner.config.model[0] if context.runner else ""
        return context.say(f"Back to the agent's own model: `{default}`.", f"已恢复为智能体自己的模型：`{default}`。")
    found = _named(words, config.choosable_models)
    if not found:
        problem = context.say(f"There is no model {_quoted(words)}.", f"没有模型 {_quoted(words)}。")
        return f"{problem}\n\n{await models(context)}"
    if len(found) > 1:
        several = f"Several models match {_quoted(words)}:", f"有多个模型符合 {_quoted(words)}："
        return await _listed(context, context.say(*several), found)
    await _set(context, model=found[0])
    return context.say(
        f"`{found[0]}` answers from your next message until /new.",
        f"从下一条消息起由 `{found[0]}` 回答，直到 /new。",
    )


async def models(context: CommandContext) -> str:
    head = context.say(
        "Choose a model with `/model NAME` or `/model NUMBER`:", "可选的模型（发送 `/model` 加名称或编号）："
    )
    return await _listed(context, head, context.setup.config.choosable_models)


async def _listed(context: CommandContext, head: str, models: Sequence[str]) -> str:
    """List models with their numbers, escaped so that Markdown does not renumber them."""
    current, mark = model_of(context, await context.settings()), context.aside(context.say("in use", "使用中"))
    numbers = {it: number for number, it in enumerate(context.setup.config.choosable_models, start=1)}
    return "\n".join((head, *(f"- {numbers[it]} · `{it}`{mark if it == current else ''}" for it in models)))


def _named(words: str, models: Sequence[str]) -> Sequence[str]:
    """Return the model with this number; else those with this name, with or without the provider; else those that
    contain it."""
    if re.fullmatch("[1-9][0-9]{0,3}", words) and int(words) <= len(models):
        return [models[int(words) - 1]]
    part = words.lower()
    exact, whole = [it for it in models if it.lower() == part], [it for it in models if it.lower().endswith(f"/{part}")]
    return exact or whole or [it for it in models if part in it.lower()]


def model_of(context: CommandContext, settings: Settings) -> str:
    return model_in_force(context.setup, context.runner, settings)


def model_in_force(setup: Setup, runner: AgentRunner | None, settings: Settings) -> str:
    if settings.model in setup.config.choosable_models:
        return settings.model
    return runner.config.model[0] if runner else ""


def thinking_levels(runner: AgentRunner, model: str) -> list[str]:
    """Return the levels that `/think` offers for a model, weakest first."""
    return [level for level in LEVELS if level in runner.models.get(model).facts.thinking]


async def think(context: CommandContext) -> str:
    runner, settings, word = context.runner, await context.settings(), context.arguments.lower()
    if runner is None:
        return context.nobody
    name = model_of(context, settings)
    levels = thinking_levels(runner, name)
    if not levels:
        return context.say(f"`{name}` has no thinking levels to choose from.", f"`{name}` 不支持设置思考强度。")
    current = settings.thinking or runner.config.thinking
    if word == DEFAULT:
        await _set(context, thinking=None)
        return context.say("Thinking is back to the agent's own setting.", "思考强度已恢复为智能体自己的设置。")
    if word in levels:
        await _set(context, thinking=word)
        return context.say(f"Thinking is set to `{word}`, until /new.", f"思考强度已设为 `{word}`，直到 /new。")
    listed = context.say(", ", "、").join(f"`{level}`" for level in levels)
    if word:
        return context.say(
            f"There is no level {_quoted(word)}. `{name}` has: {listed}.",
            f"没有思考强度 {_quoted(word)}。`{name}` 支持：{listed}。",
        )
    return context.say(
        f"Thinking is `{current or DEFAULT}`. The levels of `{name}`: {listed}.",
        f"当前思考强度：`{current or DEFAULT}`。`{name}` 支持：{listed}。",
    )


async def reasoning(context: CommandContext) -> str:
    if await _switch(context, "reasoning"):
        return context.say("I will show the model's reasoning above its answers.", "回答上方会显示思考过程。")
    return context.say("I will not show the model's reasoning.", "不再显示思考过程。")


async def verbose(context: CommandContext) -> str:
    if await _switch(context, "verbose"):
        return context.say("I will show tool calls above the answers.", "回答上方会显示工具调用。")
    return context.say("I will not show tool calls.", "不再显示工具调用。")


async def _switch(context: CommandContext, name: str) -> bool:
    """Set on or off. Any other word changes nothing."""
    choice = {"on": True, "off": False}.get(context.arguments.lower())
    if choice is None:
        return bool(getattr(await context.settings(), name))
    await _set(context, **{name: choice})
    return choice


async def queue(context: CommandContext) -> str:
    word, runtime = context.arguments.lower(), context.runtime
    if word in (*MODES, DEFAULT):
        mode = "" if word == DEFAULT else word
        await runtime.choices.choose_queue(context.session, mode, turn=context.turn, at=runtime.now())
    current = runtime.queue(context.session, context.agent, context.message).mode
    listed = context.say(", ", "、").join(f"`{mode}`" for mode in MODES)
    return context.say(
        f"The queue mode is `{current}`. There are: {listed}.", f"排队模式：`{current}`。可选：{listed}。"
    )


async def agent(context: CommandContext) -> str:
    """Change the agent of a chat. Each agent has a separate conversation there, and the previous one's is kept."""
    config, words = context.setup.config, context.arguments
    offered = [it for it in config.agents.list if is_open(config, context.setup.owners, it.id, context.message)]
    chosen = next((it for it in offered if words.lower() in (it.id, it.name.lower())), None) if words else None
    if chosen is not None:
        at = context.runtime.now()
        await context.runtime.choices.choose_agent(context.message, chosen.id, turn=context.turn, at=at)
        name = chosen.name or chosen.id
        return context.say(f"{name} answers here from now on.", f"从现在起由{name}回答。")
    mark = context.aside(context.say("answers here", "当前"))
    lines = [f"- `{it.id}` {it.name}".rstrip() + (mark if it.id == context.agent else "") for it in offered]
    problem = context.say(f"There is no agent {_quoted(words)}.", f"没有智能体 {_quoted(words)}。") if words else ""
    head = context.say("Choose an agent with `/agent NAME`:", "可选的智能体（发送 `/agent 名称`）：")
    return "\n".join(filter(None, (problem, head, *lines)))


async def _set(context: CommandContext, **changes: Any) -> None:
    settings = replace(await context.settings(), **changes)
    content = settings_json.dump_json(settings).decode()
    mark = SessionMark(turn=context.turn, kind="settings", content=content, at=context.runtime.now())
    await context.runtime.store.mark(context.session, mark)


def _quoted(word: str) -> str:
    return "“" + word.replace("`", "'")[:ABOUT_CHARS_MAX] + "”"


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


_CANCEL = re.compile(r"(?:cancel|delete|取消|删除)\s+(\S{1,64})", re.IGNORECASE)


async def schedules(context: CommandContext) -> str:
    say, words = context.say, context.arguments.strip()
    if match := _CANCEL.fullmatch(words):
        return await _cancelled(context, match[1].strip("`"))
    rows = await shown_schedules(context)
    if not rows and _is_everybodys(context):
        return say("This group has no reminders or schedules.", "这个群没有提醒或定时任务。")
    if not rows:
        return say(
            "You have no reminders here. If this agent can set them, just ask for one.",
            "你在这里还没有提醒。如果智能体有这项功能，直接告诉它即可。",
        )
    head = say(
        f"Your reminders and schedules, in {_zone(context)} (cancel one: /schedules cancel ID):",
        f"你的提醒和定时任务，时区 {_zone(context)}（取消：/schedules cancel 编号）：",
    )
    if _is_everybodys(context):
        head = say(
            f"The reminders and schedules of this group, in {_zone(context)} (cancel one: /schedules cancel ID):",
            f"这个群的提醒和定时任务，时区 {_zone(context)}（取消：/schedules cancel 编号）：",
        )
    return "\n".join((head, *(f"- {_line(it, context)}" for it in rows)))


async def _cancelled(context: CommandContext, id_: str) -> str:
    say = context.say
    found = next((it for it in await shown_schedules(context, ended=id_) if it.id.upper() == id_.upper()), None)
    if found is None and _is_everybodys(context):
        return say(
            f"This group has no {id_}. /schedules lists what it has.", f"这个群没有 {id_}。/schedules 可查看全部。"
        )
    if found is None:
        return say(
            f"You have no {id_.upper()} here. /schedules lists what you have.",
            f"这里没有你的 {id_.upper()}。/schedules 可查看全部。",
        )
    if found.owner is None:
        return say(
            f"{found.id} comes from the config. The operator can remove it there, or pause it with "
            f"`schedules pause {found.id}`.",
            f"{found.id} 来自配置文件：管理员可在配置中删除，或用 `schedules pause {found.id}` 暂停。",
        )
    await context.runtime.store.later.end(found.id, "cancelled")
    return say(f"{found.id} is cancelled.", f"{found.id} 已取消。")


async def shown_schedules(context: CommandContext, *, ended: str = "") -> Sequence[Later]:
    """Return the schedules that the sender may see in the chat, including those of its id before a migration."""
    store, choices, message = context.runtime.store, context.runtime.choices, context.message
    ids = {it.chat.id: it for it in (choices.after_migration(message), choices.before_migration(message))}
    if _is_everybodys(context):
        found = [await store.later.of_place(chat_of(it), also=ended.upper()) for it in ids.values()]
    else:
        found = [await theirs(store, it, ended=ended.upper()) for it in ids.values()]
    return [*{it.id: it for rows in found for it in rows}.values()]


def _is_everybodys(context: CommandContext) -> bool:
    """Return whether the sender also sees other users' schedules: an owner of the bot in a group."""
    return context.message.chat.kind == "group" and context.is_owner


def _line(later: Later, context: CommandContext) -> str:
    id_, _, rest = line_of(later, context.setup.config.server.zone).partition(": ")
    rest = rest.replace("`", "'")
    if later.owner == sender_of(context.message):
        return f"`{id_}` {rest}"
    by = value(later.owner.rpartition(":")[2]) if later.owner else context.say("from the config", "来自配置")
    return f"`{id_}` {value(rest)}{context.aside(by)}"


def _zone(context: CommandContext) -> str:
    return context.setup.config.server.timezone or "UTC"
