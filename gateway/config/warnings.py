"""Warnings: settings that work but deserve a look, for start-up, `check` and `doctor`.

Each is a message that names its key, and the step to take; none holds a value that could be a secret.
"""

import grp
import os
import pwd
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from agents.config import AgentConfig
from agents.providers.catalog import needs_key
from agents.providers.config import known_models, serves_own_models
from agents.providers.models import facts_of
from channels.finding import Finding
from channels.web.admission import is_loopback
from gateway.config.bindings import specificity
from gateway.config.channels import configured
from gateway.config.exposure import exec_mode
from gateway.config.keys import DEMO, Auto, Resolved
from gateway.config.problems import Findings, Key, quoted, shown, suggestion
from gateway.config.root import Config
from gateway.observe.secrets import secrets_in

Warned: TypeAlias = Iterator[tuple[Key, str, str]]
"""Messages, each behind the key whose place in the file is shown, and before its fix; `()` if no key is concerned."""


def warnings(resolved: Resolved, file: Path, findings: Findings, read: Iterable[tuple[Key, str, str]]) -> list[Finding]:
    """Lists them all, with those of reading the file first. `findings` knows where each key stands."""
    found = (*read, *_all(resolved, file, findings.origin))
    return [Finding("config", "warning", findings.place_of(key) + message, fix) for key, message, fix in found]


def _all(resolved: Resolved, file: Path, origin: Callable[[Key], Key]) -> Warned:
    config, names = resolved.config, resolved.names
    if config.logging.content:
        fix = "set it to false when you are done"
        yield ("logging", "content"), "logging.content: messages and answers are logged", fix
    yield from _channels(config, names)
    yield from _providers(config, names)
    yield from dict.fromkeys(_models(config, origin))
    yield from _prices(config)
    yield from _auto(resolved.auto, names)
    for agent in config.agents.list:
        yield from _exec(config, agent)
        if "web_search" in (agent.tools.allow or ()) and config.tools.web.search.provider is None:
            yield (
                ("tools", "web"),
                f"agent {agent.id}: web_search is off",
                "name a provider in tools.web.search, or take it out of tools.allow",
            )
    yield from _skills(config)
    yield from _bindings(config)
    yield from _server(config)
    yield from _inline_secrets(config, file, names)
    yield from _writable(file.resolve())
    yield from _open_folders(config)


def _channels(config: Config, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    for account in configured(config.channels):
        for warning, fix in account.kind.warnings(account.config):
            yield account.key, f"{shown(account.key)}: {warning}", fix
        if getattr(account.config, "mode", "") == "polling" and config.database.path is None:
            message = f"{shown(account.key)}: polling needs a single replica"
            yield account.key, message, "run one, or set mode: webhook"
    feishu = config.channels.feishu
    if feishu is None or not feishu.enabled or any(it.kind.name == "feishu" for it in configured(config.channels)):
        return
    if feishu.app_secret.get_secret_value().strip():
        key = ("channels", "feishu", "appId")
        yield key, f"{shown(key)}: is empty although appSecret is set, so Feishu stays off", advice(key, names)


def _providers(config: Config, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    """Providers that an agent uses and that cannot answer without a key."""
    users: dict[str, dict[str, None]] = {}
    for agent in config.agents.list:
        for model in agent.named_models.values():
            users.setdefault(model.partition("/")[0], {})[agent.id] = None
    for name, agents in sorted(users.items()):
        provider, key = config.provider(name), ("providers", name, "apiKey")
        if not provider.keys and needs_key(name, provider):
            step = advice(key, names)
            yield key, f"{shown(key)}: is empty, so {', '.join(agents)} cannot answer with {name}", step


def _models(config: Config, origin: Callable[[Key], Key]) -> Warned:
    """Models that neither the table nor the config knows, although their vendor's should be known: likely slips."""
    for index, agent in enumerate(config.agents.list):
        for place, model in agent.named_models.items():
            provider, _, name = model.partition("/")
            if facts_of(name).known or {model, name} & config.models.keys():
                continue
            if serves_own_models(provider, config.provider(provider).base_url):
                near = suggestion(name, known_models())
                step = "a line under models: makes it known (docs/providers.md)"
                key = (*(part for part in place if isinstance(part, str)),)
                written = origin(("agents", "list", index, *key))
                message = f"{shown(written)}: unknown model {quoted(name)}"
                yield written, message, f"{near.removeprefix(' — ')} Otherwise {step}" if near else step


def _prices(config: Config) -> Warned:
    """A budget in money counts nothing for a model without prices."""
    whose = [
        f"budgets.{name}.{key}"
        for name, budget in config.budgets
        for key, limit in (("costPerDay", budget.cost_per_day), ("costPerMonth", budget.cost_per_month))
        if limit is not None
    ]
    named = dict.fromkeys(model for agent in config.agents.list for model in agent.model)
    free = [model for model in named if config.prices(model) is None]
    if whose and free:
        step = f"set models: {{ {quoted(free[0])}: {{ prices: … }} }} (docs/providers.md)"
        message = f"{', '.join(whose)}: no price is known of {', '.join(free)}, so what they take costs nothing here"
        yield (*whose[0].split("."),), message, step


def _auto(auto: Auto, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    """A key is set, but the agent still uses the demo model."""
    if not auto.agents or auto.model != DEMO:
        return
    step = advice(("agents", "defaults", "model"), names)
    for what, name in auto.passed_over:
        yield (), f"{what}, but auto cannot know which of its models you want", f"{step} to {name}/…"


def _exec(config: Config, agent: AgentConfig) -> Warned:
    mode = exec_mode(config, agent)
    if mode == "allow":
        message = f"agent {agent.id}: exec runs every command unasked"
        yield ("tools", "exec", "mode"), message, "tools.exec.mode: ask has people approve them"
    elif mode == "ask":
        named = config.approvers(agent)
        if named == () or (named is None and config.channels.web is None):
            message = f"agent {agent.id}: nobody can approve its commands, so exec refuses them all"
            yield (), message, "name people in approvals.approvers, or in owners"


def _skills(config: Config) -> Warned:
    for index, directory in enumerate(config.skills.directories):
        key = ("skills", "directories", index)
        if not Path(directory).is_dir():
            yield key, f"{shown(key)}: there is no such folder", "make it, or take it out of the list"
        for agent in config.agents.list:
            if Path(agent.workspace_dir) in (Path(directory), *Path(directory).parents):
                inside = f"lies in the workspace of agent {agent.id}, whose tools can change it for every agent"
                yield key, f"{shown(key)}: {inside}", "move it out"


def _bindings(config: Config) -> Warned:
    for index, binding in enumerate(config.bindings):
        earlier = next(i for i, other in enumerate(config.bindings) if other.match == binding.match)
        if earlier < index:
            yield (
                ("bindings", index),
                f"bindings[{index}]: never used, as bindings[{earlier}] matches the same messages",
                "remove one of the two",
            )
        elif specificity(binding.match) == 0:
            yield (
                ("bindings", index),
                f"bindings[{index}]: matches everything",
                "remove it and list its agent first: that one answers by default",
            )


def _server(config: Config) -> Warned:
    server = config.server
    if not is_loopback(server.host) and not (server.allowed_hosts or server.public_url):
        fix = "put a proxy that ends TLS in front, and name your host in server.allowedHosts"
        yield ("server", "host"), "server.host: open to the network", fix
    if "*" in server.allowed_hosts:
        message = "server.allowedHosts: any host name is accepted, also one that a stranger points here"
        yield ("server", "allowedHosts"), message, "name your hosts"


def _inline_secrets(config: Config, file: Path, names: Mapping[Key, tuple[str, ...]]) -> Warned:
    """Warns of secrets written in a file that others can read."""
    if file.stat().st_mode & 0o077:
        for key, secret in secrets_in(config):
            if secret.strip() and key not in names:
                message = f"{shown(key)}: a secret in a file that others can read"
                yield key, message, "use ${NAME}, or chmod 600 the file"


def _writable(file: Path) -> Warned:
    """Warns if others may write the config, its folder or its `.env`: an edit is in force two seconds later."""
    for path in (file, file.parent / ".env", file.parent):
        try:
            status = path.stat()
        except OSError:
            continue
        by_group = status.st_mode & stat.S_IWGRP and not _own_group(status)
        if status.st_mode & stat.S_IWOTH or by_group:
            yield (), f"{path}: others on this machine can write it, and so decide what runs here", "chmod go-w it"


def _own_group(status: os.stat_result) -> bool:
    """True if its group is the owner's alone, as many systems make one for each user."""
    try:
        return pwd.getpwuid(status.st_uid).pw_name == grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return status.st_uid == status.st_gid


def _open_folders(config: Config) -> Warned:
    """Folders with people's data that others on this machine can read or change. Folders that we make are private."""
    database = [Path(config.database.path).parent] if config.database.path else []
    kept = (*database, Path(config.tools.files.uploads_dir), *(Path(it.workspace_dir) for it in config.agents.list))
    for folder in dict.fromkeys(kept):
        if folder.is_dir() and folder.stat().st_mode & 0o066:
            yield (), f"{folder}: can be read by others on this machine", "chmod 700 it"


def advice(key: Key, names: Mapping[Key, tuple[str, ...]]) -> str:
    """The next step for an empty value: the environment name the file takes it from, or the key itself."""
    return f"set {' and '.join(names[key])} in the environment" if names.get(key) else f"set {shown(key)}"
