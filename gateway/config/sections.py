"""The sections of one config file, each read for itself: what is sound stands here, what is not is in the findings.

`agents.defaults` are merged into each agent before it is read, and every mistake is still reported where it was
written. Relative paths are counted from the config file's folder here, so that nobody later depends on the working
directory.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from agents.config import AgentConfig, AgentDefaults
from agents.providers.config import ModelConfig, ProviderConfig
from agents.providers.retry import RetryConfig
from channels.queue import QueueConfig
from gateway.config.channels import ChannelsConfig
from gateway.config.explain import not_a_mapping, unknown_key
from gateway.config.problems import Findings, Key
from gateway.config.reader import Reader, beneath
from gateway.config.root import (
    AgentsConfig,
    BindingConfig,
    Config,
    DatabaseConfig,
    LoggingConfig,
)
from gateway.config.server import ServerConfig
from gateway.config.shape import fields_of
from gateway.limits import LimitsConfig
from skills.config import SkillsConfig
from tools.config import ToolsConfig

Section = TypeVar("Section", bound=BaseModel)

_EXAMPLE = "add at least one agent: agents: { list: [ { id: assistant } ] }"


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """An agent, and where each of its values was written. `sound` is False where the id is only a stand-in."""

    config: AgentConfig
    origin: Callable[[Key], Key]
    sound: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Sections:
    """Everything readable of a file. `bindings` go with their index in the file."""

    root: type[Config]
    server: ServerConfig
    database: DatabaseConfig
    logging: LoggingConfig
    providers: dict[str, ProviderConfig]
    models: dict[str, ModelConfig]
    channels: ChannelsConfig
    defaults: AgentDefaults
    agents: tuple[Agent, ...]
    bindings: tuple[tuple[int, BindingConfig], ...]
    tools: ToolsConfig
    skills: SkillsConfig
    queue: QueueConfig
    retry: RetryConfig
    limits: LimitsConfig

    def config(self) -> Config:
        """The whole, once nothing is wrong with it."""
        return self.root(
            server=self.server,
            database=self.database,
            logging=self.logging,
            providers=self.providers,
            models=self.models,
            channels=self.channels,
            agents=AgentsConfig(defaults=self.defaults, list=tuple(agent.config for agent in self.agents)),
            bindings=tuple(binding for _, binding in self.bindings),
            tools=self.tools,
            skills=self.skills,
            queue=self.queue,
            retry=self.retry,
            limits=self.limits,
        )


def read_sections(
    data: Mapping[str, Any], texts: Mapping[Key, str], folder: Path, home: str, findings: Findings, root: type[Config]
) -> Sections:
    """Read every section of `root`. Paths count from `folder`, `~` is `home`."""
    reader = _SectionReader(data, Reader(root, texts, findings), findings)
    for name in data:
        if name not in fields_of(root) and not name.startswith("x-"):  # a place for anchors
            unknown_key(root, (name,), findings)
    channels: type[ChannelsConfig] = type(root.model_fields["channels"].default)
    database = reader.section("database", DatabaseConfig)
    skills = reader.section("skills", SkillsConfig)
    defaults, agents = reader.agents()
    return Sections(
        root=root,
        server=reader.section("server", ServerConfig),
        database=_settled_database(database, folder, home),
        logging=reader.section("logging", LoggingConfig),
        providers=reader.named("providers", ProviderConfig),
        models=reader.named("models", ModelConfig),
        channels=reader.section("channels", channels),
        defaults=defaults,
        agents=tuple(_settled(agent, folder, home) for agent in agents),
        bindings=reader.bindings(),
        tools=_settled_tools(reader.section("tools", ToolsConfig), folder, home),
        skills=skills.model_copy(
            update={"directories": tuple(resolved(name, folder, home) for name in skills.directories)}
        ),
        queue=reader.section("queue", QueueConfig),
        retry=reader.section("retry", RetryConfig),
        limits=reader.section("limits", LimitsConfig),
    )


def resolved(path: str, folder: Path, home: str) -> str:
    """An absolute path, `..` and symbolic links followed as far as they exist."""
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return os.path.realpath(folder / path)


def _settled_database(config: DatabaseConfig, folder: Path, home: str) -> DatabaseConfig:
    if config.path is None:
        return config
    return config.model_copy(update={"url": f"sqlite:///{resolved(config.path, folder, home)}"})


def _settled_tools(config: ToolsConfig, folder: Path, home: str) -> ToolsConfig:
    uploads = resolved(config.files.uploads_dir, folder, home)
    return config.model_copy(update={"files": config.files.model_copy(update={"uploads_dir": uploads})})


def _settled(agent: Agent, folder: Path, home: str) -> Agent:
    workspace = resolved(agent.config.workspace_dir.replace("{agent}", agent.config.id), folder, home)
    return Agent(
        config=agent.config.model_copy(update={"workspace_dir": workspace}), origin=agent.origin, sound=agent.sound
    )


@dataclass(frozen=True, slots=True)
class _SectionReader:
    data: Mapping[str, Any]
    reader: Reader
    findings: Findings

    def section(self, name: str, model: type[Section]) -> Section:
        """One section; its defaults where it is missing or nothing of it can be read."""
        data = self.data.get(name)
        read = None if data is None else self.reader.read(model, data, beneath(name))
        return model() if read is None else read

    def named(self, name: str, model: type[Section]) -> dict[str, Section]:
        """A section of blocks under names of the user's own."""
        data = self.data.get(name)
        if data is None:
            return {}
        return self.reader.read(dict[str, model], data, beneath(name)) or {}  # type: ignore[valid-type]

    def bindings(self) -> tuple[tuple[int, BindingConfig], ...]:
        found = []
        for index, data in enumerate(self._list(("bindings",), self.data.get("bindings"))):
            binding = self.reader.read(BindingConfig, data, beneath("bindings", index))
            if binding is not None:
                found.append((index, binding))
        return tuple(found)

    def agents(self) -> tuple[AgentDefaults, list[Agent]]:
        """The defaults, and the agents they are merged into."""
        data = self.data.get("agents")
        if not isinstance(data, dict):
            wrong = "missing" if data is None else "expected a mapping"
            self.findings.add(("agents",), not_a_mapping(data, f"{wrong} — {_EXAMPLE}"))
            return AgentDefaults(), []
        for name in data:
            if name not in fields_of(AgentsConfig):
                unknown_key(Config, ("agents", name), self.findings)
        base = {} if data.get("defaults") is None else data["defaults"]
        defaults = self.reader.read(AgentDefaults, base, beneath("agents", "defaults"))
        entries = self._list(("agents", "list"), data.get("list"))
        if not entries and isinstance(data.get("list"), list | None):
            self.findings.add(("agents", "list"), f"missing or empty — {_EXAMPLE}")
        found = [self._agent(index, entry, base) for index, entry in enumerate(entries)]
        return defaults or AgentDefaults(), [agent for agent in found if agent is not None]

    def _agent(self, index: int, entry: Any, base: Any) -> Agent | None:
        own: Key = ("agents", "list", index)
        if not isinstance(entry, dict):
            expected = "expected a mapping with at least an id, such as { id: assistant }"
            self.findings.add(own, not_a_mapping(entry, expected))
            return None
        inherited = base if isinstance(base, dict) else {}
        inherited = {name: value for name, value in inherited.items() if name in fields_of(AgentDefaults)}

        def origin(place: Key) -> Key:
            written_here = _written(entry, place) or not _written(inherited, place)
            return (*own, *place) if written_here else ("agents", "defaults", *place)

        stand_in = f"unnamed-{index}"
        config = self.reader.read(AgentConfig, merged(inherited, entry), origin, {"id": stand_in})
        if config is None:
            return None
        return Agent(config=config, origin=origin, sound=config.id != stand_in)

    def _list(self, key: Key, data: Any) -> list[Any]:
        if data is None or isinstance(data, list):
            return data or []
        self.findings.add(key, "expected a list: lines that begin with -")
        self.findings.broken(key)
        return []


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` on top of `base`: mappings key by key, everything else replaced. An empty block changes nothing."""
    result = dict(base)
    for name, value in over.items():
        beneath = result.get(name)
        if isinstance(beneath, dict) and (value is None or isinstance(value, dict)):
            result[name] = merged(beneath, value or {})
        else:
            result[name] = value
    return result


def _written(data: Any, place: Key) -> bool:
    try:
        for part in place:
            data = data[part]
    except (KeyError, IndexError, TypeError):
        return False
    return True
