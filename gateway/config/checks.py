"""Validation across sections: references that must exist, ids that must be unique, secrets that are required.

Each check reads the valid parts of the file and reports its problems independently. `warnings` covers questionable
settings, `folders` covers folders.

Ids from the documentation's examples are errors where they grant rights, since such an id may belong to a real user, who
would own the bot. Where an id only matches or addresses a chat, it is a warning.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any

from agents.config import AgentConfig, RetentionConfig
from agents.providers.config import IMPLIED, api_of
from agents.speech import SpeechConfig
from channels.access import ANYBODY, AccessConfig, is_blank, is_http
from channels.bilingual import Bilingual
from channels.message import ChatKind
from channels.moment import zone_of
from channels.section import ToolLists
from gateway.config.channels import Account, ChannelsConfig, account_names, configured, named_accounts, place_in
from gateway.config.commands import OWNER_ONLY, WORDS
from gateway.config.problems import Findings, Key, Warned, keyed, quoted, suggestion
from gateway.config.root import Config
from gateway.config.schedules import timing_of
from gateway.program import program
from skills.catalog import AgentSkillsConfig
from skills.lock import LOCK
from tools.catalog import NAMES, offered, own_tools
from tools.config import SearchConfig
from tools.policy import GROUPS, SERVERS, server_of

CLAIM = "remove it and /claim the bot with the code printed at startup, or list your own: /whoami prints it"
LISTEN = "remove it, and send /listen in your group"
LET_IN = "remove it: a person who writes gets a code, and you let them in"
YOUR_OWN = "name your own, or remove it"


def check(config: Config, skills: Mapping[str, Iterable[str]], findings: Findings) -> None:
    """Report all problems except those of folders. `skills` has the names of all skills, usable or not, by agent."""
    seen: set[str] = set()
    servers = [f"{SERVERS}{it}" for it in ("*", *config.mcp.servers)] if config.mcp.servers else []
    own = own_tools(config.tools)
    tools, anything = [*NAMES, *own.names, *servers], {"*", *own.lost}
    if not all(Path(it).is_dir() for it in config.tools.directories):  # a warning says so; its tools have any name
        anything |= {it for _, lists in _tool_lists(config) for it in (*(lists.allow or ()), *lists.deny)}
    for index, agent in enumerate(config.agents.list):
        key: Key = ("agents", "list", index)
        if agent.id in seen:
            findings.add((*key, "id"), f"two agents have the id {quoted(agent.id)} — each needs its own")
        seen.add(agent.id)
        _lists("skill", (*key, "skills"), agent.skills, list(skills.get(agent.id, ())), findings, lost=_lost(config))
        _names("tool", (*key, "tools", "approval"), agent.tools.approval, tools, findings, besides=own.lost)
        _tool_choice(key, agent, config, findings)
        _models(key, agent, config, findings)
        _targets(key, agent, config.channels, findings)
    for place, lists in _tool_lists(config):
        _lists("tool", place, lists, [*tools, *GROUPS], findings, besides=anything)
    _names("tool", ("tools", "ownerOnly"), config.tools.owner_only, [*tools, *GROUPS], findings, besides=anything)
    for name in ("approval", "taint"):  # a slip would leave a tool unguarded
        _names("tool", ("tools", name), getattr(config.tools, name), tools, findings, besides=own.lost)
    _web(config.tools.web.search, findings)
    _feishu(config, findings)
    if config.transcription.model_fields_set and not config.transcription.model:
        findings.add(("transcription", "model"), "missing: such as whisper-1, or remove the section")
    _speech(("speech",), config.speech, config, findings)
    for index, agent in enumerate(config.agents.list):
        if agent.speech.model_fields_set and agent.speech != config.agents.defaults.speech:
            _speech(("agents", "list", index, "speech"), agent.speech.over(config.speech), config, findings)
    _providers(config, findings)
    _bindings(config, findings)
    _accounts(config.channels, [agent.id for agent in config.agents.list], findings)
    _people(config, findings)
    _hooks(config, findings)
    _schedules(config, findings)
    _handover(config, findings)
    _retention(config, findings)
    refuse_examples(config, findings)


def _feishu(config: Config, findings: Findings) -> None:
    used, named = config.tools.feishu, account_names(config.channels).get("feishu", [])
    if used.areas and used.account not in named:
        findings.add(("tools", "feishu", "account"), _unknown("Feishu account", used.account, named))
    there = [it.name for it in configured(config.channels) if it.kind.name == "feishu"]
    for name, server in config.mcp.servers.items():
        if server.account and server.account not in there:
            place = ("feishu",) if server.feishu else ()
            findings.add(("mcp", "servers", name, *place), _unknown("Feishu account", server.account, there))


def _schedules(config: Config, findings: Findings) -> None:
    seen: set[str] = set()
    agents = [agent.id for agent in config.agents.list]
    for index, schedule in enumerate(config.schedules):
        key: Key = ("schedules", index)
        if schedule.id in seen:
            findings.add((*key, "id"), f"two schedules have the id {quoted(schedule.id)} — each needs its own")
        seen.add(schedule.id)
        if schedule.agent is not None and schedule.agent not in agents:
            findings.add((*key, "agent"), _unknown("agent", schedule.agent, agents))
        zone: tzinfo = UTC
        try:
            zone = zone_of(schedule.timezone or "UTC")
        except (KeyError, ValueError, OSError):
            findings.add((*key, "timezone"), "is no time zone — expected a name such as Europe/Berlin")
        try:
            timing_of(schedule.at, zone)
        except ValueError as error:
            findings.add((*key, "at"), str(error))
        try:
            place_in(config.channels, schedule.to)
        except ValueError as error:
            findings.add((*key, "to"), str(error))


def _handover(config: Config, findings: Findings) -> None:
    if not config.handover.to:
        if config.handover.model_fields_set:
            findings.add(("handover", "to"), "missing: the on-call chat, such as feishu:oc_team, or remove the section")
        return
    try:
        if place_in(config.channels, config.handover.to).channel == "web":
            raise ValueError("expected a chat on Feishu or Telegram, such as feishu:oc_team")
    except ValueError as error:
        findings.add(("handover", "to"), str(error))


def _retention(config: Config, findings: Findings) -> None:
    sections: dict[Key, RetentionConfig] = {("retention",): config.retention}
    sections |= {("agents", "list", index, "retention"): it.retention for index, it in enumerate(config.agents.list)}
    for key, section in sections.items():
        for chat in section.chats:
            try:
                if place_in(config.channels, chat).thread is not None:
                    raise ValueError("expected a whole chat: a topic is kept as long as its chat")
            except ValueError as error:
                findings.add((*key, "chats", chat), str(error), on="key")


def _people(config: Config, findings: Findings) -> None:
    for name, audience in config.commands.items():
        if name not in WORDS:
            findings.add(("commands", name), _unknown("command", name, WORDS), on="key")
        elif name in OWNER_ONLY and audience == "everyone":
            findings.add(("commands", name), "is never for everyone — expected owner or off")
    channels = {**account_names(config.channels), "api": []}
    surfaces = ((("approvals", "surfaces", index), it) for index, it in enumerate(config.approvals.surfaces))
    for key, name in (*_owners_and_approvers(config), *surfaces):
        channel, _, person = name.partition(":")
        if channel not in channels and name != "dm":
            findings.add(key, _unknown("channel", channel, channels))
        elif person == ANYBODY:
            findings.add(key, f"{key[-2]} are named one by one, as channel:id")
    for sender in config.tools.senders:
        if (channel := sender.partition(":")[0]) not in channels:
            findings.add(("tools", "senders", sender), _unknown("channel", channel, channels), on="key")


def _owners_and_approvers(config: Config) -> Iterator[tuple[Key, str]]:
    lists: dict[Key, Iterable[str] | None] = {
        ("owners",): config.owners,
        ("approvals", "approvers"): config.approvals.approvers,
    }
    for number, agent in enumerate(config.agents.list):
        lists["agents", "list", number, "approvals", "approvers"] = agent.approvals.approvers
    yield from (((*key, index), name) for key, names in lists.items() for index, name in enumerate(names or ()))


def _hooks(config: Config, findings: Findings) -> None:
    agents = [agent.id for agent in config.agents.list]
    for name, hook in config.hooks.items():
        if is_blank(hook.secret):
            message = "missing: without it anybody could call it. Set a long random word, such as the output of "
            findings.add(("hooks", name, "secret"), message + "`openssl rand -hex 32`")
        try:
            place_in(config.channels, hook.to)
        except ValueError as error:
            findings.add(("hooks", name, "to"), str(error))
        acts = [it for it in ("say", "task") if getattr(hook, it) is not None]
        if len(acts) != 1 and all(findings.is_sound(("hooks", name, it)) for it in ("say", "task")):
            findings.add(
                ("hooks", name), "expected either `say`, which is sent as it is, or `task`, which an agent does"
            )
        if hook.agent is not None and acts == ["say"]:
            findings.add(("hooks", name, "agent"), "goes with `task`: a `say` asks no model")
        elif hook.agent is not None and hook.agent not in agents:
            findings.add(("hooks", name, "agent"), _unknown("agent", hook.agent, agents))


def _unknown(what: str, name: str, known: Iterable[str]) -> str:
    return f"unknown {what} {quoted(name)}{suggestion(name, known)}"


def _names(
    what: str,
    key: Key,
    names: Iterable[str] | None,
    known: Collection[str],
    findings: Findings,
    *,
    besides: Collection[str] = (),
    lost: str = "",
) -> None:
    for index, name in enumerate(names or ()):
        if name not in (*besides, *known) and SERVERS + server_of(name) not in known:
            message = _unknown(what, name, known)
            findings.add((*key, index), message if "did you mean" in message else message + lost)


def _lists(
    what: str,
    key: Key,
    lists: ToolLists | AgentSkillsConfig,
    known: Collection[str],
    findings: Findings,
    *,
    besides: Collection[str] = ("*",),
    lost: str = "",
) -> None:
    # `lost` ends the message about an unknown name in `allow`.
    _names(what, (*key, "allow"), lists.allow, known, findings, besides=besides, lost=lost)
    _names(what, (*key, "deny"), lists.deny, known, findings, besides=besides)


def _lost(config: Config) -> str:
    # A backup may be incomplete: without the lock, added skills are unknown.
    folder = Path(config.skills.added_dir)
    if (folder.parent / LOCK).is_file():
        return ""
    return f"; if it was added with `{program()} skills add`, restore {folder.name} and {LOCK}, or add it again"


def _tool_lists(config: Config) -> Iterator[tuple[Key, ToolLists]]:
    yield ("tools",), config.tools
    yield from ((("tools", "senders", sender), lists) for sender, lists in config.tools.senders.items())
    for index, agent in enumerate(config.agents.list):
        yield ("agents", "list", index, "tools"), agent.tools
    for key, _, account in _written_accounts(config.channels):
        yield (*key, "tools"), account.tools
        chats: Mapping[str, Any] = getattr(account, "chats", {})
        yield from (((*key, "chats", chat, "tools"), it.tools) for chat, it in chats.items())


def _written_accounts(channels: ChannelsConfig) -> Iterator[tuple[Key, str, Any]]:
    for name in channels.kinds:
        if (section := getattr(channels, name)) is not None:
            yield ("channels", name), name, section
            for it, account in named_accounts(section).items():
                yield ("channels", name, "accounts", it), name, account


def _web(search: SearchConfig, findings: Findings) -> None:
    key = ("tools", "web", "search")
    if search.provider in ("brave", "tavily") and is_blank(search.api_key):
        findings.add((*key, "apiKey"), f"missing: {search.provider} answers no request without a key")
    if search.base_url and not is_http(search.base_url):
        findings.add((*key, "baseUrl"), "must be an http or https URL")
    elif search.provider == "searxng" and not search.base_url:
        findings.add((*key, "baseUrl"), "missing: the address of your SearXNG, such as http://127.0.0.1:8888")


def _tool_choice(key: Key, agent: AgentConfig, config: Config, findings: Findings) -> None:
    wanted, tools = agent.tool_choice, offered(config.tools, agent.tools, off=config.tools_off)
    known = ("auto", "none", "required", *tools, *(it for it in agent.tools.allow or () if server_of(it)))
    if wanted in own_tools(config.tools).lost:
        return
    if wanted == "required" and not tools:
        findings.add((*key, "toolChoice"), "the agent has no tool that it could be required to call")
    elif wanted not in known:
        what = "expected auto, none, required or a tool the agent has"
        findings.add((*key, "toolChoice"), what + suggestion(wanted, known))


def _models(key: Key, agent: AgentConfig, config: Config, findings: Findings) -> None:
    known = sorted({*IMPLIED, *config.providers})
    for place, model in agent.named_models.items():
        provider = model.partition("/")[0]
        if provider not in known:
            findings.add((*key, *place), _unknown("provider", provider, known))


def _speech(key: Key, speech: SpeechConfig, config: Config, findings: Findings) -> None:
    name, _, model = speech.model.partition("/")
    if not speech.model:
        if speech.mode != "off":
            findings.add((*key, "model"), "missing: such as openai/gpt-4o-mini-tts, or set mode: off")
        return
    known = sorted({*IMPLIED, *config.providers})
    if not model:
        findings.add((*key, "model"), "expected provider/model, such as openai/gpt-4o-mini-tts")
    elif name not in known:
        findings.add((*key, "model"), _unknown("provider", name, known))
    elif not _speaks_openai(name, config):
        findings.add((*key, "model"), f"the provider {quoted(name)} has no /audio/speech; use one with OpenAI's API")


def _speaks_openai(name: str, config: Config) -> bool:
    try:
        return api_of(name, config.provider(name)) in ("openai-chat", "openai-responses")
    except ValueError:  # reported with the provider
        return True


def _targets(key: Key, agent: AgentConfig, channels: ChannelsConfig, findings: Findings) -> None:
    known = account_names(channels)
    for index, target in enumerate(agent.tools.message.targets):
        place = (*key, "tools", "message", "targets", index)
        parts = target.split(":")
        if len(parts) not in (2, 3) or not all(parts):
            findings.add(place, "expected channel:chat or channel:account:chat, such as feishu:oc_0123456789abcdef")
        elif parts[0] not in known:
            findings.add(place, _unknown("channel", parts[0], known))
        elif len(parts) == 3 and parts[1] not in known[parts[0]]:
            findings.add(place, _unknown("account", parts[1], known[parts[0]]))


def _providers(config: Config, findings: Findings) -> None:
    for name, provider in config.providers.items():
        key = ("providers", name)
        try:
            if "/" in name or not name.strip():
                raise ValueError("a provider's name is the part before the slash of provider/model and has no slash")
            api_of(name, provider)
        except ValueError as error:
            findings.add(key, str(error), on="key")


def _bindings(config: Config, findings: Findings) -> None:
    agents = [agent.id for agent in config.agents.list]
    is_every_id_known = all(findings.is_sound(("agents", "list", index, "id")) for index in range(len(agents)))
    programs = [*config.server.api.tokens]
    channels = account_names(config.channels) | ({"api": programs} if programs else {})
    for index, binding in enumerate(config.bindings):
        if is_every_id_known and binding.agent not in agents:
            findings.add(("bindings", index, "agent"), _unknown("agent", binding.agent, agents))
        channel, account = binding.match.channel, binding.match.account
        if channel is not None and channel not in channels:
            findings.add(("bindings", index, "match", "channel"), _unknown("channel", channel, channels))
            continue
        names = channels[channel] if channel is not None else sorted({n for of in channels.values() for n in of})
        if account is not None and account not in names:
            findings.add(("bindings", index, "match", "account"), _unknown("account", account, names))


def _accounts(channels: ChannelsConfig, agents: Sequence[str], findings: Findings) -> None:
    found = list(configured(channels))
    for account in found:
        for key, message in account.kind.problems(account.config):
            findings.add((*account.key, *key), message)
        for chat, within in account.config.chats.items() if isinstance(account.config, AccessConfig) else ():
            if within.agent is not None and within.agent not in agents:
                findings.add((*account.key, "chats", chat, "agent"), _unknown("agent", within.agent, agents))
    first: dict[tuple[str, str], Account] = {}
    for account in found:
        kind = account.kind
        other = first.setdefault((kind.name, kind.bot(account.config)), account)
        if other is not account:
            what = f"the same {kind.bot_word} as account {quoted(other.name)} — each bot needs its own"
            findings.add((*account.key, kind.bot_key), what)
    for kind in channels.kinds.values():
        section = getattr(channels, kind.name)
        if "default" in named_accounts(section) and kind.bot(section).strip():
            findings.add(
                ("channels", kind.name, "accounts", "default"),
                f"the keys directly under {kind.name} are the account default already — give this one another name",
                on="key",
            )


def is_example(channels: ChannelsConfig, name: str, *kinds: ChatKind) -> bool:
    """Return whether the last part of `channel:id` or `channel:account:id` is an example's, of one of these kinds."""
    channel, _, rest = name.partition("#")[0].partition(":")
    kind = channels.kinds.get(channel)
    return kind is not None and kind.example(rest.rpartition(":")[2]) in (kinds or ("direct", "group"))


def refuse_examples(config: Config, findings: Findings) -> None:
    for key, name, fix in _granted(config):
        if is_example(config.channels, name):
            findings.add(key, f"is the example's id — {fix}")
    for key, place in _addressed(config):
        if is_example(config.channels, place, "direct"):
            findings.add(key, f"is the example's id, which may be a stranger's — {YOUR_OWN}")


def example_warnings(config: Config) -> Warned:
    for key, place in (*_matched(config), *_addressed(config)):
        if is_example(config.channels, place):
            message = Bilingual("is the example's id", "是示例中的 ID")
            fix = Bilingual(
                f"{YOUR_OWN}: `sessions list` shows your chats", "请换成你自己的（见 `sessions list`），或删除"
            )
            yield key, keyed(key, message), fix


def _granted(config: Config) -> Iterator[tuple[Key, str, str]]:
    """Yield the ids that grant a right, as `channel:id`, each with its key and the fix."""
    for index, agent in enumerate(config.agents.list):
        for number, target in enumerate(agent.tools.message.targets):
            yield ("agents", "list", index, "tools", "message", "targets", number), target, YOUR_OWN
    yield from ((key, name, CLAIM) for key, name in _owners_and_approvers(config))
    for key, channel, account in _people_accounts(config.channels):
        lists: list[tuple[Key, Iterable[str] | None, str]] = [
            (("allowFrom",), account.allow_from, LET_IN),
            (("groupAllowFrom",), account.group_allow_from, LISTEN),
            (("groupSenders",), account.group_senders, YOUR_OWN),
            *((("chats", chat, "senders"), it.senders, YOUR_OWN) for chat, it in account.chats.items()),
        ]
        for place, ids, fix in lists:
            yield from (((*key, *place, index), f"{channel}:{it}", fix) for index, it in enumerate(ids or ()))


def _matched(config: Config) -> Iterator[tuple[Key, str]]:
    """Yield the ids that only match messages, without granting a right."""
    for index, binding in enumerate(config.bindings):
        channels = [binding.match.channel] if binding.match.channel else [*config.channels.kinds]
        for name in ("chat", "sender"):
            yield from ((("bindings", index, "match", name), f"{it}:{getattr(binding.match, name)}") for it in channels)
    yield from ((("tools", "senders", sender), sender) for sender in config.tools.senders)
    for key, channel, account in _people_accounts(config.channels):
        yield from (((*key, "chats", chat), f"{channel}:{chat}") for chat in account.chats)


def _addressed(config: Config) -> Iterator[tuple[Key, str]]:
    yield ("handover", "to"), config.handover.to
    yield from ((("hooks", name, "to"), hook.to) for name, hook in config.hooks.items())
    yield from ((("schedules", index, "to"), it.to) for index, it in enumerate(config.schedules))
    yield from ((("approvals", "surfaces", index), it) for index, it in enumerate(config.approvals.surfaces))


def _people_accounts(channels: ChannelsConfig) -> Iterator[tuple[Key, str, AccessConfig]]:
    return (it for it in _written_accounts(channels) if isinstance(it[2], AccessConfig))
