"""The port of a channel whose platform issues access tokens: to the app, and to a person after a login there.

Tokens pass through here as plain text. The channel keeps the app's token in memory and none of a person's; who may use
one is for the gateway to decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, runtime_checkable

from channels.channel import Channel
from channels.message import DocumentLink

LoginReason: TypeAlias = Literal[
    "pending", "slow_down", "denied", "expired", "lost", "ended", "busy", "barred", "policy", "app_lacks", "refused"
]
"""`pending` and `slow_down`: ask again. `lost`: the code is of no use any more, though it has not expired. `ended`: the
refresh token is invalid, expired, revoked or used. `busy`: the platform's own fault. `barred`: the person may not use the
app. `policy`: the tenant blocks the login. `app_lacks`: the app itself lacks a scope. `refused`: anything else."""


class LoginFailed(Exception):
    """The platform's refusal. `link` is a page where the person can lift it, if the platform names one."""

    def __init__(self, reason: LoginReason, code: str = "", link: str = "") -> None:
        super().__init__(f"{reason} ({code})" if code else reason)
        self.reason = reason
        self.code = code
        self.link = link


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceLogin:
    """A begun login. The person opens `url` and compares `user_code`; `device_code` is for polling, and secret."""

    device_code: str = field(repr=False)
    user_code: str
    url: str
    seconds: float
    """The time until it expires."""
    interval_seconds: float
    """The least time between two polls."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """A person's tokens with the seconds that each is valid, and the granted scopes. An empty `refresh` means that the
    login ends with the access token."""

    access: str = field(repr=False)
    access_seconds: float
    refresh: str = field(default="", repr=False)
    refresh_seconds: float = 0.0
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenOwner:
    """The person whose token it is. `name` is for display."""

    id: str
    name: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class AppAccess:
    """An app as an operator's command uses it, without a running gateway."""

    token: str = field(repr=False)
    scopes: frozenset[str]
    """The scopes that people can grant to the app."""
    link: str
    """The page where an administrator adds scopes."""


class PeopleLogin(Protocol):
    """The logins of people at one app. The methods raise LoginFailed for the platform's refusals, and DeliveryError if it
    gives no usable answer."""

    scopes: Sequence[str]
    """The scopes of a login that nothing asked for, as the config says."""
    seconds: float
    """The longest time of one request."""

    async def begin(self, scopes: Sequence[str]) -> DeviceLogin:
        """Begin a login for these scopes, in which a person grants them on a device with a browser."""

    async def poll(self, device_code: str) -> Tokens:
        """Return the tokens of a login that the person has finished."""

    async def refresh(self, refresh_token: str) -> Tokens:
        """Exchange a refresh token, which works once, for the next pair."""

    async def owner(self, access_token: str) -> TokenOwner:
        """Return the person whose token it is, as the platform says."""

    def grant_link(self, scopes: Sequence[str]) -> str:
        """Return the page where an administrator grants scopes to the app."""


@runtime_checkable
class LogsIn(Channel, Protocol):
    """A channel on whose platform the bot's app and people have access tokens."""

    @property
    def login(self) -> PeopleLogin: ...

    @property
    def address(self) -> str:
        """The address of the platform's API, without a path."""

    def links(self, text: str) -> tuple[DocumentLink, ...]:
        """Return the links in a text to documents of the platform, each once, in order. No request is made."""

    async def app_token(self, refused: str = "") -> str:
        """Return the app's own access token, a new one if the current one is `refused`. Raises DeliveryError."""
