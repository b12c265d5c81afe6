"""A place: one chat, or a topic inside it, and the bot that speaks there, written `channel[:account]:chat[#thread]`.

The config, the command line and programs name places so: `feishu:oc_team`, `telegram:-1001234567890#7`,
`telegram:family:123456789`. A channel's only account need not be named, nor the one called `default`.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

DEFAULT = "default"
_FORM = re.compile(r"([^\s:#]{1,64}):(?:([^\s:#]{1,64}):)?([^\s:#]{1,200})(?:#([^\s:#]{1,200}))?")
EXPECTED = (
    "expected channel:chat or channel:account:chat, and #thread behind it for a topic, "
    "such as feishu:oc_team or telegram:family:-1001234567890#7"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    channel: str
    account: str
    chat: str
    thread: str | None = None

    def __str__(self) -> str:
        account = "" if self.account == DEFAULT else f"{self.account}:"
        thread = "" if self.thread is None else f"#{self.thread}"
        return f"{self.channel}:{account}{self.chat}{thread}"


def place_of(text: str, accounts: Mapping[str, Collection[str]]) -> Place:
    """The place that is written. `accounts` has the accounts of each channel. Raises ValueError with what to write."""
    match = _FORM.fullmatch(text)
    if match is None or not text.isprintable():
        raise ValueError(EXPECTED)
    channel, account, chat, thread = match.groups()
    known = accounts.get(channel, ())
    if not known:
        raise ValueError(f"no channel {channel!r} is configured; there is: {_listed(accounts) or 'none'}")
    if account is not None and account not in known:
        raise ValueError(f"{channel} has no account {account!r}; there is: {_listed({channel: known})}")
    if account is None:
        account = DEFAULT if DEFAULT in known or len(known) > 1 else next(iter(known))
    if account not in known:
        choices = " or ".join(str(Place(channel=channel, account=it, chat=chat, thread=thread)) for it in sorted(known))
        raise ValueError(f"{channel} has several accounts, so name one: {choices}")
    return Place(channel=channel, account=account, chat=chat, thread=thread)


def _listed(accounts: Mapping[str, Collection[str]]) -> str:
    """The channels, and the accounts that must be named."""
    names = ((channel, name) for channel, accounts_of in sorted(accounts.items()) for name in sorted(accounts_of))
    return ", ".join(channel if name == DEFAULT else f"{channel}:{name}" for channel, name in names)
