"""What is configured, what is missing, and what to do next: the lines that start-up and `check` print.

Plain text, in the order of the sections, without secrets. Written for somebody who has just typed `make run`.
"""

from collections.abc import Iterator
from pathlib import Path

from agents.config import AgentConfig
from agents.providers.catalog import needs_key
from gateway.config.channels import KINDS, Kind, configured
from gateway.config.load import Loaded
from gateway.config.problems import Key
from gateway.config.root import Config
from gateway.config.warnings import advice
from tools.catalog import NAMES
from tools.policy import allowed


def report(loaded: Loaded) -> list[str]:
    """One line a fact; those that ask for a step begin with `warning:` or name the step behind a dash."""
    return [
        *_server(loaded.config),
        *_channels(loaded),
        *_providers(loaded),
        *(_agent(agent, loaded) for agent in loaded.config.agents.list),
        *_hidden_skills(loaded),
        *_demo(loaded.config),
        *(f"warning: {warning}" for warning in loaded.warnings),
    ]


def _server(config: Config) -> Iterator[str]:
    server = config.server
    public = server.public_url or "no publicUrl"
    yield f"server: http://{_bracketed(server.host)}:{server.port}, {public}, database {_short(config.database.shown)}"


def _channels(loaded: Loaded) -> Iterator[str]:
    channels = loaded.config.channels
    found = list(configured(channels))
    public_url = loaded.config.server.public_url or "<publicUrl>"
    for kind in KINDS.values():
        section = getattr(channels, kind.name)
        if section is not None and not section.enabled:
            yield f"{kind.name}: switched off (channels.{kind.name}.enabled)"
            continue
        accounts = [account for account in found if account.kind is kind]
        for account in accounts:
            yield f"{kind.name} {account.name}: {kind.arrives(account.config, account.name, public_url)}"
        if not accounts:
            step = _missing(kind, loaded)
            yield f"{kind.name}: not configured — {step}; channels/{kind.name}/README.md shows where to find it"


def _missing(kind: Kind, loaded: Loaded) -> str:
    *others, last = kind.keys
    keys = f"{', '.join(others)} and {last}" if others else last
    if getattr(loaded.config.channels, kind.name) is None:
        return f"add {keys} under channels.{kind.name}"
    named = [name for key in kind.keys for name in loaded.names.get(("channels", kind.name, key), ())]
    return f"set {', '.join(named)}" if named else f"set {keys} under channels.{kind.name}"


def _providers(loaded: Loaded) -> Iterator[str]:
    config = loaded.config
    used = {model.partition("/")[0] for agent in config.agents.list for model in agent.model}
    unused = {name: told for name, told in config.providers.items() if name not in used}
    idle = sorted(name for name, told in unused.items() if not told.keys and needs_key(name, told))
    for name in sorted({*config.providers, *used} - {*idle}):
        provider = config.provider(name)
        if (provider.api or name) == "demo":
            continue
        key: Key = ("providers", name, "apiKey")
        if provider.keys:
            state = "key set" if len(provider.keys) == 1 else f"{len(provider.keys)} keys set"
        elif needs_key(name, provider):
            state = f"no key — {advice(key, loaded.names)}"
        else:
            state = f"needs no key, at {provider.base_url or 'its usual address'}"
        yield f"provider {name}: {state if name in used else f'{state} (no agent uses it)'}"
    if idle:
        yield f"providers {', '.join(idle)}: no key, and no agent uses them"


def _agent(agent: AgentConfig, loaded: Loaded) -> str:
    tools = " ".join(allowed(agent.tools, NAMES)) or "none"
    skills = " ".join(skill.name for skill in loaded.skills[agent.id].usable) or "none"
    models = ", then ".join(agent.model)
    return f"agent {agent.id}: {models}; tools {tools}; skills {skills}; workspace {_short(agent.workspace_dir)}"


def _hidden_skills(loaded: Loaded) -> Iterator[str]:
    hidden = {skill.name: skill for skills in loaded.skills.values() for skill in skills.hidden}
    for name, skill in sorted(hidden.items()):
        yield f"skill {name}: hidden — it needs {' and '.join(skill.missing)}"


def _demo(config: Config) -> Iterator[str]:
    guided = [agent.id for agent in config.agents.list if agent.model[0].partition("/")[0] == "demo"]
    if guided:
        yield (
            f"model demo/guide: a script, not a model, answers as {', '.join(guided)} — for a real one set "
            "CLAWGATE_MODEL=anthropic/claude-sonnet-4-6 and ANTHROPIC_API_KEY, or agents.defaults.model"
        )


def _short(path: str) -> str:
    """Beneath the working directory, without it."""
    try:
        return f"./{Path(path).relative_to(Path.cwd())}"
    except ValueError:
        return path


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
