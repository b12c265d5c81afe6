"""The report of a config: every fact of it for `check` and `doctor`, and the few lines that start-up prints.

No line holds a secret. The report follows the order of the sections: what is configured, what is missing, and what to do
next. The greeting is for a person who has just typed `make run`.

Routing every message that could arrive finds the agents that serve several people from one workspace. The web chat is the
operator's own and does not count; one person and one group may well be the operator and their team.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agents.config import AgentConfig
from agents.providers.catalog import needs_key
from agents.workspaces import is_template
from channels.access import AccessConfig, refusal, who_may_talk
from channels.finding import Finding
from channels.message import Chat, MessageContext
from gateway.config.bindings import route
from gateway.config.channels import Account, ChannelType, configured
from gateway.config.exposure import exec_mode, exposure
from gateway.config.keys import DEMO
from gateway.config.load import Loaded
from gateway.config.root import Config
from gateway.config.warnings import advice
from gateway.guard import VERSION
from gateway.observe.secrets import redacted
from gateway.program import program
from gateway.records.sessions import message_in
from tools.catalog import offered

AGENTS_MAX = 4
"""More are counted in the greeting; `check` names them."""
ANYBODY = "*"


def report(loaded: Loaded) -> list[Finding]:
    """Lists the facts, then the warnings."""
    server = loaded.config.server
    public, database = server.public_url or "no publicUrl", _short(loaded.config.database.shown)
    findings = [
        _fact("server", f"http://{_bracketed(server.host)}:{server.port}, {public}, database {database}"),
        *_reported_channels(loaded),
        *(_fact("api", it) for it in _api(loaded)),
        *_providers(loaded),
        *(_agent(agent, loaded) for agent in loaded.config.agents.list),
        *_hidden_skills(loaded),
        *_demo(loaded),
        *loaded.warnings,
        *_shared_workspaces(loaded.config),
    ]
    return [it.cleaned(redacted) for it in findings]


def lines(findings: Iterable[Finding]) -> Iterator[str]:
    for it in findings:
        yield f"{'warning' if it.status == 'warning' else it.check}: {it}"


def greeting(loaded: Loaded, *, link: str | None = None) -> list[str]:
    """Lists the lines of start-up. `loaded` has the real host and port; `link` signs in to the web chat once."""
    server = loaded.config.server
    lines = [f"Clawgate {VERSION} listens on http://{_bracketed(server.host)}:{server.port}"]
    lines += (redacted(_labelled(name, text)) for name, text in _greeted_channels(loaded))
    lines += (_labelled("api", it) for it in _api(loaded))
    if link is not None:  # the one secret that is meant to be read here; browsers send what follows a # to no server
        within = f"once, within {server.sign_in_link_seconds / 60:.0f} min"
        lines.append(_labelled("sign in", f"{server.public_url or server.address}/#sign-in={link} ({within})"))
    lines += (redacted(_labelled(label, text)) for label, text in _greeted_agents(loaded))
    return [*lines, _labelled("stop", "Ctrl-C"), *(f"warning: {it}" for it in loaded.warnings)]


def _api(loaded: Loaded) -> Iterator[str]:
    server = loaded.config.server
    if names := list(server.api.open):
        yield f"{server.public_url or server.address}/v1, with the token of {', '.join(names)}"


def _labelled(label: str, text: str) -> str:
    return f"  {label:<10} {text}"


def _fact(check: str, message: str, fix: str = "") -> Finding:
    return Finding(check, "ok", message, fix)


def _reported_channels(loaded: Loaded) -> Iterator[Finding]:
    for kind, account in _channels(loaded):
        if account is not None:
            check = f"{kind.name} {account.name}"
            yield _fact(check, *kind.arrives(account.config, account.name, exposure(loaded.config)))
            if isinstance(account.config, AccessConfig):
                yield _fact(f"{check}, who may talk", _access(account.config))


def _greeted_channels(loaded: Loaded) -> Iterator[tuple[str, str]]:
    for kind, account in _channels(loaded):
        if account is not None:
            text = str(_fact("", *kind.arrives(account.config, account.name, exposure(loaded.config))))
            yield kind.name, text if account.name == "default" else f"{account.name}: {text}"
            if isinstance(account.config, AccessConfig):
                yield "", f"who may talk: {_access(account.config)}"
        elif step := _missing(kind, loaded):
            yield kind.name, f"off: {step} (channels/{kind.name}/README.md)"
        else:
            yield kind.name, f"off: channels.{kind.name}.enabled is false"


def _channels(loaded: Loaded) -> Iterator[tuple[ChannelType, Account | None]]:
    """Yields each channel with each of its accounts, or once with None."""
    accounts = [*configured(loaded.config.channels)]
    for kind in loaded.config.channels.kinds.values():
        own = [it for it in accounts if it.kind is kind]
        yield from ((kind, it) for it in own or (None,))


def _access(access: AccessConfig) -> str:
    text, step = who_may_talk(access), f" — a stranger gets a code: {program()} pairing approve CODE"
    return text + step if "approve" in text else text


def _missing(kind: ChannelType, loaded: Loaded) -> str:
    """The keys to set before the channel has an account; empty if it is switched off."""
    section = getattr(loaded.config.channels, kind.name)
    if section is not None and not section.enabled:
        return ""
    named = [name for key in kind.keys for name in loaded.names.get(("channels", kind.name, key), ())]
    if not kind.keys:
        return f"add {kind.name}: {{}} under channels"
    if section is not None and named:
        return f"set {', '.join(named)}"
    return f"{'add' if section is None else 'set'} {_enumerated(kind.keys, 'and')} under channels.{kind.name}"


def _providers(loaded: Loaded) -> Iterator[Finding]:
    config = loaded.config
    used = {model.partition("/")[0] for agent in config.agents.list for model in agent.model}
    unused = {name: block for name, block in config.providers.items() if name not in used}
    idle = sorted(name for name, block in unused.items() if not block.keys and needs_key(name, block))
    for name in sorted({*config.providers, *used} - {*idle}):
        provider = config.provider(name)
        if (provider.api or name) == "demo":
            continue
        fix = ""
        if provider.keys:
            origin = f" ({loaded.variables[name]})" if name in loaded.variables else ""
            state = f"key set{origin}" if len(provider.keys) == 1 else f"{len(provider.keys)} keys set"
        elif needs_key(name, provider):
            state, fix = "no key", advice(("providers", name, "apiKey"), loaded.names)
        else:
            state = f"needs no key, at {provider.base_url or 'its usual address'}"
        yield _fact(f"provider {name}", state if name in used else f"{state} (no agent uses it)", fix)
    if idle:
        yield _fact(f"providers {', '.join(idle)}", "no key, and no agent uses them")


def _agent(agent: AgentConfig, loaded: Loaded) -> Finding:
    tools = " ".join(offered(loaded.config.tools, agent.tools)) or "none"
    skills = " ".join(skill.name for skill in loaded.skills[agent.id]) or "none"
    answering, workspace = _models(agent, loaded), _short(agent.workspace_dir)
    return _fact(f"agent {agent.id}", f"{answering}; tools {tools}; skills {skills}; workspace {workspace}")


def _greeted_agents(loaded: Loaded) -> Iterator[tuple[str, str]]:
    agents = loaded.config.agents.list
    shown = agents if len(agents) <= AGENTS_MAX else agents[: AGENTS_MAX - 1]
    for agent in shown:
        is_script = agent.model[0].partition("/")[0] == "demo"
        script = f"{agent.model[0]}, a script; {_real_model(agent, loaded)}"
        yield "agent", f"{agent.id}: {script if is_script else _models(agent, loaded)}"
    if len(shown) < len(agents):
        yield "agents", f"{len(agents) - len(shown)} more: {program()} check"


def _models(agent: AgentConfig, loaded: Loaded) -> str:
    """The models that an agent asks, and why if the file does not say it."""
    why = f" (auto: {loaded.auto.because})" if agent.id in loaded.auto.agents else ""
    return ", then ".join(agent.model) + why


def _hidden_skills(loaded: Loaded) -> Iterator[Finding]:
    hidden = {skill.name: skill for skills in loaded.hidden_skills.values() for skill in skills}
    for name, skill in sorted(hidden.items()):
        yield _fact(f"skill {name}", "hidden", f"it needs {' and '.join(skill.missing)}")


def _demo(loaded: Loaded) -> Iterator[Finding]:
    guided = [agent for agent in loaded.config.agents.list if agent.model[0].partition("/")[0] == "demo"]
    if guided:
        answers = f"a script, not a model, answers as {', '.join(agent.id for agent in guided)}"
        yield _fact(f"model {DEMO}", answers, _real_model(guided[0], loaded))


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


def _shared_workspaces(config: Config) -> Iterator[Finding]:
    """Warns of each agent whose workspace several people share: one can have it leave there what it reads for another."""
    for agent in config.agents.list:
        runs = exec_mode(config, agent) == "allow"
        names = {"write", "edit"} | ({"exec", "process"} if runs else set())
        changing = [it for it in offered(config.tools, agent.tools) if it in names]
        if changing and not is_template(agent.workspace_dir) and _serves_several(config, agent.id):
            message = (
                f"agent {agent.id}: everybody it serves shares one workspace, and can read and change others' files"
            )
            fix = f"end workspaceDir with /{{chat}} or /{{sender}}, or take {' and '.join(changing)} out of tools.allow"
            yield Finding("config", "warning", message, fix)


def _serves_several(config: Config, agent: str) -> bool:
    """True for two people, two groups, or anybody."""
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
    """Yields a message of each person named anywhere and of a stranger, if access lets it in."""
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
