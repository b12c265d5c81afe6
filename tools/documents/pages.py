"""The pages of a document as its readers make them: wanted pages are kept, all are counted.

Part of the child that reads documents (`tools.documents.child`). Kinds without pages are split: text into pages of
about one printed page, rows into pages of fifty. Page numbers are the same for every call.

Office files and e-books are zip files of XML (`Package`). Nothing is unpacked to the disk. XML is read without
entities, DTDs or network access, and a file with its own DTD is refused: no program writes such Office files.
"""

import io
import posixpath
import re
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import IO, Any
from urllib.parse import unquote

PAGE_CHARS = 6_000
"""More than a printed page has, so that one is seldom split."""
ROWS = 50
CELL_CHARS_MAX = 2_000
MARK_CHARS = 120
"""Reserved for a page's number, and for the note on a scan."""


class UnreadableDocument(Exception):
    """A document that cannot be read; `code` names the sentence that the model reads."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(kw_only=True)
class Pages:
    """The pages from `first` to `last`, as many as `chars_max` holds, and at least one. `pictures` are scanned pages as
    JPEG; `sheets` names the parts of a workbook, of which `sheet` is shown."""

    first: int = 1
    last: int = 1
    chars_max: int = 1
    pictures_max: int = 0
    wanted_sheet: str = ""
    total: int = 0
    texts: list[str] = field(default_factory=list)
    pictures: dict[int, bytes] = field(default_factory=dict)
    scans: list[int] = field(default_factory=list)
    sheets: list[str] = field(default_factory=list)
    sheet: int = 0
    is_full: bool = False
    _chars: int = 0

    @property
    def wants_next(self) -> bool:
        return not self.is_full and self.first <= self.total + 1 <= self.last

    def add(self, text: str) -> None:
        """Count the next page, and keep it if it is wanted."""
        is_wanted = self.wants_next
        self.total += 1
        if not is_wanted:
            return
        self._chars += len(text) + MARK_CHARS
        if self.texts and self._chars > self.chars_max:
            self.is_full = True
        else:
            self.texts.append(text)


@dataclass
class Flow:
    """Splits text without pages into pages."""

    pages: Pages
    _blocks: list[str] = field(default_factory=list)
    _chars: int = 0

    def add(self, block: str) -> None:
        for piece in _pieces(block.rstrip()):
            if self._chars + len(piece) > PAGE_CHARS:
                self.turn()
            self._blocks.append(piece)
            self._chars += len(piece) + 2

    def turn(self) -> None:
        """Begin a new page, unless this one is empty."""
        if self._chars:
            self.pages.add(_joined(self._blocks))
            self._blocks, self._chars = [], 0


def _pieces(block: str) -> list[str]:
    if len(block) <= PAGE_CHARS:
        return [block] if block.strip() else []
    pieces, size = [""], 0
    for line in block.split("\n"):  # a block longer than a page is split at line breaks
        if size + len(line) > PAGE_CHARS and size:
            pieces.append("")
            size = 0
        pieces[-1] += ("\n" if size else "") + line
        size += len(line) + 1
    return pieces


_ITEM = re.compile(r"\s*(?:[-*]|\d+[.)])\s")


def _joined(blocks: Sequence[str]) -> str:
    text = blocks[0]
    for before, block in pairwise(blocks):
        # items of one list without a blank line
        text += ("\n" if _ITEM.match(before) and _ITEM.match(block) else "\n\n") + block
    return text


@dataclass
class Rows:
    """Splits the rows of a sheet into pages of Markdown tables, each of which begins with the sheet's first row."""

    pages: Pages
    _head: list[str] | None = None
    _rows: list[Sequence[str]] = field(default_factory=list)
    _count: int = 0

    @property
    def keeps_next(self) -> bool:
        """True if the next row will be shown, not only counted."""
        return self._head is None or self.pages.wants_next

    def add(self, cells: Sequence[str]) -> None:
        if self._head is None:
            self._head = list(cells)
            return
        if self.pages.wants_next:
            self._rows.append(cells)
        self._count += 1
        if self._count == ROWS:
            self._turn()

    def end(self) -> None:
        if self._count or (self._head and not self.pages.total):
            self._turn()

    def _turn(self) -> None:
        self.pages.add(table([self._head or [], *self._rows]) if self.pages.wants_next else "")
        self._rows, self._count = [], 0


def table(rows: Sequence[Sequence[str]]) -> str:
    """Build a Markdown table; the first row is the head."""
    width = max((len(row) for row in rows), default=0)
    if not width:
        return ""
    lines = ["| " + " | ".join([*map(_cell, row), *[""] * (width - len(row))]) + " |" for row in rows]
    return "\n".join([lines[0], "|" + " --- |" * width, *lines[1:]])


def _cell(text: str) -> str:
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= CELL_CHARS_MAX else text[:CELL_CHARS_MAX] + "…"


MEMBERS_MAX = 20_000
EXPANDED_BYTES_MAX = 512 * 1024 * 1024
"""Maximum size of all that is decompressed from one file."""
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_OPTIONS: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/([A-Za-z]+)/")
_STRICT_BYTES = 64
"""Longer than a match. Strict OOXML (ISO/IEC 29500) has the names of 2006 under another address."""
_RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"


class Package:
    def __init__(self, file: IO[bytes]) -> None:
        try:
            self._zip = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise UnreadableDocument("broken") from error
        if len(self._zip.infolist()) > MEMBERS_MAX:
            raise UnreadableDocument("bomb")
        self.names = frozenset(self._zip.namelist())
        self._left_bytes = EXPANDED_BYTES_MAX

    def open(self, name: str) -> "_Bounded":
        """Open a member. Raises UnreadableDocument if it is missing, too large or encrypted."""
        try:
            info = self._zip.getinfo(name)
        except KeyError:
            raise UnreadableDocument("broken") from None
        if info.flag_bits & 1:
            raise UnreadableDocument("encrypted")
        if info.file_size > self._left_bytes:
            raise UnreadableDocument("bomb")
        return _Bounded(self._zip.open(info), self)

    def read(self, name: str) -> bytes:
        return self.open(name).read()

    def spend(self, size: int) -> None:
        self._left_bytes -= size
        if self._left_bytes < 0:
            raise UnreadableDocument("bomb")

    def tree(self, name: str) -> Any:
        from lxml import etree

        data = _STRICT.sub(_TRANSITIONAL, self.read(name))
        tree = etree.parse(io.BytesIO(data), etree.XMLParser(**_OPTIONS))
        if tree.docinfo.internalDTD is not None:
            raise UnreadableDocument("bomb")
        return tree.getroot()

    def elements(self, name: str, *tags: str) -> Iterator[Any]:
        """Yield the elements with these tags, without nested ones; each is cleared when the next one is requested."""
        from lxml import etree

        for _, element in etree.iterparse(_Transitional(self.open(name)), tag=tags, remove_comments=True, **_OPTIONS):
            if element.getroottree().docinfo.internalDTD is not None:
                raise UnreadableDocument("bomb")
            if next(element.iterancestors(*tags), None) is not None:
                continue
            yield element
            element.clear()
            while element.getprevious() is not None:
                del element.getparent()[0]

    def related(self, name: str) -> dict[str, tuple[str, str]]:
        """Return the members that one refers to, by id: the last part of the relation's type, and the name."""
        folder, _, leaf = name.rpartition("/")
        rels = f"{folder}/_rels/{leaf}.rels".lstrip("/")
        if rels not in self.names:
            return {}
        found = {}
        for it in self.tree(rels):
            if it.get("TargetMode") != "External":
                kind, target = it.get("Type", "").rpartition("/")[2], beside(name, it.get("Target", ""))
                found[it.get("Id", "")] = kind, target
        return found

    def links(self, name: str) -> dict[str, str]:
        """Return the external addresses that a member refers to, by id."""
        folder, _, leaf = name.rpartition("/")
        rels = f"{folder}/_rels/{leaf}.rels".lstrip("/")
        tree = self.tree(rels) if rels in self.names else ()
        return {it.get("Id", ""): it.get("Target", "") for it in tree if it.get("TargetMode") == "External"}


def relation(element: Any) -> str:
    return str(element.get(f"{_RELATION}id", ""))


def beside(name: str, target: str) -> str:
    """Resolve `target` relative to the member `name`."""
    joined = posixpath.join("/", posixpath.dirname(name), unquote(target))
    return posixpath.normpath(joined).lstrip("/")


class _Bounded(io.RawIOBase):
    def __init__(self, file: IO[bytes], package: Package) -> None:
        self._file = file
        self._package = package

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size >= 0:
            return self._piece(size)
        return b"".join(iter(lambda: self._piece(1 << 16), b""))

    def _piece(self, size: int) -> bytes:
        data = self._file.read(size)
        self._package.spend(len(data))
        return data


class _Transitional(io.RawIOBase):
    """A member with the namespaces of Strict OOXML in their usual form, as a stream."""

    def __init__(self, file: _Bounded) -> None:
        self._file = file
        self._rest = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        while True:
            piece = self._file.read(size)
            data = _STRICT.sub(_TRANSITIONAL, self._rest + piece)
            if not piece:
                self._rest = b""
                return data
            whole = max(0, len(data) - _STRICT_BYTES)
            self._rest = data[whole:]
            if whole:
                return data[:whole]
