"""Web pages and e-books: their whole text as Markdown, an e-book chapter by chapter."""

import re
from contextlib import suppress
from typing import Any

from tools.documents.pages import Flow, Package, Pages, UnreadableDocument, beside
from tools.encoding import UTF_8, encoding_of, is_valid
from tools.web.page import clean, to_markdown

_META = re.compile(rb"<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*[\"']?([A-Za-z0-9_-]+)", re.IGNORECASE)
_MARKUP = re.compile(r"<(script|style|template|head)\b.*?</\1\s*>|<!--.*?-->|<[^>]*>", re.DOTALL | re.IGNORECASE)
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_OPF = "{http://www.idpf.org/2007/opf}"


def prepare() -> None:
    _markdown(b"<title>t</title><p>a &amp; b <a href='c'>d</a><ul><li>e</ul><table><tr><td>f</table>")


def read(data: bytes, pages: Pages) -> None:
    flow = Flow(pages)
    for block in _markdown(data).split("\n\n"):
        flow.add(block)
    flow.turn()
    if not pages.total and _MARKUP.sub("", _text(data)).strip():
        raise UnreadableDocument("unknown")


def read_epub(package: Package, pages: Pages) -> None:
    root = next(package.tree("META-INF/container.xml").iter(f"{_CONTAINER}rootfile"), None)
    if root is None:
        raise UnreadableDocument("broken")
    if "META-INF/encryption.xml" in package.names and b"EncryptedKey" in package.read("META-INF/encryption.xml"):
        raise UnreadableDocument("encrypted")
    name = root.get("full-path", "")
    book = package.tree(name)
    items = {it.get("id"): beside(name, it.get("href", "")) for it in book.iter(f"{_OPF}item")}
    flow = Flow(pages)
    for it in book.iter(f"{_OPF}itemref"):
        if (chapter := items.get(it.get("idref"), "")) in package.names:
            flow.turn()
            for block in _markdown(package.read(chapter)).split("\n\n"):
                flow.add(block)
    flow.turn()


def _markdown(data: bytes) -> str:
    from lxml import etree
    from lxml.html import HTMLParser, document_fromstring

    root: Any
    try:
        parser = HTMLParser(no_network=True, huge_tree=True, encoding="utf-8")
        root = document_fromstring(_text(data).encode(errors="replace"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError):
        return ""
    clean(root, "about:blank")  # a link within the document leads nowhere here
    return to_markdown(etree.tostring(root, encoding="unicode", method="html"), root.text_content())


def _text(data: bytes) -> str:
    encoding = encoding_of(data, nuls=True) or UTF_8
    # the declared encoding counts only without a BOM, and not for UTF-8
    declared = None if is_valid(data) else _META.search(data[:2048])
    with suppress(LookupError):
        if declared and not encoding.codec.startswith("utf-16"):
            return data.decode(declared[1].decode(), "replace").replace("\0", "")
    return encoding.decode(data).replace("\0", "")
