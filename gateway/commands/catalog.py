"""Which commands there are, which one a message is, and how one is run: may this person, in which language, and what
becomes of it. The table feeds the dispatch, `/help`, the platforms' menus, the web chat's completion and docs/commands.md.
"""

import re
from collections.abc import Mapping

from agents.messages import message_json, texts
from agents.prompt.inbound import written
from agents.sentences import Language, language_of
from channels.abilities import MenuEntry
from channels.message import MessageContext
from gateway.approvals.approvals import PRESSED
from gateway.commands import conversation, report, settings
from gateway.commands.approve import NOTICES, approvals, approve, run_notice
from gateway.commands.command import ANY, Command, CommandContext, Reply
from gateway.commands.pair import pair
from gateway.commands.remember import remember
from gateway.config.root import Audience
from gateway.journal import Ending
from gateway.queue import Inbound
from gateway.runtime import Runtime

_COMMAND = re.compile(r"[/／]([a-z]+)(@\S+)?(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)


def command_of(context: MessageContext) -> tuple[str, str] | None:
    """The name of the command that a message is, and what stands behind it; None for words to the agent. A name behind an @
    is a bot's, and this one's where the message is addressed to it. A press is a command of its own, with its token: no
    words name it; on a button of an agent's it is words to him."""
    if context.press is not None:
        if context.press.label:
            return None
        return PRESSED, context.press.token
    found = _COMMAND.fullmatch(context.text.strip())
    if found is None:
        return None
    name, bot, arguments = found[1].lower(), found[2], (found[3] or "").strip()
    command = COMMANDS.get(name)
    addressed = not bot or context.mentioned or context.chat.kind == "direct"
    if command is None or not addressed or not command.fits(arguments):
        return None
    return (name, arguments) if command.takes == ANY or not context.attachments else None


async def run(runtime: Runtime, session: str, turn: int, inbound: Inbound) -> Ending:
    """The command that message `turn` is, beside the conversation `session`."""
    name = inbound.command or ""
    command = COMMANDS.get(name)
    if command is None and name not in NOTICES:  # accepted by a version that had it
        return Ending(outcome="unknown-command", text=None)
    context = CommandContext(
        runtime=runtime,
        setup=runtime.setup,
        session=session,
        turn=turn,
        message=inbound.context,
        agent=inbound.agent,
        arguments=inbound.arguments,
        language=await _language(runtime, session, turn, inbound, command),
    )
    if command is None:
        return await run_notice(context, name)
    if not context.may(command):
        return Ending(outcome=command.name, reason="not allowed", text=_refusal(context, command))
    reply = await command.run(context)
    if not isinstance(reply, Reply):
        reply = Reply(text=reply)
    return Ending(outcome=command.name, text=reply.text, files=reply.files, answers=reply.answers)


async def _language(runtime: Runtime, session: str, turn: int, inbound: Inbound, command: Command | None) -> Language:
    """That of the arguments, else of what a person said last here, else the platform's, else the config's. A name, such as
    a model's, is of no language."""
    if language_of(inbound.arguments) == "zh" or (command and command.takes == ANY and inbound.arguments):
        return language_of(inbound.arguments)
    if journaled := await runtime.store.newest_words(session, before=turn):
        message = message_json.validate_json(journaled)
        if words := "".join(map(written, texts(message))).strip():
            return language_of(words)
    if platform := inbound.context.sender.language:
        return "zh" if platform.lower().startswith("zh") else "en"
    return runtime.setup.config.language


def _refusal(context: CommandContext, command: Command) -> str:
    if command.audience(context.setup.config, context.message) == "off":
        return context.say(f"/{command.name} is switched off here.", f"/{command.name} 已停用。")
    return context.say(
        f"Only an owner of this bot may use /{command.name} here: whoever `owners` in its config names.",
        f"此处只有机器人的所有者（配置中的 `owners`）可以使用 /{command.name}。",
    )


async def show_help(context: CommandContext) -> str:
    """Those that the person may use; about one that is named, all there is to say."""
    wanted = context.arguments.lstrip("/／").lower()
    shown = [it for it in COMMANDS.values() if wanted in ("", it.name) and context.may(it)]
    if not shown:
        return context.say("There is no such command; /help lists them.", "没有这个命令，/help 可查看全部命令。")
    return "\n".join(f"- `/{it.form}` {context.say(it.en, it.zh)}" for it in shown)


_HELP = ("Show what can be commanded here", "显示可用的命令")
_NEW = ("Begin a new conversation", "开始新的对话")
_COMMANDS = (
    Command("help [COMMAND]", show_help, 1, *_HELP),
    Command("commands", show_help, 0, *_HELP),
    Command("start", conversation.start, 1, "Say hello", "打个招呼"),
    Command("new", conversation.new, 0, *_NEW),
    Command("reset", conversation.new, 0, *_NEW),
    Command(
        "stop", conversation.stop, 0, "Stop the running answer and what waits behind it", "停止当前处理和排队的消息"
    ),
    Command("retry", conversation.retry, 0, "Answer the last message again", "重新回答上一条消息"),
    Command(
        "edit TEXT",
        conversation.edit,
        ANY,
        "Say your last message in other words, and get that answered instead",
        "修改上一条消息并重新回答",
    ),
    Command("undo", conversation.undo, 0, "Forget the last exchange", "撤销上一轮对话"),
    Command(
        "compact [FOCUS]", conversation.compact, ANY, "Summarise the older part of the conversation", "压缩较早的对话"
    ),
    Command(
        "remember [NOTE | forget N]",
        remember,
        ANY,
        "Keep a note for yourself; alone, list them",
        "记一条笔记；单独发送则列出",
    ),
    Command(
        "skill [NAME TEXT]",
        conversation.use_skill,
        ANY,
        "Use a skill; alone: list them",
        "使用技能；单独使用则列出全部",
    ),
    Command(
        "approve ID allow-once | allow-always | deny",
        approve,
        ANY,
        "Decide about a call that waits for approval",
        "审批等待执行的调用",
    ),
    Command(
        "approvals [revoke ID | all]",
        approvals,
        ANY,
        "Show what waits for your approval, and what you allowed for good",
        "查看待审批的请求和长期许可",
    ),
    Command("export", conversation.export, 0, "Get the conversation as Markdown", "导出对话（Markdown）"),
    Command("status", report.status, 0, "Show what runs here", "显示当前状态"),
    Command("context", report.context, 0, "Show what fills the prompt", "显示提示词的构成"),
    Command("usage", report.usage, 0, "Show tokens and cost", "显示用量和费用"),
    Command("whoami", report.whoami, 0, "Show your id", "显示你的 ID"),
    Command(
        "model [PROVIDER/MODEL | default]",
        settings.model,
        1,
        "Choose a model for this conversation; alone: list them",
        "为本次对话选择模型；单独使用则列出全部",
        owner_in_groups=True,
    ),
    Command("models", settings.models, 0, "List the models", "列出可选的模型"),
    Command("think [LEVEL | default]", settings.think, 1, "Choose how hard the model thinks", "设置思考强度"),
    Command(
        "reasoning [on | off]",
        settings.reasoning,
        1,
        "Show the model's reasoning above its answers",
        "在回答上方显示思考过程",
    ),
    Command(
        "verbose [on | off]", settings.verbose, 1, "Show the tool calls above the answers", "在回答上方显示工具调用"
    ),
    Command(
        "queue [collect | followup | steer | interrupt | default]",
        settings.queue,
        1,
        "Choose what happens to messages that arrive during an answer",
        "设置回答期间收到的消息如何处理",
    ),
    Command(
        "agent [NAME]",
        settings.agent,
        1,
        "Choose who answers in this chat; alone: list them",
        "选择由谁回答；单独使用则列出全部",
        owner_in_groups=True,
    ),
    Command(
        "pair [CODE]",
        pair,
        2,
        "Let somebody write to the bot, by the code that they were given",
        "凭配对码允许某人给机器人发消息",
        owner_only=True,
    ),
)
COMMANDS = {it.name: it for it in _COMMANDS}


def offered(audiences: Mapping[str, Audience]) -> list[Command]:
    """Every command that is not switched off."""
    return [it for name, it in COMMANDS.items() if audiences.get(name) != "off"]


def menu(audiences: Mapping[str, Audience]) -> tuple[MenuEntry, ...]:
    """What a platform's menu offers."""
    return tuple(it.entry for it in offered(audiences))
