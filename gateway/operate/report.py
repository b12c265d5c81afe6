"""The effect of a config: every fact of it as `check` prints it, and the few lines that start-up says.

Plain text, without secrets. The report goes in the order of the sections: what is configured, what is missing, and what to
do next. The greeting is for somebody who has just typed `make run`.

Which agents serve several people from one workspace is found by routing what could arrive. The web chat is the operator's
own and does not count; one person and one group may well be he and his team.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from agents.config import AgentConfig
from agents.providers.catalog import needs_key
from agents.workspaces import is_template
from channels.access import AccessConfig, refusal, who_may_talk
from channels.message import Chat, MessageContext
from gateway.config.bindings import route
from gateway.config.channels import Account, ChannelType, configured
from gateway.config.exposure import exec_mode, exposure
from gateway.config.keys import DEMO
from gateway.config.load import Loaded
from gateway.config.problems import Key
from gateway.config.root import Config
from gateway.config.warnings import advice
from gateway.guard import VERSION
from gateway.observe.redaction import redacted
from gateway.records.sessions import message_in
from tools.catalog import offered

AGENTS_MAX = 4
"""More are counted in the greeting; `check` names them."""
ANYBODY = "*"


def report(loaded: Loaded) -> list[str]:
    """One line a fact; those that ask for a step begin with `warning:` or name the step behind a dash."""
    server = loaded.config.server
    public, database = server.public_url or "no publicUrl", _short(loaded.config.database.shown)
    lines = [
        f"server: http://{_bracketed(server.host)}:{server.port}, {public}, database {database}",
        *_reported_channels(loaded),
        *(f"api: {it}" for it in _api(loaded)),
        *_providers(loaded),
        *(_agent(agent, loaded) for agent in loaded.config.agents.list),
        *_hidden_skills(loaded),
        *_demo(loaded),
        *(f"warning: {warning}" for warning in (*loaded.warnings, *_shared_workspaces(loaded.config))),
    ]
    return list(map(redacted, lines))


def greeting(loaded: Loaded, *, link: str | None = None) -> list[str]:
    """One line a fact. `loaded` has the host and the port really listened on; `link` signs in to the web chat once."""
    server = loaded.config.server
    lines = [f"Clawgate {VERSION} listens on http://{_bracketed(server.host)}:{server.port}"]
    lines += (redacted(_labelled(name, text)) for name, text in _greeted_channels(loaded))
    lines += (_labelled("api", it) for it in _api(loaded))
    if link is not None:  # the one secret that is meant to be read here; browsers send what stands behind a # to nobody
        within = f"once, within {server.sign_in_link_seconds / 60:.0f} min"
        lines.append(_labelled("sign in", f"{server.public_url or server.address}/#sign-in={link} ({within})"))
    lines += (redacted(_labelled(label, text)) for label, text in _greeted_agents(loaded))
    return [*lines, _labelled("stop", "Ctrl-C"), *(redacted(f"warning: {warning}") for warning in loaded.warnings)]


def _api(loaded: Loaded) -> Iterator[str]:
    server = loaded.config.server
    if names := list(server.api.open):
        yield f"{server.public_url or server.address}/v1, with the token of {', '.join(names)}"


def _labelled(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _reported_channels(loaded: Loaded) -> Iterator[str]:
    for name, account, text, access in _channels(loaded):
        if account:
            yield f"{name} {account}: {text}"
            yield from [f"{name} {account}, who may talk: {access}"] if access else []
        elif text:
            yield f"{name}: not configured — {text}; channels/{name}/README.md shows where to find it"
        else:
            yield f"{name}: switched off (channels.{name}.enabled)"


def _greeted_channels(loaded: Loaded) -> Iterator[tuple[str, str]]:
    for name, account, text, access in _channels(loaded):
        if account:
            yield name, text if account == "default" else f"{account}: {text}"
            yield from [("", f"who may talk: {access}")] if access else []
        elif text:
            yield name, f"off: {text} (channels/{name}/README.md)"
        else:
            yield name, f"off: channels.{name}.enabled is false"


def _channels(loaded: Loaded) -> Iterator[tuple[str, str, str, str]]:
    """Each with its account, how its events arrive and who may talk; without an account what to set, unless it is off."""
    channels, shown = loaded.config.channels, exposure(loaded.config)
    for kind in channels.kinds.values():
        accounts = [it for it in configured(channels) if it.kind is kind]
        for it in accounts:
            access = who_may_talk(it.config) if isinstance(it.config, AccessConfig) else ""
            yield kind.name, it.name, kind.arrives(it.config, it.name, shown), access
        if not accounts:
            section = getattr(channels, kind.name)
            is_off = section is not None and not section.enabled
            yield kind.name, "", "" if is_off else _missing(kind, loaded), ""


def _missing(kind: ChannelType, loaded: Loaded) -> str:
    """The keys to set before the channel has an account."""
    section = getattr(loaded.config.channels, kind.name)
    named = [name for key in kind.keys for name in loaded.names.get(("channels", kind.name, key), ())]
    if not kind.keys:
        return f"add {kind.name}: {{}} under channels"
    if section is not None and named:
        return f"set {', '.join(named)}"
    return f"{'add' if section is None else 'set'} {_enumerated(kind.keys, 'and')} under channels.{kind.name}"


def _providers(loaded: Loaded) -> Iterator[str]:
    config = loaded.config
    used = {model.partition("/")[0] for agent in config.agents.list for model in agent.model}
    unused = {name: block for name, block in config.providers.items() if name not in used}
    idle = sorted(name for name, block in unused.items() if not block.keys and needs_key(name, block))
    for name in sorted({*config.providers, *used} - {*idle}):
        provider = config.provider(name)
        if (provider.api or name) == "demo":
            continue
        key: Key = ("providers", name, "apiKey")
        if provider.keys:
            origin = f" ({loaded.variables[name]})" if name in loaded.variables else ""
            state = f"key set{origin}" if len(provider.keys) == 1 else f"{len(provider.keys)} keys set"
        elif needs_key(name, provider):
            state = f"no key — {advice(key, loaded.names)}"
        else:
            state = f"needs no key, at {provider.base_url or 'its usual address'}"
        yield f"provider {name}: {state if name in used else f'{state} (no agent uses it)'}"
    if idle:
        yield f"providers {', '.join(idle)}: no key, and no agent uses them"


def _agent(agent: AgentConfig, loaded: Loaded) -> str:
    tools = " ".join(offered(loaded.config.tools, agent.tools)) or "none"
    skills = " ".join(skill.name for skill in loaded.skills[agent.id]) or "none"
    answering, workspace = _models(agent, loaded), _short(agent.workspace_dir)
    return f"agent {agent.id}: {answering}; tools {tools}; skills {skills}; workspace {workspace}"


def _greeted_agents(loaded: Loaded) -> Iterator[tuple[str, str]]:
    agents = loaded.config.agents.list
    shown = agents if len(agents) <= AGENTS_MAX else agents[: AGENTS_MAX - 1]
    for agent in shown:
        is_script = agent.model[0].partition("/")[0] == "demo"
        script = f"{agent.model[0]}, a script; {_real_model(agent, loaded)}"
        yield "agent", f"{agent.id}: {script if is_script else _models(agent, loaded)}"
    if len(shown) < len(agents):
        yield "agents", f"{len(agents) - len(shown)} more: python -m gateway check"


def _models(agent: AgentConfig, loaded: Loaded) -> str:
    """The models that an agent asks, and why if the file does not say it."""
    why = f" (auto: {loaded.auto.because})" if agent.id in loaded.auto.agents else ""
    return ", then ".join(agent.model) + why


def _hidden_skills(loaded: Loaded) -> Iterator[str]:
    hidden = {skill.name: skill for skills in loaded.hidden_skills.values() for skill in skills}
    for name, skill in sorted(hidden.items()):
        yield f"skill {name}: hidden — it needs {' and '.join(skill.missing)}"


def _demo(loaded: Loaded) -> Iterator[str]:
    guided = [agent for agent in loaded.config.agents.list if agent.model[0].partition("/")[0] == "demo"]
    if guided:
        answers = f"model {DEMO}: a script, not a model, answers as {', '.join(agent.id for agent in guided)}"
        yield f"{answers} — {_real_model(guided[0], loaded)}"


def _real_model(agent: AgentConfig, loaded: Loaded) -> str:
    """The way from the script to a model."""
    if agent.id not in loaded.auto.agents:
        return "for a real model say model: auto, or name one"
    keys = loaded.auto.settable
    return f"set {_enumerated(keys, 'or')} for a real model" if keys else "name a real model"


def _enumerated(words: Sequence[str], joint: str) -> str:
    *others, last = words
    return f"{', '.join(others)} {joint} {last}" if others else last


def _short(path: str) -> str:
    try:
        return f"./{Path(path).relative_to(Path.cwd())}"
    except ValueError:
        return path


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _shared_workspaces(config: Config) -> Iterator[str]:
    """A warning for each: one member can have the agent leave there what it reads for another."""
    for agent in config.agents.list:
        runs = exec_mode(config, agent) == "allow"
        names = {"write", "edit"} | ({"exec", "process"} if runs else set())
        changing = [it for it in offered(config.tools, agent.tools) if it in names]
        if changing and not is_template(agent.workspace_dir) and _serves_several(config, agent.id):
            yield (
                f"agent {agent.id}: everybody it serves shares one workspace, and can have it read and change what others "
                f"left there — end workspaceDir with /{{chat}} or /{{sender}}, or take {' and '.join(changing)} out of "
                "tools.allow"
            )


def _serves_several(config: Config, agent: str) -> bool:
    """Two people, two groups, or whoever comes."""
    people: set[tuple[str, str]] = set()
    groups: set[tuple[str, str]] = set()
    for account in configured(config.channels):
        if isinstance(account.config, AccessConfig):
            for context in _possible(config, account):
                if route(config.routes, config.agents, context) == agent:
                    direct = context.chat.kind == "direct"
                    one = context.sender.id if direct else context.chat.id
                    (people if direct else groups).add((account.kind.name, one))
    return len(people) > 1 or len(groups) > 1 or any(one == ANYBODY for _, one in people | groups)


def _possible(config: Config, account: Account) -> Iterator[MessageContext]:
    """A message of everybody who is named anywhere, and of somebody who is not; those that access lets in."""
    access = account.config
    matches = [binding.match for binding in config.routes]
    people = {ANYBODY, *access.allow_from, *(match.sender for match in matches if match.sender)}
    groups = {ANYBODY, *access.group_allow_from, *(match.chat for match in matches if match.chat)}
    places = [(Chat(id=ANYBODY, kind="direct"), it) for it in people]
    places += [(Chat(id=it, kind="group"), ANYBODY) for it in groups]
    for chat, sender in places:
        context = message_in(account.kind.name, account.name, chat, sender)
        if refusal(access, context, is_owner=chat.kind == "group") is None:  # some sender will be listed
            yield context
