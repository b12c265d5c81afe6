"""What the inbox holds of a message: its context and the agent it was routed to. Tokens and raw bodies are not kept."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import TypeAdapter

from channels.channel import Command as MenuEntry
from channels.message import MessageContext

Command: TypeAlias = Literal["stop"]
COMMANDS: dict[str, Command] = {"/stop": "stop"}
"""What a message must say, and nothing else, to be a command to the gateway instead of words to the agent."""
MENU = (MenuEntry(name="stop", description="Stop the running answer and what waits behind it / 停止当前处理"),)
"""The same commands, as a platform's menu shows them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Inbound:
    """`command` is None for what an agent answers. `replays` counts how often an operator gave the message another
    chance: its reply then is another reply, with keys of its own."""

    agent: str
    context: MessageContext
    command: Command | None = None
    replays: int = 0


inbound_json: TypeAdapter[Inbound] = TypeAdapter(Inbound)
