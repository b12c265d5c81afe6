"""Documents of Feishu that `read` opens by their link: texts, wiki pages, spreadsheets and Base tables, by page.

Each call is one of the table in `tools.feishu.areas`, made as the tool `feishu` makes it: with the token of the person
who is answered, or of the app. Nothing is kept between two pages, so a page shows what the document holds now. What
Feishu answers is untrusted, and each size is bounded.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, TypeAlias

from channels.message import DocumentLink, LinkKind
from channels.wire import mapping, mappings, number, scalar, text
from tools.documents.document import Answer, Wanted
from tools.documents.pages import ROWS, Flow, Pages, table
from tools.feishu.areas import ENDPOINTS
from tools.feishu.blocks import markdown
from tools.feishu.tool import FeishuTool
from tools.tool import Call, ToolError

PREFIX = "feishu:"
CELL_CHARS_MAX = 500
COLUMNS_MAX = 100
PAGES_AT_ONCE, PAGES_MAX = 4, 10
"""Pages of a table that one call shows: without `page`, and at most."""
BLOCKS, BLOCK_CALLS_MAX = 500, 20
TABLES = FIELDS = 100
FIELD_CALLS_MAX = 3
RECORDS, RECORD_CALLS_MAX = 200, 100
"""Feishu's limits: items of one answer, and the calls that get all of what it can hold. Records are asked for by fewer
than it gives, since each may be long."""
_KINDS: Mapping[str, LinkKind] = {"docx": "docx", "wiki": "wiki", "sheet": "sheet", "bitable": "bitable"}
_NAMED = re.compile(r"feishu:(docx|wiki|sheet|bitable)/([A-Za-z0-9]{3,64})")
_ADDRESS = re.compile(r"https?://[^/\s]*\b(?:feishu\.cn|larksuite\.com)/", re.IGNORECASE)
_NODE = "wiki/v2/spaces/get_node"
_DOCX = "docx/v1/documents/:id/blocks"
_SHEETS = ("sheets/v3/spreadsheets/:token/sheets/query", "sheets/v2/spreadsheets/:token/values/:range")
_BASE = "bitable/v1/apps/:app/tables"
_BASES = (_BASE, f"{_BASE}/:table/fields", f"{_BASE}/:table/records/search")
_DATES = (5, 1001, 1002)
"""Types of fields that hold milliseconds since 1970."""
_AREAS = frozenset({"docs", "wiki", "sheets", "bitable"})
_AS_TEXT = {"valueRenderOption": "ToString", "dateTimeRenderOption": "FormattedString"}
Query: TypeAlias = Mapping[str, Any]
CLOSED = (
    "a link of Feishu is opened only where the operator names its area in tools.feishu.areas and lets the agent use "
    "`feishu` (tools.allow)"
)
FORMS = "a link to a docx, wiki, sheets or base page of the account's Feishu, or feishu:KIND/TOKEN as in the metadata"


@dataclass(frozen=True, kw_only=True, slots=True)
class FeishuLinks:
    """`tools.read.LinkReader` for Feishu. `permitted`: the turn has the tool `feishu`, whose rights a link needs."""

    tool: FeishuTool
    permitted: bool

    @property
    def words(self) -> str:
        """Return what the description of `read` says of links; empty if none is opened."""
        is_open = self.permitted and not _AREAS.isdisjoint(self.tool.config.areas)
        return f"It also opens {FORMS}; `sheet` then names a sheet or table." if is_open else ""

    def is_link(self, path: str) -> bool:
        return path.startswith(PREFIX) or _ADDRESS.match(path) is not None

    async def read(self, path: str, wanted: Wanted, call: Call) -> tuple[str, Answer]:
        """Return the document's name for the fence, and its pages. Raises ToolError."""
        if not self.permitted:
            raise ToolError("NOT_ALLOWED", CLOSED)
        link = self._link(path)
        name = f"{PREFIX}{link.kind}/{link.token}"
        if link.kind == "wiki":
            node = mapping(
                await _Calls(self.tool, call, _scopes(_NODE)).data(_NODE, {}, query={"token": link.token}), "node"
            )
            link = replace(link, kind=_KINDS.get(text(node, "obj_type"), "wiki"), token=text(node, "obj_token"))
        match link.kind:
            case "docx":
                return name, await _document(_Calls(self.tool, call, _scopes(_DOCX)), link, wanted)
            case "sheet":
                return name, await _sheet(_Calls(self.tool, call, _scopes(*_SHEETS)), link, wanted)
            case "bitable":
                return name, await _base(_Calls(self.tool, call, _scopes(*_BASES)), link, wanted)
        raise ToolError("NOT_SUPPORTED", "this wiki page is no docx, sheet or bitable, and cannot be read as text")

    def _link(self, path: str) -> DocumentLink:
        if named := _NAMED.fullmatch(path):
            return DocumentLink(kind=_KINDS[named[1]], token=named[2])
        found = () if path.startswith(PREFIX) else self.tool.identities.links(self.tool.config.account, path)
        if not found:
            raise ToolError("INVALID_ARGUMENT", f"`read` opens {FORMS}; nothing else of Feishu")
        return found[0]


@dataclass(frozen=True, slots=True)
class _Calls:
    """The calls for one link. `scopes` are those of all of them, so that the person logs in once."""

    tool: FeishuTool
    call: Call
    scopes: tuple[str, ...]

    async def data(self, path: str, ids: Query, *, query: Query | None = None, body: Query | None = None) -> Query:
        there = re.sub(r":(\w+)", lambda match: ids[match[1]], path)
        method = "GET" if body is None else "POST"
        request = self.tool.parse({"method": method, "path": there, "query": query, "body": body})
        endpoint = replace(request.endpoint, scopes=self.scopes)
        return await self.tool.data(replace(request, endpoint=endpoint), self.call)

    async def each(
        self, path: str, ids: Query, size: int, calls_max: int, *, body: Query | None = None
    ) -> AsyncIterator[Query]:
        """Yield the answers to a call whose items come by pages."""
        query: dict[str, Any] = {"page_size": size}
        for _ in range(calls_max):
            data = await self.data(path, ids, query=query, body=body)
            yield data
            if data.get("has_more") is not True or not (token := text(data, "page_token")):
                return
            query["page_token"] = token


async def _document(calls: _Calls, link: DocumentLink, wanted: Wanted) -> Answer:
    blocks: list[Query] = []
    is_cut = False
    async for data in calls.each(_DOCX, {"id": link.token}, BLOCKS, BLOCK_CALLS_MAX):
        blocks += mappings(data, "items")
        is_cut = data.get("has_more") is True
    return await asyncio.to_thread(_flow, blocks, wanted, is_cut=is_cut)


def _flow(blocks: Sequence[Query], wanted: Wanted, *, is_cut: bool) -> Answer:
    pages = Pages(first=wanted.first, last=wanted.last or 10_000_000, chars_max=wanted.chars_max)
    flow = Flow(pages)
    for block in [*markdown(blocks)] or ["(an empty document)"]:
        flow.add(block)
    if is_cut:
        flow.add(f"[cut: only the first {len(blocks):,} blocks of this document are read]")
    flow.turn()
    return Answer(total=pages.total, texts=pages.texts)


async def _sheet(calls: _Calls, link: DocumentLink, wanted: Wanted) -> Answer:
    data = await calls.data(_SHEETS[0], {"token": link.token})
    sheets = [it for it in mappings(data, "sheets") if it.get("hidden") is not True]
    place = _place(wanted.sheet, link.part, [(text(it, "sheet_id"), text(it, "title")) for it in sheets])
    grid = mapping(sheets[place], "grid_properties")
    rows, columns = number(grid, "row_count") or 0, number(grid, "column_count") or 0
    first, last, total = _range(wanted, rows)
    texts: list[str] = (
        [] if rows or first > 1 else ["(not a sheet of cells: a Base table, or a kind that cannot be read)"]
    )
    if first <= last:
        top, end, right = (first - 1) * ROWS + 1, min(rows, last * ROWS), _letters(min(columns, COLUMNS_MAX))
        ids = {"token": link.token, "range": f"{text(sheets[place], 'sheet_id')}!A{top}:{right}{end}"}
        data = await calls.data(_SHEETS[1], ids, query=_AS_TEXT)
        values = mapping(data, "valueRange").get("values")
        texts = _grid([it for it in values if isinstance(it, list)] if isinstance(values, list) else [], top, end)
        if (more := columns - COLUMNS_MAX) > 0:
            texts = [f"{it}\n\n[cut: {more:,} columns right of {right} are left out]" for it in texts]
    return _shown(texts, total, wanted, [text(it, "title") for it in sheets], place)


async def _base(calls: _Calls, link: DocumentLink, wanted: Wanted) -> Answer:
    tables = mappings(await calls.data(_BASE, {"app": link.token}, query={"page_size": TABLES}), "items")
    place = _place(wanted.sheet, link.part, [(text(it, "table_id"), text(it, "name")) for it in tables])
    ids = {"app": link.token, "table": text(tables[place], "table_id")}
    fields = [
        it async for data in calls.each(_BASES[1], ids, FIELDS, FIELD_CALLS_MAX) for it in mappings(data, "items")
    ]
    records: list[Query] = []
    seen, count, first, last, total = 0, 0, 1, 0, 0
    async for data in calls.each(_BASES[2], ids, RECORDS, RECORD_CALLS_MAX, body={}):
        items, count = mappings(data, "items"), number(data, "total") or 0
        first, last, total = _range(wanted, count)
        records += items[max(0, (first - 1) * ROWS - seen) : max(0, last * ROWS - seen)]
        seen += len(items)
        if first > total or seen >= min(count, last * ROWS):
            break
    if not records and first <= total:
        raise ToolError("TOO_LARGE", f"only the first {seen:,} records come by page; find others with `feishu`")
    head = ["record_id", *(text(it, "field_name") for it in fields)]
    parts = [records[start : start + ROWS] for start in range(0, len(records), ROWS)]
    texts = [table([head, *(_record(it, fields) for it in part)]) for part in parts]
    if first == 1:
        kinds = ", ".join(f"{text(it, 'field_name')} ({text(it, 'ui_type') or it.get('type')})" for it in fields)
        texts[:1] = ["\n\n".join((f"{count:,} records. Fields: {kinds}", *texts[:1]))]
    return _shown(texts, total, wanted, [text(it, "name") for it in tables], place)


def _scopes(*paths: str) -> tuple[str, ...]:
    found = (scope for it in ENDPOINTS if it.path in paths and not it.writes for scope in it.scopes)
    return tuple(dict.fromkeys(found))


def _place(wanted: str, linked: str, parts: Sequence[tuple[str, str]]) -> int:
    """Return the position of a sheet or table, `wanted` by id, name or number, else the `linked` one, else the first.
    The ToolError shows no names, since they are untrusted."""
    names = [it for part in parts for it in part]
    if (wanted or linked) in names:
        return names.index(wanted or linked) // 2
    if parts and not wanted:
        return 0
    if wanted.isdecimal() and 1 <= int(wanted) <= len(parts):
        return int(wanted) - 1
    there = "read it without `sheet` to see which there are" if parts else "it has none"
    raise ToolError("NOT_FOUND", f"there is no such sheet or table; {there}")


def _range(wanted: Wanted, rows: int) -> tuple[int, int, int]:
    """Return the first and the last page to show of a table, and how many it has."""
    total = -(-rows // ROWS)
    last = wanted.last or wanted.first + PAGES_AT_ONCE - 1
    return wanted.first, min(last, wanted.first + PAGES_MAX - 1, total), total


def _shown(texts: Sequence[str], total: int, wanted: Wanted, names: list[str], place: int) -> Answer:
    """Return as many pages as one answer holds, and at least one."""
    pages = Pages(last=len(texts), chars_max=wanted.chars_max)
    for it in texts:
        pages.add(it)
    return Answer(total=total or 1, texts=pages.texts, sheets=names, sheet=place + 1)


def _grid(values: Sequence[Sequence[Any]], top: int, end: int) -> list[str]:
    """Return the pages of rows `top` to `end`, with the letters and the numbers by which a range names cells."""
    texts = []
    for start in range(top, end + 1, ROWS):
        rows = [[_cell(it) for it in row] for row in values[start - top : start - top + ROWS]]
        while rows and not any(rows[-1]):
            rows.pop()
        width = max((at for row in rows for at, it in enumerate(row, start=1) if it), default=0)
        numbered = [[str(at), *row[:width]] for at, row in enumerate(rows, start=start)]
        head = ["", *map(_letters, range(1, width + 1))]
        texts.append(
            table([head, *numbered]) if width else f"(no values in rows {start:,} to {min(end, start + ROWS - 1):,})"
        )
    return texts


def _letters(column: int) -> str:
    letters = ""
    while column > 0:
        column, rest = divmod(column - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters or "A"


def _record(record: Query, fields: Sequence[Query]) -> list[str]:
    values, cells = mapping(record, "fields"), [text(record, "record_id")]
    for field in fields:
        value = values.get(text(field, "field_name"))
        if field.get("type") in _DATES and isinstance(value, int) and 0 <= value < 253_402_300_800_000:
            value = f"{datetime.fromtimestamp(value / 1000, UTC):%Y-%m-%d %H:%M} UTC"
        cells.append(_cell(value))
    return cells


def _cell(value: object) -> str:
    shown = _words(value)
    if len(shown) <= CELL_CHARS_MAX:
        return shown
    return f"{shown[:CELL_CHARS_MAX]}… [cut: the cell has {len(shown):,} characters]"


def _words(value: object) -> str:
    """Return the text of a cell: of text parts, people, files, options, links to records, and what a formula gave."""
    match value:
        case None:
            return ""
        case bool():
            return str(value).lower()
        case list():
            parts = [_words(it) for it in value]
            return ("" if all(isinstance(it, dict) and "text" in it for it in value) else ", ").join(parts)
        case dict():
            if "value" in value or "link_record_ids" in value:
                return _words(value.get("value", value.get("link_record_ids")))
            words = next((it for key in ("text", "name", "full_address") if (it := scalar(value, key))), "")
            return words or json.dumps(value, ensure_ascii=False)
        case _:
            return str(value)
