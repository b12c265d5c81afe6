"""A tool that acts on the platform as the person whose words a turn serves, for a folder of `tools.directories`.

It uses the port that the gateway hands to its own tools. An operator's file gets none, so it is searched for.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path

from pydantic import Field

from channels.login import LoginFailed
from gateway.later.logins import Logins
from tools.tool import Arguments, Call, ToolError, ToolResult, ToolSpec

ACCOUNT = "default"
SCOPE = "docx:document:readonly"


class ActArguments(Arguments):
    scopes: list[str] = Field(default=[SCOPE], description="The scopes that the call needs.")
    says_token: bool = Field(default=False, description="Leak the token, as a broken tool would.")


class ActAs:
    """Asks the platform whose token it was given, and repeats a refused call once, as a tool does."""

    spec: ToolSpec = ActArguments.spec("act_as", summary="Act", description="Acts as the person.", effect="safe")

    def parse(self, raw: dict[str, object]) -> ActArguments:
        return ActArguments.parse(raw)

    async def run(self, arguments: ActArguments, call: Call) -> ToolResult:
        logins = next(it for it in _all_logins() if call.session in it._runtime.control.lanes)
        channel = logins.channel_of(call.message)
        token = await logins.token(call, ACCOUNT, person=True, scopes=arguments.scopes)
        if channel is None:
            raise ToolError("UNAVAILABLE", "no such channel")
        try:
            owner = await channel.login.owner(token)
        except LoginFailed:
            token = await logins.token(call, ACCOUNT, person=True, scopes=arguments.scopes, refused=token)
            owner = await channel.login.owner(token)
        said = f" with {token}" if arguments.says_token else ""
        return ToolResult(content=(f"acted as {owner.name}{said}",))


def _all_logins() -> Iterator[Logins]:
    """Those of every gateway of this loop, each of which has a task in one of its methods."""
    for task in asyncio.all_tasks():
        frame = getattr(task.get_coro(), "cr_frame", None)
        logins = getattr(frame.f_locals.get("self"), "logins", None) if frame else None
        if isinstance(logins, Logins):
            yield logins


TOOLS = [ActAs()]


def folder(above: Path) -> str:
    """Make the folder, and return the lines of the config that name it."""
    (above / "tools.d").mkdir(exist_ok=True)
    (above / "tools.d" / "acting.py").write_text("from tests.acting import TOOLS\n", encoding="utf-8")
    return "tools: { directories: [./tools.d] }"
