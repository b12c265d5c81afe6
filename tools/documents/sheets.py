"""Workbooks and CSV: rows as Markdown tables, values as a person would read them."""

import csv
import io
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from tools.documents.pages import Package, Pages, Rows, UnreadableDocument, relation
from tools.encoding import decoded

COLUMNS_MAX = 200
STRINGS_CHARS_MAX = 64 * 1024 * 1024
_MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
_DATES = {*range(14, 23), *range(27, 37), *range(45, 48), *range(50, 59)}
"""Built-in formats of dates and times, which a file need not describe."""
_PERCENT = {9, 10}
_DATE_CODE = re.compile(r"[ymdhs]", re.IGNORECASE)
_NOT_CODE = re.compile(r'"[^"]*"|\\.|\[[^\]]*\]')


def read(package: Package, pages: Pages) -> None:
    workbook = "xl/workbook.xml"
    tree, related = package.tree(workbook), package.related(workbook)
    sheets = list(tree.iter(f"{_MAIN}sheet"))
    pages.sheets = [it.get("name", "") for it in sheets]
    pages.sheet = chosen(pages)
    if pages.last < pages.first:
        return  # only the sheets are asked for
    kind, name = related.get(relation(sheets[pages.sheet - 1]), ("", ""))
    if kind in ("chartsheet", "dialogsheet"):
        pages.add(f"[{kind.removesuffix('sheet')}]")
        return
    properties = tree.find(f"{_MAIN}workbookPr")
    is_1904 = properties is not None and properties.get("date1904") in ("1", "true")
    book = _Book(_strings(package), *_formats(package), datetime(1904, 1, 1) if is_1904 else datetime(1899, 12, 30))  # noqa: DTZ001 - a sheet knows no time zone
    rows = Rows(pages)
    for row in package.elements(name, f"{_MAIN}row"):
        if not rows.keeps_next:
            if any(row.find(f"{_MAIN}c/{_MAIN}{it}") is not None for it in ("v", "is", "f")):
                rows.add(())
        elif cells := book.cells(row):
            rows.add(cells)
    rows.end()


def chosen(pages: Pages) -> int:
    """Return the number of the wanted sheet, which is given by name or number."""
    sheet = pages.wanted_sheet or "1"
    names = [it.casefold() for it in pages.sheets]
    if sheet.casefold() in names:
        return names.index(sheet.casefold()) + 1
    if sheet.isdecimal() and 1 <= int(sheet) <= len(names):
        return int(sheet)
    raise UnreadableDocument("sheet" if names else "broken")


def _strings(package: Package) -> list[str]:
    if "xl/sharedStrings.xml" not in package.names:
        return []
    strings, chars = [], 0
    for item in package.elements("xl/sharedStrings.xml", f"{_MAIN}si"):
        strings.append(_text(item))
        chars += len(strings[-1])
        if chars > STRINGS_CHARS_MAX:
            raise UnreadableDocument("bomb")
    return strings


def _text(item: Any) -> str:
    reading = f"{_MAIN}rPh"  # phonetic readings are left out
    return "".join(it.text or "" for it in item.iter(f"{_MAIN}t") if it.getparent().tag != reading)


def _formats(package: Package) -> tuple[set[int], set[int]]:
    if "xl/styles.xml" not in package.names:
        return set(), set()
    tree = package.tree("xl/styles.xml")
    codes = {it.get("numFmtId"): _NOT_CODE.sub("", it.get("formatCode", "")) for it in tree.iter(f"{_MAIN}numFmt")}
    dates, percent = set(), set()
    for style, it in enumerate(tree.iterfind(f"{_MAIN}cellXfs/{_MAIN}xf")):
        number, code = it.get("numFmtId", "0"), codes.get(it.get("numFmtId"), "")
        known = int(number) if number.isdecimal() and len(number) < 6 else 0
        if _DATE_CODE.search(code.replace("General", "")) or (not code and known in _DATES):
            dates.add(style)
        elif "%" in code or (not code and known in _PERCENT):
            percent.add(style)
    return dates, percent


@dataclass
class _Book:
    strings: list[str]
    dates: set[int]
    percent: set[int]
    epoch: datetime
    _columns: dict[str, int] = field(default_factory=dict)

    def cells(self, row: Any) -> list[str]:
        """Return the values of a row; empty if it has none."""
        values: list[str] = []
        for cell in row:
            if cell.tag == f"{_MAIN}c" and (text := self._value(cell)):
                column = self._column(cell.get("r", "").replace("$", "").rstrip("0123456789"), len(values))
                if column < COLUMNS_MAX:
                    values += [""] * (column + 1 - len(values))
                    values[column] = text
        return values

    def _column(self, letters: str, following: int) -> int:
        if not re.fullmatch("[A-Za-z]{1,4}", letters):
            return following
        if letters not in self._columns:
            number = 0
            for letter in letters[:4].upper():
                number = number * 26 + ord(letter) - 64
            self._columns[letters] = number - 1
        return self._columns[letters]

    def _value(self, cell: Any) -> str:
        try:
            return self._shown(cell)
        except (ValueError, IndexError, OverflowError):
            return str(cell.findtext(f"{_MAIN}v") or "")  # as it is written

    def _shown(self, cell: Any) -> str:
        kind, value = cell.get("t", "n"), cell.findtext(f"{_MAIN}v")
        if kind == "inlineStr":
            return _text(cell)
        if not value:  # the writer computes no values
            formula = cell.findtext(f"{_MAIN}f")
            shared = cell.find(f"{_MAIN}f") is not None
            return f"={formula}" if formula else "=(a formula that another cell has)" if shared else ""
        if kind == "s":
            return self.strings[int(value)] if value.isdecimal() else str(value)
        if kind == "b":
            return {"1": "TRUE", "0": "FALSE"}.get(value, str(value))
        style = cell.get("s", "0")
        return self._number(value, int(style) if style.isdecimal() else 0) if kind == "n" else str(value)

    def _number(self, value: str, style: int) -> str:
        number = float(value)
        if not math.isfinite(number):
            return value
        if style in self.percent:
            return f"{number * 100:.10g}%"
        if style in self.dates and 0 <= number < 2_958_466:
            return self._moment(number)
        return f"{number:.15g}" if abs(number) < 1e15 else value

    def _moment(self, days: float) -> str:
        moment = self.epoch + timedelta(seconds=round(days * 86_400))
        if days < 1:
            return f"{moment:%H:%M:%S}"
        return f"{moment:%Y-%m-%d}" if moment.time() == datetime.min.time() else f"{moment:%Y-%m-%d %H:%M:%S}"


def read_csv(data: bytes, pages: Pages) -> None:
    text = decoded(data).replace("\0", "\ufffd")
    csv.field_size_limit(1 << 24)
    try:
        dialect: type[csv.Dialect] | csv.Dialect = csv.Sniffer().sniff(text[:16_384], delimiters=",;\t|")
    except csv.Error:
        dialect = csv.excel
    rows = Rows(pages)
    for cells in _csv_rows(text, dialect):
        if any(cells):
            rows.add(cells[:COLUMNS_MAX])
    rows.end()


def _csv_rows(text: str, dialect: Any) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text, newline=""), dialect)
    except csv.Error as error:
        raise UnreadableDocument("broken") from error
