"""What is configured, what is missing, and what to do next: every fact of it, as `check` prints it.

Plain text, in the order of the sections, without secrets. The few lines of it that start-up says are in `greeting`.

Which agents serve several people from one workspace is found by routing what could arrive. The web chat is the operator's
own and does not count; one person and one group may well be he and his team.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from agents.config import AgentConfig
from agents.providers.catalog import needs_key
from agents.workspaces import is_template
from channels.access import AccessConfig, refusal
from channels.message import Chat, ChatKind, MessageContext, Sender
from gateway.config.channels import Account, ChannelType, configured
from gateway.config.keys import DEMO
from gateway.config.load import Loaded
from gateway.config.problems import Key
from gateway.config.root import Config
from gateway.config.warnings import advice
from gateway.redaction import redacted
from gateway.routing import route
from tools.catalog import NAMES
from tools.config import allowed, effective_exec

ANYBODY = "*"


def report(loaded: Loaded) -> list[str]:
    """One line a fact; those that ask for a step begin with `warning:` or name the step behind a dash."""
    lines = [
        *_server(loaded.config),
        *_channels(loaded),
        *_providers(loaded),
        *(_agent(agent, loaded) for agent in loaded.config.agents.list),
        *_hidden_skills(loaded),
        *_demo(loaded),
        *(f"warning: {warning}" for warning in (*loaded.warnings, *shared_workspaces(loaded.config))),
    ]
    return list(map(redacted, lines))


def _server(config: Config) -> Iterator[str]:
    server = config.server
    public = server.public_url or "no publicUrl"
    yield f"server: http://{bracketed(server.host)}:{server.port}, {public}, database {_short(config.database.shown)}"


def _channels(loaded: Loaded) -> Iterator[str]:
    channels = loaded.config.channels
    found = list(configured(channels))
    for kind in channels.kinds.values():
        section = getattr(channels, kind.name)
        if section is not None and not section.enabled:
            yield f"{kind.name}: switched off (channels.{kind.name}.enabled)"
            continue
        accounts = [account for account in found if account.kind is kind]
        for account in accounts:
            yield f"{kind.name} {account.name}: {kind.arrives(account.config, account.name, loaded.config)}"
        if not accounts:
            step = missing(kind, loaded)
            yield f"{kind.name}: not configured — {step}; channels/{kind.name}/README.md shows where to find it"


def missing(kind: ChannelType, loaded: Loaded) -> str:
    """What to set before the channel has an account."""
    if not kind.keys:
        return f"add {kind.name}: {{}} under channels"
    keys = enumerated(kind.keys, "and")
    if getattr(loaded.config.channels, kind.name) is None:
        return f"add {keys} under channels.{kind.name}"
    named = [name for key in kind.keys for name in loaded.names.get(("channels", kind.name, key), ())]
    return f"set {', '.join(named)}" if named else f"set {keys} under channels.{kind.name}"


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
    tools = " ".join(allowed(agent.tools, NAMES)) or "none"
    skills = " ".join(skill.name for skill in loaded.skills[agent.id].usable) or "none"
    answering, workspace = models(agent, loaded), _short(agent.workspace_dir)
    return f"agent {agent.id}: {answering}; tools {tools}; skills {skills}; workspace {workspace}"


def models(agent: AgentConfig, loaded: Loaded) -> str:
    """What an agent asks, and why where the file does not say it."""
    why = f" (auto: {loaded.auto.because})" if agent.id in loaded.auto.agents else ""
    return ", then ".join(agent.model) + why


def _hidden_skills(loaded: Loaded) -> Iterator[str]:
    hidden = {skill.name: skill for skills in loaded.skills.values() for skill in skills.hidden}
    for name, skill in sorted(hidden.items()):
        yield f"skill {name}: hidden — it needs {' and '.join(skill.missing)}"


def _demo(loaded: Loaded) -> Iterator[str]:
    guided = [agent for agent in loaded.config.agents.list if agent.model[0].partition("/")[0] == "demo"]
    if guided:
        answers = f"model {DEMO}: a script, not a model, answers as {', '.join(agent.id for agent in guided)}"
        yield f"{answers} — {real_model(guided[0], loaded)}"


def real_model(agent: AgentConfig, loaded: Loaded) -> str:
    """The way from the script to a model."""
    if agent.id not in loaded.auto.agents:
        return "for a real model say model: auto, or name one"
    keys = loaded.auto.settable
    return f"set {enumerated(keys, 'or')} for a real model" if keys else "name a real model"


def enumerated(words: Sequence[str], joint: str) -> str:
    """`a, b and c`."""
    *others, last = words
    return f"{', '.join(others)} {joint} {last}" if others else last


def _short(path: str) -> str:
    """Beneath the working directory, without it."""
    try:
        return f"./{Path(path).relative_to(Path.cwd())}"
    except ValueError:
        return path


def bracketed(host: str) -> str:
    """As it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def shared_workspaces(config: Config) -> Iterator[str]:
    """A warning for each: one member can have the agent leave there what it reads for another."""
    for agent in config.agents.list:
        runs = effective_exec(config.tools.exec, agent.tools).mode == "allow"
        changing = [it for it in allowed(agent.tools, NAMES) if it in ("write", "edit") or (it == "exec" and runs)]
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
                if route(config.bindings, config.agents, context) == agent:
                    direct = context.chat.kind == "direct"
                    one = context.sender.id if direct else context.chat.id
                    (people if direct else groups).add((account.kind.name, one))
    return len(people) > 1 or len(groups) > 1 or any(one == ANYBODY for _, one in people | groups)


def _possible(config: Config, account: Account) -> Iterator[MessageContext]:
    """A message of everybody who is named anywhere, and of somebody who is not; those that access lets in."""
    access = account.config
    matches = [binding.match for binding in config.bindings]
    people = {ANYBODY, *access.allow_from, *(match.sender for match in matches if match.sender)}
    groups = {ANYBODY, *access.group_allow_from, *(match.chat for match in matches if match.chat)}
    contexts = [
        *(_message(account, "direct", sender=it, chat=ANYBODY) for it in people),
        *(_message(account, "group", sender=ANYBODY, chat=it) for it in groups),
    ]
    return (it for it in contexts if refusal(access, it) is None)


def _message(account: Account, kind: ChatKind, *, sender: str, chat: str) -> MessageContext:
    return MessageContext(
        channel=account.kind.name,
        account=account.name,
        chat=Chat(id=chat, kind=kind),
        message_id="",
        sender=Sender(id=sender),
        text="",
        sent_at=datetime.fromtimestamp(0, UTC),
        mentioned=True,
    )
