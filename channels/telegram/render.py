"""Markdown as the HTML that Telegram's `parse_mode` HTML takes, as plain text, and in parts that fit a message. Pure.

Only the tags Telegram knows are ever written, each is closed in order, and what a model wrote as HTML is text. Telegram
keeps a hundred entities of a message and drops the rest unsaid: beyond them a link shows its address.
"""

from dataclasses import dataclass, field

from markdown_it.common.normalize_url import normalizeLinkText

from channels.split import Limit
from channels.split import split as cut
from channels.telegram.document import read
from channels.telegram.page import Run, Style

ENTITIES_MAX = 100
_REPLACEMENT = "\ufffd"
UNITS_MAX = 4_000
BYTES_MAX = 30_000
_UNITS_MIN = 100
"""Even a table whose every row repeats a long head fits, if it is that short."""
_ONE_MAX = 3 * UNITS_MAX
"""Longer Markdown than this is not tried whole."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    html: str
    text: str
    """What a reader sees: the text that Telegram's limit counts."""
    plain: str
    """Without any markup; links show their addresses."""
    shows: bool
    """False where nothing of it would be seen, and it is given as it was written."""


def rendered(markdown: str) -> Rendered:
    """Nothing only for blanks: Markdown that would show nothing, as a lone `#`, is shown as it is written."""
    markdown = clean(markdown)
    found = read(markdown)
    runs = found or [Run(text=markdown.strip())]
    styled, bare = _Writing(entities_left=ENTITIES_MAX), _Writing(entities_left=0)
    for writing in (styled, bare):
        for run in (*runs, Run(text="")):
            writing.write(run)
    return Rendered(html="".join(styled.html), text="".join(styled.text), plain="".join(bare.text), shows=bool(found))


def clean(text: str) -> str:
    """One kind of line end, and none of what Telegram cannot take: NUL, and half a character without its other half."""
    text = text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", _REPLACEMENT)
    return text.encode("utf-16-le", errors="surrogatepass").decode("utf-16-le", errors="replace")


def escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


@dataclass(slots=True)
class _Writing:
    entities_left: int
    html: list[str] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    _open: list[Style] = field(default_factory=list)
    _bare_link: Style | None = None
    """A link that is not one any more, and what it says so far."""
    _bare_label: str = ""

    def write(self, run: Run) -> None:
        self._end_bare_link(run)
        kept = 0
        while kept < min(len(self._open), len(run.styles)) and self._open[kept] == run.styles[kept]:
            kept += 1
        while len(self._open) > kept:
            self.html.append(_closing(self._open.pop()))
        for style in run.styles[kept:]:
            self._begin(style)
        if self._bare_link:
            self._bare_label += run.text
        self._append(run.text)

    def _begin(self, style: Style) -> None:
        if self.entities_left:
            self.entities_left -= 1
            self._open.append(style)
            self.html.append(_opening(style))
        elif style.tag == "a":
            self._bare_link = style

    def _end_bare_link(self, run: Run) -> None:
        link = self._bare_link
        if link is None or link in run.styles:
            return
        address, label = normalizeLinkText(link.value), self._bare_label.strip()
        self._bare_link, self._bare_label = None, ""
        if label not in (address, address.removeprefix("mailto:")):
            self._append(f" ({address})")

    def _append(self, text: str) -> None:
        self.html.append(escape(text))
        self.text.append(text)


def _opening(style: Style) -> str:
    value = escape(style.value).replace('"', "&quot;")
    match style.tag:
        case "a":
            return f'<a href="{value}">'
        case "pre" if value:
            return f'<pre><code class="language-{value}">'
        case _:
            return f"<{style.tag}>"


def _closing(style: Style) -> str:
    return "</code></pre>" if style.tag == "pre" and style.value else f"</{style.tag}>"


def split(markdown: str) -> list[str]:
    """The parts, in order; each of them shows something and fits a message, as HTML and as plain text."""
    text = clean(markdown).strip("\n")
    if not text.strip():
        return []
    if units(text) <= _ONE_MAX and _fits(rendered(text)):
        return [text]
    return _parts(text, UNITS_MAX) or [text[:UNITS_MAX]]


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _parts(text: str, most: int) -> list[str]:
    found: list[str] = []
    for part in cut(text, (Limit(measure=units, most=most),), tidy=True):
        made = rendered(part)
        if not _fits(made) and most > _UNITS_MIN:
            found += _parts(part, most // 2)
        elif made.shows:
            found.append(part)
    return found


def _fits(made: Rendered) -> bool:
    return max(units(made.text), units(made.plain)) <= UNITS_MAX and len(made.html.encode()) <= BYTES_MAX
