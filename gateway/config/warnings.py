"""Settings that are allowed, but somebody should know of: the lines of start-up and `check` beside the facts.

Every line names the key and the next step; none holds a value that could be a secret.
"""

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from agents.config import AgentConfig
from agents.providers.catalog import needs_key
from agents.providers.config import known_models, serves_own_models
from agents.providers.models import facts_of
from channels.web.admission import is_loopback
from gateway.config.bindings import specificity
from gateway.config.channels import configured
from gateway.config.exposure import exec_mode
from gateway.config.keys import DEMO, Auto, Settled
from gateway.config.problems import Key, quoted, shown, suggestion
from gateway.config.root import Config
from gateway.observe.redaction import secrets_in


def warnings(settled: Settled, file: Path, origin: Callable[[Key], Key]) -> Iterator[str]:
    """One line each. `origin` has the key under which a value was written."""
    config, names = settled.config, settled.names
    if config.logging.content:
        yield "logging.content: what people write and what they are answered is logged — set it to false when you are done"
    yield from _channels(config, names)
    yield from _providers(config, names)
    yield from dict.fromkeys(_models(config, origin))
    yield from _prices(config)
    yield from _auto(settled.auto, names)
    for agent in config.agents.list:
        yield from _exec(config, agent)
        if "web_search" in (agent.tools.allow or ()) and config.tools.web.search.provider is None:
            yield f"agent {agent.id}: there is no web_search as long as tools.web.search names no provider"
    yield from _skills(config)
    yield from _bindings(config)
    yield from _server(config)
    yield from _inline_secrets(config, file, names)
    yield from _writable(file.resolve())
    yield from _open_folders(config)


def _channels(config: Config, names: Mapping[Key, tuple[str, ...]]) -> Iterator[str]:
    for account in configured(config.channels):
        yield from (f"{shown(account.key)}: {warning}" for warning in account.kind.warnings(account.config))
        if getattr(account.config, "mode", "") == "polling" and config.database.path is None:
            message = "polling and several replicas do not go together: run one, or set mode: webhook"
            yield f"{shown(account.key)}: {message}"
    feishu = config.channels.feishu
    if feishu is None or not feishu.enabled or any(it.kind.name == "feishu" for it in configured(config.channels)):
        return
    if feishu.app_secret.get_secret_value().strip():
        key = ("channels", "feishu", "appId")
        yield f"{shown(key)}: is empty although appSecret is set, so Feishu stays off — {advice(key, names)}"


def _providers(config: Config, names: Mapping[Key, tuple[str, ...]]) -> Iterator[str]:
    """Providers that an agent uses and that cannot answer without a key."""
    users: dict[str, dict[str, None]] = {}
    for agent in config.agents.list:
        for model in agent.named_models.values():
            users.setdefault(model.partition("/")[0], {})[agent.id] = None
    for name, agents in sorted(users.items()):
        provider, key = config.provider(name), ("providers", name, "apiKey")
        if not provider.keys and needs_key(name, provider):
            step = advice(key, names)
            yield f"{shown(key)}: is empty, so {', '.join(agents)} cannot answer with {name} — {step}"


def _models(config: Config, origin: Callable[[Key], Key]) -> Iterator[str]:
    """Models that neither the table nor the config knows, although their vendor's should be known: likely slips."""
    for index, agent in enumerate(config.agents.list):
        for place, model in agent.named_models.items():
            provider, _, name = model.partition("/")
            if facts_of(name).known or {model, name} & config.models.keys():
                continue
            if serves_own_models(provider, config.provider(provider).base_url):
                near = suggestion(name, known_models())
                step = "a line under models: makes it known (docs/providers.md)"
                what = f"unknown model {quoted(name)}{f'{near} Otherwise' if near else ' —'} {step}"
                key = (*(step for step in place if isinstance(step, str)),)
                yield f"{shown(origin(('agents', 'list', index, *key)))}: {what}"


def _prices(config: Config) -> Iterator[str]:
    """A budget in money counts nothing for a model without prices."""
    whose = [name for name, budget in config.budgets if budget.cost_per_day is not None]
    named = dict.fromkeys(model for agent in config.agents.list for model in agent.model)
    free = [model for model in named if _is_without_price(config, model)]
    if whose and free:
        keys = ", ".join(f"budgets.{name}.costPerDay" for name in whose)
        step = f"set models: {{ {quoted(free[0])}: {{ prices: … }} }} (docs/providers.md)"
        yield f"{keys}: no price is known of {', '.join(free)}, so what they take costs nothing here — {step}"


def _is_without_price(config: Config, model: str) -> bool:
    name = model.partition("/")[2]
    written = config.models.get(model) or config.models.get(name)
    return (written is None or written.prices is None) and facts_of(name).prices is None


def _auto(auto: Auto, names: Mapping[Key, tuple[str, ...]]) -> Iterator[str]:
    """A key is set, but the agent still uses the demo model."""
    if not auto.agents or auto.model != DEMO:
        return
    step = advice(("agents", "defaults", "model"), names)
    for what, name in auto.passed_over:
        yield f"{what}, but auto cannot know which of its models you want — {step} to {name}/…"


def _exec(config: Config, agent: AgentConfig) -> Iterator[str]:
    mode = exec_mode(config, agent)
    if mode == "allow":
        yield f"agent {agent.id}: exec runs every command the model gives, without asking (tools.exec.mode: allow)"
    elif mode == "ask":
        named = config.approvers(agent)
        if named == () or (named is None and config.channels.web is None):
            yield (
                f"agent {agent.id}: nobody can approve its commands, so exec refuses them all — name people in "
                "approvals.approvers, or in owners"
            )


def _skills(config: Config) -> Iterator[str]:
    for index, directory in enumerate(config.skills.directories):
        if not Path(directory).is_dir():
            yield f"skills.directories[{index}]: there is no such folder yet"
        for agent in config.agents.list:
            if Path(agent.workspace_dir) in (Path(directory), *Path(directory).parents):
                yield (
                    f"skills.directories[{index}]: lies in the workspace of agent {agent.id}, whose tools can change "
                    "it for every agent — move it out"
                )


def _bindings(config: Config) -> Iterator[str]:
    for index, binding in enumerate(config.bindings):
        earlier = next(i for i, other in enumerate(config.bindings) if other.match == binding.match)
        if earlier < index:
            yield f"bindings[{index}]: never used — bindings[{earlier}] matches the same messages and stands before it"
        elif specificity(binding.match) == 0:
            yield f"bindings[{index}]: matches everything, as the first agent of the list does without any binding"


def _server(config: Config) -> Iterator[str]:
    server = config.server
    if not is_loopback(server.host) and not (server.allowed_hosts or server.public_url):
        yield (
            "server.host: open to the network — put a proxy that ends TLS in front, and name your host in "
            "server.allowedHosts"
        )
    if "*" in server.allowed_hosts:
        yield "server.allowedHosts: any name is taken for ours, also one that a stranger points here — name your hosts"


def _inline_secrets(config: Config, file: Path, names: Mapping[Key, tuple[str, ...]]) -> Iterator[str]:
    """A secret that stands in the file itself, where others can read the file."""
    if file.stat().st_mode & 0o077:
        for key, secret in secrets_in(config):
            if secret.strip() and key not in names:
                yield f"{shown(key)}: a secret in a file that others can read — use ${{NAME}}, or chmod 600 the file"


def _writable(file: Path) -> Iterator[str]:
    """The config, its folder and its `.env`, where others may write them: what stands there holds two seconds later."""
    for path in (file, file.parent / ".env", file.parent):
        try:
            status = path.stat()
        except OSError:
            continue
        by_group = status.st_mode & stat.S_IWGRP and not _own_group(status)
        if status.st_mode & stat.S_IWOTH or by_group:
            yield f"{path}: others on this machine can write it, and so decide what runs here — chmod go-w it"


def _own_group(status: os.stat_result) -> bool:
    """True if its group is the owner's alone, as many systems make one for each user."""
    try:
        return pwd.getpwuid(status.st_uid).pw_name == grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return status.st_uid == status.st_gid


def _open_folders(config: Config) -> Iterator[str]:
    """Folders with people's data that others on this machine can read or change. Folders that we make are private."""
    database = [Path(config.database.path).parent] if config.database.path else []
    kept = (*database, Path(config.tools.files.uploads_dir), *(Path(it.workspace_dir) for it in config.agents.list))
    for folder in dict.fromkeys(kept):
        if folder.is_dir() and folder.stat().st_mode & 0o066:
            yield f"{folder}: can be read by others on this machine — chmod 700 it"


def advice(key: Key, names: Mapping[Key, tuple[str, ...]]) -> str:
    """The next step for an empty value: the environment name the file takes it from, or the key itself."""
    return f"set {' and '.join(names[key])} in the environment" if names.get(key) else f"set {shown(key)}"
