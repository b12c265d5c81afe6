"""Markdown as a text with the entities that mark it up, as plain text, and in parts that fit a message. Pure.

Offsets and lengths of entities count UTF-16 units. Telegram keeps a hundred entities of a message and drops the rest
unsaid: beyond them a link shows its address.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from markdown_it.common.normalize_url import normalizeLinkText

from channels.message import Folded
from channels.spelling import spelt
from channels.split import Limit
from channels.split import split as cut
from channels.telegram.document import read
from channels.telegram.page import TextRun, TextStyle

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
    """False if nothing of it would be seen, and it is given as it was written."""


def rendered(markdown: str) -> RenderedText:
    """The text, empty only for blanks: Markdown that would show nothing, such as a lone `#`, is shown as it is written."""
    markdown = spelt(clean(markdown))
    text_runs = read(markdown)
    runs = text_runs or [TextRun(text=markdown.strip())]
    text, entities = _written(runs, ENTITIES_MAX)
    return RenderedText(text=text, entities=entities, plain=_written(runs, 0)[0], shows=bool(text_runs))


def folding(markdown: str, folded: Folded) -> RenderedText:
    """The text, and beneath it a quote that opens at a tap; there is no other markup in that."""
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
