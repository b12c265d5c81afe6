"""Word documents and presentations as Markdown.

A document has headings, numbered lists, tables and footnotes, page by page if Word stored its page breaks. A slide is a
page, with its title, points, tables and speaker notes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

from tools.documents.pages import Flow, Package, Pages, UnreadableDocument, relation, table

_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_MC_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_DRAWING = "{http://schemas.openxmlformats.org/drawingml/2006/%s}%s"
_BREAK = "\f"
SPAN_MAX = 60
_LEVEL = re.compile(r"%(\d)")
_SKIPPED = {*(_W + it for it in ("del", "moveFrom", "instrText", "delText", "rt", "pPr", "rPr", "sdtPr")), _MC_FALLBACK}
_AROUND = {*(_W + it for it in ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag"))}
"""Elements around rows and cells that add no level."""
_MARKS = {
    f"{_W}lastRenderedPageBreak": _BREAK,
    f"{_W}tab": "\t",
    f"{_W}ptab": "\t",
    f"{_W}cr": "\n",
    f"{_W}noBreakHyphen": "-",
    f"{_W}object": "[embedded object]",
    f"{_W}altChunk": "[embedded document]",
    _DRAWING % ("picture", "pic"): "[picture]",
    "{urn:schemas-microsoft-com:vml}imagedata": "[picture]",
    _DRAWING % ("chart", "chart"): "[chart]",
    _DRAWING % ("diagram", "relIds"): "[diagram]",
}
_MATH = {
    "f": "({num})/({den})",
    "sSup": "{e}^({sup})",
    "sSub": "{e}_({sub})",
    "sSubSup": "{e}_({sub})^({sup})",
    "rad": "√({e})",
}
"""Formulas in which position has a meaning; of others the letters follow each other."""
_NOTES = {"footnote": ("", ""), "endnote": ("", ""), "comment": ("c", "comment by ")}
"""Kinds of notes, with the text before their number and before their author."""


def read_document(package: Package, pages: Pages) -> None:
    document = _Document(package)
    flow = Flow(pages)
    is_empty = True
    for element in package.elements("word/document.xml", f"{_W}p", f"{_W}tbl", f"{_W}altChunk"):
        is_empty = False
        before, *following = document.block(element).split(_BREAK)
        flow.add(before)
        for text in following:
            flow.turn()
            flow.add(text)
    if is_empty and not _is_blank(package):
        raise UnreadableDocument("unknown")
    for note in (*document.notes(), *document.margins()):
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
        self._links = package.links("word/document.xml")

    def block(self, element: Any) -> str:
        if element.tag == f"{_W}p":
            return self._paragraph(element)
        if element.tag in _MARKS:
            return _MARKS[element.tag]
        whole = (row for row in _within(element, f"{_W}tr") if row.find(f"{_W}trPr/{_W}del") is None)
        rows = ([*self._cells(row)] for row in whole)
        return table([it for it in rows if any(it)])

    def _cells(self, row: Any) -> Iterator[str]:
        for cell in _within(row, f"{_W}tc"):
            own = (it for it in cell.iter(f"{_W}p") if next(it.iterancestors(f"{_W}p", _MC_FALLBACK), None) is None)
            yield " ".join(self._text(it).replace(_BREAK, " ") for it in own)
            span = _value(cell, "tcPr", "gridSpan")
            yield from [""] * (min(int(span), SPAN_MAX) - 1 if span.isdecimal() else 0)

    def _paragraph(self, element: Any) -> str:
        text = self._text(element).strip(" \t\n")
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
        counts[level] += 1  # Word counts an item only when it shows it
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
        for kind, (mark, by) in _NOTES.items():
            if (name := f"word/{kind}s.xml") in self._package.names:
                for note in self._package.tree(name).iter(f"{_W}{kind}"):
                    text = " ".join(self._text(it) for it in note.iter(f"{_W}p")).strip()
                    author = f"{by}{note.get(f'{_W}author')}: " if by and note.get(f"{_W}author") else ""
                    if text and not note.get(f"{_W}type"):
                        yield f"[^{mark}{note.get(f'{_W}id')}]: {author}{text}"

    def margins(self) -> Iterator[str]:
        """Yield headers and footers, each once."""
        seen = set()
        for kind, name in self._package.related("word/document.xml").values():
            if kind in ("header", "footer") and name in self._package.names:
                text = " ".join(self._text(it) for it in self._package.tree(name).iter(f"{_W}p")).strip()
                if any(map(str.isalpha, text)) and text not in seen:
                    seen.add(text)
                    yield f"{kind.capitalize()}: {text}"

    def _text(self, element: Any) -> str:
        return "".join(self._pieces(element))

    def _pieces(self, element: Any) -> Iterator[str]:
        for it in element:  # a form feed ends a page; text deleted in review is skipped
            tag = it.tag
            if tag in (f"{_W}t", f"{_M}t"):
                yield it.text or ""
            elif tag in _MARKS:
                yield _MARKS[tag]
            elif tag == f"{_W}br":
                yield _BREAK if it.get(f"{_W}type") == "page" else "\n"
            elif tag == f"{_W}sym":
                yield _symbol(it.get(f"{_W}char", ""))
            elif tag in (f"{_W}footnoteReference", f"{_W}endnoteReference"):
                yield f"[^{it.get(f'{_W}id')}]"
            elif tag == f"{_W}commentReference":
                yield f"[^c{it.get(f'{_W}id')}]"
            elif tag == f"{_W}txbxContent":
                yield "\n" + "\n".join(self._text(inner) for inner in it.iter(f"{_W}p")) + "\n"
            elif tag == f"{_W}hyperlink":
                yield self._link(it)
            elif isinstance(tag, str) and tag.startswith(_M):
                yield self._formula(it)
            elif tag not in _SKIPPED:
                yield from self._pieces(it)

    def _link(self, element: Any) -> str:
        text, address = self._text(element), self._links.get(relation(element), "")
        return f"[{text}]({address})" if address and text.strip() and address != text else text

    def _formula(self, element: Any) -> str:
        form = _MATH.get(element.tag.removeprefix(_M))
        if form is None:
            return self._text(element)
        parts = {it.tag.removeprefix(_M): self._text(it) for it in element if isinstance(it.tag, str)}
        return form.format_map(defaultdict(str, parts))


def _within(element: Any, tag: str) -> Iterator[Any]:
    for it in element:
        if it.tag == tag:
            yield it
        elif it.tag in _AROUND:  # content controls, insertions
            yield from _within(it, tag)


def _is_blank(package: Package) -> bool:
    root = package.tree("word/document.xml")
    body = root.find(f"{_W}body")
    # a body has at most the settings of its pages
    return root.tag == f"{_W}document" and (body is None or all(it.tag == f"{_W}sectPr" for it in body))


def _symbol(code: str) -> str:
    char = chr(int(code, 16)) if re.fullmatch(r"[0-9A-Fa-f]{1,4}", code) else ""
    # private characters have no meaning outside their symbol font
    return char if char.isprintable() and not "\ue000" <= char <= "\uf8ff" else f"[symbol {code}]"


def _list_of(element: Any) -> tuple[str, str]:
    return _value(element, "pPr", "numPr", "numId"), _value(element, "pPr", "numPr", "ilvl") or "0"


def _value(element: Any, *path: str) -> str:
    found = element.find("/".join(_W + it for it in path))
    return "" if found is None else found.get(f"{_W}val", "")


_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PARTS = {"chart": "chart", "diagramData": "diagram", "comments": "comments"}
"""Parts of a slide with text to show after its own."""
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"


def read_slides(package: Package, pages: Pages) -> None:
    presentation = "ppt/presentation.xml"
    related = package.related(presentation)
    tree = package.tree(presentation)
    if tree.tag != f"{_P}presentation":
        raise UnreadableDocument("unknown")
    for slide in tree.iter(f"{_P}sldId"):
        _, name = related.get(relation(slide), ("", ""))
        if name not in package.names:
            pages.add("[this slide is missing in the file]")
        else:
            pages.add("\n\n".join(_slide(package, name)) if pages.wants_next else "")


def _slide(package: Package, name: str) -> Iterator[str]:
    tree, related = package.tree(name), package.related(name)
    if tree.get("show") in ("0", "false"):
        yield "(a hidden slide)"
    for shape in tree.iter(f"{_P}sp", f"{_P}graphicFrame", f"{_P}pic"):
        if next(shape.iterancestors(_FALLBACK), None) is None and (text := _shape(shape)):
            yield text
    for kind, part in related.values():
        if kind in _PARTS and part in package.names:
            texts = (_words(it) for it in package.tree(part).iter(f"{_A}p", f"{_P}text"))
            words = "; ".join(filter(None, (" ".join(it.split()) for it in texts)))
            yield f"[{_PARTS[kind]}: {words}]" if words else f"[{_PARTS[kind]}]"
    for kind, notes in related.values():
        if kind == "notesSlide" and notes in package.names:
            shapes = package.tree(notes).iter(f"{_P}sp")
            notes = "\n".join(filter(None, (_points(it) for it in shapes if _placeholder(it) in ("body", ""))))
            if notes:
                yield f"Notes: {notes}"


def _shape(shape: Any) -> str:
    if shape.tag == f"{_P}pic":
        about = next(shape.iter(f"{_P}cNvPr"), None)
        words = "" if about is None else about.get("descr", "")
        return f"[picture: {words}]" if words else "[picture]"
    if shape.tag == f"{_P}graphicFrame":
        rows = [[_words(cell) for cell in row.iter(f"{_A}tc")] for row in shape.iter(f"{_A}tr")]
        data = next(shape.iter(f"{_A}graphicData"), None)
        is_told = data is not None and data.get("uri", "").rpartition("/")[2] in ("chart", "diagram")
        return table(rows) if rows or is_told else "[embedded object]"
    if _placeholder(shape) in ("title", "ctrTitle"):
        return f"# {' '.join(_words(shape).split())}" if _words(shape).strip() else ""
    return (
        "" if _placeholder(shape) in ("sldNum", "dt", "ftr") else _points(shape, is_body=_placeholder(shape) == "body")
    )


def _placeholder(shape: Any) -> str:
    element = next(shape.iter(f"{_P}ph"), None)
    return "" if element is None else str(element.get("type", "body"))


def _points(shape: Any, *, is_body: bool = False) -> str:
    lines = []
    for paragraph in shape.iter(f"{_A}p"):
        properties = paragraph.find(f"{_A}pPr")
        level = 0 if properties is None else int(properties.get("lvl", "0"))
        marked = is_body or (
            properties is not None and any(it.tag in (f"{_A}buChar", f"{_A}buAutoNum") for it in properties)
        )
        if words := _words(paragraph).strip():
            lines.append(("  " * level + "- " if level or marked else "") + words)
    return "\n".join(lines)


def _words(element: Any) -> str:
    if element.tag == f"{_P}text":
        return element.text or ""
    return "".join("\n" if it.tag == f"{_A}br" else it.text or "" for it in element.iter(f"{_A}t", f"{_A}br", f"{_M}t"))
