"""Which channels there are: a new one is a folder and a record here.

Each record says what the rest of the gateway needs to know of a channel's config; nothing else names a platform.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from channels.channel import Channel
from channels.feishu import config as feishu
from channels.feishu.channel import FeishuChannel
from channels.telegram import config as telegram
from channels.telegram.channel import TelegramChannel
from gateway.config.problems import Key
from gateway.config.root import ChannelsConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Kind:
    """`name` is its section in the config. An account is a model of that section's."""

    name: str
    title: str
    accounts: Callable[[Any], Mapping[str, Any]]
    """The configured accounts of a section, by name."""
    problems: Callable[[Any], Sequence[tuple[str, str]]]
    warnings: Callable[[Any], Sequence[str]]
    channel: Callable[[Any, str], Channel]
    keys: tuple[str, ...]
    """What must be set before an account is one."""
    bot: Callable[[Any], str]
    """Which bot an account is: no two may be the same."""
    bot_key: str
    bot_word: str
    arrives: Callable[[Any, str, str], str]
    """How its events arrive, for the report: of an account, its name, and the public address."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A configured account, and the place where it is written."""

    kind: Kind
    name: str
    config: Any
    key: Key


def configured(channels: ChannelsConfig) -> Iterator[Account]:
    """Every account of every channel that is switched on."""
    for kind in KINDS.values():
        section = getattr(channels, kind.name)
        if section is None:
            continue
        for name, config in kind.accounts(section).items():
            beneath = section.accounts.get(name) == config
            place: Key = ("channels", kind.name, "accounts", name) if beneath else ("channels", kind.name)
            yield Account(kind=kind, name=name, config=config, key=place)


def account_names(channels: ChannelsConfig) -> dict[str, list[str]]:
    """The channels there can be, and their accounts, whether in use or not."""
    sections = {name: getattr(channels, name) for name in KINDS}
    return {name: ["default", *(section.accounts if section else ())] for name, section in sections.items()}


def _feishu_arrives(account: feishu.FeishuAccount, name: str, public_url: str) -> str:
    step = "enter it as the request URL in the developer console"
    if public_url.startswith("<"):
        step = "set server.publicUrl to the address under which Feishu reaches this server"
    return f"app {account.app_id}, {account.mode} {public_url}/webhooks/feishu/{name} — {step}"


def _telegram_arrives(account: telegram.TelegramAccount, name: str, public_url: str) -> str:
    bot = f"bot {telegram.bot_of(account)}"
    if account.mode == "polling":
        return f"{bot}, polling"
    step = "Telegram is told of it at the start"
    if public_url.startswith("<"):
        step = "set server.publicUrl, or mode: polling, which needs none"
    return f"{bot}, webhook {public_url}/webhooks/telegram/{name} — {step}"


KINDS: dict[str, Kind] = {
    "feishu": Kind(
        name="feishu",
        title="Feishu",
        accounts=feishu.accounts,
        problems=feishu.problems,
        warnings=feishu.warnings,
        channel=FeishuChannel,
        keys=("appId", "appSecret", "encryptKey"),
        bot=lambda account: str(account.app_id),
        bot_key="appId",
        bot_word="app",
        arrives=_feishu_arrives,
    ),
    "telegram": Kind(
        name="telegram",
        title="Telegram",
        accounts=telegram.accounts,
        problems=telegram.problems,
        warnings=telegram.warnings,
        channel=TelegramChannel,
        keys=("botToken",),
        bot=telegram.bot_of,
        bot_key="botToken",
        bot_word="bot",
        arrives=_telegram_arrives,
    ),
}
