"""Build the parts of one config (channels, providers, runners, queues) as one `Setup` that is swapped in as a whole.

A new config reuses what is unchanged: a channel with the same account keeps its connection and its state. A provider of the
same name is kept for running turns; its next request follows the new config.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from agents.acp.agent import AcpAgents
from agents.model import Models
from agents.prompt.fences import harmless
from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig, api_of
from agents.providers.network import NetworkProvider
from agents.providers.provider import Provider
from agents.runner import AgentRunner
from channels.api.channel import ApiChannel
from channels.channel import Channel
from channels.web.live import LiveTurns
from gateway.approvals.questions import Questions
from gateway.commands.catalog import ListedCommands
from gateway.config.channels import Account, ChannelDeps, configured, named_accounts
from gateway.config.exposure import exposure
from gateway.config.load import skill_catalog
from gateway.config.root import Config
from gateway.later.ends import CommandEnds
from gateway.later.logins import Logins
from gateway.later.schedule import StoredSchedules
from gateway.observe.metrics import Metrics
from gateway.observe.secrets import Scrubber, secrets_in, secrets_of
from gateway.outbox.messenger import ChannelMessenger
from gateway.program import VERSION
from gateway.state.owners import Claimed, Owners
from gateway.state.queues import Queues
from gateway.state.reasons import ToolLayers
from gateway.state.runtime import Setup
from gateway.store.store import Store
from gateway.turns.groups import KeptGroups
from gateway.turns.handovers import Handovers
from gateway.turns.memory import StoredMemory
from gateway.turns.tasks import Tasks
from tools.catalog import NAMES, ToolPorts, own_tools
from tools.mcp.server import Environment, McpServers
from tools.process import Processes
from tools.sandbox.sandbox import Sandbox

FIXED = ("database", "server.host", "server.port", "tracing")
"""Keys that a running gateway cannot change."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Lasting:
    """The parts that outlive each config; every setup is built with them. `wake` looks for due work."""

    store: Store
    scrubber: Scrubber
    sandbox: Sandbox
    now: Callable[[], float]
    wake: Callable[[], None]
    metrics: Metrics = field(default_factory=Metrics)
    live: LiveTurns = field(default_factory=LiveTurns)
    tasks: Tasks = field(default_factory=Tasks)
    ends: CommandEnds = field(default_factory=CommandEnds)
    logins: Logins = field(default_factory=Logins)
    questions: Questions = field(default_factory=Questions)
    handovers: Handovers = field(default_factory=Handovers)


def build_setup(config: Config, environment: Mapping[str, str], lasting: Lasting, before: Setup | None = None) -> Setup:
    """Build the setup, reusing unchanged parts of `before`, which is not modified until `adopt`. Raises OSError if a
    workspace cannot be opened."""
    store, now, metrics = lasting.store, lasting.now, lasting.metrics
    lasting.scrubber.learn(secrets_of(config))
    metrics.tools, metrics.servers = (*NAMES, *own_tools(config.tools).names), tuple(config.mcp.servers)
    deps = ChannelDeps(
        facts=None, archive=store.archive, files=store.files, sessions=store.sessions, live=lasting.live, now=now
    )
    channels = dict(_channels(config, deps, before))
    providers = dict(_providers(config, before))
    processes = before.processes if before else Processes(config.tools.process, now, lasting.ends)
    web, path = config.tools.web.fetch, environment.get("PATH", "")
    beside = Environment(
        sandbox=lasting.sandbox,
        path=path,
        web=web,
        reviews=store.reviews,
        identities=lasting.logins,
        version=VERSION,
        now=now,
    )
    mcp = McpServers(config.mcp, beside, harmless, before.mcp if before else None)
    acp = before.acp if before else AcpAgents(beside)
    owners = Owners(config.owners, before.owners.claimed if before else Claimed(store.owners))
    models = _models(config, providers, before)
    memory = StoredMemory(store, config.server.zone)
    memory.setup = setup = Setup(
        config=config,
        channels=channels,
        providers=providers,
        runners=_runners(config, environment, lasting, owners, models, channels, processes, mcp, memory, acp),
        queues=Queues(config.queue, channels, config.agents.list),
        layers=ToolLayers(config, owners),
        owners=owners,
        processes=processes,
        mcp=mcp,
        acp=acp,
    )
    return setup


def _models(config: Config, providers: Mapping[str, Provider], before: Setup | None) -> Models:
    shared = Models(providers, config.providers, config.models, config.retry, config.currency)
    if before:
        learnt = next(iter(before.runners.values())).models
        shared.health, shared.calibration = learnt.health, learnt.calibration
    return shared


def _runners(
    config: Config,
    environment: Mapping[str, str],
    lasting: Lasting,
    owners: Owners,
    models: Models,
    channels: Mapping[tuple[str, str], Channel],
    processes: Processes,
    mcp: McpServers,
    memory: StoredMemory,
    acp: AcpAgents,
) -> dict[str, AgentRunner]:
    store, scrubber, now, zone = lasting.store, lasting.scrubber, lasting.now, config.server.zone
    ports = ToolPorts(
        messenger=ChannelMessenger(
            channels=channels,
            scrubber=scrubber,
            store=store,
            metrics=lasting.metrics,
            file_bytes=config.limits.file_bytes,
            now=now,
        ),
        memory=memory,
        processes=processes,
        delegate=lasting.tasks,
        schedules=StoredSchedules(store=store, config=config, now=now, wake=lasting.wake),
        identities=lasting.logins,
        answers=lasting.questions,
        handovers=lasting.handovers if config.handover.to else None,
        groups=KeptGroups(store=store, channels=channels, zone=zone, now=now) if config.remembered else None,
        sandbox=lasting.sandbox,
    )
    build_runner = partial(
        AgentRunner,
        models=models,
        catalog=skill_catalog(config, environment),
        tools_config=config.tools,
        ports=ports,
        language=config.language,
        limits=config.limits,
        scrub=scrubber.scrub,
        now=now,
        zone=zone,
        commands=ListedCommands(config, owners),
        choosable=config.choosable_models,
        servers=mcp,
        acp=acp,
    )
    return {agent.id: build_runner(agent) for agent in config.agents.list}


def adopt(setup: Setup, before: Setup) -> None:
    """Switch the providers that turns hold to the new config; revoke the key of a removed one."""
    setup.processes.config = setup.config.tools.process
    for name, provider in before.providers.items():
        if not isinstance(provider, NetworkProvider):
            continue
        if setup.providers.get(name) is not provider:
            provider.revoke()
        elif before.config.provider(name) != (config := setup.config.provider(name)):
            new = build_provider(name, config)
            assert isinstance(new, NetworkProvider)
            provider.adopt(new)


def _providers(config: Config, before: Setup | None) -> Iterator[tuple[str, Provider]]:
    models = {*config.choosable_models, *(it for agent in config.agents.list for it in agent.named_models.values())}
    for name in sorted({model.partition("/")[0] for model in models}):
        yield name, _provider(name, config.provider(name), before.providers.get(name) if before else None)


def _provider(name: str, config: ProviderConfig, before: Provider | None) -> Provider:
    if isinstance(before, NetworkProvider) and before.api == api_of(name, config):
        return before
    return build_provider(name, config)


def _channels(config: Config, deps: ChannelDeps, before: Setup | None) -> Iterator[tuple[tuple[str, str], Channel]]:
    known = _made_of(before.config) if before else {}
    for key, (account, own, facts) in _made_of(config).items():
        if before is not None and key in known and (own, facts) == known[key][1:]:
            yield key, before.channels[key]
        else:
            yield key, account.kind.channel(account.config, account.name, replace(deps, facts=facts))
    for name in config.server.api.open:
        key = ApiChannel.name, name
        yield key, before.channels[key] if before and key in before.channels else ApiChannel(name, deps.files.load)


def _made_of(config: Config) -> dict[tuple[str, str], tuple[Account, Any, Any]]:
    shown, found = exposure(config), {}
    for it in configured(config.channels):
        own = it.config.but(accounts={}) if named_accounts(it.config) else it.config
        found[it.kind.name, it.name] = it, own, it.kind.facts(shown)
    return found


def restart_keys(config: Config, started_with: Config) -> tuple[str, ...]:
    return tuple(key for key in FIXED if _at(config, key) != _at(started_with, key))


def loaded_over(config: Config, running: Config) -> Config:
    """Return the config with the running values of keys that cannot change."""
    server = config.server.but(host=running.server.host, port=running.server.port)
    return config.but(server=server, database=running.database, tracing=running.tracing)


def _at(config: Config, key: str) -> Any:
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


def version_of(config: Config) -> str:
    """Return 12 hex digits that identify the config in force, equal on replicas with the same config."""
    facts = config.model_dump(mode="json", exclude={"database": True, "server": {"host", "port"}})
    secrets = sorted((repr(key), secret) for key, secret in secrets_in(config) if key[0] != "database")
    own = own_tools(config.tools).digest
    return hashlib.sha256(json.dumps([facts, secrets, *([own] if own else [])], sort_keys=True).encode()).hexdigest()[
        :12
    ]


def changes(new: Config, old: Config) -> list[str]:
    """List the keys that differ; agents by id and channels by name."""
    keys = []
    for name, it in type(new).model_fields.items():
        if name not in ("agents", "channels") and getattr(new, name) != getattr(old, name):
            keys.append(it.alias or name)
    before, after = ({agent.id: agent for agent in config.agents.list} for config in (old, new))
    keys += [f"agents.{name}" for name in sorted(before.keys() | after.keys()) if before.get(name) != after.get(name)]
    if [*before] != [*after] and sorted(before) == sorted(after):
        keys.append("agents")
    kinds = type(new.channels).kinds
    keys += [f"channels.{kind}" for kind in kinds if getattr(new.channels, kind) != getattr(old.channels, kind)]
    return keys
