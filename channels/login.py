"""The port of a channel whose platform issues access tokens: to the app, and to a person after a login there.

Tokens pass through here as plain text. The channel keeps the app's token in memory and none of a person's; who may use
one is for the gateway to decide.
"""

from typing import Protocol, runtime_checkable

from channels.channel import Channel


@runtime_checkable
class LogsIn(Channel, Protocol):
    """A channel on whose platform the bot's app and people have access tokens."""

    async def app_token(self, refused: str = "") -> str:
        """Return the app's own access token, a new one if the current one is `refused`. Raises DeliveryError."""
