"""Read a config file: bytes, YAML, references, sections, checks, and either a whole config or every problem at once.

Nothing here remembers anything: the same file and environment give the same config, and a file that cannot be used
leaves nothing behind. Watching the file for changes is `gateway.app.serve`.
"""

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from channels.bilingual import Finding
from gateway.config.checks import check
from gateway.config.dotenv import DOTENV, faults, over_file
from gateway.config.expand import Expansion
from gateway.config.explain import not_a_mapping
from gateway.config.folders import check_folders, check_tool_folders
from gateway.config.keys import Resolved, resolve_models
from gateway.config.paths import with_absolute_paths
from gateway.config.problems import ConfigErrors, Findings, Position, Problem
from gateway.config.reader import read
from gateway.config.root import Config
from gateway.config.warnings import warnings
from gateway.config.yaml import BYTES_MAX, Document, parse
from gateway.observe.secrets import redacted
from skills.catalog import Skill, SkillCatalog, visible
from tools.catalog import own_tools

SHIPPED_SKILLS = Path(__file__).resolve().parents[2] / "skills"


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigFile:
    """The file and the environment that a config is read from, now and after each change."""

    path: Path
    environment: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Loaded(Resolved):
    """A config that can be run. `skills` are those that each agent sees, `hidden_skills`
    those that it would see if their requirements were met."""

    warnings: tuple[Finding, ...]
    skills: Mapping[str, tuple[Skill, ...]]
    hidden_skills: Mapping[str, tuple[Skill, ...]]
    files: frozenset[Path]
    """The files that its texts were read from, besides the config file, or may be read from."""
    environment: Mapping[str, str] = field(repr=False)
    """The environment with what `.env` adds to it."""
    source: bytes = field(repr=False)
    """The file as it was read."""

    def listening(self, host: str, port: int) -> "Loaded":
        """Puts in the address that is listened on: the command line may say otherwise, and port 0 takes a free one."""
        return replace(self, config=self.config.but(server=self.config.server.but(host=host, port=port)))


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigReading:
    """A config as far as its file is sound, and the problems of the rest; no config if the file cannot be parsed."""

    loaded: Loaded | None
    problems: tuple[Problem, ...] = ()


def load(path: Path, env: Mapping[str, str], *, root: type[Config] = Config) -> Loaded:
    """The config in `path`, with `env` as the environment, over the `.env` in its folder. Raises ConfigErrors with all
    problems of the file. A `root` with other channels in its section `channels` reads and runs those."""
    reading = read_config(path, env, root=root)
    if reading.loaded is None or reading.problems:
        raise ConfigErrors(reading.problems)
    return reading.loaded


def read_config(
    path: Path, env: Mapping[str, str], *, source: bytes | None = None, root: type[Config] = Config
) -> ConfigReading:
    """Read the config as `load` does, and keep what is sound if there are problems. `source` is read in place of the file,
    which may be gone: there are no warnings of it then."""
    findings = Findings(str(path))
    folder = path.parent.resolve()  # of the link, if the file is one: mounted configs often are
    home = env.get("HOME", "")
    env = over_file(folder / DOTENV, env)
    expansion = Expansion(folder, env, findings)
    expansion.note(folder / DOTENV)
    content = _content(path, findings) if source is None else source
    document = None if content is None else _parsed(content, findings, expansion)
    if content is None or document is None:
        return ConfigReading(loaded=None, problems=_problems(findings, folder))
    config = with_absolute_paths(read(root, document, findings), folder, home)
    chosen = resolve_models(config, expansion.names, env, findings)
    config = chosen.config
    agents = {agent.id: (Path(agent.workspace_dir), agent.skills) for agent in config.agents.list}
    catalog = skill_catalog(config, env)
    config = check_tool_folders(config, findings)
    check(config, {name: catalog.names(workspace) for name, (workspace, _) in agents.items()}, findings)
    check_folders(config, path, home, findings)
    is_sound = not findings.problems
    warned = warnings(chosen, path, findings, expansion.warnings) if is_sound and source is None else ()
    loaded = Loaded(
        config=config,
        warnings=tuple(it.cleaned(redacted) for it in warned),
        skills={name: visible(catalog.scan(workspace), config) for name, (workspace, config) in agents.items()},
        hidden_skills={
            name: visible(catalog.hidden(workspace), config) for name, (workspace, config) in agents.items()
        },
        files=frozenset(expansion.files) | own_tools(config.tools).files,
        environment=env,
        source=content,
        names=chosen.names,
        auto=chosen.auto,
        variables=chosen.variables,
    )
    return ConfigReading(loaded=loaded, problems=() if is_sound else _problems(findings, folder))


def _problems(findings: Findings, folder: Path) -> tuple[Problem, ...]:
    """The problems, and what of `.env` is not read: it may be why a variable is not set."""
    for message, fix in faults(folder / DOTENV):
        findings.at(Position(1, 1), (), f"{message} — {fix}")
    return findings.problems


def skill_catalog(config: Config, env: Mapping[str, str]) -> SkillCatalog:
    """The skills that ship, that were added, and of `skills.directories`; programs that a skill needs are looked for in
    `env`'s PATH."""
    added = Path(config.skills.added_dir)
    roots = [SHIPPED_SKILLS, added, *map(Path, config.skills.directories)]
    which = partial(shutil.which, path=env.get("PATH"))
    return SkillCatalog(roots=roots, env=env, which=which, platform=sys.platform, added=added)


def _content(path: Path, findings: Findings) -> bytes | None:
    try:
        with path.open("rb") as file:
            return file.read(BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a file name"
        findings.at(Position(1, 1), (), f"cannot be read: {reason} — name another with --config")
        return None


def _parsed(source: bytes, findings: Findings, expansion: Expansion) -> Document | None:
    document = parse(source, findings, expansion.fill)
    if document is None:
        return None
    names = {key: names for key, names in expansion.names.items() if any(map(expansion.env.get, names))}
    findings.locate(document.marks, names)
    if document.data is None and not findings.problems:
        return replace(document, data={})
    if not isinstance(document.data, dict):
        findings.add((), not_a_mapping(document.data, "expected keys and values, such as agents:"))
        return None
    return document
