"""The port through which a tool acts on a platform as the user that a turn serves, or as the bot's app.

A tool asks for a token right before each request and keeps none. No token may reach a result, an error, a log or the
model: the gateway adds each one to the scrubber before it hands it out.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from channels.message import DocumentLink
from tools.tool import Call, ToolError

NEEDS_PERSON: Final = "NEEDS_PERSON"
"""The turn serves nobody, or several people, or nobody of the account's platform."""
NEEDS_LOGIN: Final = "NEEDS_LOGIN"
"""The person has to log in first. The gateway shows the login card, and continues the conversation after the login."""


class Identities(Protocol):
    """Tokens of a platform for the user that a turn serves, or for the app."""

    def address(self, account: str) -> str:
        """Return the address of the account's platform, such as https://open.feishu.cn. Raises ToolError UNAVAILABLE."""

    def links(self, account: str, text: str) -> tuple[DocumentLink, ...]:
        """Return the links in a text to documents of the account's platform. Raises ToolError UNAVAILABLE."""

    async def app_token(self, account: str, refused: str = "") -> str:
        """Return the access token of an account's app, a new one if the current one is `refused`. Raises ToolError
        UNAVAILABLE."""

    async def token(
        self, call: Call, account: str, *, person: bool, scopes: Sequence[str] = (), refused: str = ""
    ) -> str:
        """Return an access token of an account: the person's, or the app's if `person` is False.

        `refused` is a token that the platform has just refused as invalid or expired: it is refreshed once. `scopes` are
        those the call needs; a login asks for those that are not granted yet. Raises ToolError: NEEDS_PERSON, NEEDS_LOGIN
        or UNAVAILABLE."""

    async def missing(self, call: Call, account: str, scopes: Sequence[str]) -> ToolError:
        """Return NEEDS_LOGIN for scopes that the person has not granted, as the platform said (Feishu's 99991679)."""

    async def app_lacks(self, account: str, scopes: Sequence[str]) -> ToolError:
        """Return the error for scopes that the app itself lacks (Feishu's 99991672), with the administrator's link. The
        owners are notified once."""


def decider_of(call: Call) -> str:
    """Return the one person who may approve what is done in their name, as `channel:id`. Raises ToolError."""
    if call.several or not call.message.sender.id:
        raise ToolError(NEEDS_PERSON, "this turn serves no single person who could approve it")
    return f"{call.message.channel}:{call.message.sender.id}"
