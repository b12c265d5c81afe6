"""`read`: a page of a text file, pages of a document, or a picture.

Text is paged by lines (`tools.lines`). A document is paged by its own pages, which a child process makes
(`tools.documents`); a page that is longer than a result, by its lines. HTML and CSV are text in the workspace, where
agents write them, and documents among the uploads, unless the call says otherwise.
"""

import asyncio
import base64
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Protocol

from pydantic import BeforeValidator, Field

from tools.documents.document import BYTES_MAX, PICTURES_MAX, Answer, DocumentKind, Documents, Wanted, document_kind
from tools.encoding import encoding_of
from tools.lines import BLOCK_BYTES, NOTE_CHARS, Lines, text_page
from tools.paths import called
from tools.picture import SOURCE_BYTES_MAX, fitted, image_type, unshown
from tools.tool import Arguments, Call, Image, ToolError, ToolResult
from tools.workspace import Workspace

TEXT_KINDS: tuple[DocumentKind, ...] = ("html", "csv")
FENCE_CHARS = 300
"""Reserved in a page of untrusted text for the lines around it."""
_RANGE = re.compile(r"(\d{1,7})(?:\s*[-–]\s*(\d{1,7}))?")


def _written(value: object) -> object:
    return str(value) if type(value) is int else value  # models write numbers, too


Words = Annotated[str, BeforeValidator(_written)]


class ReadArguments(Arguments):
    file_path: str = Field(description="The file, relative to the workspace, or the location of a skill.")
    offset: int | None = Field(
        default=None,
        description="The first line to read, counted from 1. Negative, it counts from the end: -50 reads the last 50.",
    )
    limit: int | None = Field(default=None, ge=1, description="How many lines to read.")
    byte: int | None = Field(
        default=None, ge=0, description="Where to begin within that line: only if a line was cut, as its mark says."
    )
    page: Words | None = Field(default=None, description="Of a document: the page, counted from 1, or a range: 3-5.")
    sheet: Words | None = Field(
        default=None, description="Of a workbook: the sheet, by name or number; else the first."
    )

    @property
    def by_lines(self) -> bool:
        return not (self.offset is None and self.limit is None and self.byte is None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _OpenDocument:
    """The receiver closes `fd`."""

    fd: int
    kind: DocumentKind
    size: int


class LinkReader(Protocol):
    """Opens documents of a platform by their link."""

    @property
    def words(self) -> str:
        """Return what the description of `read` says of links; empty if none is opened."""

    def is_link(self, path: str) -> bool: ...

    async def read(self, path: str, wanted: Wanted, call: Call) -> tuple[str, Answer]:
        """Return a short name of the document, and its pages, which are untrusted. Raises ToolError."""


@dataclass
class Read:
    spec = ReadArguments.spec(
        "read",
        summary="read a text file or a document, or look at a picture",
        description=(
            "Read a text file of the workspace, or look at a picture (png, jpeg, gif, webp). A long file comes in pages: "
            "the end of a page says with which `offset` to go on. A negative `offset` reads the end of the file. "
            "Text in GBK, UTF-16 and the like is shown as UTF-8, and the last line says so. "
            "PDF, Word, Excel, PowerPoint, OpenDocument, EPUB, HTML and CSV come as Markdown, by `page`: the answer begins "
            "with which pages it holds of how many."
        ),
        effect="safe",
    )
    parse = staticmethod(ReadArguments.parse)

    workspace: Workspace
    page_chars: int
    """Equals the longest result, so that no page is cut and the next one begins where it ends."""
    documents: Documents
    links: LinkReader | None = None

    def __post_init__(self) -> None:
        if self.links is not None and self.links.words:
            self.spec = replace(self.spec, description=f"{self.spec.description} {self.links.words}")

    def uses(self, arguments: ReadArguments) -> Sequence[str]:
        return ("feishu",) if self.links is not None and self.links.is_link(arguments.file_path) else ()

    async def run(self, arguments: ReadArguments, call: Call) -> ToolResult:
        if self.links is not None and self.links.is_link(arguments.file_path):
            return await self._linked(self.links, arguments, call)
        found = await asyncio.to_thread(self._read, arguments)
        if isinstance(found, ToolResult):
            return found
        try:
            return await self._pages(found, arguments)
        finally:
            os.close(found.fd)

    def _read(self, arguments: ReadArguments) -> ToolResult | _OpenDocument:
        path, offset = arguments.file_path, 1 if arguments.offset is None else arguments.offset
        lines = Lines(offset=offset, byte=arguments.byte, limit=arguments.limit, chars_max=self.page_chars)
        with self.workspace.reading(path) as fd:
            size = os.fstat(fd).st_size
            head = os.pread(fd, BLOCK_BYTES, 0)
            if image_type(head):
                return _image(fd, size, path)
            kind, asked = document_kind(head, path), arguments.page or arguments.sheet
            if kind and (kind not in TEXT_KINDS or asked or (self.workspace.was_sent(path) and not arguments.by_lines)):
                if size > BYTES_MAX:
                    raise ToolError(
                        "TOO_LARGE", f"{called(path)!r} has {size:,} bytes; documents are read up to {BYTES_MAX:,}"
                    )
                return _OpenDocument(fd=os.dup(fd), kind=kind, size=size)
            if asked:
                raise ToolError("INVALID_ARGUMENT", f"{called(path)!r} is no document with pages; use 'offset'")
            if encoding_of(head, is_whole=size <= len(head)) is None:
                raise ToolError(
                    "NOT_TEXT", f"{called(path)!r} is a binary file of {size} bytes; it cannot be shown as text"
                )
            return lines.read(fd, size)

    async def _pages(self, document: _OpenDocument, arguments: ReadArguments) -> ToolResult:
        first, last = _range(arguments.page)
        chars_max = max(1, self.page_chars - NOTE_CHARS)
        wanted = Wanted(first=first, last=last, sheet=arguments.sheet or "", chars_max=chars_max)
        try:
            answer = await self.documents.read(document.fd, document.kind, wanted)
        except ToolError as error:
            name = called(arguments.file_path)
            raise ToolError(error.code, f"{name!r}: {error.message}") from None
        if not answer.texts:
            raise ToolError("NOT_FOUND", f"there is no page {first:,}: {answer.title(document.kind)}")
        details = {"bytes": document.size, "firstPage": first, "pages": answer.total}
        if arguments.by_lines or len(answer.texts[0]) > chars_max:
            return await asyncio.to_thread(self._lines, answer, first, arguments, details, self.page_chars)
        pictures = await asyncio.to_thread(_pictures, answer, called(arguments.file_path))
        return ToolResult(content=(_shown(answer, first), *pictures), details=details)

    async def _linked(self, links: LinkReader, arguments: ReadArguments, call: Call) -> ToolResult:
        first, last = _range(arguments.page)
        chars = max(1, self.page_chars - FENCE_CHARS)
        wanted = Wanted(first=first, last=last, sheet=arguments.sheet or "", chars_max=max(1, chars - NOTE_CHARS))
        name, answer = await links.read(arguments.file_path, wanted, call)
        if not answer.texts:
            raise ToolError("NOT_FOUND", f"there is no page {first:,}; it has {answer.total:,}")
        details = {"url": name, "firstPage": first, "pages": answer.total}
        if arguments.by_lines or len(answer.texts[0]) > wanted.chars_max:
            found = await asyncio.to_thread(self._lines, answer, first, arguments, details, chars)
            return replace(found, external=True)
        return ToolResult(content=(_shown(answer, first),), details=details, external=True)

    def _lines(
        self, answer: Answer, page: int, arguments: ReadArguments, details: Mapping[str, Any], chars: int
    ) -> ToolResult:
        head = f"{_head(answer, page, page)}\n"
        room = max(1, chars - len(head))
        page_read = text_page(answer.texts[0], arguments.offset or 1, arguments.limit, room, byte=arguments.byte)
        (text,) = page_read.content
        return ToolResult(content=(f"{head}{text}",), details=details)


def _range(page: str | None) -> tuple[int, int]:
    if page is None:
        return 1, 0
    match = _RANGE.fullmatch(page.strip())
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= last:
        raise ToolError("INVALID_ARGUMENT", "'page' must be a page, counted from 1, or a range such as 3-5")
    return first, last


def _shown(answer: Answer, first: int) -> str:
    last = first + len(answer.texts) - 1
    blocks = [_head(answer, first, last)]
    for number, text in enumerate(answer.texts, start=first):
        if number in answer.scans:
            seen = "its picture follows" if str(number) in answer.pictures else f"ask for it by page={number} to see it"
            text = f"{text}\n[page {number} is a scan, a picture without text: {seen}]".strip()
        blocks.append(
            f"--- page {number} ---\n{text or '(an empty page)'}"
            if len(answer.texts) > 1
            else text or "(an empty page)"
        )
    if last < answer.total:
        blocks.append(f"[the pages from {last + 1} on were cut; go on with page={last + 1}]")
    return "\n\n".join(blocks)


def _head(answer: Answer, first: int, last: int) -> str:
    pages = f"page {first:,}" if first == last else f"pages {first:,} to {last:,}"
    sheet = f"; sheet {answer.sheet} of {answer.sheet_names}" if answer.sheets else ""
    return f"[{pages} of {answer.total:,}{sheet}]"


def _pictures(answer: Answer, name: str) -> list[Image]:
    found = []
    for number, data in list(answer.pictures.items())[:PICTURES_MAX]:
        picture = fitted(base64.b64decode(data))
        if picture is not None and number.isdecimal():
            shown = base64.b64encode(picture.data).decode()
            found.append(Image(media_type=picture.type, data=shown, name=f"{name}, page {number}"))
    return found


def _image(fd: int, size: int, path: str) -> ToolResult:
    data = b"".join(iter(lambda: os.read(fd, BLOCK_BYTES), b"")) if size <= SOURCE_BYTES_MAX else b""
    if (picture := fitted(data)) is None:
        reason = unshown(data) if data else f"it is larger than {SOURCE_BYTES_MAX // 1024**2} MiB"
        note = f"[picture {called(path)!r}, {size} bytes: not shown, {reason}]"
        return ToolResult(content=(note,), details={"bytes": size})
    image = Image(media_type=picture.type, data=base64.b64encode(picture.data).decode(), name=called(path))
    return ToolResult(content=(f"[picture {called(path)}{picture.note}]", image), details={"bytes": size})
