"""Which of the tools an agent has: a pure function of its config."""

from collections.abc import Sequence

from tools.config import AgentToolsConfig

EVERYTHING = "*"


def allowed(config: AgentToolsConfig, names: Sequence[str]) -> tuple[str, ...]:
    """The names among `names` that the agent may use, in their order. `deny` wins over `allow`; no list, no tool."""
    if EVERYTHING in config.deny:
        return ()
    return tuple(
        name for name in names if (EVERYTHING in config.allow or name in config.allow) and name not in config.deny
    )
