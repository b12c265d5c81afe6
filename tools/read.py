"""`read`: a page of a text file, or a picture."""

import asyncio
import base64
import os

from pydantic import Field

from tools.arguments import Arguments
from tools.pages import read_page
from tools.tool import Call, Image, ToolError, ToolResult
from tools.workspace import Workspace

IMAGE_BYTES_MAX = 5 * 1024 * 1024 * 3 // 4
"""5 MB of base64, which is the most a model provider takes."""
_BLOCK_BYTES = 65_536
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)


class ReadArguments(Arguments):
    file_path: str = Field(description="The file, relative to the workspace, or the location of a skill.")
    offset: int | None = Field(
        default=None,
        description="The first line to read, counted from 1. Negative, it counts from the end: -50 reads the last 50.",
    )
    limit: int | None = Field(default=None, ge=1, description="How many lines to read.")


class Read:
    spec = ReadArguments.spec(
        "read",
        summary="read a text file or look at a picture",
        description=(
            "Read a text file of the workspace, or look at a picture (png, jpeg, gif, webp). A long file comes in pages: "
            "the end of a page says with which `offset` to go on. A negative `offset` reads the end of the file."
        ),
        effect="safe",
    )
    parse = staticmethod(ReadArguments.parse)

    def __init__(self, workspace: Workspace, page_chars: int) -> None:
        """A page is as long as a result may be, so that none of it is cut and the next one begins where it ends."""
        self._workspace = workspace
        self._page_chars = page_chars

    async def run(self, arguments: ReadArguments, call: Call) -> ToolResult:
        """Raises ToolError."""
        return await asyncio.to_thread(self._read, arguments)

    def _read(self, arguments: ReadArguments) -> ToolResult:
        path, offset = arguments.file_path, 1 if arguments.offset is None else arguments.offset
        if offset == 0:
            raise ToolError("INVALID_ARGUMENT", "'offset' is 0; the first line is 1, the last is -1")
        with self._workspace.reading(path) as fd:
            size = os.fstat(fd).st_size
            head = os.pread(fd, _BLOCK_BYTES, 0)
            if media_type := image_type(head):
                return _image(fd, size, media_type, path)
            if b"\0" in head:
                raise ToolError("NOT_TEXT", f"{path!r} is a binary file of {size} bytes; it cannot be shown as text")
            page = read_page(fd, size=size, offset=offset, limit=arguments.limit, chars_max=self._page_chars)
        details = {"bytes": size, "firstLine": page.first, "lastLine": page.last}
        return ToolResult(content=(page.shown(size),), details=details)


def image_type(head: bytes) -> str | None:
    """What the bytes are, whatever the name says."""
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    return next((media_type for signature, media_type in _SIGNATURES if head.startswith(signature)), None)


def _image(fd: int, size: int, media_type: str, path: str) -> ToolResult:
    if size > IMAGE_BYTES_MAX:
        note = f"[picture {path!r}, {media_type}, {size} bytes: larger than the {IMAGE_BYTES_MAX} bytes a model takes]"
        return ToolResult(content=(note,), details={"bytes": size})
    data = b"".join(iter(lambda: os.read(fd, _BLOCK_BYTES), b""))
    image = Image(media_type=media_type, data=base64.b64encode(data).decode(), name=path)
    return ToolResult(content=(f"[picture {path}]", image), details={"bytes": size})
