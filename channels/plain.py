"""Escape untrusted text for Markdown, so that it contains no markup, mention or command. Pure.

Markup characters become character entities, which every dialect here decodes; a backslash would start a formula before a
bracket. A zero-width space after `@` and `/` prevents mentions and commands, since platforms parse the displayed text.

User-perceived characters (an emoji with its skin tone, a letter with its accent) are not split. The rules are a subset of
Unicode segmentation, based on categories.
"""

import re
import unicodedata
from typing import Literal, TypeAlias

Where: TypeAlias = Literal["text", "line of code", "block of code"]
"""The Markdown context of the text."""
CHARS_MAX = 2_000

_BREAKS = re.compile("\r\n|[\r\v\f\x85\u2028\u2029]")
_UNSEEN = re.compile(
    "[\x00-\x08\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
_CALLS = re.compile(r"(?<![\w.])@(?=\w)|(?<!\S)/(?=[A-Za-z]\w*(?:@\w+)?(?:[^\w/.]|$))|<(?=at\b)", re.IGNORECASE)
_JOINED = re.compile(rf"{_CALLS.pattern}|&(?=#|\w+;)|(?<!\w):(?=\w)", re.IGNORECASE)
_INLINE = re.compile(r"[\\`*~\[\]()<>|$!]|(?<![^\W_])_|_(?![^\W_])|&(?=#|\w+;)|(?<!\w):(?=\w)")
_BLOCK = re.compile(r"^([#+=-]|\d{1,9}(?=[.)])|[ \t]+)", re.MULTILINE)


def plain(text: str, where: Where = "text") -> str:
    """Escape the text, truncated to `CHARS_MAX` characters."""
    text = _UNSEEN.sub("", _BREAKS.sub("\n", text))
    text = text if len(text) <= CHARS_MAX else text[: CHARS_MAX - 1] + "…"
    match where:
        case "line of code":
            return " ".join(text.replace("`", "'").split())
        case "block of code":
            return text.replace("`", "'").replace("~~", "~\u200b~")
        case "text":
            text = _CALLS.sub(lambda match: f"{match[0]}\u200b", text)
            text = _INLINE.sub(lambda match: f"&#{ord(match[0])};", text)
            return _BLOCK.sub(_block, text)


def apart(before: str, after: str) -> str:
    """Return a zero-width space if joining two harmless texts would form a mention or a command; else ""."""
    tail = before[-2:]
    return "\u200b" if tail and _JOINED.match(tail + after, len(tail) - 1) else ""


def _block(match: re.Match[str]) -> str:
    mark = match[0]
    if mark.isspace():
        return "\u00a0" * len(mark.expandtabs(4))
    return f"&#{ord(mark[0])};{mark[1:]}"


def marked(text: str, mark: str) -> str:
    """Wrap the text in Markdown marks, leaving surrounding blanks outside."""
    words = text.strip()
    if not words:
        return text
    start = text.index(words)
    before, behind = text[:start], text[start + len(words) :]
    if mark == "`" and "`" in words:
        return f"{before}`` {words} ``{behind}"
    return f"{before}{mark}{words}{mark}{behind}"


_VIRAMA = 9
"""Combining class of viramas, which join two Indic consonants."""
_FLAG_HALVES = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def joined(text: str, at: int) -> bool:
    """Return True if a cut at this position would split a user-perceived character: an emoji and its skin tone, a letter
    and its accent, the two halves of a flag."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if after < "\u0300":
        return False
    if before == "\u200d" or after == "\u200d" or unicodedata.combining(before) == _VIRAMA:
        return True
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or after in "\u0e33\u0eb3":
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    if "\u1100" <= after <= "\u11ff":
        return "\u1100" <= before <= "\u11ff" or ("\uac00" <= before <= "\ud7a3" and after >= "\u1160")
    earlier = text[max(0, at - 1_000) : at]
    return after in _FLAG_HALVES and (len(earlier) - len(earlier.rstrip(_FLAG_HALVES))) % 2 == 1
