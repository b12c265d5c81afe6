"""`message`: say something in a chat on the agent's own initiative.

The current chat by default. Another one only where the config names it: what a model was talked into must not reach
people it was not meant for.
"""

from typing import Literal

from pydantic import Field

from tools.config import MessageConfig
from tools.tool import Arguments, Call, Messenger, ToolError, ToolResult


class MessageArguments(Arguments):
    action: Literal["send"] = Field(description="What to do: `send`.")
    message: str = Field(description="The text, in Markdown.", min_length=1)
    target: str | None = Field(default=None, description="The chat's id; the current chat if left out.")
    channel: str | None = Field(default=None, description="The channel, only where it is not the current one.")


class Message:
    spec = MessageArguments.spec(
        "message",
        summary="send a message on your own initiative",
        description=(
            "Send a message at once, to the current chat or to another one that the operator has allowed. "
            "Your ordinary reply is sent by itself and needs no tool."
        ),
        effect="keyed",
    )
    parse = staticmethod(MessageArguments.parse)

    def __init__(self, messenger: Messenger, config: MessageConfig) -> None:
        self._messenger = messenger
        self._config = config

    async def run(self, arguments: MessageArguments, call: Call) -> ToolResult:
        if not arguments.message.strip():
            raise ToolError("INVALID_ARGUMENT", "'message' has no visible text")
        here = call.message
        channel = arguments.channel or here.channel
        chat = arguments.target or here.chat.id
        is_here = (channel, chat) == (here.channel, here.chat.id)
        account = here.account if is_here else self._account(channel, chat, here.account)
        sent = await self._messenger.send(
            channel=channel,
            account=account,
            chat=chat,
            thread=here.chat.thread if is_here else None,
            text=arguments.message,
            key=call.key,
            begun_at=call.begun_at,
        )
        where = "this chat" if is_here else f"{channel}:{chat}"
        return ToolResult(
            content=(f"Sent to {where} (message {sent})",),
            details={"messageId": sent, "channel": channel, "chat": chat},
        )

    def _account(self, channel: str, chat: str, current: str) -> str:
        """Which bot sends there, from the config's line that allows it. Raises ToolError."""
        for target in self._config.targets:
            named, *account, listed = target.split(":")
            if (named, listed) == (channel, chat):
                return account[0] if account else current
        raise ToolError("TARGET_NOT_ALLOWED", "the operator has not allowed sending to that chat; nothing was sent")
