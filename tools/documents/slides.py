"""Presentations: a slide is a page, with its title, its points, its tables and what its speaker noted."""

from collections.abc import Iterator
from typing import Any

from tools.documents.package import Package, relation
from tools.documents.pages import Pages, table

_A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
_P = "{http://schemas.openxmlformats.org/presentationml/2006/main}"


def read(package: Package, pages: Pages) -> None:
    presentation = "ppt/presentation.xml"
    related = package.related(presentation)
    for slide in package.tree(presentation).iter(f"{_P}sldId"):
        _, name = related.get(relation(slide), ("", ""))
        pages.add("\n\n".join(_slide(package, name)) if pages.wants_next and name in package.names else "")


def _slide(package: Package, name: str) -> Iterator[str]:
    for shape in package.tree(name).iter(f"{_P}sp", f"{_P}graphicFrame", f"{_P}pic"):
        if text := _shape(shape):
            yield text
    for kind, notes in package.related(name).values():
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
        return table([[_words(cell) for cell in row.iter(f"{_A}tc")] for row in shape.iter(f"{_A}tr")])
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
    return "".join("\n" if it.tag == f"{_A}br" else it.text or "" for it in element.iter(f"{_A}t", f"{_A}br"))
