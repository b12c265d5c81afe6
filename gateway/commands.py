"""Commands: what people write to the gateway instead of to an agent, such as `/stop`.

A command runs in the control session beside its conversation, so it never waits behind a turn. `COMMANDS` feeds the
dispatch and the platforms' menus.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agents import sentences
from channels.channel import MenuEntry
from channels.message import MessageContext
from gateway.remember import remember
from gateway.runtime import Runtime


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandContext:
    """One command that a person wrote. `session` is the conversation that it concerns, `turn` the number of the command's
    own message: what was accepted earlier has a smaller one."""

    runtime: Runtime
    session: str
    turn: int
    message: MessageContext

    @property
    def arguments(self) -> str:
        """What stands behind the command's name."""
        return "".join(self.message.text.strip().split(maxsplit=1)[1:])


@dataclass(frozen=True, kw_only=True, slots=True)
class Command(MenuEntry):
    """`description` in English and Chinese. `run` returns the reply."""

    run: Callable[[CommandContext], Awaitable[str]]


async def _stop(context: CommandContext) -> str:
    concerned = await context.runtime.control.stop(context.session, context.turn)
    return sentences.stopped(concerned, context.message.text)


STOP = Command(name="stop", description="Stop the running answer and what waits behind it / 停止当前处理", run=_stop)
REMEMBER = Command(
    name="remember", description="Keep a note for yourself; alone, list them / 记一条笔记;单独发送则列出", run=remember
)
COMMANDS = {it.name: it for it in (STOP, REMEMBER)}
MENU = tuple(COMMANDS.values())


def command_of(text: str) -> str | None:
    """The name of the command that a message is; None for words to the agent, such as a command with more behind it."""
    head, *arguments = text.split(maxsplit=1) or [""]
    name = head.lower().removeprefix("/") if head.startswith("/") else ""
    return name if name in COMMANDS and (name == REMEMBER.name or not arguments) else None
