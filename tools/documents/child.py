"""The process that reads one document, with limits on time and memory, and without rights.

Parsers meet untrusted input, so the reader is not part of the gateway. Before the first byte of the document it gives
up files, network and other processes as far as the kernel allows, and can open nothing any more. The document is its
standard input; it writes only JSON.
"""

import base64
import codecs
import json
import resource
import signal
import sys
from collections.abc import Callable
from typing import IO, Any

from lxml import etree

from tools.documents import hypertext, office, opendocument, pdf, sheets
from tools.documents.pages import Package, Pages, UnreadableDocument
from tools.encoding import CODECS
from tools.web.page import give_up_rights

_ENCODINGS = (*CODECS, "cp437", "utf-16", "latin-1", "idna")
_ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
_OFFICE: dict[str, Callable[[Package, Pages], None]] = {
    "word/document.xml": office.read_document,
    "xl/workbook.xml": sheets.read,
    "ppt/presentation.xml": office.read_slides,
}


def main(arguments: list[str]) -> None:
    request = json.loads(arguments[0])
    _limit(request["seconds"], request["bytes"])
    for name in _ENCODINGS:
        codecs.lookup(name)
    prepare(request["kind"])
    _give_up()
    answer: dict[str, Any]
    pages = Pages(**request["pages"])
    try:
        sys.stdin.buffer.seek(0)
        read(request["kind"], sys.stdin.buffer, pages)
        if not pages.total:
            pages.add("")  # an empty sheet is a page, too
        pictures = {str(number): base64.b64encode(data).decode() for number, data in pages.pictures.items()}
        answer = {"total": pages.total, "texts": pages.texts, "scans": pages.scans, "pictures": pictures}
        answer |= {"sheets": pages.sheets, "sheet": pages.sheet}
    except UnreadableDocument as error:
        answer = {"error": error.code, "sheets": pages.sheets}
    except MemoryError:
        answer = {"error": "memory"}
    except Exception:  # noqa: BLE001 - untrusted bytes: a parser may raise anything
        answer = {"error": "broken"}
    sys.stdout.buffer.write(json.dumps(answer).encode())


def _limit(seconds: float, memory_bytes: int) -> None:
    signal.setitimer(signal.ITIMER_REAL, seconds + 1)  # even if the gateway is gone
    cpu = int(seconds) + 1
    for what, value in (
        (resource.RLIMIT_CPU, cpu),
        (resource.RLIMIT_DATA, memory_bytes),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (value, value))


def _give_up() -> None:
    give_up_rights()
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))  # opens nothing, with any kernel


def prepare(kind: str) -> None:
    """Import all that reading needs: afterwards no file can be opened."""
    etree.fromstring(b"<a/>")
    if kind == "pdf":
        pdf.prepare()
    elif kind in ("html", "epub"):
        hypertext.prepare()


def read(kind: str, file: IO[bytes], pages: Pages) -> None:
    match kind:
        case "pdf":
            pdf.read(file.read(), pages)
        case "csv":
            sheets.read_csv(file.read(), pages)
        case "html":
            hypertext.read(file.read(), pages)
        case "epub":
            hypertext.read_epub(Package(file), pages)
        case "ole":
            raise UnreadableDocument("encrypted" if _ENCRYPTED in file.read() else "old")
        case _:
            _read_office(Package(file), pages)


def _read_office(package: Package, pages: Pages) -> None:
    for name, reader in _OFFICE.items():
        if name in package.names:
            reader(package, pages)
            return
    if "mimetype" in package.names and package.read("mimetype").startswith(opendocument.MIMETYPE):
        opendocument.read(package, pages)
    else:
        raise UnreadableDocument("other")
