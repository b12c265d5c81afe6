"""`write`: a whole file, new or replaced."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from pydantic import Field

from tools.paths import MEMORY
from tools.tool import Arguments, Call, ToolError, ToolResult
from tools.workspace import Workspace


class WriteArguments(Arguments):
    file_path: str = Field(description="The file, relative to the workspace. Missing folders are made.")
    content: str = Field(description="The whole content of the file.")


@dataclass
class Write:
    spec = WriteArguments.spec(
        "write",
        summary="create a file, or replace a whole one",
        description=(
            "Create a file in the workspace or replace a whole one, atomically. For a change within a file use `edit`. "
            "AGENTS.md and the other instruction files are the operator's; what you want to remember goes into MEMORY.md."
        ),
        effect="keyed",  # the same content again is the same file; not `safe`, which may run side by side
    )
    parse = staticmethod(WriteArguments.parse)

    workspace: Workspace

    def uses(self, arguments: WriteArguments) -> Sequence[str]:
        return (MEMORY,) if self.workspace.is_memory(arguments.file_path) else ()

    async def run(self, arguments: WriteArguments, call: Call) -> ToolResult:
        try:
            data = arguments.content.encode()
        except UnicodeEncodeError:
            raise ToolError("INVALID_ARGUMENT", "'content' holds half a character; write it whole") from None
        name = await asyncio.to_thread(self.workspace.write, arguments.file_path, data)
        return ToolResult(
            content=(f"Wrote {name} ({len(data)} bytes)",), details={"bytesWritten": len(data), "path": name}
        )
