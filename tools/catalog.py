"""Which tools there are, in the order in which models and people see them. A new one is a file and a line here."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from tools.config import AgentToolsConfig, ExecConfig
from tools.edit import Edit
from tools.exec import Exec
from tools.ls import Ls
from tools.message import Message
from tools.policy import allowed
from tools.read import Read
from tools.tool import Messenger, Tool
from tools.workspace import Workspace
from tools.write import Write


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """What tools are built from."""

    config: AgentToolsConfig
    exec_config: ExecConfig
    workspace: Workspace
    messenger: Messenger
    exec_slots: asyncio.Semaphore
    result_chars: int


_BUILDERS: dict[str, Callable[[_Parts], Tool]] = {
    "read": lambda parts: Read(parts.workspace, parts.result_chars),
    "write": lambda parts: Write(parts.workspace),
    "edit": lambda parts: Edit(parts.workspace),
    "ls": lambda parts: Ls(parts.workspace),
    "exec": lambda parts: Exec(parts.workspace, parts.exec_config, parts.exec_slots, parts.result_chars),
    "message": lambda parts: Message(parts.messenger, parts.config.message),
}
NAMES: tuple[str, ...] = tuple(_BUILDERS)


def build_tools(
    *,
    config: AgentToolsConfig,
    exec_config: ExecConfig,
    exec_slots: asyncio.Semaphore,
    workspace: Workspace,
    messenger: Messenger,
    result_chars: int,
) -> list[Tool]:
    """The tools that the agent's policy allows, in catalogue order."""
    parts = _Parts(
        config=config,
        exec_config=exec_config,
        workspace=workspace,
        messenger=messenger,
        exec_slots=exec_slots,
        result_chars=result_chars,
    )
    return [_BUILDERS[name](parts) for name in allowed(config, NAMES)]
