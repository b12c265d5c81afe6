"""The sections of one config file, each read for itself: what is sound stands here, what is not is in the findings.

Which sections there are is the root model's affair alone. `agents.defaults` are merged into each agent before it is read,
and every mistake is still reported where it was written. Relative paths are counted from the config file's folder here,
so that nobody later depends on the working directory.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from pydantic.fields import FieldInfo

from agents.config import AgentConfig, AgentDefaults
from gateway.config.problems import Findings, Key
from gateway.config.reader import Reader, beneath, not_a_mapping, unknown_key
from gateway.config.root import AgentsConfig, BindingConfig, Config
from gateway.config.shape import fields_of

_EXAMPLE = "add at least one agent: agents: { list: [ { id: assistant } ] }"


@dataclass(frozen=True, kw_only=True, slots=True)
class Agent:
    """An agent, and where each of its values was written. `sound` is False where the id is only a stand-in."""

    config: AgentConfig
    origin: Callable[[Key], Key]
    sound: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Sections:
    """Everything readable of a file. `config` is the root without its agents, which may be none yet; `bindings` has the
    index in the file of each binding of it."""

    config: Config
    defaults: AgentDefaults
    agents: tuple[Agent, ...]
    bindings: tuple[int, ...]

    def whole(self) -> Config:
        """The root with its agents, once nothing is wrong with it."""
        agents = AgentsConfig(defaults=self.defaults, list=tuple(agent.config for agent in self.agents))
        return self.config.model_copy(update={"agents": agents})


def read_sections(
    data: Mapping[str, Any], texts: Mapping[Key, str], folder: Path, home: str, findings: Findings, root: type[Config]
) -> Sections:
    """Read every section of `root`. Paths count from `folder`, `~` is `home`."""
    reader = _SectionReader(data, Reader(root, texts, findings), findings)
    fields = fields_of(root)
    for name in data:
        if name not in fields and not name.startswith("x-"):  # a place for anchors
            unknown_key(root, (name,), findings)
    sections = {name: reader.section(name, fields[name]) for name in fields.keys() - {"agents", "bindings"}}
    bindings = dict(reader.bindings())
    config = root.model_construct(**sections, bindings=tuple(bindings.values()))
    defaults, agents = reader.agents()

    def resolve(path: str) -> str:
        return resolved(path, folder, home)

    return Sections(
        config=_settled(config, resolve),
        defaults=defaults,
        agents=tuple(_settled_agent(agent, resolve) for agent in agents),
        bindings=tuple(bindings),
    )


def resolved(path: str, folder: Path, home: str) -> str:
    """An absolute path, `..` and symbolic links followed as far as they exist."""
    if home and (path == "~" or path.startswith("~/")):
        path = home + path[1:]
    return os.path.realpath(folder / path)


def _settled(config: Config, resolve: Callable[[str], str]) -> Config:
    """With every path absolute."""
    file = config.database.path
    database = {} if file is None else {"url": f"sqlite:///{resolve(file)}"}
    skills = {"directories": tuple(map(resolve, config.skills.directories))}
    files = config.tools.files.model_copy(update={"uploads_dir": resolve(config.tools.files.uploads_dir)})
    changes = {
        "database": config.database.model_copy(update=database),
        "skills": config.skills.model_copy(update=skills),
        "tools": config.tools.model_copy(update={"files": files}),
    }
    return config.model_copy(update=changes)


def _settled_agent(agent: Agent, resolve: Callable[[str], str]) -> Agent:
    workspace = resolve(agent.config.workspace_dir.replace("{agent}", agent.config.id))
    return replace(agent, config=agent.config.model_copy(update={"workspace_dir": workspace}))


@dataclass(frozen=True, slots=True)
class _SectionReader:
    data: Mapping[str, Any]
    reader: Reader
    findings: Findings

    def section(self, name: str, field: FieldInfo) -> Any:
        """One section; its default where it is missing or nothing of it can be read."""
        data, kind = self.data.get(name), cast("type[Any]", field.annotation)
        read = None if data is None else self.reader.read(kind, data, beneath(name))
        return field.get_default(call_default_factory=True) if read is None else read

    def bindings(self) -> Iterator[tuple[int, BindingConfig]]:
        """Each by itself: one that cannot be read takes no other along."""
        for index, data in enumerate(self._list(("bindings",), self.data.get("bindings"))):
            binding = self.reader.read(BindingConfig, data, beneath("bindings", index))
            if binding is not None:
                yield index, binding

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
