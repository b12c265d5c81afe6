"""The tools that are left after policy: one function over layers, each of which only takes away.

The layers are the config's own lists, the agent's, the channel account's, the chat's and the sender's; if only owners
may use a tool, one more denies it to everybody else. A tool is offered if every layer permits it, so their order does
not matter and none can give back what another took. `Toolbox` is where tools are handed out, and asks here.
"""

from collections.abc import Sequence
from functools import lru_cache

from channels.tools import Profile, ToolLists
from tools.config import AgentToolsConfig, ToolsConfig

GROUPS: dict[str, tuple[str, ...]] = {
    "group:files": ("read", "write", "edit", "ls", "grep", "find"),
    "group:runtime": ("exec", "process"),
    "group:web": ("web_fetch", "web_search"),
    "group:memory": ("memory_search", "memory_get"),
    "group:messaging": ("message",),
}
PROFILES: dict[Profile, tuple[str, ...]] = {
    "minimal": ("read", "ls", "message"),
    "messaging": ("read", "ls", "message", "group:memory"),
    "coding": ("group:files", "group:runtime", "group:memory", "group:messaging"),
    "full": ("*",),
}
DEFAULT_PROFILE: Profile = "minimal"
"""The profile of an agent that names neither one nor what it is allowed."""
OWNER_ONLY = ("group:runtime",)
"""The owners' tools if the config names owners and says no more."""


@lru_cache(maxsize=1024)
def permitted(layers: tuple[ToolLists, ...], names: tuple[str, ...]) -> tuple[str, ...]:
    """The `names` that every layer permits, in their order."""
    return tuple(name for name in names if all(_permits(layer, name) for layer in layers))


def denied(layers: tuple[ToolLists, ...], name: str) -> bool:
    """True if a `deny` names the tool; that an `allow` or a profile leaves it out does not count."""
    return any(_holds(layer.deny, name) for layer in layers)


def _permits(layer: ToolLists, name: str) -> bool:
    lists = (layer.allow, PROFILES[layer.profile] if layer.profile else None)
    denied = _holds(layer.deny, name) or (name == "process" and _holds(layer.deny, "exec"))  # both run commands
    return not denied and all(_holds(it, name) for it in lists if it is not None)


def _holds(listed: Sequence[str], name: str) -> bool:
    return any(it in (name, "*") or name in GROUPS.get(it, ()) for it in listed)


def layers_of(everybody: ToolsConfig, agent: AgentToolsConfig) -> tuple[ToolLists, ...]:
    """The layers that hold for an agent in every chat."""
    implied = DEFAULT_PROFILE if agent.allow is None else None
    own = agent if agent.profile else agent.model_copy(update={"profile": implied})
    return _bare(everybody), _bare(own)


def _bare(lists: ToolLists) -> ToolLists:
    return ToolLists.model_construct(profile=lists.profile, allow=lists.allow, deny=lists.deny)


def owners_layer(everybody: ToolsConfig, *, has_owners: bool) -> ToolLists | None:
    """The layer that takes the owners' tools from everybody else; None if they have none of their own."""
    listed = everybody.owner_only
    if listed is None:
        listed = OWNER_ONLY if has_owners else ()
    return ToolLists(deny=listed) if listed else None
