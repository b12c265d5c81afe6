"""Which commands there are, which one a message is, and how one is run: may this person, in which language, and what
becomes of it. The table feeds the dispatch, `/help`, the platforms' menus, the web chat's completion and docs/commands.md.
"""

import re
from collections.abc import Mapping

from agents.messages import Text, UserMessage, message_json
from agents.prompt.inbound import written
from agents.sentences import Language, language_of
from channels.channel import MenuEntry
from channels.message import MessageContext
from gateway.approvals.approvals import PRESSED
from gateway.commands import conversation, report, settings
from gateway.commands.approve import NOTICES, approvals, approve, run_notice
from gateway.commands.command import Command, CommandContext, Reply
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
    words name it."""
    if context.press is not None:
        return PRESSED, context.press.token
    found = _COMMAND.fullmatch(context.text.strip())
    if found is None:
        return None
    name, bot, arguments = found[1].lower(), found[2], (found[3] or "").strip()
    command = COMMANDS.get(name)
    addressed = not bot or context.mentioned or context.chat.kind == "direct"
    if command is None or not addressed or not command.fits(arguments):
        return None
    return (name, arguments) if command.takes == "words" or not context.attachments else None


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
    if language_of(inbound.arguments) == "zh" or (command and command.takes == "words" and inbound.arguments):
        return language_of(inbound.arguments)
    if journaled := await runtime.store.newest_words(session, before=turn):
        message = message_json.validate_json(journaled)
        texts = [it.text for it in message.content if isinstance(it, Text)] if isinstance(message, UserMessage) else []
        if words := "".join(map(written, texts)).strip():
            return language_of(words)
    if platform := inbound.context.sender.language:
        return "zh" if platform.lower().startswith("zh") else "en"
    return runtime.setup.config.language


def _refusal(context: CommandContext, command: Command) -> str:
    if command.audience(context.setup.config, context.message) == "off":
        return context.say(f"/{command.name} is switched off here.", f"/{command.name} 已停用。")
    return context.say(
        f"Only an owner of this bot may use /{command.name} here: whoever `owners` in its config names.",
        f"此处只有机器人的所有者(配置中的 `owners`)可以使用 /{command.name}。",
    )


async def show_help(context: CommandContext) -> str:
    """Those that the person may use; about one that is named, all there is to say."""
    wanted = context.arguments.lstrip("/／").lower()
    shown = [it for it in COMMANDS.values() if wanted in ("", it.name) and context.may(it)]
    if not shown:
        return context.say("There is no such command; /help lists them.", "没有这个命令,/help 可查看全部命令。")
    return "\n".join(f"- `{it.usage}` {context.say(it.en, it.zh)}" for it in shown)


_HELP = ("Show what can be commanded here", "显示可用的命令")
_NEW = ("Begin a new conversation", "开始新的对话")
COMMANDS = {
    it.name: it
    for it in (
        Command(name="help", en=_HELP[0], zh=_HELP[1], hint="[COMMAND]", takes="a word", run=show_help),
        Command(name="commands", en=_HELP[0], zh=_HELP[1], run=show_help),
        Command(name="start", en="Say hello", zh="打个招呼", takes="a word", run=conversation.start),
        Command(name="new", en=_NEW[0], zh=_NEW[1], run=conversation.new),
        Command(name="reset", en=_NEW[0], zh=_NEW[1], run=conversation.new),
        Command(
            name="stop",
            en="Stop the running answer and what waits behind it",
            zh="停止当前处理和排队的消息",
            run=conversation.stop,
        ),
        Command(name="retry", en="Answer the last message again", zh="重新回答上一条消息", run=conversation.retry),
        Command(
            name="edit",
            en="Say your last message in other words, and get that answered instead",
            zh="修改上一条消息并重新回答",
            hint="TEXT",
            takes="words",
            run=conversation.edit,
        ),
        Command(name="undo", en="Forget the last exchange", zh="撤销上一轮对话", run=conversation.undo),
        Command(
            name="compact",
            en="Summarise the older part of the conversation",
            zh="压缩较早的对话",
            hint="[FOCUS]",
            takes="words",
            run=conversation.compact,
        ),
        Command(
            name="remember",
            en="Keep a note for yourself; alone, list them",
            zh="记一条笔记;单独发送则列出",
            hint="[NOTE | forget N]",
            takes="words",
            run=remember,
        ),
        Command(
            name="skill",
            en="Use a skill; alone: list them",
            zh="使用技能;单独使用则列出全部",
            hint="[NAME TEXT]",
            takes="words",
            run=conversation.use_skill,
        ),
        Command(
            name="approve",
            en="Decide about a call that waits for approval",
            zh="审批等待执行的调用",
            hint="ID allow-once | allow-always | deny",
            takes="words",
            run=approve,
        ),
        Command(
            name="approvals",
            en="Show what waits for your approval, and what you allowed for good",
            zh="查看待审批的请求和长期许可",
            hint="[revoke ID | all]",
            takes="words",
            run=approvals,
        ),
        Command(name="export", en="Get the conversation as Markdown", zh="导出对话(Markdown)", run=conversation.export),
        Command(name="status", en="Show what runs here", zh="显示当前状态", run=report.status),
        Command(name="context", en="Show what fills the prompt", zh="显示提示词的构成", run=report.context),
        Command(name="usage", en="Show tokens and cost", zh="显示用量和费用", run=report.usage),
        Command(name="whoami", en="Show your id", zh="显示你的 ID", run=report.whoami),
        Command(
            name="model",
            en="Choose a model for this conversation; alone: list them",
            zh="为本次对话选择模型;单独使用则列出全部",
            hint="[PROVIDER/MODEL | default]",
            takes="a word",
            owner_in_groups=True,
            run=settings.model,
        ),
        Command(name="models", en="List the models", zh="列出可选的模型", run=settings.models),
        Command(
            name="think",
            en="Choose how hard the model thinks",
            zh="设置思考强度",
            hint="[LEVEL | default]",
            takes="a word",
            run=settings.think,
        ),
        Command(
            name="reasoning",
            en="Show the model's reasoning above its answers",
            zh="在回答上方显示思考过程",
            hint="[on | off]",
            takes="a word",
            run=settings.reasoning,
        ),
        Command(
            name="verbose",
            en="Show the tool calls above the answers",
            zh="在回答上方显示工具调用",
            hint="[on | off]",
            takes="a word",
            run=settings.verbose,
        ),
        Command(
            name="queue",
            en="Choose what happens to messages that arrive during an answer",
            zh="设置回答期间收到的消息如何处理",
            hint="[collect | followup | steer | interrupt | default]",
            takes="a word",
            run=settings.queue,
        ),
        Command(
            name="agent",
            en="Choose who answers in this chat; alone: list them",
            zh="选择由谁回答;单独使用则列出全部",
            hint="[NAME]",
            takes="a word",
            owner_in_groups=True,
            run=settings.agent,
        ),
        Command(
            name="pair",
            en="Let somebody write to the bot, by the code that they were given",
            zh="凭配对码允许某人给机器人发消息",
            hint="[CODE]",
            takes="two words",
            owner_only=True,
            run=pair,
        ),
    )
}


def offered(audiences: Mapping[str, Audience]) -> list[Command]:
    """Every command that is not switched off."""
    return [it for name, it in COMMANDS.items() if audiences.get(name) != "off"]


def menu(audiences: Mapping[str, Audience]) -> tuple[MenuEntry, ...]:
    """What a platform's menu offers."""
    return tuple(it.entry for it in offered(audiences))
