"""The settings that connect a Telegram bot: one account, or several under `accounts`."""

import re
from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from channels.access import AccessConfig, Mistake, Quotes, access_warnings, id_problems, is_blank, is_http
from channels.bilingual import Bilingual
from channels.message import ChatKind
from channels.section import QueueConfig

DEFAULT = "default"
_TOKEN = re.compile(r"[0-9]{1,20}:[A-Za-z0-9_-]{30,64}")
_SECRET = re.compile(r"[A-Za-z0-9_-]{1,256}")
_PERSON, _GROUP = r"[1-9][0-9]{0,15}", r"-[1-9][0-9]{0,15}"
_EXAMPLES: dict[str, ChatKind] = {"123456789": "direct", "-1001234567890": "group"}


class TelegramAccount(AccessConfig):
    """One Telegram bot."""

    bot_token: SecretStr = SecretStr("")
    """The token that @BotFather gave, `123456789:AA…`; empty means that this account is not configured."""
    mode: Literal["polling", "webhook"] = "polling"
    """Delivery of updates: `polling` fetches them and needs no public address; with `webhook`, Telegram posts them to
    `/webhooks/telegram/{account}`."""
    webhook_secret: SecretStr = SecretStr("")
    """The secret for `mode: webhook`: a long random word of A-Z, a-z, 0-9, `_` and `-`. Telegram sends it with every
    update, and it is all that tells an update from a forgery."""
    api_root: str = "https://api.telegram.org"
    """The Bot API, or a Bot API server of your own."""
    timeout_seconds: Annotated[float, Field(gt=0)] = 30
    """Timeout of a call to Telegram's API."""
    sends_per_second: Annotated[float, Field(gt=0)] | None = None
    """Rate limit of this bot's sends. If unset, there is none until Telegram asks to slow down; then Telegram's documented
    rate (30 a second, 1 in one chat, 20 a minute in one group) applies for a minute."""
    quotes: Quotes = "first"
    """The messages of an answer that quote the question: `all`, `first`, or `off` for none."""
    link_previews: bool = False
    """True if Telegram shows a preview of the first link in a reply."""
    drafts: bool = False
    """True if an answer grows in a direct chat as a draft of Telegram's (`sendMessageDraft`) instead of a message that is
    edited. Older clients do not show drafts."""
    resend_ambiguous: bool = False
    """Telegram does not deduplicate sends. `false` makes an ambiguous send a dead letter and counts it; `true` retries it:
    better a duplicate than a lost message."""
    queue: QueueConfig = QueueConfig()


class TelegramConfig(TelegramAccount):
    """The section `channels.telegram`: its own keys are the account `default`."""

    enabled: bool = True
    """`false` switches the channel off and leaves its settings in place."""
    accounts: dict[Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,63}$")], TelegramAccount] = Field(default={})
    """More bots, by name; the name is part of the webhook's path."""


def accounts(config: TelegramConfig) -> dict[str, TelegramAccount]:
    if not config.enabled:
        return {}
    by_name = {DEFAULT: config, **config.accounts}
    return {name: account for name, account in by_name.items() if not is_blank(account.bot_token)}


def bot_of(account: TelegramAccount) -> str:
    """Return the bot's id: the part of its token before the colon, which is not secret."""
    return account.bot_token.get_secret_value().strip().partition(":")[0]


def example(id_: str) -> ChatKind | None:
    """Return the chat kind of an id from the documentation; None for any other."""
    return _EXAMPLES.get(id_)


def problems(account: TelegramAccount) -> Iterator[Mistake]:
    if not _TOKEN.fullmatch(account.bot_token.get_secret_value().strip()):
        yield ("botToken",), "is no bot token: copy the whole of it, 123456789:AA…, from @BotFather"
    if account.mode == "webhook" and is_blank(account.webhook_secret):
        message = (
            "missing: without it anybody could send updates. Choose a long random word, such as the output of "
            "`openssl rand -hex 32`, or `mode: polling`"
        )
        yield ("webhookSecret",), message
    elif not is_blank(account.webhook_secret) and not _SECRET.fullmatch(account.webhook_secret.get_secret_value()):
        message = "Telegram takes 1 to 256 of A-Z, a-z, 0-9, _ and -, such as the output of `openssl rand -hex 32`"
        yield ("webhookSecret",), message
    if not is_http(account.api_root):
        yield ("apiRoot",), "must be an http or https URL, such as https://api.telegram.org"
    yield from id_problems(
        account,
        person=(_PERSON, "a person's id, a number in quotes: ids only, never names"),
        group=(_GROUP, 'a group\'s id, such as "-1001234567890": never a name'),
        direct=_PERSON,
    )


def warnings(account: TelegramAccount) -> Iterator[tuple[Bilingual, Bilingual]]:
    yield from access_warnings(
        account,
        person=Bilingual("the sender's number", "发送者编号"),
        place=Bilingual("on Telegram", " Telegram 上"),
        added="that anybody adds it to",
        direct=_PERSON,
    )
    if account.resend_ambiguous:
        message = Bilingual(
            "resendAmbiguous: true can send a reply twice after a timeout",
            "resendAmbiguous: true 可能在超时后把同一条回复发送两次",
        )
        yield message, Bilingual("set it to false if once matters more", "如果更在意不重复，请设为 false")
