"""The files that go in and out of an agent's sessions: those that people send, and those that its answers bring."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from agents.attachments import Receiver
from agents.turn import Turn
from agents.workspaces import Workspaces
from channels.message import File, MessageContext
from channels.tools import ToolLists, ToolNames
from tools.attachment import attachment
from tools.policy import holds, permitted
from tools.tool import ToolError
from tools.web.fetch import Fetcher
from tools.web.file import web_file

READERS = ("read", "exec", "process")
"""The tools any of which can read a file of the workspace."""
Asks: TypeAlias = Callable[[str], bool]
"""Says whether a call of a tool would need an approval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFiles:
    """`names` are the agent's tools, which `layers` and a turn's own narrow; every call of those in `approved` needs an
    approval. `native`: a model of the agent reads documents as they are."""

    workspaces: Workspaces
    fetcher: Fetcher
    names: tuple[str, ...]
    layers: tuple[ToolLists, ...]
    approved: ToolNames
    native: bool

    def reads(self, layers: tuple[ToolLists, ...] = ()) -> bool:
        """True if a tool of a turn on which `layers` hold, too, reads files."""
        return self._may(READERS, layers, partial(holds, self.approved))

    def receiver(self, context: MessageContext, session: str) -> Receiver:
        """The receiver that stores a message's files. Blocking."""
        workspace = self.workspaces.of(context, session)
        return Receiver(workspace=workspace, message_id=context.message_id, keeps=self.reads(), native=self.native)

    def attachment(self, path: str, turn: Turn, asks: Asks, *, bytes_max: int) -> File:
        """A file that the agent wants to send, of its workspace or the session's. Raises ToolError. Blocking."""
        if not self._may(READERS, turn.layers, asks):
            raise ToolError("NOT_ALLOWED", "this agent has no tool that reads files here")
        workspace = self.workspaces.of(turn.context, turn.files_of or turn.session, sees_private=turn.sees_private)
        return attachment(workspace, path, bytes_max=bytes_max)

    async def web_attachment(self, url: str, turn: Turn, asks: Asks, *, bytes_max: int) -> File:
        """A file of the web that the agent wants to send. Raises ToolError. The request carries whatever the address says
        to whoever has that server, so the right is that of `web_fetch`, besides that to send files."""
        if not self._may(("web_fetch",), turn.layers, asks) or not self._may(READERS, turn.layers, asks):
            raise ToolError("NOT_ALLOWED", "this agent attaches nothing from the web here")
        async with self.fetcher.slots:
            return await web_file(self.fetcher.client, url, bytes_max=bytes_max)

    def _may(self, tools: Sequence[str], layers: tuple[ToolLists, ...], asks: Asks) -> bool:
        """True if a turn on which `layers` hold, too, has one of the tools and its call waits for nobody."""
        left = permitted((*self.layers, *layers), self.names)
        return any(it in left and not asks(it) for it in tools)
