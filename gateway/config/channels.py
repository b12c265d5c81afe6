"""The registry of channels. To add one, add a folder, a `ChannelType` and a field of `ChannelsConfig`.

A `ChannelType` tells the rest of the gateway what it must know of a channel's config; nothing else names a platform.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar
from urllib.parse import urlsplit

from pydantic.alias_generators import to_camel

from channels.access import ANYBODY, AccessConfig, Mistake
from channels.bilingual import NO_WORDS, Bilingual, Finding
from channels.channel import Channel, WebhookRequest
from channels.feishu import config as feishu
from channels.feishu import doctor as feishu_doctor
from channels.feishu.channel import FeishuChannel
from channels.feishu.config import FeishuConfig
from channels.feishu.registration import AppRegistration
from channels.feishu.signature import url_check
from channels.login import AppAccess
from channels.message import ChatKind, Place, place_of
from channels.moment import zone_of
from channels.registration import RegistersApps
from channels.section import Section
from channels.telegram import config as telegram
from channels.telegram import doctor as telegram_doctor
from channels.telegram.channel import TelegramChannel
from channels.telegram.config import TelegramConfig
from channels.web import config as web
from channels.web.admission import Admission, Sessions, Way
from channels.web.archive import ChatHistory, Files
from channels.web.channel import WebChannel
from channels.web.config import WebConfig
from channels.web.live import LiveTurns
from gateway.config.problems import Key
from gateway.config.server import ServerConfig, filled


@dataclass(frozen=True, kw_only=True, slots=True)
class Exposure:
    """The exposure of the web chat. `present` is what a model can reach this machine with, `unapproved` the agents whose
    commands need approval although no approver is named."""

    server: ServerConfig
    way: Way
    present: Sequence[Bilingual]
    unapproved: Sequence[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelType:
    """A platform. `name` is its config section; `Any` is that section's model of an account."""

    name: str
    accounts: Callable[[Any], Mapping[str, Any]]
    """Return the configured accounts of a section by name."""
    channel: Callable[[Any, str, "ChannelDeps"], Channel]
    facts: Callable[[Exposure], Any] = lambda exposure: None
    """Return what a channel needs from the config besides its account. A change of either rebuilds the channel."""
    told: Callable[[Any, str | None, Any], Any] = lambda account, public_url, menu: (public_url, menu)
    """Return what the connection depends on, by account, public URL and menu; a change reconnects."""
    logs_in: Callable[[Any], bool] = lambda account: False
    """Return True if people are meant to log in there, so that menus have the command."""
    registration: Callable[[str], RegistersApps] | None = None
    """Create an app from one scan, at the platform's address; the default one if it is empty."""
    keys: tuple[str, ...] = ()
    """The keys that an account requires."""
    bot: Callable[[Any], str] = lambda account: ""
    """Return the bot's id, which must be unique."""
    bot_key: str = ""
    bot_word: str = ""
    arrives: Callable[[Any, str, Exposure], tuple[Bilingual, Bilingual]]
    """Describe how events of an account arrive, by its config and name, and the remaining setup step."""
    problems: Callable[[Any], Iterable[Mistake]] = lambda account: ()
    warnings: Callable[[Any], Iterable[tuple[Bilingual, Bilingual]]] = lambda account: ()
    """Yield questionable settings of an account, each with the fix."""
    can_write_first: Callable[[str], bool] = lambda person: False
    """Return whether the bot can start the direct chat with this user id."""
    example: Callable[[str], ChatKind | None] = lambda id_: None
    """Return the kind of chat of a documentation example's id; None for any other id."""
    address: Callable[[Any], str] = lambda account: ""
    probe: Callable[[Any, str, Exposure, float], Awaitable[list[Finding]]] | None = None
    """Check an account with the platform, by its config, name, exposure and the time."""
    app_access: Callable[[Any], Awaitable[AppAccess]] | None = None
    """Get what an operator's command uses of an account's app. Raises DeliveryError."""
    watch: Callable[[Any, str, Exposure, float, int], Awaitable[tuple[list[Finding], int]]] | None = None
    """Make the part of `probe` that is cheap enough to repeat: whatever it finds that is not ok is a fault. It returns how
    many events wait at the platform and is given the number of the last time."""
    url_check: Callable[[Any, str, str, float], WebhookRequest | None] = lambda account, url, value, now: None
    """Return the platform's check of a webhook's URL with a value that the answer repeats, by the account's config, the
    public URL, the value and the time; None if no events of the account arrive at a webhook."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelDeps:
    """Everything a channel is built from besides its account. `facts` come from `ChannelType.facts`; `live` outlives the
    channel."""

    facts: Any
    archive: ChatHistory
    files: Files
    sessions: Sessions
    live: LiveTurns
    now: Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A configured account, and its key in the file."""

    kind: ChannelType
    name: str
    config: Any
    key: Key


def configured(channels: "ChannelsConfig") -> Iterator[Account]:
    for kind in channels.kinds.values():
        section = getattr(channels, kind.name)
        for name, config in kind.accounts(section).items() if section is not None else ():
            beneath = named_accounts(section).get(name) == config
            place: Key = ("channels", kind.name, "accounts", name) if beneath else ("channels", kind.name)
            yield Account(kind=kind, name=name, config=config, key=place)


def account_names(channels: "ChannelsConfig") -> dict[str, list[str]]:
    """Return the account names of every channel, in use or not."""
    return {name: ["default", *named_accounts(getattr(channels, name))] for name in channels.kinds}


def named_accounts(section: Any) -> Mapping[str, Any]:
    """Return the entries under `accounts`; empty if the section is missing or has none."""
    accounts: Mapping[str, Any] = getattr(section, "accounts", {})
    return accounts


def _feishu_arrives(account: feishu.FeishuAccount, name: str, exposure: Exposure) -> tuple[Bilingual, Bilingual]:
    app = account.app_id
    if feishu.listens(account, exposure.server.public_url):
        step = Bilingual("choose 使用长连接接收事件 in the developer console", "请在开发者后台选择“使用长连接接收事件”")
        return Bilingual(f"app {app}, long connection", f"应用 {app}，长连接"), step
    step = Bilingual("enter it as the request URL in the developer console", "请在开发者后台填为请求地址")
    if exposure.server.public_url is None:
        step = Bilingual(
            "set server.publicUrl to the address under which Feishu reaches this server",
            "请把 server.publicUrl 设为飞书访问此服务器的地址",
        )
    webhook = f"webhook {_webhook(exposure)}/feishu/{name}"
    return Bilingual(f"app {app}, {webhook}", f"应用 {app}，{webhook}"), step


def _feishu_url_check(account: feishu.FeishuAccount, url: str, value: str, now: float) -> WebhookRequest | None:
    key, token = (it.get_secret_value().strip() for it in (account.encrypt_key, account.verification_token))
    if feishu.listens(account, url):
        return None
    return url_check(value, key=key, token=token, now=datetime.fromtimestamp(now, UTC))


def _telegram_arrives(account: telegram.TelegramAccount, name: str, exposure: Exposure) -> tuple[Bilingual, Bilingual]:
    bot = telegram.bot_of(account)
    if account.mode == "polling":
        return Bilingual(f"bot {bot}, polling", f"机器人 {bot}，轮询"), NO_WORDS
    step = NO_WORDS
    if exposure.server.public_url is None:
        step = Bilingual(
            "set server.publicUrl, or mode: polling, which needs none",
            "请设置 server.publicUrl，或改用无需该地址的 mode: polling",
        )
    webhook = f"webhook {_webhook(exposure)}/telegram/{name}"
    return Bilingual(f"bot {bot}, {webhook}", f"机器人 {bot}，{webhook}"), step


def _webhook(exposure: Exposure) -> str:
    return f"{exposure.server.public_url or '<publicUrl>'}/webhooks"


def _web_arrives(account: web.WebConfig, name: str, exposure: Exposure) -> tuple[Bilingual, Bilingual]:
    server = exposure.server
    address = f"{server.public_url or server.address}/"
    match exposure.way:
        case "open" if agents := ", ".join(exposure.unapproved):
            message = Bilingual(
                f"{address}; until the bot is claimed, you approve commands of {agents} on this page; then its owners do",
                f"{address}；机器人被认领之前，由你在此网页批准 {agents} 的命令；认领之后由其所有者批准",
            )
            return message, NO_WORDS
        case "open":
            return Bilingual(address), NO_WORDS
        case "link" if own := _token(server):
            message = Bilingual(
                f"{address}, with {own} or the sign-in link of the start", f"{address}，使用{own.zh}或启动时的登录链接"
            )
            return message, NO_WORDS
        case "link":
            others = Bilingual(", ".join(exposure.present), "、".join(it.zh for it in exposure.present))
            message = Bilingual(
                f"{address}, with the sign-in link of the start, as a model can reach this machine, too: {others}",
                f"{address}，使用启动时的登录链接，因为模型也能访问本机：{others.zh}",
            )
            return message, NO_WORDS
        case "token":
            own = _token(server)
            return Bilingual(f"{address}, with {own}", f"{address}，使用{own.zh}"), NO_WORDS
        case "closed":
            message = Bilingual("closed, as the server can be reached from elsewhere", "已关闭，因为服务器可从别处访问")
            step = "set server.adminToken (CLAWGATE_ADMIN_TOKEN)"
            return message, Bilingual(step, "请设置 server.adminToken（CLAWGATE_ADMIN_TOKEN）")


def _token(server: ServerConfig) -> Bilingual:
    if server.admin_token.get_secret_value():
        return Bilingual("the admin token", "管理令牌")
    return Bilingual("a token of server.users", " server.users 中的令牌") if filled(server.users) else NO_WORDS


def _web_facts(exposure: Exposure) -> dict[str, Any]:
    server = exposure.server
    return {
        "token": server.admin_token.get_secret_value(),
        "users": filled(server.users),
        "way": exposure.way,
        "public_host": urlsplit(server.public_url).netloc if server.public_url else None,
        "link_seconds": server.sign_in_link_seconds,
    }


def _web_channel(account: web.WebConfig, name: str, deps: ChannelDeps) -> WebChannel:
    admission = Admission(sessions=deps.sessions, now=deps.now, **deps.facts)
    return WebChannel(
        account, admission=admission, archive=deps.archive, files=deps.files, live=deps.live, now=deps.now
    )


CHANNEL_TYPES: dict[str, ChannelType] = {
    "web": ChannelType(name="web", accounts=web.accounts, channel=_web_channel, facts=_web_facts, arrives=_web_arrives),
    "feishu": ChannelType(
        name="feishu",
        accounts=feishu.accounts,
        problems=feishu.problems,
        warnings=feishu.warnings,
        channel=lambda account, name, deps: FeishuChannel(
            account, name, deps.files.load, zone_of(deps.facts), now=deps.now
        ),
        facts=lambda exposure: exposure.server.timezone,
        told=lambda account, public_url, menu: feishu.listens(account, public_url),
        logs_in=lambda account: bool(account.login.scopes),
        registration=AppRegistration,
        app_access=feishu_doctor.app_access,
        keys=("appId", "appSecret"),
        bot=lambda account: str(account.app_id),
        can_write_first=lambda person: person.startswith("ou_"),
        example=feishu.example,
        address=lambda account: str(account.base_url),
        probe=lambda account, name, exposure, now: feishu_doctor.probe(account, name, exposure.server.public_url),
        watch=lambda account, name, exposure, now, before: feishu_doctor.watch(account, name),
        url_check=_feishu_url_check,
        bot_key="appId",
        bot_word="app",
        arrives=_feishu_arrives,
    ),
    "telegram": ChannelType(
        name="telegram",
        accounts=telegram.accounts,
        problems=telegram.problems,
        warnings=telegram.warnings,
        channel=lambda account, name, deps: TelegramChannel(account, name, deps.files.load, now=deps.now),
        told=lambda account, public_url, menu: (account.mode == "webhook" and public_url, menu),
        keys=("botToken",),
        bot=telegram.bot_of,
        can_write_first=lambda person: not person.startswith("-"),
        example=telegram.example,
        address=lambda account: str(account.api_root),
        probe=lambda account, name, exposure, now: telegram_doctor.probe(
            account, name, exposure.server.public_url, now
        ),
        watch=lambda account, name, exposure, now, before: telegram_doctor.watch(
            account, name, exposure.server.public_url, now, before
        ),
        bot_key="botToken",
        bot_word="bot",
        arrives=_telegram_arrives,
    ),
}


class ChannelsConfig(Section):
    """The chat platforms."""

    kinds: ClassVar[Mapping[str, ChannelType]] = CHANNEL_TYPES

    feishu: FeishuConfig | None = None
    """Feishu, or Lark: keys directly here are the account `default`, further bots are under `accounts`."""
    telegram: TelegramConfig | None = None
    """Telegram: keys directly here are the account `default`, further bots are under `accounts`."""
    web: WebConfig | None = None
    """The web chat at `/`, in a browser."""


def place_in(channels: ChannelsConfig, text: str) -> Place:
    """The place of a configured account that is written. Raises ValueError with what to write."""
    found = list(configured(channels))
    accounts: dict[str, list[str]] = {}
    for it in found:
        accounts.setdefault(it.kind.name, []).append(it.name)
    place = place_of(text, accounts)
    account = next(it for it in found if (it.kind.name, it.name) == (place.channel, place.account))
    if isinstance(account.config, AccessConfig):  # the id of a chat is that of a person or of a group
        person, group = (id_refusals(account, it, place.chat) for it in ("allow_from", "group_allow_from"))
        if place.chat == ANYBODY or (person and group):
            expected = ", or ".join((*person, *group)) or "expected one chat"
            raise ValueError(f"{place.chat!r} is no chat of {place.channel}: {expected}")
    return place


def kind_of(channels: ChannelsConfig, place: Place) -> ChatKind:
    """Return the kind of chat that the id can be; `group`, the stricter one, if it may be either."""
    at = (place.channel, place.account)
    account = next((it for it in configured(channels) if (it.kind.name, it.name) == at), None)
    if account is None or not isinstance(account.config, AccessConfig):
        return "direct"
    return "group" if id_refusals(account, "allow_from", place.chat) else "direct"


def id_refusals(account: Account, field: str, id_: str) -> list[str]:
    """Return the reasons why an id is not valid in the list `field`."""
    found = account.kind.problems(account.config.but(**{field: (id_,)}))
    return [sentence for key, sentence in found if key[0] == to_camel(field)]
