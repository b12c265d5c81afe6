"""`ls`: what is in a folder of the workspace."""

import asyncio
from dataclasses import dataclass

from pydantic import Field

from tools.tool import Arguments, Call, ToolResult
from tools.workspace import Workspace

ENTRIES_MAX = 500


class LsArguments(Arguments):
    path: str = Field(default=".", description="The folder, relative to the workspace; the workspace if left out.")


@dataclass
class Ls:
    spec = LsArguments.spec(
        "ls",
        summary="list a folder of the workspace",
        description=(
            f"List a folder of the workspace: one name a line, sorted, folders with a trailing slash. "
            f"Shows at most {ENTRIES_MAX} names."
        ),
        effect="safe",
    )
    parse = staticmethod(LsArguments.parse)

    workspace: Workspace

    async def run(self, arguments: LsArguments, call: Call) -> ToolResult:
        entries = await asyncio.to_thread(self.workspace.entries, arguments.path)
        names = sorted(shown(name) + ("/" if is_folder else "") for name, is_folder in entries.items())
        listing = "\n".join(names[:ENTRIES_MAX]) or "(empty folder)"
        if len(names) > ENTRIES_MAX:
            listing += f"\n[… {len(names) - ENTRIES_MAX} more; list a subfolder]"
        return ToolResult(content=(listing,), details={"entries": len(names)})


def shown(name: str) -> str:
    """A name keeps to its line; bytes that are no UTF-8 show as a replacement."""
    clean = name.encode("utf-8", errors="replace").decode()
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in clean)
