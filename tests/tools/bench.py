"""A toolbox on a real workspace, and short ways to call it."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any

from channels.message import Chat, MessageContext, Place, Sender
from gateway.approvals.questions import Questions
from gateway.later.logins import Logins
from gateway.turns.tasks import Tasks
from tests.sandboxes import shared
from tests.waiting import PATIENCE_SECONDS
from tools.catalog import NAMES, Catalog, Toolbox, ToolPorts
from tools.config import AgentToolsConfig, ExecConfig, ProcessConfig, ToolsConfig, WebToolsConfig
from tools.documents.document import Documents
from tools.feishu.config import FeishuToolConfig
from tools.memory import Passage
from tools.message import Post
from tools.policy import layers_of
from tools.process import Processes
from tools.sandbox.sandbox import Sandbox
from tools.schedule import Planned, ScheduleArguments
from tools.tool import Call, Image, ToolError, ToolResult
from tools.web.client import WebClient
from tools.workspace import Workspace

WAIT_FOR_GO = "touch ready; until [ -e go ]; do sleep 0.02; done"
"""A command that ends when the test says so."""


@dataclass
class Outbox:
    """`tools.tool.Messenger` that keeps what it is given. The real one is in the stories."""

    sent: list[dict[str, Any]] = field(default_factory=list)
    refuses: bool = False

    file_bytes = 1_000_000

    async def send(self, to: Place, post: Post, call: Call) -> str:
        if self.refuses:
            raise ToolError("NOT_DELIVERED", "the platform cannot be reached now", retryable=True)
        self.sent.append(asdict(to) | {"text": post.text, "key": call.key, "begun_at": call.begun_at})
        return f"om_{len(self.sent)}"

    async def delete(self, at: Place, message_id: str, call: Call) -> None:
        raise NotImplementedError

    async def react(self, at: Place, message_id: str, emoji: str, call: Call) -> None:
        raise NotImplementedError


class Nothing:
    """`tools.memory.Memory` of somebody who was never here. The real one is in the stories."""

    zone: tzinfo = UTC

    async def passages(self, *_: object) -> Sequence[Passage]:
        return ()

    async def text(self, *_: object) -> Passage | None:
        return None


class NoSchedules:
    """Nobody has any: what they do is told in stories, with a clock and a database."""

    async def create(self, plan: ScheduleArguments, call: Call) -> str:
        return f"Scheduled. {plan.at}"

    async def listed(self, call: Call) -> Sequence[Planned]:
        return ()

    async def cancel(self, id_: str, call: Call) -> str:
        return f"{id_} is cancelled."


@dataclass
class Bench:
    root: Path
    toolbox: Toolbox
    outbox: Outbox
    workspace: Workspace
    processes: Processes

    async def call(self, tool: str, /, **arguments: Any) -> ToolResult:
        return await self.toolbox.call(tool, arguments, json.dumps(arguments), CALL)

    async def text(self, tool: str, /, **arguments: Any) -> str:
        """What a call that works says."""
        result = await self.call(tool, **arguments)
        assert not result.is_error, text_of(result)
        return text_of(result)

    async def output(self, command: str) -> str:
        """What a command that works writes."""
        *lines, ended = (await self.text("exec", command=command)).splitlines()
        assert ended == "[exit code 0]"
        return "\n".join(lines)

    async def code(self, tool: str, /, **arguments: Any) -> str:
        """The error code of a call that does not."""
        result = await self.call(tool, **arguments)
        assert result.is_error, text_of(result)
        return str(json.loads(text_of(result))["error_code"])


CALL = Call(
    id="toolu_1",
    key="key-1",
    message=MessageContext(
        channel="feishu",
        account="default",
        chat=Chat(id="oc_here", kind="direct", thread="omt_1"),
        message_id="om_asked",
        sender=Sender(id="ou_alice"),
        text="hi",
        sent_at=datetime(2026, 1, 1, tzinfo=UTC),
    ),
)


def text_of(result: ToolResult) -> str:
    return "".join(part for part in result.content if isinstance(part, str))


def pictures(result: ToolResult) -> list[Image]:
    return [part for part in result.content if isinstance(part, Image)]


def bench(
    folder: Path,
    *,
    allow: list[str] | None = None,
    mode: str = "allow",
    mounts: Mapping[str, Path] | None = None,
    exec_: Mapping[str, Any] | None = None,
    targets: list[str] | None = None,
    result_chars: int = 64_000,
    sandbox: Sandbox | None = None,
    uploads: Path | None = None,
    processes: Processes | None = None,
    quota_bytes: int = 1 << 30,
    network: WebClient | None = None,
) -> Bench:
    outbox = Outbox()
    workspace = Workspace(root=folder / "workspace", quota_bytes=quota_bytes)
    exec_config = ExecConfig.model_validate({"mode": mode, **(exec_ or {})})
    config = AgentToolsConfig.model_validate({"allow": allow or ["*"], "message": {"targets": targets or []}})
    processes = processes or Processes(ProcessConfig(), time.time)
    catalog = Catalog(
        NAMES,
        config,
        exec_config=exec_config,
        web=WebToolsConfig(),
        feishu=FeishuToolConfig(areas=("tasks",)),
        ports=ToolPorts(
            messenger=outbox,
            memory=Nothing(),
            processes=processes,
            delegate=Tasks(),
            schedules=NoSchedules(),
            identities=Logins(),
            answers=Questions(),
            sandbox=sandbox or shared(),
        ),
        result_chars=result_chars,
        documents=Documents(PATIENCE_SECONDS),
    )
    if network is not None:
        catalog.network = network
    layers = layers_of(ToolsConfig(), config)
    serving = workspace.serving(mounts=mounts, uploads=uploads)
    toolbox = Toolbox(catalog.tools(serving, groups=("group",)), layers=layers, argument_bytes_max=65_536)
    return Bench(folder / "workspace", toolbox, outbox, workspace, processes)
