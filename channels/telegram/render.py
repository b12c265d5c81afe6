"""Markdown as a text with the entities that mark it up, as plain text, and in parts that fit a message. Pure.

Offsets and lengths of entities count UTF-16 units. Telegram keeps a hundred entities of a message and drops the rest
unsaid: beyond them a link shows its address.

Bullets, numbers, boxes, rules and tables are spelt out in characters. HTML and reference definitions that are left are shown
as written, so a part that is cut out of a text reads as it did inside.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from markdown_it import MarkdownIt
from markdown_it.common.normalize_url import normalizeLinkText
from markdown_it.rules_block.table import escapedSplit
from markdown_it.token import Token
from rich.cells import cell_len

from channels.message import Folded
from channels.spelling import spelt
from channels.split import Limit
from channels.split import split as cut
from channels.telegram.page import BULLET, StyledText, TextRun, TextStyle, write_inline

ENTITIES_MAX = 100
_REPLACEMENT = "\ufffd"
UNITS_MAX = 4_000
BYTES_MAX = 30_000
"""The size of the text and the addresses of its links."""
_UNITS_MIN = 100
"""The shortest limit; even a table that repeats a long head for every row fits then."""
_ONE_MAX = 3 * UNITS_MAX
"""The longest Markdown that is tried whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RenderedText:
    text: str
    """The text as a reader sees it: the text that Telegram's limit counts."""
    entities: list[dict[str, Any]]
    plain: str
    """The text without markup; links show their addresses."""
    shows: bool
    """False if nothing of it would be visible, and the source text is used."""


def rendered(markdown: str) -> RenderedText:
    """Render the text; empty only for blanks. Markdown that would render as nothing, such as a lone `#`, is shown as
    source text."""
    markdown = spelt(clean(markdown))
    text_runs = read(markdown)
    runs = text_runs or [TextRun(text=markdown.strip())]
    text, entities = _written(runs, ENTITIES_MAX)
    return RenderedText(text=text, entities=entities, plain=_written(runs, 0)[0], shows=bool(text_runs))


def folding(markdown: str, folded: Folded) -> RenderedText:
    """Render the text followed by an expandable quote, which is the only folding markup."""
    made, beneath = rendered(markdown), f"{folded.title}\n{rendered(folded.text).text}"
    lead = f"{made.text}\n\n"
    quote = {"type": "expandable_blockquote", "offset": units(lead), "length": units(beneath)}
    entities = [*made.entities[: ENTITIES_MAX - 1], quote]
    return RenderedText(text=lead + beneath, entities=entities, plain=f"{made.plain}\n\n{beneath}", shows=True)


def clean(text: str) -> str:
    """One kind of line end, and none of what Telegram cannot take: NUL, and half a character without its other half."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", _REPLACEMENT)
    return text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")


def _written(runs: Sequence[TextRun], entities_max: int) -> tuple[str, list[dict[str, Any]]]:
    text: list[str] = []
    entities: list[dict[str, Any]] = []
    opened: dict[TextStyle, dict[str, Any]] = {}
    at, bare, label = 0, None, ""  # `bare` is a link that got no entity, `label` what it says so far
    for run in (*runs, TextRun(text="")):
        if bare is not None and bare not in run.styles:
            address = normalizeLinkText(bare.value)
            if label.strip() not in (address, address.removeprefix("mailto:")):
                text.append(f" ({address})")
                at += units(text[-1])
            bare, label = None, ""
        for entity in opened.values():
            entity["length"] = at - entity["offset"]
        opened = {style: entity for style, entity in opened.items() if style in run.styles}
        for style in run.styles:
            if style not in opened and len(entities) < entities_max:
                opened[style] = {"type": style.kind, "offset": at, "length": 0} | style.facts()
                entities.append(opened[style])
            elif style not in opened and style.kind == "text_link":
                bare = style
        label += run.text if bare else ""
        text.append(run.text)
        at += units(run.text)
    return "".join(text), entities


def split(markdown: str) -> list[str]:
    """The parts, in order; each of them shows something and fits a message, with its entities and as plain text."""
    text = spelt(clean(markdown)).strip("\n")
    if not text.strip():
        return []
    if units(text) <= _ONE_MAX and _fits(rendered(text)):
        return [text]
    return _parts(text, UNITS_MAX) or [text[:UNITS_MAX]]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _parts(text: str, most: int) -> list[str]:
    parts: list[str] = []
    for part in cut(text, (Limit(measure=units, most=most),), tidy=True):
        made = rendered(part)
        if not _fits(made) and most > _UNITS_MIN:
            parts += _parts(part, most // 2)
        elif made.shows:
            parts.append(part)
    return parts


def _fits(made: RenderedText) -> bool:
    size = len(made.text.encode()) + sum(len(entity.get("url", "")) for entity in made.entities)
    return max(units(made.text), units(made.plain)) <= UNITS_MAX and size <= BYTES_MAX


NESTING_MAX = 40
"""The maximum depth of blocks. The parser recurses and drops deeper content, so a deeper text is shown as source
text."""
TABLE_COLUMNS_MAX = 20
"""A head of hundreds of columns makes the parser fill in thousands of cells for the lines below it."""
RULE = "———"
_LANGUAGE = re.compile(r"[\w+#.-]{1,32}", re.ASCII)
_BLANK = "–"
Align = Literal["left", "right", "center"]
CELLS_MAX = 60
_BETWEEN, _CROSSING = " | ", "-+-"


def read(markdown: str) -> list[TextRun]:
    """The runs of a text that has neither NUL nor half characters; none if nothing would be seen."""
    lines = markdown.split("\n")
    tables = not any(line.count("|") > TABLE_COLUMNS_MAX and not line.strip(" \t>|:-") for line in lines)
    tokens = _parser(tables=tables).parse(markdown)
    page = StyledText()
    if any(token.level + token.nesting >= NESTING_MAX for token in tokens):
        page.write(markdown)
    else:
        _PageWriter(page, lines).write(tokens)
    return page.runs()


@cache
def _parser(*, tables: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": NESTING_MAX})
    parser.enable(["strikethrough", *(["table"] if tables else [])])
    parser.disable(["reference", "html_block", "html_inline"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign]  # judged here, where it can be shown as text
    return parser


class _PageWriter:
    """Writes Markdown tokens onto a page, block by block."""

    def __init__(self, page: StyledText, lines: Sequence[str]) -> None:
        self._page = page
        self._lines = lines
        self._numbers: list[int | None] = []
        """The number of the next item, for every list we are in; None in one with bullets."""
        self._quotes = 0

    def write(self, tokens: Sequence[Token]) -> None:
        table: list[Token] = []
        for token in tokens:
            if token.type == "table_open" or table:
                table.append(token)
                if token.type == "table_close":
                    self._table(table)
                    table = []
            else:
                self._block(token)

    def _block(self, token: Token) -> None:
        page = self._page
        match token.type:
            case "inline":
                write_inline(page, token.children or [])
            case "paragraph_open":
                page.break_lines(1 if token.hidden else 2)
            case "heading_open":
                page.break_lines(2)
                page.open("bold")
            case "heading_close":
                page.close("bold")
            case "fence" | "code_block":
                self._code(token)
            case "blockquote_open" | "blockquote_close":
                self._quote(token.nesting)
            case "hr":
                page.break_lines(2)
                page.write(RULE)
            case "bullet_list_open" | "ordered_list_open":
                start = token.attrGet("start")
                first = int(start) if start is not None else 1
                self._numbers.append(first if token.type == "ordered_list_open" else None)
                page.break_lines(1 if page.depth else 2)
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
                page.break_lines(1 if page.depth else 2)
            case "list_item_open":
                number = self._numbers[-1]
                page.begin_item(BULLET if number is None else f"{number}{token.markup} ")
                self._numbers[-1] = None if number is None else number + 1
            case "list_item_close":
                page.end_item()

    def _quote(self, nesting: int) -> None:
        """A quote inside a quote is that quote: Telegram nests none."""
        self._quotes += nesting
        self._page.break_lines(2)
        if nesting > 0 and self._quotes == 1:
            self._page.open("blockquote")
        elif self._quotes == 0:
            self._page.close("blockquote")

    def _code(self, token: Token) -> None:
        """Anything that follows the language, often a file's name, is said above."""
        page = self._page
        page.break_lines(1 if page.depth else 2)
        language, _, rest = token.info.strip().partition(" ")
        if not _LANGUAGE.fullmatch(language):
            language, rest = "", token.info.strip()
        if rest.strip():
            page.write(rest.strip())
            page.break_lines(1)
        code = token.content.strip("\n").rstrip()
        if code.strip():
            page.write_block(code, TextStyle(kind="pre", value=language))
        page.break_lines(1 if page.depth else 2)

    def _table(self, tokens: Sequence[Token]) -> None:
        """Render a table as a grid if it is narrow and plain; otherwise each cell on its own line, after its header."""
        rows = [self._row(tokens, at) for at, token in enumerate(tokens) if token.type == "tr_open"]
        aligns = [_align(token) for token in tokens if token.type == "th_open"]
        pages = [[_cell(cell) for cell in row] for row in rows]
        texts = [["".join(run.text for run in runs) for runs in row] for row in pages]
        linked = any(style.kind == "text_link" for row in pages for runs in row for run in runs for style in run.styles)
        drawn = None if linked else grid(texts[0], texts[1:], aligns)
        self._page.break_lines(1 if self._page.depth else 2)
        if drawn is not None and drawn.strip(" |+-\n"):
            self._page.write_block(drawn, TextStyle(kind="pre"))
        else:
            self._lines_of(rows)
        self._page.break_lines(1 if self._page.depth else 2)

    def _row(self, tokens: Sequence[Token], at: int) -> list[list[Token]]:
        """The cells. The parser drops those that are more than the head has; the last one takes them."""
        row = tokens[at]
        end = next(index for index in range(at, len(tokens)) if tokens[index].type == "tr_close")
        cells = [list(token.children or []) for token in tokens[at:end] if token.type == "inline"]
        if tokens[at + 1].type == "td_open" and row.map:
            texts = escapedSplit(self._lines[row.map[0]].lstrip(" \t>").rstrip())
            extra = [cell.strip() for cell in texts[1 if texts[0] == "" else 0 :][len(cells) :] if cell.strip()]
            if extra:
                cells[-1].append(Token(type="text", tag="", nesting=0, content=" | " + " | ".join(extra)))
        return cells

    def _lines_of(self, rows: Sequence[Sequence[Sequence[Token]]]) -> None:
        head, *body = rows
        for row in body or [head]:
            for name, cell in zip(head, row, strict=True):
                self._page.break_lines(1)
                if body and name:
                    self._page.open("bold")
                    write_inline(self._page, name)
                    self._page.close("bold")
                    self._page.write(": ")
                write_inline(self._page, cell) if cell else self._page.write(_BLANK)
            self._page.break_lines(2)


def _cell(cell: Sequence[Token]) -> list[TextRun]:
    page = StyledText()
    write_inline(page, cell)
    return page.runs()


def _align(token: Token) -> Align:
    style = str(token.attrGet("style") or "")
    return "right" if style.endswith("right") else "center" if style.endswith("center") else "left"


def grid(head: Sequence[str], rows: Sequence[Sequence[str]], aligns: Sequence[Align]) -> str | None:
    """A table for a fixed-width font, or None if it is wider than a phone. Every row has a cell for each column."""
    widths = [max(cell_len(cell) for cell in column) for column in zip(head, *rows, strict=True)]
    if sum(widths) + len(_BETWEEN) * (len(widths) - 1) > CELLS_MAX:
        return None
    lines = [_BETWEEN.join(map(_padded, row, widths, aligns)).rstrip() for row in (head, *rows)]
    return "\n".join([lines[0], _CROSSING.join("-" * cells for cells in widths), *lines[1:]])


def _padded(cell: str, cells: int, align: Align) -> str:
    free = cells - cell_len(cell)
    left = {"left": 0, "right": free, "center": free // 2}[align]
    return " " * left + cell + " " * (free - left)
