"""Which channels there are: a new one is a folder, a record and a field here.

Each record says what the rest of the gateway needs to know of a channel's config; nothing else names a platform. The
records go with the section, so that whoever has read a config also has the channels that it may speak of.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from agents.config import AgentConfig
from channels.channel import Channel
from channels.feishu import config as feishu
from channels.feishu import doctor as feishu_doctor
from channels.feishu.channel import FeishuChannel
from channels.feishu.config import FeishuConfig
from channels.finding import Finding
from channels.telegram import config as telegram
from channels.telegram import doctor as telegram_doctor
from channels.telegram.channel import TelegramChannel
from channels.telegram.config import TelegramConfig
from channels.web import config as web
from channels.web.admission import Admission, Sessions, Way
from channels.web.archive import ChatHistory
from channels.web.channel import WebChannel
from channels.web.config import WebConfig
from gateway.config.problems import Key
from gateway.config.server import filled
from tools.catalog import offered
from tools.config import ExecMode, effective_exec

if TYPE_CHECKING:
    from gateway.config.root import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelType:
    """`name` is its section in the config. An account is a model of that section's."""

    name: str
    accounts: Callable[[Any], Mapping[str, Any]]
    """The configured accounts of a section, by name."""
    channel: Callable[[Any, str, "ChannelDeps"], Channel]
    keys: tuple[str, ...] = ()
    """What must be set before an account is one."""
    bot: Callable[[Any], str] = lambda account: ""
    """Which bot an account is: no two may be the same."""
    bot_key: str = ""
    bot_word: str = ""
    arrives: Callable[[Any, str, "Config"], str]
    """How its events arrive, for the report: of an account, its name, and the whole config."""
    problems: Callable[[Any], Iterable[tuple[str, str]]] = lambda account: ()
    """What must be mended in an account, as key and sentence."""
    warnings: Callable[[Any], Iterable[str]] = lambda account: ()
    """What works but deserves a look."""
    address: Callable[[Any], str] = lambda account: ""
    """Where its platform answers."""
    probe: Callable[[Any, str, "Config", float], Awaitable[list[Finding]]] | None = None
    """What the platform says of an account: of it, its name, the whole config and the time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChannelDeps:
    """What a channel may stand on besides its own config."""

    config: "Config"
    archive: ChatHistory
    sessions: Sessions
    now: Callable[[], float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Account:
    """A configured account, and the place where it is written."""

    kind: ChannelType
    name: str
    config: Any
    key: Key


def configured(channels: "ChannelsConfig") -> Iterator[Account]:
    """Every account of every channel that is switched on."""
    for kind in channels.kinds.values():
        section = getattr(channels, kind.name)
        for name, config in kind.accounts(section).items() if section is not None else ():
            beneath = named_accounts(section).get(name) == config
            place: Key = ("channels", kind.name, "accounts", name) if beneath else ("channels", kind.name)
            yield Account(kind=kind, name=name, config=config, key=place)


def account_names(channels: "ChannelsConfig") -> dict[str, list[str]]:
    """The channels there can be, and their accounts, whether in use or not."""
    return {name: ["default", *named_accounts(getattr(channels, name))] for name in channels.kinds}


def named_accounts(section: Any) -> Mapping[str, Any]:
    """What stands under `accounts`, where a section has that and is there."""
    accounts: Mapping[str, Any] = getattr(section, "accounts", {})
    return accounts


def _feishu_arrives(account: feishu.FeishuAccount, name: str, config: "Config") -> str:
    if feishu.listens(account, config.server.public_url):
        return f"app {account.app_id}, long connection — choose 使用长连接接收事件 in the developer console"
    step = "enter it as the request URL in the developer console"
    if config.server.public_url is None:
        step = "set server.publicUrl to the address under which Feishu reaches this server"
    return f"app {account.app_id}, webhook {_webhook(config)}/feishu/{name} — {step}"


def _telegram_arrives(account: telegram.TelegramAccount, name: str, config: "Config") -> str:
    bot = f"bot {telegram.bot_of(account)}"
    if account.mode == "polling":
        return f"{bot}, polling"
    step = "Telegram is told of it at the start"
    if config.server.public_url is None:
        step = "set server.publicUrl, or mode: polling, which needs none"
    return f"{bot}, webhook {_webhook(config)}/telegram/{name} — {step}"


def approved_by_nobody(config: "Config") -> list[str]:
    """The agents whose commands somebody must approve, of whom none is named."""
    asking = [agent for agent in config.agents.list if exec_mode(config, agent) == "ask"]
    if config.owners or config.approvals.approvers is not None:
        return []
    return [agent.id for agent in asking if agent.approvals.approvers is None]


def _webhook(config: "Config") -> str:
    return f"{config.server.public_url or '<publicUrl>'}/webhooks"


def _web_arrives(account: web.WebConfig, name: str, config: "Config") -> str:
    server = config.server
    address = f"{server.public_url or server.address}/"
    match way_in(config):
        case "open" if agents := ", ".join(approved_by_nobody(config)):
            return f"{address}; whoever opens it on this machine approves commands of {agents}, as owners names nobody"
        case "open":
            return address
        case "link" if server.admin_token.get_secret_value():
            return f"{address}, with the admin token or the sign-in link of the start"
        case "link" if filled(server.users):
            return f"{address}, with a token of server.users or the sign-in link of the start"
        case "link":
            agents = ", ".join(commanding(config))
            return f"{address}, with the sign-in link of the start, as commands of {agents} run on this machine, too"
        case "token":
            own = "the admin token" if server.admin_token.get_secret_value() else "a token of server.users"
            return f"{address}, with {own}"
        case "closed":
            step = "set server.adminToken (CLAWGATE_ADMIN_TOKEN)"
            return f"closed, as the server can be reached from elsewhere — {step}"


def _web_channel(account: web.WebConfig, name: str, deps: ChannelDeps) -> WebChannel:
    server = deps.config.server
    admission = Admission(
        token=server.admin_token.get_secret_value(),
        users=filled(server.users),
        way=way_in(deps.config),
        sessions=deps.sessions,
        public_host=urlsplit(server.public_url).netloc if server.public_url else None,
        link_seconds=server.sign_in_link_seconds,
        now=deps.now,
    )
    return WebChannel(account, admission=admission, archive=deps.archive, now=deps.now)


CHANNEL_TYPES: dict[str, ChannelType] = {
    "web": ChannelType(
        name="web",
        accounts=web.accounts,
        channel=_web_channel,
        arrives=_web_arrives,
    ),
    "feishu": ChannelType(
        name="feishu",
        accounts=feishu.accounts,
        problems=feishu.problems,
        warnings=feishu.warnings,
        channel=lambda account, name, deps: FeishuChannel(account, name, deps.archive.file),
        keys=("appId", "appSecret"),
        bot=lambda account: str(account.app_id),
        address=lambda account: str(account.base_url),
        probe=lambda account, name, config, now: feishu_doctor.probe(account, name, config.server.public_url),
        bot_key="appId",
        bot_word="app",
        arrives=_feishu_arrives,
    ),
    "telegram": ChannelType(
        name="telegram",
        accounts=telegram.accounts,
        problems=telegram.problems,
        warnings=telegram.warnings,
        channel=lambda account, name, deps: TelegramChannel(account, name, deps.archive.file),
        keys=("botToken",),
        bot=telegram.bot_of,
        address=lambda account: str(account.api_root),
        probe=lambda account, name, config, now: telegram_doctor.probe(account, name, config.server.public_url, now),
        bot_key="botToken",
        bot_word="bot",
        arrives=_telegram_arrives,
    ),
}


class ChannelsConfig(BaseModel, extra="forbid", strict=True, frozen=True, alias_generator=to_camel):
    """The chat platforms."""

    kinds: ClassVar[Mapping[str, ChannelType]] = CHANNEL_TYPES

    feishu: FeishuConfig | None = None
    """Feishu, or Lark: keys directly here are the account `default`, further bots stand under `accounts`."""
    telegram: TelegramConfig | None = None
    """Telegram: keys directly here are the account `default`, further bots stand under `accounts`."""
    web: WebConfig | None = None
    """The web chat at `/`, in a browser."""


def way_in(config: "Config") -> Way:
    """Without a token, whoever is at this machine may come in only while no agent is."""
    has_token = bool(config.server.admin_token.get_secret_value() or filled(config.server.users))
    if config.server.is_open_here:
        return "link" if has_token or commanding(config) else "open"
    return "token" if has_token else "closed"


def commanding(config: "Config") -> list[str]:
    """The agents that run commands unasked."""
    return [agent.id for agent in config.agents.list if exec_mode(config, agent) == "allow"]


def sandboxed(config: "Config") -> list[str]:
    """The agents whose commands run in a sandbox, or not at all."""
    agents = [agent for agent in config.agents.list if exec_mode(config, agent) in ("ask", "allow")]
    return [it.id for it in agents if effective_exec(config.tools.exec, it.tools).sandbox == "auto"]


def exec_mode(config: "Config", agent: AgentConfig) -> ExecMode | None:
    """None where it runs no commands."""
    runs = {"exec", "process"} & {*offered(config.tools, agent.tools)}
    return effective_exec(config.tools.exec, agent.tools).mode if runs else None
