"""Word documents: headings, numbered lists, tables and footnotes as Markdown, page by page if Word left its breaks."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from tools.documents.package import Package
from tools.documents.pages import Flow, Pages, table

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PICTURE = "{http://schemas.openxmlformats.org/drawingml/2006/picture}pic"
_BREAK = "\f"
SPAN_MAX = 60
_LEVEL = re.compile(r"%(\d)")
_SKIPPED = {f"{_W}del", f"{_W}moveFrom", f"{_W}instrText", _MC_FALLBACK}


def read(package: Package, pages: Pages) -> None:
    document = _Document(package)
    flow = Flow(pages)
    for element in package.elements("word/document.xml", f"{_W}p", f"{_W}tbl"):
        before, *behind = document.block(element).split(_BREAK)
        flow.add(before)
        for text in behind:
            flow.turn()
            flow.add(text)
    for note in document.notes():
        flow.add(note)
    flow.turn()


class _Document:
    def __init__(self, package: Package) -> None:
        self._package = package
        self._headings: dict[str, int] = {}
        self._lists: dict[str, tuple[str, str]] = {}
        self._read_styles()
        self._levels = self._numbering()
        self._counts: dict[str, Counter[int]] = {}

    def block(self, element: Any) -> str:
        if element.tag == f"{_W}p":
            return self._paragraph(element)
        rows = ([*self._cells(row)] for row in element.iterfind(f"{_W}tr"))
        return table([it for it in rows if any(it)])

    def _cells(self, row: Any) -> Iterator[str]:
        for cell in row.iterfind(f"{_W}tc"):
            yield " ".join(_text(it).replace(_BREAK, " ") for it in cell.iter(f"{_W}p"))
            span = _value(cell, "tcPr", "gridSpan")
            yield from [""] * (min(int(span), SPAN_MAX) - 1 if span.isdecimal() else 0)

    def _paragraph(self, element: Any) -> str:
        text = _text(element).strip(" \t\n")
        style = _value(element, "pPr", "pStyle")
        begins = element.find(f"{_W}pPr/{_W}pageBreakBefore")
        page = _BREAK if begins is not None and begins.get(f"{_W}val") not in ("0", "false") else ""
        if not text.strip(_BREAK):
            return page + text
        lead = len(text) - len(text.lstrip(_BREAK))
        number = self._number(element, style)
        head = "#" * level + " " if (level := self._headings.get(style, 0)) else ""
        return page + text[:lead] + (head + number.lstrip() if head else number) + text[lead:]

    def _number(self, element: Any, style: str) -> str:
        """The number or the bullet of an item, its own or its style's, which Word counts only when it shows it."""
        number, depth = _list_of(element)
        if not number:
            number, depth = self._lists.get(style, ("", ""))
        levels = self._levels.get(number)
        level = int(depth) if depth.isdecimal() else 0
        if levels is None or level not in levels:
            return ""
        kind, pattern = levels[level]
        if kind == "bullet" or kind == "none":
            return "  " * level + "- " if kind == "bullet" else ""
        counts = self._counts.setdefault(number, Counter())
        counts[level] += 1
        for deeper in [it for it in counts if it > level]:
            del counts[deeper]
        return "  " * level + _LEVEL.sub(lambda match: str(counts[int(match[1]) - 1] or 1), pattern) + " "

    def _read_styles(self) -> None:
        if "word/styles.xml" not in self._package.names:
            return
        for style in self._package.tree("word/styles.xml").iter(f"{_W}style"):
            name, outline = _value(style, "name").lower(), _value(style, "pPr", "outlineLvl")
            its = style.get(f"{_W}styleId", "")
            self._lists[its] = _list_of(style)
            if match := re.fullmatch(r"heading (\d)|title", name):
                self._headings[its] = min(6, int(match[1] or 1))
            elif outline.isdecimal() and int(outline) < 6:
                self._headings[its] = int(outline) + 1

    def _numbering(self) -> dict[str, dict[int, tuple[str, str]]]:
        if "word/numbering.xml" not in self._package.names:
            return {}
        tree = self._package.tree("word/numbering.xml")
        abstract = {}
        for it in tree.iter(f"{_W}abstractNum"):
            levels = {}
            for level in it.iterfind(f"{_W}lvl"):
                levels[int(level.get(f"{_W}ilvl", "0"))] = _value(level, "numFmt"), _value(level, "lvlText")
            abstract[it.get(f"{_W}abstractNumId")] = levels
        numbers = tree.iter(f"{_W}num")
        return {it.get(f"{_W}numId", ""): abstract.get(_value(it, "abstractNumId"), {}) for it in numbers}

    def notes(self) -> Iterator[str]:
        for kind in ("footnote", "endnote"):
            if (name := f"word/{kind}s.xml") in self._package.names:
                for note in self._package.tree(name).iter(f"{_W}{kind}"):
                    text = " ".join(_text(it) for it in note.iter(f"{_W}p")).strip()
                    if text and not note.get(f"{_W}type"):
                        yield f"[^{note.get(f'{_W}id')}]: {text}"


def _list_of(element: Any) -> tuple[str, str]:
    """The numbering of a paragraph or a style, and the depth in it."""
    return _value(element, "pPr", "numPr", "numId"), _value(element, "pPr", "numPr", "ilvl") or "0"


def _value(element: Any, *path: str) -> str:
    found = element.find("/".join(_W + it for it in path))
    return "" if found is None else found.get(f"{_W}val", "")


def _text(element: Any) -> str:
    return "".join(_pieces(element))


def _pieces(element: Any) -> Iterator[str]:
    """The text of a paragraph, in which a form feed is a page's end. What was struck out in review is not there."""
    for it in element:
        if it.tag == f"{_W}t":
            yield it.text or ""
        elif it.tag == f"{_W}br":
            yield _BREAK if it.get(f"{_W}type") == "page" else "\n"
        elif it.tag == f"{_W}lastRenderedPageBreak":
            yield _BREAK
        elif it.tag == f"{_W}tab":
            yield "\t"
        elif it.tag in (f"{_W}footnoteReference", f"{_W}endnoteReference"):
            yield f"[^{it.get(f'{_W}id')}]"
        elif it.tag == _PICTURE:
            yield "[picture]"
        elif it.tag not in _SKIPPED and it.tag != f"{_W}pPr":
            yield from _pieces(it)
