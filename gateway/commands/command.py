"""A command as a record, and the context it runs in.

A command may run twice if its process dies before its reply is stored. Its `turn` is the same then, and its effects are
keyed by that number, so the second run changes nothing.
"""

import re
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from agents.language import Language
from agents.runner import AgentRunner
from agents.turn import Settings, settings_json
from channels.abilities import MenuEntry
from channels.message import ChatKind, MessageContext
from gateway.approvals.approvals import Approvals
from gateway.approvals.display import person
from gateway.approvals.notices import called
from gateway.config.root import Audience, Config
from gateway.later.ends import CommandEnds
from gateway.later.logins import Logins
from gateway.state.ending import Ending, Reply
from gateway.state.runtime import Runtime, Setup
from gateway.store.inbound import inbound_of, is_readable
from gateway.store.records import Concerned, Work
from gateway.store.sessions import is_owner, person_of
from gateway.turns.tasks import Tasks

SHOWN_CHARS = 60
SHOWN_MAX = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandContext:
    """A command that a user sent. `session` is the conversation it concerns; `turn` is the number of the command's
    own message, so earlier messages have smaller numbers. `agent` answers in that conversation."""

    runtime: Runtime
    approvals: Approvals
    tasks: Tasks
    ends: CommandEnds
    logins: Logins
    setup: Setup
    session: str
    turn: int
    message: MessageContext
    agent: str
    arguments: str = ""
    language: Language = "en"

    @property
    def runner(self) -> AgentRunner | None:
        """The agent's runner; None if it is no longer configured."""
        return self.setup.runners.get(self.agent)

    @property
    def is_owner(self) -> bool:
        return is_owner(self.setup.owners, self.message)

    @property
    def person(self) -> str:
        """The sender in the form that `owners` in the config uses."""
        return person_of(self.message)

    def say(self, en: str, zh: str) -> str:
        return zh if self.language == "zh" else en

    def aside(self, words: str) -> str:
        """Return the text in brackets of the language, to append to other text."""
        return self.say(f" ({words})", f"（{words}）")

    def listed(self, lines: Iterable[tuple[str, str]]) -> str:
        """Return a list of names and values."""
        return "\n".join(self.say(f"- {name}: {value}", f"- {name}：{value}") for name, value in lines)

    @property
    def nobody(self) -> str:
        return self.say("No agent is configured to answer here.", "没有配置可以回答的智能体。")

    async def named(self, who: str) -> str:
        """Return how to name a user (`channel:id`) to the reader, with the platform's display name."""
        names = await called(self.runtime, [who])
        return person(who, names.get(who), self.language, reader=self.reader)

    @property
    def reader(self) -> str:
        """The user whose direct chat it is; empty in a group."""
        return self.person if self.message.chat.kind == "direct" else ""

    @property
    def has_buttons(self) -> bool:
        channel = self.setup.channel(self.message)
        return channel is not None and channel.capabilities.buttons

    @property
    def not_your_button(self) -> str:
        return self.say("This button is for someone else, or it has expired.", "这个按钮不是给你的，或者已经失效。")

    def may(self, command: "Command") -> bool:
        return command.is_open(self.setup, self.message)

    async def conversation(self, history_turns: int = 1) -> Work:
        waiting_max = self.setup.limits.pending_per_session
        return await self.runtime.store.conversation(
            self.session, before=self.turn, history_turns=history_turns, waiting_max=waiting_max
        )

    async def settings(self) -> Settings:
        return settings_json.validate_json((await self.conversation()).settings)


@dataclass(frozen=True, kw_only=True, slots=True)
class Situation:
    """The attributes of a chat, or of all chats, that decide which commands are useful. `tools` are those of the agents
    that answer; `asks`: a tool call may need an approval; `pairs`: unknown senders get a pairing code; `logs_in`: users
    can log in."""

    tools: Collection[str]
    asks: bool
    skills: bool
    owned: bool
    pairs: bool
    agents: int
    logs_in: bool
    hands_over: bool = False
    """The config names an on-call chat."""

    def has_use(self, name: str) -> bool:
        """Return whether the command has an effect, apart from listing leftovers of an earlier config."""
        match name:
            case "tasks":
                return "task" in self.tools
            case "schedules":
                return "schedule" in self.tools
            case "approve" | "approvals":
                return self.asks
            case "skill":
                return self.skills
            case "agent":
                return self.agents > 1
            case "pair":
                return self.pairs
            case "claim":
                return not self.owned
            case "login" | "logout":
                return self.logs_in
            case "human" | "back":
                return self.hands_over
        return True


Perform: TypeAlias = Callable[[CommandContext], Awaitable[str | Reply | Ending | None]]


ANY = sys.maxsize


@dataclass(frozen=True, slots=True)
class Command:
    """`form` is the name with its arguments; `en` and `zh` describe it. Text with more words than it `takes` is
    meant for the agent. `owner_in_groups`: in a group it affects everyone, so only owners may use it. `owner_only`:
    the config cannot open it to others."""

    form: str
    run: Perform
    takes: int
    en: str
    zh: str
    owner_in_groups: bool = False
    owner_only: bool = False
    only: ChatKind | None = None
    """The only kind of chat in which it has an effect."""
    argument: str = ""
    """The pattern of its argument; any other text after the name makes the message text to the agent."""
    at_once: bool = False
    """It stops or decides something, so it takes effect when its message is accepted, before anything else that
    waits. The lane runs it again for the reply, so `run` is idempotent per message number and returns the same text
    both times."""

    @property
    def name(self) -> str:
        return self.form.partition(" ")[0]

    def audience(self, config: Config, kind: ChatKind) -> Audience:
        default: Audience = "owner" if self.owner_in_groups and kind == "group" else "everyone"
        configured = config.commands.get(self.name, default)
        return "owner" if self.owner_only and configured == "everyone" else configured

    def is_open(self, setup: Setup, message: MessageContext) -> bool:
        """Return whether the sender may use it there."""
        audience = self.audience(setup.config, message.chat.kind)
        return audience == "everyone" or (audience == "owner" and is_owner(setup.owners, message))

    def fits(self, arguments: str) -> bool:
        return len(arguments.split()) <= self.takes and (
            not arguments or re.fullmatch(self.argument or ".*", arguments, re.DOTALL) is not None
        )

    def entry(self, audience: Audience, *, hidden: bool) -> MenuEntry:
        return MenuEntry(
            name=self.name, en=self.en, zh=self.zh, hidden=hidden, for_owners=audience == "owner", only=self.only
        )


def first_words(text: str) -> str:
    """Return the beginning of a user's text, on one line and in quotes, safe from Markdown and fences."""
    line = " ".join(text[: 4 * SHOWN_CHARS].replace("`", "'").split())
    return f"“{line if len(line) <= SHOWN_CHARS else line[: SHOWN_CHARS - 1].rstrip() + '…'}”"


def dropped_lines(context: CommandContext, messages: Sequence[Concerned]) -> str:
    """Return a paragraph that lists the messages that will not be answered; empty if there are none."""
    if not messages:
        return ""
    lines = [
        f"- {first_words(inbound_of(it.body).context.text)}" for it in messages[:SHOWN_MAX] if is_readable(it.body)
    ]
    lines += ["- …"] if len(messages) > SHOWN_MAX else []
    head = context.say(
        f"{len(messages)} waiting message{'s were' if len(messages) > 1 else ' was'} dropped:",
        f"丢弃了 {len(messages)} 条排队的消息：",
    )
    return "\n\n" + "\n".join((head, *lines))
