"""The table of commands, how a message is matched to one, and how a command is run: its permission, its language and
its effect. The table feeds the dispatch, `/help`, the platforms' menus, the web chat's completion and
docs/commands.md."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from agents.language import language_for
from agents.prompt.system import Commands, LastingFacts
from channels.abilities import MenuEntry
from channels.api.channel import ApiChannel
from channels.message import ChatKind, MessageContext
from gateway.approvals.approvals import Approvals
from gateway.commands import conversation, own, report, settings
from gateway.commands.approve import NOTICE_RUNS, approve, list_approvals, settle
from gateway.commands.command import ANY, Command, CommandContext, Perform, Situation
from gateway.commands.handover import HANDOVER_RUNS, back, human
from gateway.commands.login import LOGIN_RUNS, login, logout
from gateway.commands.own import pair
from gateway.commands.privacy import forget, mydata
from gateway.commands.report import plan_of, why
from gateway.commands.settings import remember, schedules, shown_schedules
from gateway.config.channels import configured
from gateway.config.commands import ALIASES, CHINESE_NAMES, GROUPS, OWNER_ONLY, WORDS
from gateway.config.root import Audience, Config
from gateway.later.ends import CommandEnds
from gateway.later.logins import Logins
from gateway.state.ending import Ending, Reply, lost_access
from gateway.state.owners import Owners
from gateway.state.runtime import Runtime, Setup
from gateway.store.inbound import MISSPELT, PRESSED, Inbound
from gateway.turns.tasks import Tasks

EDITS_MAX = 2
LISTS_MAX = 64
"""Most lists of commands that are kept: one for each kind of chat and each choice of tools."""
_COMMAND = re.compile(r"[/／]([a-z]+|[\u4e00-\u9fff]+)(@\S+)?(?:\s+(.*))?", re.IGNORECASE | re.DOTALL)


def command_of(context: MessageContext) -> tuple[str | None, str]:
    """Return the name and arguments of the command in a message; no name for text to the agent. A name after an @ is
    a bot's, and this bot's if the message is addressed to it. A press is a separate command, with its token, and
    cannot be typed; on an agent's button it is text to the agent. A word at most two edits from a command is
    `MISSPELT`."""
    if context.press is not None:
        return (None, "") if context.press.label else (PRESSED, context.press.token)
    match = _COMMAND.fullmatch(context.text.strip())
    if match is None or (match[2] and not context.mentioned and context.chat.kind != "direct"):
        return None, ""
    name, arguments = CHINESE_NAMES.get(match[1], match[1].lower()), (match[3] or "").strip()
    if command := COMMANDS.get(name):
        fits = command.fits(arguments) and (command.takes == ANY or not context.attachments)
        return (name, arguments) if fits else (None, "")
    near = name.isascii() and not context.attachments and min(edits(name, it) for it in COMMANDS) <= EDITS_MAX
    return (MISSPELT, match[1]) if near else (None, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dispatch:
    """Run the command in message `turn`, for the conversation `session`."""

    runtime: Runtime
    approvals: Approvals
    tasks: Tasks
    ends: CommandEnds
    logins: Logins

    async def run(self, session: str, turn: int, inbound: Inbound) -> Ending:
        name = inbound.command or ""
        command = COMMANDS.get(name)
        if command is None and name not in RUNS:  # accepted by a version that had it
            return Ending(outcome="unknown-command")
        context = self._context(session, turn, inbound)
        is_free = command is None or name in _UNADMITTED
        if not is_free and (reason := await self.runtime.refusal(inbound.context, inbound.agent)):
            return Ending(outcome="refused", reply=Reply(text=lost_access(reason, inbound.context)), reason=reason)
        if command and not context.may(command):
            return Ending(outcome=name, reply=Reply(text=_refusal(context, command)), reason="not allowed")
        result = await (command.run if command else RUNS[name])(context)
        if isinstance(result, Ending):
            return result
        return Ending(outcome=name, reply=result if isinstance(result, Reply) else Reply(text=result))

    async def take_effect(self, session: str, turn: int, inbound: Inbound) -> None:
        """Apply the stop or decision in the message, if its sender may. Idempotent."""
        name = inbound.command or ""
        if (perform := AT_ONCE.get(name)) is None:
            return
        await self.runtime.setup.owners.claimed.verify(inbound.context)
        context = self._context(session, turn, inbound)
        if (command := COMMANDS.get(name)) is None or context.may(command):
            await perform(context)

    def _context(self, session: str, turn: int, inbound: Inbound) -> CommandContext:
        return CommandContext(
            runtime=self.runtime,
            approvals=self.approvals,
            tasks=self.tasks,
            ends=self.ends,
            logins=self.logins,
            setup=self.runtime.setup,
            session=session,
            turn=turn,
            message=inbound.context,
            agent=inbound.agent,
            arguments=inbound.arguments,
            language=language_for(inbound.context, self.runtime.setup.config.language),
        )


def _refusal(context: CommandContext, command: Command) -> str:
    if command.audience(context.setup.config, context.message.chat.kind) == "off":
        return context.say(f"/{command.name} is switched off here.", f"/{command.name} 已停用。")
    return context.say(
        f"Only an owner of this bot may use /{command.name} here: they are listed under `owners` in its config.",
        f"此处只有机器人的所有者（配置中的 `owners`）可以使用 /{command.name}。",
    )


async def show_help(context: CommandContext) -> str:
    """List the commands that are useful to the sender here, one line per group. With `all`, explain each of them;
    with a name, explain that one."""
    name_asked = context.arguments.lstrip("/／").lower()
    name_asked = CHINESE_NAMES.get(name_asked, name_asked)
    if not name_asked:
        return _grouped(context, await _useful(context))
    if name_asked in ("all", "全部"):
        shown = [COMMANDS[name] for name in await _useful(context)]
    else:
        shown = [it for name, it in COMMANDS.items() if name == name_asked and context.may(it)]
    if not shown:
        return context.say("There is no such command; /help lists them.", "没有这个命令，/help 可查看全部命令。")
    return "\n".join(f"- `/{it.form}` {context.say(it.en, it.zh)}" for it in shown)


async def show_all(context: CommandContext) -> str:
    return await show_help(replace(context, arguments="all"))


async def _useful(context: CommandContext) -> Sequence[str]:
    """Return the names of the commands that the sender may use and that have an effect in the chat."""
    plan = await plan_of(context, await context.conversation())
    kind = context.message.chat.kind
    there = situation(context.setup, [tool.name for tool in plan.facts.tools] if plan else ())
    if plan:
        there = replace(there, skills=plan.facts.has_skills)
    found = [it.name for it in offered(there, kind) if context.may(it)]
    if "tasks" not in found and await context.tasks.of(context.session):
        found.append("tasks")
    if "schedules" not in found and await shown_schedules(context):
        found.append("schedules")
    if context.is_owner and context.setup.owners.is_owned and kind == "direct":
        found.append("claim")  # for another account of theirs
    return [name for name in COMMANDS if name in found and context.may(COMMANDS[name])]


def _grouped(context: CommandContext, useful: Collection[str]) -> str:
    lines = [context.say("Just write to me. You can also send a command:", "直接给我发消息即可。也可以使用命令：")]
    for en, zh, names in GROUPS:
        if listed := " ".join(f"`/{name}`" for name in names if name in useful):
            lines.append(context.say(f"- {en}: {listed}", f"- {zh}：{listed}"))
    explained = context.say(
        "`/help all` explains every command, `/help model` just one.",
        "`/help all` 说明所有命令，`/help model` 只说明一个。",
    )
    return "\n".join((*lines, "", explained))  # without the empty line it would be part of the last bullet


async def suggest(context: CommandContext) -> str:
    """Answer a misspelt command, without a model."""
    word = context.arguments
    may = [it.name for it in COMMANDS.values() if context.may(it)] or ["help"]
    near = min(may, key=lambda name: edits(word.lower(), name))
    return context.say(
        f"There is no /{word}. Did you mean `/{near}`?", f"没有 /{word} 这个命令。你是想用 `/{near}` 吗？"
    )


def edits(one: str, other: str) -> int:
    """Return the edit distance: how many letters to insert, delete or replace to turn one word into the other."""
    before = list(range(len(other) + 1))
    for number, letter in enumerate(one, start=1):
        row = [number]
        for place, wanted in enumerate(other, start=1):
            row.append(min(row[-1] + 1, before[place] + 1, before[place - 1] + (letter != wanted)))
        before = row
    return before[-1]


def _command(form: str, run: Perform, takes: int, **more: Any) -> Command:
    name = form.partition(" ")[0]
    _, en, zh = WORDS[name]
    return Command(form, run, takes, en, zh, owner_only=name in OWNER_ONLY, **more)


_COMMANDS = (
    _command("help [all | COMMAND]", show_help, 1),
    _command("commands", show_all, 0),
    _command("start", conversation.start, 1),
    _command("new", conversation.new, 0, at_once=True),
    _command("reset", conversation.new, 0, at_once=True),
    _command("stop [ID]", conversation.stop, 1, argument=r"`?[0-9A-Fa-f]{8}`?", at_once=True),
    _command("tasks", conversation.tasks, 0),
    _command("retry", conversation.retry, 0),
    _command("edit TEXT", conversation.edit, ANY),
    _command("undo", conversation.undo, 0),
    _command("compact [FOCUS]", conversation.compact, ANY),
    _command("remember [NOTE | forget N]", remember, ANY),
    _command("schedules [cancel ID]", schedules, 2, at_once=True),
    _command("reminders [cancel ID]", schedules, 2, at_once=True),
    _command("skill [NAME TEXT]", conversation.use_skill, ANY),
    _command("approve ID allow-once | allow-always | deny", approve, ANY, at_once=True),
    _command("approvals [revoke ID | all]", list_approvals, ANY, at_once=True),
    _command("export", conversation.export, 0),
    _command("status", report.status, 0),
    _command("context", report.context, 0),
    _command("usage", report.usage, 0),
    _command("whoami", report.whoami, 0),
    _command("login", login, 0, only="direct"),
    _command("logout", logout, 0),
    _command("mydata", mydata, 0, only="direct"),
    _command("forget [me]", forget, 2, argument=r"(?:me|我)(?: now)?", only="direct"),
    _command("good", report.good, 0),
    _command("bad [WHY]", report.bad, ANY),
    _command("why", why, 0),
    _command("human [WHY]", human, ANY),
    _command("back", back, 0),
    _command("model [NAME | NUMBER | default]", settings.model, 1, owner_in_groups=True),
    _command("models", settings.models, 0),
    _command("think [LEVEL | default]", settings.think, 1),
    _command("reasoning [on | off]", settings.reasoning, 1),
    _command("verbose [on | off]", settings.verbose, 1),
    _command("queue [collect | followup | steer | interrupt | default]", settings.queue, 1),
    _command("agent [NAME]", settings.agent, 1, owner_in_groups=True),
    _command("pair [CODE]", pair, 2, at_once=True),
    _command("claim [CODE | page | alone | revoke ID]", own.claim, 2, only="direct"),
    _command("listen [owners]", own.listen, 1, at_once=True, only="group"),
    _command("unlisten", own.unlisten, 0, at_once=True, only="group"),
)
COMMANDS = {it.name: it for it in _COMMANDS}
RUNS: Mapping[str, Perform] = {**NOTICE_RUNS, **LOGIN_RUNS, **HANDOVER_RUNS, MISSPELT: suggest}
"""Internal commands, which no user types."""
AT_ONCE: Mapping[str, Perform] = {PRESSED: settle} | {it.name: it.run for it in _COMMANDS if it.at_once}
"""The commands, and the press, that take effect as soon as their message is accepted."""


_UNADMITTED = AT_ONCE.keys() | {"approvals", "claim", "listen", "unlisten"}
"""Commands that need no admission, and those that took effect when their message was accepted. Any other may have
waited, for example during an outage, and is rejected if its sender has lost access since."""


def situation(setup: Setup, tools: Collection[str]) -> Situation:
    """Return the situation of a user whose agents have these tools. Approvals of any agent may be the user's to
    decide."""
    asks = any(it.may_ask for it in setup.runners.values())
    return _situation(setup.config, tools, asks=asks, skills="read" in tools, owned=setup.owners.is_owned)


def _situation(config: Config, tools: Collection[str], *, asks: bool, skills: bool, owned: bool) -> Situation:
    pairs = any(getattr(it.config, "dm_policy", "") == "pairing" for it in configured(config.channels))
    count, logs_in = len(config.agents.list), any(it.kind.logs_in(it.config) for it in configured(config.channels))
    return Situation(
        tools=tools,
        asks=asks,
        skills=skills,
        owned=owned,
        pairs=pairs,
        agents=count,
        logs_in=logs_in,
        hands_over=bool(config.handover.to),
    )


def offered(there: Situation, kind: ChatKind) -> Sequence[Command]:
    """Return the commands that have an effect in such a chat. The others still work when typed; aliases are never
    listed."""
    return [it for it in _COMMANDS if it.name not in ALIASES and it.only in (None, kind) and there.has_use(it.name)]


class ListedCommands:
    """The commands as the agents' prompts list them, for every sender. Turns with the same tools in the same kind of chat
    share one list; an API client has no commands."""

    def __init__(self, config: Config, owners: Owners) -> None:
        self._config = config
        self._owners = owners
        self._listed = lru_cache(maxsize=LISTS_MAX)(self._list)

    def __call__(self, message: MessageContext, facts: LastingFacts) -> Commands:
        if message.channel == ApiChannel.name:
            return (), ()
        tools, owned = tuple(tool.name for tool in facts.tools), self._owners.is_owned
        return self._listed(message.chat.kind, tools, asks=facts.asks, skills=facts.has_skills, owned=owned)

    def _list(self, kind: ChatKind, tools: Collection[str], *, asks: bool, skills: bool, owned: bool) -> Commands:
        there = _situation(self._config, tools, asks=asks, skills=skills, owned=owned)
        audiences = {it.name: it.audience(self._config, kind) for it in offered(there, kind)}
        everyone, owner = (tuple(it for it in audiences if audiences[it] == who) for who in ("everyone", "owner"))
        return everyone, owner


def menu(setup: Setup) -> tuple[MenuEntry, ...]:
    """Return the commands for a platform's menus, which all chats share, including the hidden ones."""
    audiences: Mapping[str, Audience] = {**setup.config.commands, **dict.fromkeys(OWNER_ONLY, "owner")}
    there = situation(setup, {name for runner in setup.runners.values() for name in runner.names})
    return tuple(
        it.entry(audiences.get(it.name, "everyone"), hidden=it.name in ALIASES or not there.has_use(it.name))
        for it in _COMMANDS
        if setup.config.commands.get(it.name) != "off"
    )
