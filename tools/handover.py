"""`handover`: hand the chat over to a colleague in the on-call chat, who answers until it is given back.

The gateway tells the user, and the agent is silent from then on: its turn ends without an answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

from pydantic import Field

from channels.section import Section
from tools.tool import Arguments, Call, ToolResult

NAME = "handover"
REASON_CHARS_MAX = 500


class HandoverConfig(Section):
    """Chats that people take over from the agents (docs/handover.md)."""

    to: str = ""
    """The on-call chat on Feishu or Telegram, as `channel[:account]:chat[#thread]`, such as `feishu:oc_0123456789abcdef`.
    Users who may use the bot there can take over. Empty: no chat is handed over."""
    hours: Annotated[float, Field(gt=0, le=720)] = 8
    """Hours without a message after which the agent answers again."""


class HandoverArguments(Arguments):
    reason: str = Field(
        min_length=1,
        max_length=REASON_CHARS_MAX,
        description="One sentence for the colleague: what the person needs, and why you cannot do it.",
    )


class HandsOver(Protocol):
    """Hands chats over; the gateway supplies it."""

    async def hand_over(self, reason: str, call: Call) -> str:
        """Hand the chat of the call over, once, and return what the model reads. Raises ToolError."""


@dataclass(frozen=True, slots=True)
class HandoverTool:
    chats: HandsOver | None
    """None only where the tool is not offered."""

    spec = HandoverArguments.spec(
        NAME,
        summary="hand this chat over to a human colleague",
        description=(
            "Calls a human colleague, who answers the person in your place until the chat is given back to you. The gateway "
            "tells the person, and shows the colleague the last messages. Use it when the person asks for a human, or when "
            "you cannot help and a human could. It ends your turn."
        ),
        effect="keyed",
    )

    def parse(self, raw: Mapping[str, Any]) -> HandoverArguments:
        return HandoverArguments.parse(raw)

    async def run(self, arguments: HandoverArguments, call: Call) -> ToolResult:
        assert self.chats is not None
        return ToolResult(content=(await self.chats.hand_over(arguments.reason, call),))
