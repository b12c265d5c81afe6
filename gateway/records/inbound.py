"""The inbox's record of a message: what it holds of one. Tokens and raw bodies are not kept."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from channels.message import MessageContext
from gateway.records.caller import Caller

ASK, SETTLED, PRESSED, INTRODUCTION = "approval:ask", "approval:settled", "approval:press", "introduction"
NOTICE = "owners:notice"
NOTICES = frozenset({ASK, SETTLED, PRESSED, INTRODUCTION, NOTICE})
"""Commands of the gateway's own, for messages that it writes by itself; no person's text is one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """`command` is the name of the gateway's command that the message is, None for what an agent answers; `arguments` what
    stands behind it. `replays` is another number each time that the message gets another chance: its reply then is another
    reply, with keys of its own. `together` are all messages that a `/retry` answers anew, in order; empty for this one.
    `approval` is the id of what was decided, where the gateway itself takes the conversation up again. `asked` is what a
    program sends along. `recalled`: its person has taken it back, and it says nothing any more."""

    agent: str
    context: MessageContext
    command: str | None = None
    arguments: str = ""
    replays: int = 0
    together: tuple[MessageContext, ...] = ()
    approval: str = ""
    asked: Caller | None = None
    recalled: bool = False

    @property
    def contexts(self) -> tuple[MessageContext, ...]:
        return self.together or (self.context,)


inbound_json: TypeAdapter[Inbound] = TypeAdapter(Inbound)


class LoadedBody(str):
    """The text of a loaded inbox row. `inbound` is what was read of it."""

    inbound: Any = None


def inbound_of(body: str) -> Inbound:
    """The message in an inbox row's body. A loaded row keeps what was read of it, for it is looked at several times. A cache
    of the process could be as large as any number of bodies, and would hold what was taken back or erased."""
    if not isinstance(body, LoadedBody):
        return inbound_json.validate_json(body)
    if body.inbound is None:
        body.inbound = inbound_json.validate_json(body)
    inbound: Inbound = body.inbound
    return inbound


def is_readable(body: str) -> bool:
    """False for a body of a newer version, and for one that somebody has changed by hand."""
    with suppress(ValidationError):
        inbound_of(body)
        return True
    return False
