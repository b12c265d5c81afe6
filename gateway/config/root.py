"""The root model of `config.yaml`, with the gateway's sections.

The models of channels, tools, skills, providers and agents are next to the code that they configure. `checks` validates
references between sections; `load` reads the file.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, StringConstraints, field_validator

from agents.config import AgentConfig, AgentDefaults, RetentionConfig
from agents.providers.config import IMPLIED, ModelConfig, ProviderConfig
from agents.providers.models import PricesConfig, money, shipped_prices
from agents.providers.retry import RetryConfig
from agents.speech import SpeechConfig
from agents.transcription import TranscriptionConfig
from agents.turn import Amount, Seconds, TurnLimits
from channels.access import AccessConfig
from channels.message import MessageContext
from channels.section import LocalPath, QueueConfig, Section
from gateway.config.budgets import BudgetsConfig, RatesConfig
from gateway.config.channels import ChannelsConfig, configured
from gateway.config.hooks import HookConfig, HookName
from gateway.config.schedules import ScheduleConfig
from gateway.config.server import ServerConfig
from gateway.observe.tracing import TracingConfig
from skills.catalog import SkillsConfig
from tools.config import PersonId, ToolsConfig
from tools.handover import HandoverConfig
from tools.mcp.config import McpConfig


class LimitsConfig(TurnLimits):
    parallel_turns: Amount = 64
    """Turns that run at the same time; more wait in the inbox."""
    pending_per_session: Amount = 50
    """Messages of one chat that may wait; one more is answered with "too many"."""
    pending_per_sender: Amount = 200
    """Messages of one sender that may wait, over all chats and topics; one more is answered with "too many". Commands have
    a separate limit of the same size."""
    pending_origins: Amount = 50
    """Messages from schedules, hooks, tasks and background commands that may wait in one conversation. Beyond it a
    schedule's run is skipped and counted, and a hook's event is answered with 429."""
    bot_rounds: Annotated[int, Field(ge=0, le=100)] = 3
    """Messages of bots in a group or topic that the bots of this gateway answer, together, without a message of a person
    to one of them in between; further ones get no answer."""
    file_bytes: Amount = 20_971_520
    """One file, to the agent or from it."""
    uploads_bytes: Amount = 209_715_200
    """Total size of one person's uploads to the web chat that are not sent yet. One that is not sent within a day is
    deleted."""
    event_streams: Amount = 100
    """Web chat pages connected to one replica at the same time; one more is asked to retry."""
    reply_parts: Amount = 20
    """Messages that one reply may be split into. A longer one is sent as its first message and the file `answer.md`."""
    delivery_seconds: Seconds = 600
    """Seconds for which a reply part is retried before it is marked failed and the chat continues."""
    schedules_per_person: Annotated[int, Field(ge=0, le=1_000)] = 20
    """Reminders and schedules that one person may have in one channel account; 0 for none."""
    schedule_min_minutes: Annotated[int, Field(ge=1, le=1_440)] = 5
    """The shortest interval between two runs of a person's schedule, in minutes."""
    unanswered_seconds: Seconds = 1800
    """Seconds after which an unanswered message makes the readiness check fail."""
    grace_seconds: Seconds = 25
    """Grace period after SIGTERM, in seconds, for running turns to reach a checkpoint."""
    tasks_per_chat: Amount = 4
    """Tasks (tool `task`) of one chat that run at the same time; at the limit the agent is asked to wait for one of
    them."""
    task_wait_seconds: Annotated[float, Field(gt=0, le=3600)] = 300
    """Seconds that a turn waits for a task with `wait`; then the task continues in the background and reports its end."""


Name = Annotated[str, StringConstraints(min_length=1)]
SurfaceName = Annotated[str, StringConstraints(pattern=r"^(?:dm|[a-z0-9_-]+:\S+)$")]
Audience = Literal["everyone", "owner", "off"]


class DatabaseConfig(Section):
    """The database of the inbox, the transcripts and the outbox."""

    url: Annotated[str, LocalPath()] = Field(default="sqlite:///./data/clawgate.db", repr=False)
    """`sqlite:///` and the file, for one process; the path is relative to the config file's folder, or absolute after
    a fourth slash. Or `postgresql://user:password@host/name`, for any number of replicas."""
    connections: Annotated[int, Field(ge=2, le=100)] = 8
    """PostgreSQL: the connection pool's size for one replica, in addition to the connection that holds its lease."""
    lease_seconds: Annotated[float, Field(ge=1, le=300)] = 15
    """PostgreSQL: seconds after which others take over the chats of a replica that hangs or lost its connection. A dead
    process is noticed within a second."""

    @field_validator("url")
    @classmethod
    def _known_database(cls, value: str) -> str:
        scheme, _, rest = value.partition("://")
        if scheme.partition("+")[0] in ("postgresql", "postgres"):
            url = f"postgresql://{rest}"
            try:
                urlsplit(url).port  # noqa: B018 - reading it is what checks it
            except ValueError:
                raise ValueError(
                    "the port is not a number; expected postgresql://user:password@host:5432/name"
                ) from None
            return url
        file = rest.removeprefix("/")
        if scheme != "sqlite" or not rest.startswith("/") or not file:
            expected = "expected sqlite:///./data/clawgate.db, or postgresql://user:password@host/name"
            raise ValueError(expected)
        if ":memory:" in file or "?" in file or "#" in file or file.endswith("/"):
            raise ValueError("the database must be a plain file, or nothing accepted would survive a restart")
        return value

    @property
    def path(self) -> str | None:
        """Return SQLite's file, absolute once the config is loaded; None for PostgreSQL."""
        return self.url.removeprefix("sqlite:///") if self.url.startswith("sqlite:") else None

    @property
    def shown(self) -> str:
        """Return the database's URL without credentials, or SQLite's file."""
        return self.path or f"postgresql://{urlsplit(self.url).netloc.rpartition('@')[2]}{urlsplit(self.url).path}"


class LoggingConfig(Section):
    """The log, on standard error. Secrets are never in it, and message text only if `content` says so."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level to log."""
    format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object per line; `console`: human-readable; `auto`: `console` in a terminal, else `json`."""
    content: bool = False
    """`true` also logs messages and replies: for debugging only."""


class WatchConfig(Section):
    """The gateway's watch over itself, off unless `every` is set (docs/operate.md)."""

    every: str | None = None
    """The time between two checks of each account and model, such as `15m`, `6h` or `1d`; at least `1m`. Two misses in a
    row notify the owners."""
    model: bool = False
    """`true` also asks the first model of each agent for one token, which costs money."""

    @field_validator("every")
    @classmethod
    def _is_a_time(cls, value: str | None) -> str | None:
        if value is not None and not re.fullmatch(r"[1-9][0-9]{0,3}[mhd]", value):
            raise ValueError("expected a time such as 15m, 6h or 1d; at least 1m")
        return value

    @property
    def seconds(self) -> float:
        """Return the seconds between two rounds; 0 if the gateway does not watch itself."""
        return float(self.every[:-1]) * {"m": 60, "h": 3_600, "d": 86_400}[self.every[-1]] if self.every else 0.0


class ConsoleConfig(Section):
    """The operator's console (docs/layers.md)."""

    keep_days: Annotated[float, Field(ge=0, le=365)] = 7
    """Days to keep the layers of a turn: its event, route, prompt, requests, tool calls and timeline. 0 keeps none. Above 7,
    the inbox and the sent replies are kept as long."""


class AgentsConfig(Section):
    """The assistants."""

    defaults: AgentDefaults = AgentDefaults()
    """The settings that every agent starts from: mappings are merged key by key, lists and values are replaced."""
    list: Annotated[tuple[AgentConfig, ...], Field(min_length=1)]
    """The agents, at least one. The first one answers every message that no binding claims."""


class MatchConfig(Section):
    """The conditions under which a binding matches a message; an omitted key matches any."""

    channel: Name | None = None
    """The platform, such as `feishu`."""
    account: Name | None = None
    """The account on the platform, such as `default`."""
    chat_type: Literal["direct", "group"] | None = None
    """`direct` for chats with one person, `group` for all others."""
    chat: Name | None = None
    """The chat's id, such as `oc_…`."""
    thread: Name | None = None
    """The id of a topic inside a chat."""
    sender: Name | None = None
    """The sender's id, such as `ou_…`; never a name, which anyone can choose."""


class BindingConfig(Section):
    """The agent that answers certain messages. The most specific binding wins, at any place in the list."""

    agent: Name
    """The `id` of the agent that answers."""
    match: MatchConfig = MatchConfig()
    """The messages that it answers: sender counts more than thread, then chat, chatType, account, channel."""


class ApprovalsConfig(Section):
    """The approval of tool calls that need it, such as commands of `exec` (docs/approvals.md)."""

    approvers: tuple[PersonId, ...] | None = None
    """People as `channel:id`: `/whoami` prints it. By default the `owners`; no one if it is `[]`."""
    surfaces: tuple[SurfaceName, ...] = ("dm",)
    """The chats where approvers are asked: the request's direct chat if it is with an approver, else its group if that is
    listed here as `channel:chat`, else, with `dm`, the direct chat with each approver."""
    expiry_seconds: Annotated[float, Field(ge=30, le=3600)] = 600
    """Seconds until a pending request expires."""
    grant_days: Annotated[float, Field(gt=0, le=365)] = 30
    """Days for which `allow-always` is valid."""
    pending_per_session: Annotated[int, Field(ge=1, le=100)] = 5
    """Pending requests of one conversation; one more is refused, and the model sees why."""
    pending_per_agent: Annotated[int, Field(ge=1, le=1_000)] = 20
    """Pending requests of one agent, over all its conversations."""


class Config(Section):
    """The whole of `config.yaml`."""

    server: ServerConfig = ServerConfig()
    database: DatabaseConfig = DatabaseConfig()
    logging: LoggingConfig = LoggingConfig()
    """The log, on standard error."""
    tracing: TracingConfig = TracingConfig()
    """Traces for OpenTelemetry."""
    watch: WatchConfig = WatchConfig()
    """The gateway's watch over itself."""
    console: ConsoleConfig = ConsoleConfig()
    providers: dict[str, ProviderConfig] = {}
    """Model providers, by the name before the slash of `provider/model`. A well-known one needs no block if its key is
    in its usual variable; `demo` needs none at all."""
    channels: ChannelsConfig = ChannelsConfig()
    agents: AgentsConfig
    models: dict[str, ModelConfig] = {}
    """Properties and prices of models, by `provider/model` or by the model's name alone (docs/providers.md)."""
    currency: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")] = "USD"
    """The currency of all prices and costs, as three letters. The shipped prices are in `USD`; with another currency, set
    your models' prices under `models`."""
    owners: tuple[PersonId, ...] = ()
    """The people who run this bot, as `channel:id`, such as `feishu:ou_…` or `telegram:123456789`: `/whoami` prints yours.
    Without any, the person at this machine is the only owner, in the web chat."""
    notify_owners: bool = True
    """Notify owners in their direct chats, at most once an hour per cause, of pairing requests, of groups that the bot was
    added to, and of channels, models or edits of this file that are refused; and once a week, if answers were rated, of the
    counts."""
    commands: dict[str, Audience] = {}
    """The users allowed to use a chat command, by its name without the slash: `everyone`, `owner`, or no one (`off`)."""
    language: Literal["en", "zh"] = "en"
    """The language of the gateway's own sentences if a person's language is unknown. The start, `check`, `doctor` and
    `status` speak it, too; without this key, they speak the terminal's."""
    bindings: tuple[BindingConfig, ...] = ()
    """The agents that answer certain chats; without a binding, the first agent answers everything."""
    hooks: dict[HookName, HookConfig] = {}
    """Events of other systems, such as a build that failed: each is a request to `/hooks/NAME` (docs/hooks.md)."""
    approvals: ApprovalsConfig = ApprovalsConfig()
    """The people who approve the calls that need it."""
    tools: ToolsConfig = ToolsConfig()
    """The settings for the tools of every agent."""
    mcp: McpConfig = McpConfig()
    """The servers of the Model Context Protocol whose tools agents may have."""
    skills: SkillsConfig = SkillsConfig()
    """The folders that skills are read from."""
    queue: QueueConfig = QueueConfig()
    """The default handling of late messages, and of those that arrive while an earlier one is being answered."""
    retry: RetryConfig = RetryConfig()
    transcription: TranscriptionConfig = TranscriptionConfig()
    """The model that transcribes voice messages."""
    speech: SpeechConfig = SpeechConfig()
    """The model that speaks answers as voice messages, for every agent that does not override it."""
    limits: LimitsConfig = LimitsConfig()
    """Every limit of a turn and a chat."""
    schedules: tuple[ScheduleConfig, ...] = ()
    """Jobs that the bot runs at fixed times."""
    budgets: BudgetsConfig = BudgetsConfig()
    """Spending limits per day and month."""
    rates: RatesConfig = RatesConfig()
    """Rate limits for messages."""
    handover: HandoverConfig = HandoverConfig()
    """The chat whose people take chats over from the agents."""
    retention: RetentionConfig = RetentionConfig()
    """The age at which turns are erased. Unset: they are kept until an operator or their author erases them."""

    @property
    def retains(self) -> bool:
        """Return whether anything is erased by its age."""
        sections = (self.retention, *(it.retention for it in self.agents.list))
        return any(it.days is not None or it.chats for it in sections)

    def kept_days(self, place: str, agent: str = "") -> float | None:
        """Return for how many days the turns of a chat (`channel:account:chat`) with an agent are kept; None for ever. A
        chat outweighs `days`, and the agent's section the top level's."""
        channel, _, chat = place.split(":", 2)
        own = next((it.retention for it in self.agents.list if it.id == agent), RetentionConfig())
        sections = (own, self.retention)
        named = (it.chats[name] for it in sections for name in (place, f"{channel}:{chat}") if name in it.chats)
        return next(named, None) or next((it.days for it in sections if it.days is not None), None)

    @property
    def choosable_models(self) -> tuple[str, ...]:
        """Return every `provider/model` that `/model` offers: the agents' models, then those of `models` whose provider
        is configured."""
        listed = [model for agent in self.agents.list for model in agent.model]
        listed += [name for name in self.models if name.partition("/")[0] in self.providers and "/" in name]
        return tuple(dict.fromkeys(listed))

    @cached_property
    def remembered(self) -> dict[str, float]:
        """The groups whose messages are kept, as `channel:account:chat`, each with the seconds."""
        return {
            f"{it.kind.name}:{it.name}:{chat}": seconds
            for it in configured(self.channels)
            if isinstance(it.config, AccessConfig)
            for chat, seconds in it.config.remembered.items()
        }

    @property
    def tools_off(self) -> tuple[str, ...]:
        """The built-in tools that need a setting which is not made."""
        off = {"handover": not self.handover.to, "group_history": not self.remembered}
        return tuple(name for name, is_off in off.items() if is_off)

    @cached_property
    def routes(self) -> tuple[BindingConfig, ...]:
        """Return the bindings, then the agents that an account's `chats` name, as bindings."""
        within = [
            BindingConfig(agent=chat.agent, match=MatchConfig(channel=it.kind.name, account=it.name, chat=name))
            for it in configured(self.channels)
            if isinstance(it.config, AccessConfig)
            for name, chat in it.config.chats.items()
            if chat.agent is not None
        ]
        return (*self.bindings, *within)

    def approvers(self, agent: AgentConfig | None = None, owners: Collection[str] = ()) -> tuple[str, ...] | None:
        """Return who approves calls, for the agent if one is given; None if no one is named. Owners approve if there are no
        approvers: `owners`, or those of the config if not given."""
        own = None if agent is None else agent.approvals.approvers
        named = self.approvals.approvers if own is None else own
        return tuple(owners or self.owners) or None if named is None else named

    def prices(self, model: str, *, own: bool = True) -> PricesConfig | None:
        """Return the prices of `provider/model`: those under `models`, else the shipped ones. Without `own`, return None if
        `models` overrides the shipped prices."""
        name = model.partition("/")[2]
        written = self.models.get(model) or self.models.get(name)
        if written and written.prices:
            return written.prices if own else None
        return shipped_prices(name, self.currency)

    def is_demo(self, model: str) -> bool:
        """Return whether the built-in demo answers for `provider/model`, which costs nothing."""
        name = model.partition("/")[0]
        return ((it.api if (it := self.providers.get(name)) else None) or name) == "demo"

    def money(self, amount: float) -> str:
        """Format a cost in the config's currency."""
        return money(amount, self.currency)

    def price_days(self, models: Iterable[str]) -> tuple[str, ...]:
        """Return the distinct `as_of` dates of these models' prices, in order."""
        days = {prices.as_of for it in models if (prices := self.prices(it))}
        return tuple(sorted(days - {""}))

    def provider(self, name: str) -> ProviderConfig:
        """Return the provider's config, or the default one if it needs none. Raise KeyError if the name is unknown."""
        if name in IMPLIED and name not in self.providers:
            return ProviderConfig()
        return self.providers[name]


_STRONGEST_FIRST = ("sender", "thread", "chat", "chat_type", "account", "channel")


def route(bindings: Sequence[BindingConfig], agents: AgentsConfig, context: MessageContext) -> str:
    """Return the id of the agent with the most specific matching binding, else of the first agent. A key outweighs all
    weaker keys together. Among equally specific bindings, the first in the file wins."""
    found = holding(bindings, context)
    return max(found, key=lambda binding: specificity(binding.match)).agent if found else agents.list[0].id


def holding(bindings: Sequence[BindingConfig], context: MessageContext) -> Sequence[BindingConfig]:
    facts = {
        "sender": context.sender.id,
        "thread": context.chat.thread,
        "chat": context.chat.id,
        "chat_type": context.chat.kind,
        "account": context.account,
        "channel": context.channel,
    }
    return [
        binding
        for binding in bindings
        if all(wanted in (None, facts[key]) for key in _STRONGEST_FIRST for wanted in [getattr(binding.match, key)])
    ]


def specificity(match: MatchConfig) -> int:
    """Return a bit mask of the keys that are set, with the strongest key as the highest bit."""
    return sum(1 << place for place, key in enumerate(reversed(_STRONGEST_FIRST)) if getattr(match, key) is not None)
