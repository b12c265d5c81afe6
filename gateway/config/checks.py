"""What one section must know of another: names that must exist, ids that must differ, secrets that must be there.

Each check looks at the sound parts of the file and reports what it finds; none stops another. What may stay but should
be known is in `warnings`.

The file tools reach everything beneath a workspace. So it must not hold the config, the database or what people send,
belong to the system, or be shared: two agents must not see each other's files. How a tool stays inside is
`tools.workspace`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from agents.providers.config import IMPLIED, api_of
from agents.workspaces import PLACEHOLDERS
from gateway.config.channels import Account, ChannelsConfig, account_names, configured, named_accounts
from gateway.config.problems import Findings, Key, quoted, suggestion
from gateway.config.sections import Agent, Sections
from gateway.guard import PACKAGES
from tools.catalog import NAMES
from tools.config import allowed

_OF_THE_SYSTEM = ("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/sbin", "/sys", "/usr")
"""Neither these nor anything beneath them."""
_SHARED = ("/", "/home", "/media", "/mnt", "/opt", "/root", "/run", "/srv", "/tmp", "/var", "/var/lib", "/var/tmp")
"""Not these themselves; a folder of one's own beneath them is fine."""
_CODE = Path(__file__).resolve().parents[2]


def check(sections: Sections, skills: Mapping[str, Iterable[str]], findings: Findings) -> None:
    """Everything but folders. `skills` has the names of all skills, usable or not, by agent."""
    _ids(sections.agents, findings)
    for agent in sections.agents:
        _names(agent, "tools", NAMES, findings)
        _names(agent, "skills", skills.get(agent.config.id, ()), findings)
        _tool_choice(agent, findings)
        _models(agent, sections, findings)
        _targets(agent, sections.config.channels, findings)
    _providers(sections, findings)
    _bindings(sections, findings)
    _accounts(sections.config.channels, findings)


def _ids(agents: tuple[Agent, ...], findings: Findings) -> None:
    seen: set[str] = set()
    for agent in agents:
        name = agent.config.id.casefold()
        if agent.sound and name in seen:
            what = f"two agents have the id {quoted(agent.config.id)} — each needs one of its own"
            findings.add(agent.origin(("id",)), what)
        seen.add(name)


def _names(agent: Agent, section: Literal["tools", "skills"], known: Iterable[str], findings: Findings) -> None:
    """Unknown names in an agent's allow and deny lists."""
    names = list(known)
    config = agent.config.tools if section == "tools" else agent.config.skills
    for which, listed in (("allow", config.allow), ("deny", config.deny)):
        for index, name in enumerate(listed):
            if name != "*" and name not in names:
                what = f"unknown {section.removesuffix('s')} {quoted(name)}"
                findings.add(agent.origin((section, which, index)), what + suggestion(name, names))


def _tool_choice(agent: Agent, findings: Findings) -> None:
    wanted = agent.config.tool_choice
    offered = allowed(agent.config.tools, NAMES)
    key = agent.origin(("toolChoice",))
    if wanted in ("auto", "none"):
        return
    if wanted == "required":
        if not offered:
            findings.add(key, "the agent has no tool that it could be required to call")
    elif wanted not in offered:
        known = ("auto", "none", "required", *offered)
        findings.add(key, "expected auto, none, required or a tool the agent has" + suggestion(wanted, known))


def _models(agent: Agent, sections: Sections, findings: Findings) -> None:
    known = sorted({*IMPLIED, *sections.config.providers})
    for index, model in enumerate(agent.config.model):
        provider = model.partition("/")[0]
        if provider not in known:
            place = ("model", index)
            key = agent.origin(place)
            findings.add(key, f"unknown provider {quoted(provider)}{suggestion(provider, known)}")


def _targets(agent: Agent, channels: ChannelsConfig, findings: Findings) -> None:
    """`channel:chat` or `channel:account:chat`."""
    known = account_names(channels)
    for index, target in enumerate(agent.config.tools.message.targets):
        key = agent.origin(("tools", "message", "targets", index))
        parts = target.split(":")
        if len(parts) not in (2, 3) or not all(parts):
            findings.add(key, "expected channel:chat or channel:account:chat, such as feishu:oc_0123456789abcdef")
        elif parts[0] not in known:
            findings.add(key, f"unknown channel {quoted(parts[0])}{suggestion(parts[0], known)}")
        elif len(parts) == 3 and parts[1] not in known[parts[0]]:
            findings.add(key, f"unknown account {quoted(parts[1])}{suggestion(parts[1], known[parts[0]])}")


def _providers(sections: Sections, findings: Findings) -> None:
    for name, config in sections.config.providers.items():
        key = ("providers", name)
        if "/" in name or not name.strip():
            findings.add(key, "a provider's name stands before the slash of provider/model and holds none", on="key")
            continue
        try:
            api_of(name, config)
        except ValueError as error:
            findings.add(key, str(error).removeprefix(f"providers.{name}: "), on="key")


def _bindings(sections: Sections, findings: Findings) -> None:
    agents = [agent.config.id for agent in sections.agents if agent.sound]
    every_id_known = all(agent.sound for agent in sections.agents) and bool(agents)
    channels = account_names(sections.config.channels)
    for index, binding in zip(sections.bindings, sections.config.bindings, strict=True):
        here: Key = ("bindings", index)
        if every_id_known and binding.agent not in agents:
            what = f"unknown agent {quoted(binding.agent)}{suggestion(binding.agent, agents)}"
            findings.add((*here, "agent"), what)
        channel, account = binding.match.channel, binding.match.account
        if channel is not None and channel not in channels:
            what = f"unknown channel {quoted(channel)}{suggestion(channel, channels)}"
            findings.add((*here, "match", "channel"), what)
            continue
        names = channels[channel] if channel is not None else sorted({n for of in channels.values() for n in of})
        if account is not None and account not in names:
            what = f"unknown account {quoted(account)}{suggestion(account, names)}"
            findings.add((*here, "match", "account"), what)


def _accounts(channels: ChannelsConfig, findings: Findings) -> None:
    found = list(configured(channels))
    for account in found:
        for field, message in account.kind.problems(account.config):
            findings.add((*account.key, *_place(field)), message)
    for kind in channels.kinds.values():
        _same_bots([account for account in found if account.kind is kind], findings)
        section = getattr(channels, kind.name)
        if "default" in named_accounts(section) and kind.bot(section).strip():
            findings.add(
                ("channels", kind.name, "accounts", "default"),
                f"the keys directly under {kind.name} are the account default already — give this one another name",
                on="key",
            )


def _same_bots(accounts: Sequence[Account], findings: Findings) -> None:
    first: dict[str, Account] = {}
    for account in accounts:
        kind = account.kind
        other = first.setdefault(kind.bot(account.config), account)
        if other is not account:
            what = f"the same {kind.bot_word} as account {quoted(other.name)} — each bot needs its own"
            findings.add((*account.key, kind.bot_key), what)


def _place(field: str) -> Key:
    """`allowFrom[2]` as a key."""
    found = re.fullmatch(r"(\w+)\[(\d+)\]", field)
    return (found[1], int(found[2])) if found else (field,)


def check_folders(sections: Sections, config_file: Path, home: str, findings: Findings) -> None:
    """Report every workspace that cannot be one."""
    folders = {config_file.parent.resolve(), config_file.resolve().parent}
    database = Path(sections.config.database.path) if sections.config.database.path else None
    uploads = Path(sections.config.tools.files.uploads_dir)
    seen: list[tuple[Agent, Path]] = []
    for agent in sections.agents:
        workspace = Path(agent.config.workspace_dir)
        key = agent.origin(("workspaceDir",))
        if odd := _odd_placeholder(workspace):
            findings.add(key, odd)
        elif _is_system(workspace) or (home and _within(Path(home).resolve(), workspace)):
            findings.add(key, "a folder of the system or a whole home folder cannot be a workspace")
        elif _is_code(workspace):
            findings.add(key, "the workspace would hold Clawgate's own code — choose a folder of its own")
        elif any(_within(folder, workspace) for folder in folders):
            findings.add(key, "the workspace would hold the config file — choose a folder of its own")
        elif database and _within(database, workspace):
            findings.add(key, "the workspace would hold the database — choose a folder of its own")
        elif _overlaps(uploads, workspace):
            findings.add(
                key, "overlaps tools.files.uploadsDir, where the files that people send are kept — keep them apart"
            )
        elif other := _neighbour(workspace, seen):
            name = quoted(other.config.id)
            findings.add(key, f"overlaps the workspace of agent {name} — {{agent}} in the path keeps them apart")
        seen.append((agent, workspace))


def _odd_placeholder(workspace: Path) -> str | None:
    """Two chats must never be one folder, so what stands for them is one alone."""
    for part in workspace.parts:
        if any(it in part and it != part for it in PLACEHOLDERS):
            return "{chat} and {sender} are each a folder of their own, such as ./data/workspaces/{agent}/{chat}"
        if part not in PLACEHOLDERS and re.search(r"\{\w*\}", part):
            return "only {agent}, {chat} and {sender} are replaced"
    return None


def _is_system(path: Path) -> bool:
    return str(path) in _SHARED or any(_within(path, Path(real)) for real in _real(_OF_THE_SYSTEM))


def _is_code(path: Path) -> bool:
    return _within(_CODE, path) or any(_within(path, _CODE / name) for name in (*PACKAGES, ".git", ".venv"))


def _real(paths: Iterable[str]) -> set[str]:
    """With what they link to: `/bin` is `/usr/bin` on many systems."""
    return {real for path in paths for real in (path, str(Path(path).resolve()))}


def _within(path: Path, folder: Path) -> bool:
    return path == folder or folder in path.parents


def _neighbour(workspace: Path, seen: list[tuple[Agent, Path]]) -> Agent | None:
    return next((agent for agent, other in seen if _overlaps(workspace, other)), None)


def _overlaps(one: Path, other: Path) -> bool:
    """Whether they are, or one lies in the other; a placeholder may be any name."""
    pairs = zip(one.parts, other.parts, strict=False)
    return all(a == b or a in PLACEHOLDERS or b in PLACEHOLDERS for a, b in pairs)
