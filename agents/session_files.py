"""The files that go in and out of an agent's sessions: those that people send, and those that its answers bring."""

from collections.abc import Sequence
from dataclasses import dataclass

from agents.attachments import Receiver
from agents.turn import Turn
from agents.workspaces import Workspaces
from channels.message import File, MessageContext
from channels.tools import ToolLists, ToolNames
from tools.attachment import attachment
from tools.policy import denied, permitted
from tools.tool import ToolError
from tools.web.fetch import Fetcher
from tools.web.file import web_file


@dataclass(frozen=True, kw_only=True, slots=True)
class SessionFiles:
    """`names` are the agent's tools, which `layers` and a turn's own narrow; `approval` are those of which every call needs
    one, and those that need one after text of strangers. `native`: a model of the agent reads documents as they are."""

    workspaces: Workspaces
    fetcher: Fetcher
    names: Sequence[str]
    layers: tuple[ToolLists, ...]
    approval: tuple[ToolNames, ToolNames]
    native: bool

    def reads(self, layers: tuple[ToolLists, ...] = ()) -> bool:
        """True if a tool of a turn on which `layers` hold, too, reads files."""
        return not {"read", "exec", "process"}.isdisjoint(permitted(layers, self.names))

    def receiver(self, context: MessageContext, session: str) -> Receiver:
        """The receiver that stores a message's files. Blocking."""
        workspace = self.workspaces.of(context, session)
        return Receiver(workspace=workspace, message_id=context.message_id, keeps=self.reads(), native=self.native)

    def attachment(self, path: str, turn: Turn, *, bytes_max: int) -> File:
        """A file that the agent wants to send, of its workspace or the session's. Raises ToolError. Blocking."""
        if not self.reads(turn.layers):
            raise ToolError("NOT_ALLOWED", "this agent has no tool that reads files")
        workspace = self.workspaces.of(turn.context, turn.files_of or turn.session, sees_private=turn.sees_private)
        return attachment(workspace, path, bytes_max=bytes_max)

    async def web_attachment(self, url: str, turn: Turn, *, bytes_max: int) -> File:
        """A file of the web that the agent wants to send. Raises ToolError: the right is that to send files, without one
        who denies `web_fetch` or wants to approve it, for an answer waits for nobody."""
        is_asked = any("web_fetch" in names for names in self.approval)
        if is_asked or not self.reads(turn.layers) or denied((*self.layers, *turn.layers), "web_fetch"):
            raise ToolError("NOT_ALLOWED", "this agent attaches nothing from the web here")
        async with self.fetcher.slots:
            return await web_file(self.fetcher.client, url, bytes_max=bytes_max)
