"""How people come into the web chat, as it follows from where the server listens, whether a token is set, and what agents
may do: a command that an agent runs comes from this machine, too."""

from typing import TYPE_CHECKING

from channels.web.admission import Way
from tools.catalog import NAMES
from tools.config import allowed, effective_exec

if TYPE_CHECKING:
    from gateway.config.root import Config


def way_in(config: "Config") -> Way:
    """Without a token, whoever is at this machine may come in only while no agent is."""
    has_token = bool(config.server.admin_token.get_secret_value())
    if config.server.is_open_here:
        return "link" if has_token or commanding(config) else "open"
    return "token" if has_token else "closed"


def commanding(config: "Config") -> list[str]:
    """The agents that run commands unasked."""
    return [
        agent.id
        for agent in config.agents.list
        if "exec" in allowed(agent.tools, NAMES) and effective_exec(config.tools.exec, agent.tools).mode == "allow"
    ]
