"""Presentations: a slide is a page, with its title, its points, its tables and what its speaker noted."""

from collections.abc import Iterator
from typing import Any

from tools.documents.package import Package, relation
from tools.documents.pages import Pages, UnreadableDocument, table

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_MATH = "{http://schemas.openxmlformats.org/officeDocument/2006/math}t"
_FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
_PARTS = {"chart": "chart", "diagramData": "diagram", "comments": "comments"}
"""The parts beside a slide whose words are told behind its own."""
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"


def read(package: Package, pages: Pages) -> None:
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
    return "".join("\n" if it.tag == f"{_A}br" else it.text or "" for it in element.iter(f"{_A}t", f"{_A}br", _MATH))
