"""The model's final text, as people may see it: directives taken out, a chosen silence recognised.

What is meant for the gateway is never sent, whether the channel acts on it or not. Acting on directives is not here;
neither is formatting or splitting.
"""

import re
import unicodedata
from collections.abc import Iterator

from agents.prompt.markers import SILENT

_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_MEDIA = re.compile(r"[ \t]*MEDIA:(?:\S.*|[ \t]+\S+[ \t]*)")
_TAG = re.compile(
    r"\[\[[ \t]*(?:audio_as_voice|reply_to_current|reply_to[ \t]*:[^\[\]\n]*)[ \t]*\]\][ \t]?", re.IGNORECASE
)
_CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


def visible(text: str) -> str | None:
    """What to send. None where the model chose silence; empty where nothing is left but it did not choose to be silent."""
    shown = _BLANK_LINES.sub("", "\n".join(_sent_lines(text))).rstrip()
    return None if SILENT in text and _says_nothing(shown) else shown


def _sent_lines(text: str) -> Iterator[str]:
    """Line by line, outside code fences without directives, everywhere without the token; no gaps where lines fell out."""
    fence = ""
    fell_out = blank = False
    for line in text.split("\n"):
        kept = _without_token(line)
        opening = _FENCE.fullmatch(line)
        if fence:
            if opening and opening[1].startswith(fence) and not opening[2].strip():
                fence = ""
        elif opening and not ("`" in opening[1] and "`" in opening[2]):
            fence = opening[1]
        else:
            kept = "" if _MEDIA.fullmatch(kept) else _without_tags(kept)
        if kept != line:
            kept = kept.rstrip() if line[:1].isspace() else kept.strip()
            if not kept or (SILENT in line and _says_nothing(kept)):
                fell_out = True
                continue
        if fell_out and blank and not kept.strip():
            continue
        fell_out, blank = False, not kept.strip()
        yield kept


def _without_token(line: str) -> str:
    while SILENT in line:  # taking one out may put another together
        line = line.replace(SILENT, "")
    return line


def _without_tags(line: str) -> str:
    """Without reply and voice tags, except those that are quoted as code."""
    if "[[" not in line:
        return line
    pieces, at = [], 0
    for span in _CODE_SPAN.finditer(line):
        pieces += [_TAG.sub("", line[at : span.start()]), span[0]]
        at = span.end()
    return "".join((*pieces, _TAG.sub("", line[at:])))


def _says_nothing(text: str) -> bool:
    """Nothing but spaces, punctuation and the marks of emphasis and code."""
    return all(unicodedata.category(char)[0] in "PZC" or char in "`~^" for char in text)
