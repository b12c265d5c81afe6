"""The tokens with which tools act on a platform: `tools.identity.Identities`.

A turn acts as the one person whose words it serves, found by the message that it answers and never by the chat.
"""

from collections.abc import Sequence

import structlog

from channels.abilities import can
from channels.channel import DeliveryError
from channels.login import LogsIn
from gateway.state.runtime import Runtime
from tools.identity import NEEDS_PERSON
from tools.tool import Call, ToolError

log = structlog.get_logger()


class Logins:
    """The tokens of all accounts. `serve` connects it to its gateway."""

    def serve(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def token(
        self, call: Call, account: str, *, person: bool, scopes: Sequence[str] = (), refused: str = ""
    ) -> str:
        channel = self._channel(account)
        if person:
            whose(call, channel)
            raise ToolError("UNAVAILABLE", "people cannot log in yet")
        try:
            token = await channel.app_token(refused)
        except DeliveryError as error:
            log.warning("app_token_missing", account=account, code=error.code)
            message = f"{channel.name} gives the app no token now: {error}"
            raise ToolError("UNAVAILABLE", message, retryable=True) from error
        self._runtime.scrubber.learn([token])
        return token

    async def missing(self, call: Call, account: str, scopes: Sequence[str]) -> ToolError:
        return ToolError("UNAVAILABLE", f"the person has not granted {', '.join(scopes)}")

    async def app_lacks(self, account: str, scopes: Sequence[str]) -> ToolError:
        return ToolError("UNAVAILABLE", f"the app itself lacks the permission {', '.join(scopes)}")

    def _channel(self, account: str) -> LogsIn:
        for (_, name), channel in self._runtime.setup.channels.items():
            if name == account and can(channel, LogsIn):
                return channel
        raise ToolError("UNAVAILABLE", f"no account {account!r} that people can log in to is configured")


def whose(call: Call, channel: LogsIn) -> str:
    """Return the id of the one person whose words the turn serves, on the channel's account. Raises ToolError."""
    message = call.message
    if (message.channel, message.account) != (channel.name, channel.account) or not message.sender.id:
        message_ = "this turn serves no person of that account, so nobody's login may be used"
        raise ToolError(NEEDS_PERSON, message_)
    if call.several:
        raise ToolError(NEEDS_PERSON, "this turn answers several people, so nobody's login may be used")
    return message.sender.id
