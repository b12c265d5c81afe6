"""Which tools there are, in the order in which models and people see them. A new one is a file and a line here."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tools.config import AgentToolsConfig, ExecConfig, allowed
from tools.edit import Edit
from tools.exec import Exec
from tools.ls import Ls
from tools.message import Message
from tools.read import Read
from tools.tool import Messenger, Tool
from tools.workspace import Workspace
from tools.write import Write


@dataclass
class Catalog:
    """`tools.toolbox.ToolSource` of the built-in tools that an agent's policy allows, in catalogue order.

    `exec_config` is the effective one; `result_chars` is how much of one result the agent's models are shown.
    """

    config: AgentToolsConfig
    exec_config: ExecConfig
    messenger: Messenger
    result_chars: int

    def __post_init__(self) -> None:
        self.names = allowed(self.config, NAMES)
        self.exec_slots = asyncio.Semaphore(self.exec_config.parallel)
        """Shared by all turns of the agent."""

    def tools(self, workspace: Workspace) -> Sequence[Tool]:
        return [_BUILDERS[name](self, workspace) for name in self.names]


_BUILDERS: dict[str, Callable[[Catalog, Workspace], Tool]] = {
    "read": lambda catalog, workspace: Read(workspace, catalog.result_chars),
    "write": lambda _, workspace: Write(workspace),
    "edit": lambda _, workspace: Edit(workspace),
    "ls": lambda _, workspace: Ls(workspace),
    "exec": lambda catalog, workspace: Exec(workspace, catalog.exec_config, catalog.exec_slots, catalog.result_chars),
    "message": lambda catalog, _: Message(catalog.messenger, catalog.config.message),
}
NAMES: tuple[str, ...] = tuple(_BUILDERS)
