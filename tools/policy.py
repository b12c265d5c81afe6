"""The tools that are left after policy: one function over layers, each of which only removes tools.

The layers are the lists of the config, the agent, the channel account, the chat and the sender; if only owners may use
a tool, one more denies it to everyone else. A tool is offered if every layer permits it, so their order does not matter
and none can restore what another removed. `Toolbox` applies this where tools are handed out.
"""

from collections.abc import Sequence
from functools import lru_cache

from channels.section import Profile, ToolLists
from tools.config import AgentToolsConfig, ExecMode, ToolsConfig

GROUPS: dict[str, tuple[str, ...]] = {
    "group:files": ("read", "write", "edit", "ls", "grep", "find"),
    "group:runtime": ("exec", "process"),
    "group:web": ("web_fetch", "web_search"),
    "group:memory": ("memory_search", "memory_get", "group_history"),
    "group:messaging": ("message", "ask", "handover"),
    "group:tasks": ("task",),
    "group:later": ("schedule",),
    "group:feishu": ("feishu",),
}
PROFILES: dict[Profile, tuple[str, ...]] = {
    "minimal": ("read", "ls", "message", "ask", "handover", "group_history"),
    "messaging": ("read", "ls", "group:messaging", "group:memory"),
    "coding": ("group:files", "group:runtime", "group:memory", "group:messaging", "group:tasks"),
    "full": ("*",),
}
SEPARATOR = "__"
"""Separates the name of an MCP server from that of its tool."""
SERVERS = "mcp:"
"""Prefix of a group: `mcp:NAME`, all tools of that server, or `mcp:*`, those of all servers."""
DEFAULT_PROFILE: Profile = "minimal"
"""Profile of an agent with neither `profile` nor `allow`."""
OWNER_ONLY = ("group:runtime",)
"""Tools for owners only, if the config names owners and has no `ownerOnly`."""


@lru_cache(maxsize=1024)
def permitted(layers: tuple[ToolLists, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the `names` that every layer permits, in their order."""
    return tuple(name for name in names if all(_permits(layer, name) for layer in layers))


def foreign(lists: ToolLists, names: Sequence[str]) -> tuple[str, ...]:
    """Return the MCP tools that `allow` names, one by one or by server. `*` means built-in tools only."""
    listed = [it for it in lists.allow or () if it != "*"]
    return tuple(name for name in names if holds(listed, name))


def names_server(lists: ToolLists, server: str) -> bool:
    """Return whether `allow` names the server, or a tool of it."""
    return any(it in (f"{SERVERS}*", f"{SERVERS}{server}") or server_of(it) == server for it in lists.allow or ())


def server_of(name: str) -> str:
    """Return the MCP server of a tool; empty for a built-in one."""
    server, separator, _ = name.partition(SEPARATOR)
    return server if separator else ""


def _permits(layer: ToolLists, name: str) -> bool:
    lists = (layer.allow, PROFILES[layer.profile] if layer.profile else None)
    denied = holds(layer.deny, name) or (name == "process" and holds(layer.deny, "exec"))  # both run commands
    return not denied and all(holds(it, name) for it in lists if it is not None)


def holds(listed: Sequence[str], name: str) -> bool:
    """Return whether a list of names, groups and servers holds the tool."""
    server = server_of(name)
    groups = ("*", f"{SERVERS}*", SERVERS + server) if server else ("*",)
    return any(it == name or it in groups or name in GROUPS.get(it, ()) for it in listed)


def may_ask(names: Sequence[str], mode: ExecMode, listed: Sequence[str]) -> bool:
    """Return whether a call of one of the tools may need an approval: a command in this `mode`, or what is `listed`."""
    return (mode == "ask" and not {"exec", "process"}.isdisjoint(names)) or any(holds(listed, it) for it in names)


def layers_of(everybody: ToolsConfig, agent: AgentToolsConfig) -> tuple[ToolLists, ...]:
    """Return the layers that apply to an agent in every chat."""
    implied = DEFAULT_PROFILE if agent.allow is None else None
    own = agent if agent.profile else agent.but(profile=implied)
    return _bare(everybody), _bare(own)


def _bare(lists: ToolLists) -> ToolLists:
    return ToolLists.model_construct(profile=lists.profile, allow=lists.allow, deny=lists.deny)


def owners_layer(everybody: ToolsConfig, *, has_owners: bool) -> ToolLists | None:
    """Return the layer that denies the owners' tools to everyone else; None if they have no such tools."""
    listed = everybody.owner_only
    if listed is None:
        listed = OWNER_ONLY if has_owners else ()
    return ToolLists(deny=listed) if listed else None
