"""The tables of a PDF's page, which knows no tables: runs of text at places, from which rows and columns are guessed.

A guess is taken only if the whole page agrees with it: each line is part of a table of three columns or more, or is a
single run of text. Anything else, such as prose in columns, stays in the order in which the page was written.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median

from tools.documents.pages import table

COLUMNS_MIN, ROWS_MIN = 3, 3
CELL_CHARS = 24
"""The cells of a table are short; the lines of a column of prose are not."""
MARK_CHARS = 3
"""A bullet or a number before its item."""
GAP_SHARE = 0.3
"""The gap between two cells, in heights of their line. Blanks belong to the runs, so within a cell there is less."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlacedText:
    text: str
    left: float
    bottom: float
    right: float
    top: float


def with_tables(runs: Sequence[PlacedText]) -> str:
    """The text of the page line by line, with its tables as Markdown; empty if the page is not so plain."""
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
    """Runs at one height, from the top of the page on, each line from its left."""
    line: list[PlacedText] = []
    for run in sorted(runs, key=lambda it: -(it.top + it.bottom)):
        if line and (run.top + run.bottom) / 2 < min(it.bottom for it in line[:1]):
            yield sorted(line, key=lambda it: it.left)
            line = []
        line.append(run)
    if line:
        yield sorted(line, key=lambda it: it.left)


def _cells(line: Sequence[PlacedText]) -> list[PlacedText]:
    """Runs that touch are one cell."""
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
    """The rows of a table; none if they make no table."""
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
    """Neighbours that no row fills both are one column: its head is at the left, and its numbers at the right."""
    at = 1
    while at < len(rows[0]):
        if any(row[at - 1] and row[at] for row in rows):
            at += 1
        else:
            rows = [[*row[: at - 1], row[at - 1] + row[at], *row[at + 1 :]] for row in rows]
    return rows


def _columns(cells: Sequence[PlacedText]) -> list[tuple[float, float]]:
    """Cells above each other are one column."""
    columns: list[tuple[float, float]] = []
    for cell in sorted(cells, key=lambda it: it.left):
        if columns and cell.left < columns[-1][1]:
            columns[-1] = columns[-1][0], max(columns[-1][1], cell.right)
        else:
            columns.append((cell.left, cell.right))
    return columns
