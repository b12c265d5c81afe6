"""The settings of the web chat: one switch. The server's address decides who may come in."""

from channels.queue import QueueConfig
from channels.section import Section
from channels.tools import ToolLists

DEFAULT = "default"


class WebConfig(Section):
    """The chat at `/`, in a browser. On loopback it is open while no token is set and no agent can run commands; else it
    needs `server.adminToken`, or on loopback the sign-in link of the start."""

    enabled: bool = True
    """`false` switches the page off; its conversations stay in the database."""
    queue: QueueConfig = QueueConfig()
    tools: ToolLists = ToolLists()
    """The tools of the agents that are left in the web chat."""


def accounts(config: WebConfig) -> dict[str, WebConfig]:
    return {DEFAULT: config} if config.enabled else {}
