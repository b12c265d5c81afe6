"""`write`: create or replace a whole file. `edit`: replace one passage, found by its exact text."""

import asyncio
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, repeat

from pydantic import Field

from tools.encoding import UTF_8, Encoding, encoding_of
from tools.paths import MEMORY, called
from tools.tool import Arguments, Call, ToolError, ToolResult
from tools.workspace import Workspace

FILE_BYTES_MAX = 8 * 1024 * 1024
_ENDING = re.compile(r"(?:\r\n|(?<!\r)\n)")


class EditArguments(Arguments):
    file_path: str = Field(description="The file, relative to the workspace.")
    old_text: str = Field(description="The passage to replace, exactly as it is; it must occur exactly once.")
    new_text: str = Field(description="What takes its place; empty to delete the passage.")


@dataclass
class Edit:
    spec = EditArguments.spec(
        "edit",
        summary="replace one exact passage of a file",
        description=(
            "Replace one passage of a text file. `old_text` must occur exactly once: give enough of its surroundings. "
            "The file's line endings and its encoding are kept."
        ),
        effect="once",
    )
    parse = staticmethod(EditArguments.parse)

    workspace: Workspace

    def uses(self, arguments: EditArguments) -> Sequence[str]:
        return (MEMORY,) if self.workspace.is_memory(arguments.file_path) else ()

    async def run(self, arguments: EditArguments, call: Call) -> ToolResult:
        return await asyncio.to_thread(self._edit, arguments)

    def _edit(self, arguments: EditArguments) -> ToolResult:
        path = arguments.file_path
        with self.workspace.reading(path) as fd:
            status = os.fstat(fd)
            if status.st_size > FILE_BYTES_MAX:
                raise ToolError("TOO_LARGE", f"{called(path)!r} is larger than {FILE_BYTES_MAX} bytes; use another way")
            with open(fd, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1)
        encoding, text = _text(data, path)
        changed, first, last = replaced(text, arguments.old_text, arguments.new_text)
        try:
            new_data = changed.encode(encoding.codec)
        except UnicodeEncodeError as error:
            raise _unwritable(changed[error.start], encoding) from None
        name = self.workspace.write(path, new_data, expected=status)
        lines = f"line {first}" if first == last else f"lines {first}-{last}"
        if last < first:
            lines = f"deleted at line {first}"
        kept = "" if encoding == UTF_8 else f", still in {encoding.title}"
        return ToolResult(
            content=(f"Edited {name} ({lines}, {len(new_data)} bytes{kept})",),
            details={"bytesWritten": len(new_data), "path": name, "firstLine": first, "lastLine": last},
        )


def _text(data: bytes, path: str) -> tuple[Encoding, str]:
    encoding = encoding_of(data, nuls=True)
    if encoding is None:
        raise ToolError("NOT_TEXT", f"{called(path)!r} is a binary file; it cannot be edited as text")
    try:
        text = data.decode(encoding.codec)
        if text.encode(encoding.codec) == data:
            return encoding, text
        place = "some of its bytes"
    except UnicodeDecodeError as error:
        place = f"its byte {error.start + 1:,}"
    raise ToolError(
        "NOT_TEXT",
        f"{called(path)!r} is not UTF-8 text, nor wholly in any other encoding: as {encoding.title}, {place} would be lost."
        " Read it and write the text you want as a new file",
    )


def _unwritable(char: str, encoding: Encoding) -> ToolError:
    if "\ud800" <= char <= "\udfff":
        return ToolError("INVALID_ARGUMENT", "'new_text' holds half a character; write it whole")
    return ToolError(
        "INVALID_ARGUMENT",
        f"the file is in {encoding.title}, which has no {char!r} (U+{ord(char):04X}); nothing was changed. Leave that"
        " character out, or write the whole file anew, which makes it UTF-8",
    )


def replaced(text: str, old: str, new: str) -> tuple[str, int, int]:
    """Replace the only `old` in `text`; return the result, and the first and last line of the new passage. If `new` is
    empty, the last is before the first. A `\\n` of the model matches the file's line endings. Raises ToolError."""
    if not old:
        raise ToolError("INVALID_ARGUMENT", "'old_text' is empty; name the passage to replace")
    if old == new:
        raise ToolError("INVALID_ARGUMENT", "'old_text' and 'new_text' are the same")
    places = _places(text, old)
    if not places:
        raise ToolError("NO_MATCH", "'old_text' does not occur in the file; read it again and copy the passage exactly")
    if (count := len(places)) > 1:
        raise ToolError("MANY_MATCHES", f"'old_text' occurs {count} times; give more of its surroundings", found=count)
    ((start, end),) = places
    if "\r\n" in text:
        new = _ending_as(text, start, end, new)
    first = text.count("\n", 0, start) + 1
    return text[:start] + new + text[end:], first, first + new[:-1].count("\n") if new else first - 1


def _places(text: str, old: str) -> list[tuple[int, int]]:
    if "\n" in old and "\r\n" in text:  # all line endings match, but an exact match has priority
        lines = map(re.escape, _ENDING.split(old))
        spans = [it.span(1) for it in re.finditer(f"(?=({_ENDING.pattern.join(lines)}))", text)]
        exact = [it for it in spans if text[slice(*it)] == old]
        return exact if len(exact) == 1 else spans
    places, at = list[tuple[int, int]](), text.find(old)
    while at >= 0:
        places.append((at, at + len(old)))
        at = text.find(old, at + 1)
    return places


def _ending_as(text: str, start: int, end: int, new: str) -> str:
    """Give `new` the line endings of the passage that it replaces; further lines get its last one, or that of a line
    around it."""
    endings = _ENDING.findall(text, start, end)
    around = _ENDING.search(text, end) or next(reversed([*_ENDING.finditer(text, 0, start)]), None)
    last = endings[-1] if endings else around[0] if around else "\n"
    first, *lines = _ENDING.split(new)
    return first + "".join(ending + line for ending, line in zip(chain(endings, repeat(last)), lines, strict=False))


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
