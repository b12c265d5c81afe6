"""Documents that users send: the kind of a file, by its first bytes, and its pages, read by a child process.

Nothing of a document is parsed here. The child (`tools.documents.child`) has limits on time, memory and output, and no
rights. Its answer is validated like any untrusted input, and a document that crashes it is one error sentence.
"""

import asyncio
import json
import os
import re
from dataclasses import dataclass
from typing import IO, Annotated, Literal, TypeAlias

from pydantic import BaseModel, Field, ValidationError

from tools.encoding import encoding_of
from tools.sandbox.launch import output_of, program
from tools.tool import ToolError

DocumentKind: TypeAlias = Literal["pdf", "office", "epub", "html", "csv", "ole"]
"""`office` is a zip file that may be Office's or an OpenDocument; `ole` an Office file from before 2007, or one with a
password."""

BYTES_MAX = 64 * 1024 * 1024
MEMORY_BYTES = 256 * 1024 * 1024
OUTPUT_BYTES_MAX = 32 * 1024 * 1024
AT_ONCE = 2
"""Concurrent children of one agent; one more document waits."""
PICTURES_MAX = 4
"""Scanned pages that one answer shows at most."""
GLANCE_SECONDS = 5.0
"""Timeout for counting the pages of a new upload."""
SHEETS_SHOWN = 20

_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_HTML = re.compile(rb"\s*(?:<!--.*?-->\s*)?<(?:!doctype html|html[\s>])", re.IGNORECASE | re.DOTALL)
_ENDINGS: dict[str, DocumentKind] = {
    ".html": "html", ".htm": "html", ".xhtml": "html", ".csv": "csv", ".tsv": "csv",
}  # fmt: skip
_TITLES = {"pdf": "PDF", "epub": "e-book", "html": "web page", "csv": "table"}


def document_kind(head: bytes, name: str) -> DocumentKind | None:
    """Return the kind of a document by its first bytes; of text, also by its name."""
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return "epub" if head[30:58] == b"mimetypeapplication/epub+zip" else "office"
    if head.startswith(_OLE):
        return "ole"
    if encoding_of(head, is_whole=False, nuls=True) is None:
        return None
    kind = _ENDINGS.get(os.path.splitext(name)[1].lower())  # noqa: PTH122 - a model's text, not a path
    return kind or ("html" if _HTML.match(head[:1024]) else None)


PageCount = Annotated[int, Field(ge=0, le=10_000_000)]


class Answer(BaseModel, extra="forbid", strict=True, frozen=True):
    """The child's answer: texts of consecutive pages, and pictures of those that are `scans`."""

    error: str = ""
    total: PageCount = 0
    texts: list[str] = []
    scans: list[PageCount] = []
    pictures: dict[str, str] = {}
    sheets: list[str] = []
    sheet: PageCount = 0

    def title(self, kind: DocumentKind) -> str:
        """Describe the document in a few words: what it is, and how long."""
        pages = f"{self.total:,} page{'s' * (self.total != 1)}"
        if not self.sheets:
            return f"{_TITLES.get(kind, 'document')} of {pages}"
        return f"workbook of {len(self.sheets):,} sheet{'s' * (len(self.sheets) != 1)}: {self.sheet_names}"

    @property
    def sheet_names(self) -> str:
        """The names with their numbers, without characters that could pose as our text."""
        names = (re.sub(r"[^\w .+&-]+", "_", it)[:40] for it in self.sheets[:SHEETS_SHOWN])
        sheets = [f'{n} "{it}"' for n, it in enumerate(names, start=1)]
        more = len(self.sheets) - SHEETS_SHOWN
        return ", ".join(sheets) + (f" and {more:,} more" if more > 0 else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """The pages from `first` to `last`, counted from 1; `last` 0 means as many as fit."""

    first: int = 1
    last: int = 0
    sheet: str = ""
    chars_max: int = 0
    pictures_max: int = PICTURES_MAX


@dataclass(frozen=True, kw_only=True, slots=True)
class Glance:
    """A new upload: `words` say what it is and how long, or why it cannot be read; empty if it is no document. `pages`
    are those of a readable PDF; 0 for all else."""

    words: str = ""
    pages: int = 0


GLANCE = Wanted(first=0, last=-1, pictures_max=0)
"""Requests no page, only their number."""


class Documents:
    """The reader of one agent's documents."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def read(self, file: IO[bytes] | int, kind: DocumentKind, wanted: Wanted) -> Answer:
        """Read pages of an open file. Raises ToolError."""
        seconds = min(self._seconds, GLANCE_SECONDS) if wanted == GLANCE else self._seconds
        pages = {
            "first": wanted.first,
            "last": wanted.last or 10_000_000,
            "chars_max": wanted.chars_max,
            "pictures_max": wanted.pictures_max,
            "wanted_sheet": wanted.sheet,
        }
        request = {"kind": kind, "seconds": seconds, "bytes": MEMORY_BYTES, "pages": pages}
        words = (*program("tools.documents.child", "-I"), json.dumps(request))
        async with self._slots:
            try:
                output = await output_of(words, file, seconds=seconds, bytes_max=OUTPUT_BYTES_MAX)
            except (TimeoutError, ValueError) as error:
                raise _refusal("time" if isinstance(error, TimeoutError) else "output") from None
        try:
            answer = Answer.model_validate_json(output)
        except ValidationError:
            raise _refusal("crashed") from None
        if answer.error:
            raise _refusal(answer.error, answer)
        return answer

    async def glance(self, data: bytes, name: str) -> Glance:
        """Describe a new upload. Never raises for its content."""
        kind = document_kind(data[:1024], name)
        if kind is None or len(data) > BYTES_MAX:
            return Glance()
        try:
            with os.fdopen(os.memfd_create("document", os.MFD_CLOEXEC), "wb+") as file:
                file.write(data)
                file.flush()
                answer = await self.read(file, kind, GLANCE)
        except ToolError as error:
            if error.code == "DOCUMENT_TOO_SLOW":
                return Glance(words="a document whose pages were not counted: that would take too long")
            no_document = error.code == "NOT_TEXT"
            return Glance(words="" if no_document else f"a document that cannot be read: {error.message}")
        except OSError:
            return Glance()
        return Glance(words=answer.title(kind), pages=answer.total if kind == "pdf" else 0)


_SENTENCES: dict[str, tuple[str, str]] = {
    "encrypted": ("DOCUMENT_LOCKED", "it is protected by a password. Ask for a copy without one"),
    "old": (
        "DOCUMENT_UNREADABLE",
        "it is in Office's format from before 2007. Ask for it as .docx, .xlsx, .pptx or PDF",
    ),
    "unknown": (
        "DOCUMENT_UNREADABLE",
        "nothing of what it holds was understood, though it is not empty. Ask for it as PDF, or saved by another program",
    ),
    "broken": ("DOCUMENT_BROKEN", "it is damaged, or not what its name says. Ask for it again, or as PDF"),
    "crashed": (
        "DOCUMENT_BROKEN",
        f"it could not be read: it is damaged, or takes more than {MEMORY_BYTES >> 20} MiB of memory. Ask for a smaller one",
    ),
    "bomb": ("DOCUMENT_TOO_LARGE", "it unpacks to far more than a document holds, so it is not read"),
    "memory": ("DOCUMENT_TOO_LARGE", f"it takes more than {MEMORY_BYTES >> 20} MiB of memory. Ask for a smaller one"),
    "output": ("DOCUMENT_TOO_LARGE", "it has a page too long to be shown. Ask for a smaller one"),
    "time": ("DOCUMENT_TOO_SLOW", "it takes longer to read than limits.documentSeconds. Ask for a smaller one"),
    "other": ("NOT_TEXT", "it is a zip file and no document; it cannot be shown as text"),
}  # fmt: skip


def _refusal(code: str, answer: Answer | None = None) -> ToolError:
    if code == "sheet" and answer is not None:
        return ToolError("NOT_FOUND", f"there is no such sheet; there is: {answer.sheet_names}")
    return ToolError(*_SENTENCES.get(code, _SENTENCES["broken"]))
