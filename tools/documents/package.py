"""A zip file of XML, as Office and e-books are: its members within bounds, even if their headers lie.

Nothing is unpacked to the disk. XML is read without entities, without a DTD and without the network, and a file
with its own DTD is refused: no program writes such Office files.
"""

import io
import posixpath
import re
import zipfile
from collections.abc import Iterator
from typing import IO, Any
from urllib.parse import unquote

from tools.documents.pages import UnreadableDocument

MEMBERS_MAX = 20_000
EXPANDED_BYTES_MAX = 512 * 1024 * 1024
"""All that is unpacked of one file, together."""
_TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
_OPTIONS: dict[str, Any] = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False}
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/([A-Za-z]+)/")
_STRICT_BYTES = 64
"""More than a match is long. Strict OOXML (ISO/IEC 29500) has the names of 2006 under another address."""
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
        """Raises UnreadableDocument if there is no such member, or it is too large or locked."""
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
        """The elements of these tags, one after the other, without those inside of another; each is emptied when the next
        one is asked for."""
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
        """The members that one refers to: the last word of the relation's type, and the name, by id."""
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
        """The addresses outside of the file that a member refers to, by id."""
        folder, _, leaf = name.rpartition("/")
        rels = f"{folder}/_rels/{leaf}.rels".lstrip("/")
        tree = self.tree(rels) if rels in self.names else ()
        return {it.get("Id", ""): it.get("Target", "") for it in tree if it.get("TargetMode") == "External"}


def relation(element: Any) -> str:
    return str(element.get(f"{_RELATION}id", ""))


def beside(name: str, target: str) -> str:
    """The member that `target` means in the member called `name`."""
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
    """A member with the names of Strict OOXML in their usual form, as a stream."""

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
