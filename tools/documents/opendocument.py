"""OpenDocument, as LibreOffice writes it: texts, workbooks and presentations, in the same form as Office's."""

import re
from collections.abc import Iterator
from typing import Any

from tools.documents.pages import Flow, Package, Pages, Rows, UnreadableDocument, table
from tools.documents.sheets import COLUMNS_MAX, chosen

MIMETYPE = b"application/vnd.oasis.opendocument."
REPEATED_MAX = 1_000
"""Maximum repetitions of one row."""
_NAMES = "{urn:oasis:names:tc:opendocument:xmlns:%s:1.0}"
_OFFICE, _TEXT, _TABLE, _DRAW = (_NAMES % it for it in ("office", "text", "table", "drawing"))
_STYLE, _SHOW, _FO = (_NAMES % it for it in ("style", "presentation", "xsl-fo-compatible"))
_BREAK = "\f"
_BLANKS = re.compile(r"\s+")
_PAGE, _STYLES = f"{_DRAW}page", f"{_OFFICE}automatic-styles"
_BLOCKS = (f"{_TEXT}p", f"{_TEXT}h", f"{_TEXT}list", f"{_TABLE}table")
_MARKS = {
    f"{_TEXT}tab": "\t",
    f"{_TEXT}line-break": "\n",
    f"{_TEXT}soft-page-break": _BREAK,
    f"{_DRAW}image": "[picture]",
}
_SKIPPED = (f"{_OFFICE}annotation", f"{_TEXT}tracked-changes", f"{_SHOW}notes")


def read(package: Package, pages: Pages) -> None:
    kind, manifest = package.read("mimetype").removeprefix(MIMETYPE), "META-INF/manifest.xml"
    if manifest in package.names and b"encryption-data" in package.read(manifest):
        raise UnreadableDocument("encrypted")
    if kind.startswith(b"spreadsheet"):
        _read_sheets(package, pages)
    elif kind.startswith((b"text", b"presentation")):
        _read_text(_Body(package), package, pages)
    else:
        raise UnreadableDocument("other")


def _read_text(body: "_Body", package: Package, pages: Pages) -> None:
    flow = Flow(pages)
    for element in package.elements("content.xml", *_BLOCKS, *_MARKS, *_SKIPPED, _STYLES, _PAGE):
        if element.tag == _STYLES:
            body.learn(element)
        elif element.tag == _PAGE:
            pages.add("\n\n".join(body.slide(element)) if pages.wants_next else "")
        else:
            before, *following = body.block(element).split(_BREAK)
            flow.add(before)
            for text in following:
                flow.turn()
                flow.add(text)
    for note in body.notes:
        flow.add(note)
    flow.turn()


class _Body:
    """`notes` are the footnotes of all blocks so far."""

    def __init__(self, package: Package) -> None:
        self.notes: list[str] = []
        self._on_new_page: set[str] = set()
        self._numbered: set[str] = set()
        if "styles.xml" in package.names:
            self.learn(package.tree("styles.xml"))

    def learn(self, tree: Any) -> None:
        for style in tree.iter(f"{_STYLE}style", f"{_TEXT}list-style"):
            if any(it.get(f"{_FO}break-before") == "page" for it in style):
                self._on_new_page.add(style.get(f"{_STYLE}name"))
            if style.find(f"{_TEXT}list-level-style-number") is not None:
                self._numbered.add(style.get(f"{_STYLE}name"))

    def slide(self, page: Any) -> Iterator[str]:
        yield from self._shapes(page)
        if notes := "\n".join(text for it in page.iterfind(f"{_SHOW}notes") for text in self._shapes(it)):
            yield f"Notes: {notes}"

    def _shapes(self, element: Any) -> Iterator[str]:
        for it in element:
            if it.tag in _BLOCKS or (
                it.tag in _MARKS and element.find(f"{_TABLE}table") is None
            ):  # else a preview of it
                yield from filter(None, [self.block(it).replace(_BREAK, "").strip("\n")])
            elif it.get(f"{_SHOW}class") == "title":
                yield from (f"# {words}" for words in [" ".join(" ".join(self._shapes(it)).split())] if words)
            elif it.tag not in (*_SKIPPED, *_MARKS):
                yield from self._shapes(it)

    def block(self, element: Any) -> str:
        """Render a paragraph, list or table; a form feed ends a page."""
        style = element.get(f"{_TEXT}style-name") or element.get(f"{_TABLE}style-name") or ""
        page = _BREAK if style in self._on_new_page else ""
        if element.tag == f"{_TABLE}table":
            rows = ([*self._cells(row)] for row in element.iter(f"{_TABLE}table-row"))
            return page + table([it for it in rows if any(it)])
        if element.tag == f"{_TEXT}list":
            return "\n".join(self._items(element, style, ""))
        text = _MARKS.get(element.tag) or ("" if element.tag in _SKIPPED else self._words(element).strip(" \t\n"))
        level = _number(element, f"{_TEXT}outline-level", 6) if element.tag == f"{_TEXT}h" and text else 0
        return page + "#" * level + " " * (level > 0) + text

    def _cells(self, row: Any) -> Iterator[str]:
        for cell in row.iterfind(f"{_TABLE}*"):
            text = " ".join(self._words(it).replace(_BREAK, " ") for it in cell.iter(f"{_TEXT}p", f"{_TEXT}h"))
            yield from [text] * _number(cell, f"{_TABLE}number-columns-repeated", COLUMNS_MAX)

    def _items(self, element: Any, style: str, indent: str) -> Iterator[str]:
        for number, item in enumerate(element, start=1):
            mark = f"{number}. " if style in self._numbered else "- "
            for it in item:
                if it.tag == f"{_TEXT}list":
                    yield from self._items(it, it.get(f"{_TEXT}style-name") or style, indent + "  ")
                elif text := self._words(it).strip(" \t\n"):
                    yield indent + mark + text
                    mark = ""

    def _words(self, element: Any) -> str:
        return _plain(element.text) + "".join(self._piece(it) + _plain(it.tail) for it in element)

    def _piece(self, element: Any) -> str:
        if element.tag == f"{_TEXT}s":
            return " " * _number(element, f"{_TEXT}c", 100)
        if element.tag == f"{_TEXT}note":
            mark = element.findtext(f"{_TEXT}note-citation") or str(len(self.notes) + 1)
            body = (" ".join(self._words(it).split()) for it in element.iterfind(f"{_TEXT}note-body"))
            self.notes.append(f"[^{mark}]: {' '.join(body)}")
            return f"[^{mark}]"
        if element.tag in _MARKS or element.tag in _SKIPPED:
            return _MARKS.get(element.tag, "")
        return self._words(element) + "\n" * (element.tag in _BLOCKS)


def _plain(text: str | None) -> str:
    return _BLANKS.sub(" ", text or "")


def _read_sheets(package: Package, pages: Pages) -> None:
    pages.sheets = list(dict.fromkeys(sheet for sheet, _ in _rows(package)))
    pages.sheet = chosen(pages)
    if pages.last < pages.first:
        return  # only the sheets are asked for
    rows = Rows(pages)
    for sheet, row in _rows(package):
        if sheet == pages.sheets[pages.sheet - 1] and (cells := _values(row)):
            for _ in range(_number(row, f"{_TABLE}number-rows-repeated", REPEATED_MAX)):
                rows.add(cells)
    rows.end()


def _rows(package: Package) -> Iterator[tuple[str, Any]]:
    for row in package.elements("content.xml", f"{_TABLE}table-row"):
        if (sheet := next(row.iterancestors(f"{_TABLE}table"), None)) is not None:
            yield sheet.get(f"{_TABLE}name", ""), row


def _values(row: Any) -> list[str]:
    values: list[str] = []
    for cell in row.iterfind(f"{_TABLE}*"):
        repeated = _number(cell, f"{_TABLE}number-columns-repeated", COLUMNS_MAX)
        values += [_value(cell)] * min(repeated, COLUMNS_MAX - len(values))
    while values and not values[-1]:  # a row ends with thousands of these
        values.pop()
    return values


def _value(cell: Any) -> str:
    kind, value = cell.get(f"{_OFFICE}value-type"), cell.get(f"{_OFFICE}value", "")
    number = (
        float(value)
        if re.fullmatch(r"[-+]?[0-9.]{1,40}(?:[eE][-+]?\d{1,3})?", value) and value.count(".") < 2
        else None
    )
    match kind:
        case "float" | "currency":
            return f"{number:.15g}" if number is not None and abs(number) < 1e15 else str(value)
        case "percentage":
            return str(value) if number is None else f"{number * 100:.10g}%"
        case "date":
            return str(cell.get(f"{_OFFICE}date-value", "")).replace("T", " ")
    text = "\n".join("".join(it.itertext()) for it in cell.iterfind(f"{_TEXT}p"))
    return text or str(cell.get(f"{_TABLE}formula", "")).removeprefix("of:")


def _number(element: Any, name: str, at_most: int) -> int:
    text = element.get(name, "1")
    return max(1, min(int(text), at_most)) if text.isdecimal() and len(text) < 10 else 1
