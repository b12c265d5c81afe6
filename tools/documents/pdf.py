"""PDF by PDFium: text in the order of the page, and scanned pages as pictures.

A PDF has no tables, only positioned runs of text, from which rows and columns are guessed. A guess is used only if the
whole page agrees with it: each line is part of a table of three columns or more, or is a single run of text. Anything
else, such as prose in columns, stays in the order in which it was written.
"""

import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from statistics import median
from typing import Any

from tools.documents.pages import Pages, UnreadableDocument, table

COLUMNS_MIN, ROWS_MIN = 3, 3
CELL_CHARS = 24
"""Table cells are short; lines of a column of prose are not."""
MARK_CHARS = 3
"""A bullet or number before its item."""
GAP_SHARE = 0.3
"""Minimum gap between two cells, in heights of their line. Blanks belong to the runs, so gaps within a cell are
smaller."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedText:
    text: str
    left: float
    bottom: float
    right: float
    top: float


def with_tables(runs: Sequence[PlacedText]) -> str:
    """Return the page's text with its tables as Markdown; empty without a table, or if the page is not so plain."""
    lines = [_cells(line) for line in _lines(runs)]
    blocks, has_table = [], False
    for is_row, group in groupby(lines, key=lambda line: len(line) > 1 and not _is_item(line)):
        block = list(group)
        if not is_row:
            blocks.append("\n".join(" ".join(" ".join(cell.text for cell in line).split()) for line in block))
        elif rows := _rows(block):
            blocks.append(table(rows))
            has_table = True
        else:
            return ""
    return "\n\n".join(blocks) if has_table else ""


def _lines(runs: Sequence[PlacedText]) -> Iterator[list[PlacedText]]:
    line: list[PlacedText] = []
    for run in sorted(runs, key=lambda it: -(it.top + it.bottom)):
        if line and (run.top + run.bottom) / 2 < min(it.bottom for it in line[:1]):
            yield sorted(line, key=lambda it: it.left)
            line = []
        line.append(run)
    if line:
        yield sorted(line, key=lambda it: it.left)


def _cells(line: Sequence[PlacedText]) -> list[PlacedText]:
    gap = GAP_SHARE * max(run.top - run.bottom for run in line)
    cells = [line[0]]
    for run in line[1:]:
        last = cells[-1]
        if run.left - last.right < gap:
            cells[-1] = PlacedText(
                text=last.text + run.text,
                left=last.left,
                bottom=min(last.bottom, run.bottom),
                right=max(last.right, run.right),
                top=max(last.top, run.top),
            )
        else:
            cells.append(run)
    return cells


def _is_item(line: Sequence[PlacedText]) -> bool:
    return len(line) == 2 and len(line[0].text.strip()) <= MARK_CHARS and line[1].left - line[0].right < 60


def _rows(lines: Sequence[Sequence[PlacedText]]) -> list[list[str]]:
    columns = _columns([cell for line in lines for cell in line])
    lengths = [len(cell.text.strip()) for line in lines for cell in line]
    if len(lines) < ROWS_MIN or len(columns) < COLUMNS_MIN or median(lengths) > CELL_CHARS:
        return []
    rows = []
    for line in lines:
        row = [""] * len(columns)
        for cell in line:
            at = next(n for n, (left, right) in enumerate(columns) if left <= cell.left <= right)
            row[at] += cell.text
        rows.append(row)
    return _joined(rows)


def _joined(rows: list[list[str]]) -> list[list[str]]:
    # Neighbours that no row fills both are one column: its head is on the left, its numbers on the right.
    column = 1
    while column < len(rows[0]):
        if any(row[column - 1] and row[column] for row in rows):
            column += 1
        else:
            rows = [[*row[: column - 1], row[column - 1] + row[column], *row[column + 1 :]] for row in rows]
    return rows


def _columns(cells: Sequence[PlacedText]) -> list[tuple[float, float]]:
    columns: list[tuple[float, float]] = []
    for cell in sorted(cells, key=lambda it: it.left):
        if columns and cell.left < columns[-1][1]:
            columns[-1] = columns[-1][0], max(columns[-1][1], cell.right)
        else:
            columns.append((cell.left, cell.right))
    return columns


SCAN_CHARS_MAX = 40
"""A page with a picture and no more text than this, such as its number, is a scan."""
SIDE_PIXELS = 1_568
"""Longest side of a page's picture: models scale down larger ones."""
JPEG_QUALITY = 80
RUNS_MAX = 3_000
_PASSWORD = 4


def prepare() -> None:
    import pypdfium2  # noqa: F401
    from PIL import Image, JpegImagePlugin

    Image.new("RGB", (1, 1)).save(io.BytesIO(), "JPEG")
    assert JpegImagePlugin


def read(data: bytes, pages: Pages) -> None:
    import pypdfium2

    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        raise UnreadableDocument("encrypted" if getattr(error, "err_code", None) == _PASSWORD else "broken") from error
    count = len(document)
    if not count:
        raise UnreadableDocument("broken")
    pages.total = pages.first - 1
    while pages.total < count and pages.wants_next:
        pages.add(_page(document, pages.total, pages))
    pages.total = count


def _page(document: Any, index: int, pages: Pages) -> str:
    page = document[index]
    textpage = page.get_textpage()
    text = with_tables(_runs(textpage)) or "\n".join(textpage.get_text_range().splitlines()).strip()
    text = text.replace("\ufffe", "-")  # PDFium's sign for the hyphen at a line's end
    if len(text) <= SCAN_CHARS_MAX and _has_picture(page):
        pages.scans.append(index + 1)
        if len(pages.pictures) < pages.pictures_max:
            pages.pictures[index + 1] = _picture(page)
    textpage.close()
    page.close()
    return text


def _runs(textpage: Any) -> list[PlacedText]:
    count = textpage.count_rects()
    runs = []
    for place in (textpage.get_rect(it) for it in range(count if count <= RUNS_MAX else 0)):
        left, bottom, right, top = place
        if text := textpage.get_text_bounded(*place).replace("\r\n", " "):
            runs.append(PlacedText(text=text, left=left, bottom=bottom, right=right, top=top))
    return runs


def _has_picture(page: Any) -> bool:
    from pypdfium2.raw import FPDF_PAGEOBJ_IMAGE

    return any(True for _ in islice(page.get_objects(filter=[FPDF_PAGEOBJ_IMAGE], max_depth=3), 1))


def _picture(page: Any) -> bytes:
    bitmap = page.render(scale=SIDE_PIXELS / max(1.0, *page.get_size()))
    written = io.BytesIO()
    bitmap.to_pil().convert("RGB").save(written, "JPEG", quality=JPEG_QUALITY)
    return written.getvalue()
