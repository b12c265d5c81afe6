"""Settings of the web chat. The server's address decides who has access."""

from pydantic import Field

from channels.section import QueueConfig, Section, ToolLists
from channels.web.archive import VERSIONS_MAX

DEFAULT = "default"


class WebConfig(Section):
    """The chat at `/`, in a browser. On loopback it is open while no token is set and no agent can run commands; else it
    needs `server.adminToken`, or on loopback the sign-in link of the start."""

    enabled: bool = True
    """`false` switches the page off; its conversations stay in the database."""
    versions: int = Field(default=VERSIONS_MAX, ge=2, le=1000)
    """The versions that a person may make of one message, by editing it or asking for its answer again."""
    queue: QueueConfig = QueueConfig()
    tools: ToolLists = ToolLists()
    """The tools of the agents that are left in the web chat."""


def accounts(config: WebConfig) -> dict[str, WebConfig]:
    return {DEFAULT: config} if config.enabled else {}
