"""`message`: send a message in a chat on the agent's own initiative, or change one that it has sent.

The default is the current chat. Another one is possible only if the config names it, so that a manipulated model cannot
reach other people. Only actions and members that the chat's channel supports are offered.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol, get_args

from pydantic import Field

from channels.message import Action, File, Place
from tools.attachment import attachment
from tools.config import MessageConfig
from tools.tool import Arguments, Call, ToolError, ToolResult, ToolSpec
from tools.workspace import Workspace

ACTIONS: Sequence[Action] = get_args(Action)
FILES_MAX = 10


class MessageArguments(Arguments):
    action: Action = Field(description="What to do.")
    message: str = Field(default="", description="The text, in Markdown; of a poll its question.")
    target: str | None = Field(default=None, description="The chat's id; the current chat if left out.")
    channel: str | None = Field(default=None, description="The channel, only if it is not the current one.")
    media: list[str] = Field(default=[], max_length=FILES_MAX, description="Paths of workspace files to send along.")
    voice: bool = Field(default=False, description="Send the audio among `media` as a voice message.")
    reply_to: str | None = Field(default=None, description="The id of the message to reply to.")
    message_id: str | None = Field(
        default=None, description="The message to edit or delete, one of yours; or to react to, else the current one."
    )
    emoji: str = Field(default="", description="The reaction, one emoji such as 👍 ❤ 🔥 🎉 👀.")
    buttons: list[str] = Field(
        default=[], max_length=8, description="Labels; what is pressed comes back as a message of this conversation."
    )
    options: list[str] = Field(
        default=[],
        max_length=10,
        description="The answers of a poll, 2 to 10; each vote comes back as a message of this conversation.",
    )


_MEMBERS = {"media": "media", "voice": "voice", "reply_to": "reply", "emoji": "react", "buttons": "buttons"}
_MEMBERS |= {"options": "poll"}
"""Ability of the chat that a member needs; other members need none."""
_REQUIRED: Mapping[Action, tuple[str, ...]] = {
    "edit": ("message_id", "message"),
    "delete": ("message_id",),
    "react": ("emoji",),
    "buttons": ("message", "buttons"),
    "poll": ("message", "options"),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Post:
    """A message to send: with `edits`, instead of an earlier one; with `options`, as a poll."""

    text: str
    files: tuple[File, ...] = ()
    voice: bool = False
    reply_to: str | None = None
    edits: str | None = None
    buttons: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class Messenger(Protocol):
    """The port by which the tool acts in a chat; the gateway supplies it. Every method raises `ToolError` if the
    channel is unknown, cannot do this or refuses it, and if a message is not one of the chat's."""

    file_bytes: int
    """Maximum size of one file."""

    async def send(self, to: Place, post: Post, call: Call) -> str:
        """Send immediately, split as the channel needs; return the platform's id of the first part. The same call never
        sends twice if the platform deduplicates; otherwise an ambiguous send of an earlier run is not repeated."""

    async def delete(self, at: Place, message_id: str, call: Call) -> None:
        """Delete a message that the same conversation has sent."""

    async def react(self, at: Place, message_id: str, emoji: str, call: Call) -> None: ...


@dataclass
class MessageTool:
    """`abilities` are the actions that the current chat's channel supports, `media` and `voice` among them."""

    messenger: Messenger
    config: MessageConfig
    workspace: Workspace
    abilities: frozenset[str] = frozenset({"send"})

    @property
    def spec(self) -> ToolSpec:
        return _spec(self.abilities)

    def parse(self, raw: Mapping[str, Any]) -> MessageArguments:
        arguments = MessageArguments.parse(raw)
        if arguments.action not in self.abilities:
            there = " or ".join(f"'{it}'" for it in ACTIONS if it in self.abilities)
            raise ToolError("INVALID_ARGUMENT", f"'action' must be {there}")
        for name, needed in _MEMBERS.items():
            if getattr(arguments, name) and needed not in self.abilities:
                raise ToolError("INVALID_ARGUMENT", f"'{name}' is not an argument of this tool here")
        required = _REQUIRED.get(arguments.action, () if arguments.media else ("message",))
        if missing := [name for name in required if not getattr(arguments, name)]:
            raise ToolError("INVALID_ARGUMENT", "; ".join(f"'{name}' is required" for name in missing))
        if not f"{arguments.message_id}{arguments.reply_to}".isprintable():
            raise ToolError("INVALID_ARGUMENT", "an id has no control characters")
        if arguments.message and not arguments.message.strip():
            raise ToolError("INVALID_ARGUMENT", "'message' has no visible text")
        if arguments.media and (arguments.buttons or arguments.action not in ("send", "reply")):
            raise ToolError("INVALID_ARGUMENT", "'media' goes with `send` and `reply`, without buttons")
        if arguments.action == "poll" and len(arguments.options) < 2:
            raise ToolError("INVALID_ARGUMENT", "'options': a poll has 2 to 10")
        return arguments

    def uses(self, arguments: MessageArguments) -> Sequence[str]:
        return ("read",) if arguments.media else ()

    async def run(self, arguments: MessageArguments, call: Call) -> ToolResult:
        to, is_here = self._destination(arguments, call)
        where = "this chat" if is_here else f"{to.channel}:{to.chat}"
        current = call.message.press.message_id if call.message.press else call.message.message_id
        message_id = arguments.message_id or (current if is_here else "")
        match arguments.action:
            case "delete":
                await self.messenger.delete(to, message_id, call)
                done = f"Deleted message {message_id}"
            case "react":
                await self.messenger.react(to, message_id, arguments.emoji, call)
                done = f"Reacted to message {message_id}"
            case _:
                post = await self._post(arguments, current if is_here else None)
                if post.buttons and not is_here:
                    raise ToolError("INVALID_ARGUMENT", "'buttons' are for the current chat: presses come back to it")
                message_id = await self.messenger.send(to, post, call)
                done = f"Edited message {message_id}" if post.edits else f"Sent to {where} (message {message_id})"
        return ToolResult(content=(done,), details={"messageId": message_id, "channel": to.channel, "chat": to.chat})

    async def _post(self, arguments: MessageArguments, current: str | None) -> Post:
        files = []
        for path in arguments.media:
            if path.startswith(("http://", "https://")):
                raise ToolError(
                    "INVALID_ARGUMENT", "'media' takes paths of the workspace; put an address into 'message'"
                )
            files.append(await asyncio.to_thread(attachment, self.workspace, path, bytes_max=self.messenger.file_bytes))
        return Post(
            text=arguments.message,
            files=tuple(files),
            voice=arguments.voice,
            reply_to=arguments.reply_to or (current if arguments.action == "reply" else None),
            edits=arguments.message_id if arguments.action == "edit" else None,
            buttons=tuple(arguments.buttons),
            options=tuple(arguments.options) if arguments.action == "poll" else (),
        )

    def _destination(self, arguments: MessageArguments, call: Call) -> tuple[Place, bool]:
        here = call.message
        channel, chat = arguments.channel or here.channel, arguments.target or here.chat.id
        if (channel, chat) == (here.channel, here.chat.id):
            return Place(channel=channel, account=here.account, chat=chat, thread=here.chat.thread), True
        return Place(channel=channel, account=self._account(channel, chat, here.account), chat=chat), False

    def _account(self, channel: str, chat: str, current: str) -> str:
        for target in self.config.targets:
            named, *account, listed = target.split(":")
            if (named, listed) == (channel, chat):
                return account[0] if account else current
        raise ToolError("TARGET_NOT_ALLOWED", "the operator has not allowed sending to that chat; nothing was sent")


@lru_cache(maxsize=64)
def _spec(abilities: frozenset[str]) -> ToolSpec:
    whole = MessageArguments.spec(
        "message",
        summary="send a message on your own initiative",
        description=(
            "Send a message at once, to the current chat or to another one that the operator has allowed. "
            "Your ordinary reply is sent by itself and needs no tool."
        ),
        effect="keyed",
    )
    needed = _MEMBERS | ({} if abilities & {"edit", "delete", "react"} else {"message_id": "edit"})
    members = {
        name: member
        for name, member in whole.input_schema["properties"].items()
        if name not in needed or needed[name] in abilities
    }
    members["action"] = members["action"] | {"enum": [it for it in ACTIONS if it in abilities]}
    return replace(whole, input_schema=dict(whole.input_schema) | {"properties": members})
