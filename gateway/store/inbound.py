"""The inbox's record of a message. Tokens and raw bodies are not stored."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from agents.messages import AssistantMessage, Message, Text, UserMessage
from agents.prompt.fences import harmless
from agents.prompt.inbound import cut_here
from channels.message import MessageContext, StoredFile

ASK, OUTCOME, PRESSED, INTRODUCTION = "approval:ask", "approval:settled", "approval:press", "introduction"
SAY = "say"
"""The command of a message whose text the gateway sends verbatim; no user's text is one."""
REPORT = "task:report"
"""The command of the message that reports the end of a task or background command; no user's text is one."""
MISSPELT = "misspelt"
"""The command of a message that is nearly a command."""
NOTICE, UNHEARD = "owners:notice", "group:unheard"
REMEMBERS = "remembers"
"""The arguments of an `INTRODUCTION` to a group that the bot was in before it was remembered."""
LOGIN_CARD, LOGIN_END = "login:card", "login:end"
HANDOVER_NOTICE, HANDOVER_LINE, HANDOVER_REPLY = "handover:notice", "handover:line", "handover:reply"
"""The notice in the on-call chat, a sentence about it, and the message of a colleague there, which is relayed."""
NOTICES = frozenset(
    {ASK, OUTCOME, PRESSED, INTRODUCTION, NOTICE, LOGIN_CARD, LOGIN_END, HANDOVER_NOTICE, HANDOVER_LINE}
)
"""Commands of the gateway's own messages; no user's text is one."""
CALLER = "api"
"""The source of an answer that the API client says an assistant gave."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    role: Literal["user", "assistant"]
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Caller:
    """The additions of an API client to its message, stored with it: its system prompt and the conversation so far.
    `earlier` is empty if the gateway keeps the conversation."""

    instructions: str = ""
    earlier: tuple[Earlier, ...] = ()

    def turns(self, message_chars: int) -> Sequence[Sequence[Message]]:
        """Return the conversation so far as history; each turn begins with a user's message."""
        turns: list[list[Message]] = []
        for it in self.earlier:
            if it.role == "user":
                cut = len(it.text) - message_chars
                note = f"\n{cut_here(cut)}" if cut > 0 else ""
                turns.append([UserMessage(content=(Text(text=harmless(it.text[:message_chars]) + note),))])
                continue
            if not turns:  # the assistant's greeting comes first
                turns.append([UserMessage(content=(Text(text="…"),))])
            answer = Text(text=it.text)
            turns[-1].append(
                AssistantMessage(content=(answer,), provider=CALLER, model=CALLER, api=CALLER, stop_reason="end_turn")
            )
        return turns


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """A message in the inbox. `command` is the gateway's command in the message, None if an agent answers it;
    `arguments` is the text after it. `replays` counts the replays and is part of the reply's idempotency key.
    `together` are the messages that a `/retry` answers again, in order; empty for this one alone. `approval` is the
    id of a decision with which the gateway itself continues the conversation. `event` is the platform's event as
    received, without its tokens: JSON, empty if it is not stored. `asked` is what an API client added. `recalled`:
    its sender recalled it, and its text is gone. `files` are sent with a text that the gateway sends verbatim."""

    agent: str
    context: MessageContext
    command: str | None = None
    arguments: str = ""
    replays: int = 0
    together: tuple[MessageContext, ...] = ()
    approval: str = ""
    event: str = ""
    asked: Caller | None = None
    recalled: bool = False
    files: tuple[StoredFile, ...] = ()

    @property
    def contexts(self) -> tuple[MessageContext, ...]:
        return self.together or (self.context,)


inbound_json: TypeAdapter[Inbound] = TypeAdapter(Inbound)


class LoadedBody(str):
    """The text of a loaded inbox row. `inbound` is its parsed message."""

    inbound: Any = None


def inbound_of(body: str) -> Inbound:
    """Parse the message in an inbox row's body. A loaded row caches the result, because it is read several times. A
    process-wide cache would grow with every body, and would retain recalled and erased text."""
    if not isinstance(body, LoadedBody):
        return inbound_json.validate_json(body)
    if body.inbound is None:
        body.inbound = inbound_json.validate_json(body)
    inbound: Inbound = body.inbound
    return inbound


def is_readable(body: str) -> bool:
    """Return False for a body of a newer version, or one changed by hand."""
    with suppress(ValidationError):
        inbound_of(body)
        return True
    return False
