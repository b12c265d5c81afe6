"""Commands: what people write to the gateway instead of to an agent, such as `/stop`.

A command runs in the control session beside its conversation, so it never waits behind a turn. `COMMANDS` feeds the
dispatch and the platforms' menus.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from agents import sentences
from channels.channel import Command as MenuEntry
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
class Command:
    """`name` without the slash; `help` in English and Chinese. `run` gets what was written behind the name and returns the
    reply; a command that does not take arguments is one only where nothing is written behind it."""

    name: str
    help: tuple[str, str]
    run: Callable[[CommandContext, str], Awaitable[str]]
    takes_arguments: bool = False


async def _stop(context: CommandContext, _: str) -> str:
    concerned = await context.runtime.control.stop(context.session, context.turn)
    return sentences.stopped(concerned, context.message.text)


COMMANDS = {
    command.name: command
    for command in (
        Command(name="stop", help=("Stop the running answer and what waits behind it", "停止当前处理"), run=_stop),
    )
}
MENU = tuple(MenuEntry(name=it.name, description=" / ".join(it.help)) for it in COMMANDS.values())
"""The same commands, as a platform's menu shows them."""


def command_of(text: str) -> tuple[str, str] | None:
    """The name of the command that a message is, and its arguments; None for words to the agent."""
    word, _, arguments = text.strip().partition(" ")
    command = COMMANDS.get(word.removeprefix("/").lower()) if word.startswith("/") else None
    if command is None or (arguments and not command.takes_arguments):
        return None
    return command.name, arguments.strip()
