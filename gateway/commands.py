"""Commands: what people write to the gateway instead of to an agent, such as `/stop`.

A command runs in the control session beside its conversation, so it never waits behind a turn. `COMMANDS` feeds the
dispatch and the platforms' menus.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agents import sentences
from channels.channel import MenuEntry
from channels.message import MessageContext
from gateway.runtime import Runtime


@dataclass(frozen=True, kw_only=True, slots=True)
class CommandContext:
    """One command that a person wrote. `session` is the conversation that it concerns, `turn` the number of the command's
    own message: what was accepted earlier has a smaller one."""

    runtime: Runtime
    session: str
    turn: int
    message: MessageContext


@dataclass(frozen=True, kw_only=True, slots=True)
class Command(MenuEntry):
    """`description` in English and Chinese. `run` returns the reply."""

    run: Callable[[CommandContext], Awaitable[str]]


async def _stop(context: CommandContext) -> str:
    concerned = await context.runtime.control.stop(context.session, context.turn)
    return sentences.stopped(concerned, context.message.text)


STOP = Command(name="stop", description="Stop the running answer and what waits behind it / 停止当前处理", run=_stop)
COMMANDS = {it.name: it for it in (STOP,)}
MENU = tuple(COMMANDS.values())


def command_of(text: str) -> str | None:
    """The name of the command that a message is; None for words to the agent, such as a command with more behind it."""
    return next((name for name in COMMANDS if text.strip().lower() == f"/{name}"), None)
