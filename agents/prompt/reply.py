"""The model's final text, as people may see it: directives and internals taken out, a chosen silence recognised.

What is meant for the gateway is never sent, whether the channel acts on it or not. Acting on directives is not here;
neither is formatting or splitting.
"""

import re
import unicodedata
from collections.abc import Iterator

from agents.prompt.fences import SILENT
from agents.prompt.internals import without_beginnings, without_internals

_BLANK_LINES = re.compile(r"\A(?:[^\S\n]*\n)+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_MEDIA = re.compile(r"[ \t]*MEDIA:(?:\S.*|[ \t]+\S+[ \t]*)")
_TAG = re.compile(
    r"\[\[[ \t]*(?:audio_as_voice|reply_to_current|reply_to[ \t]*:[^\[\]\n]*)[ \t]*\]\][ \t]?", re.IGNORECASE
)
_VOICE = re.compile(r"\[\[[ \t]*audio_as_voice[ \t]*\]\]", re.IGNORECASE)
_REPLY = re.compile(
    rf"[ \t]*(?:{_VOICE.pattern}[ \t]*)*\[\[[ \t]*reply_to(?:_current|[ \t]*:[ \t]*([^\[\]\n]*?))[ \t]*\]\]",
    re.IGNORECASE,
)
_LENGTHS = range(len(SILENT) - 1, 0, -1)
_CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")


def visible(text: str) -> str | None:
    """The text to send. None if the model chose silence; empty if nothing is left but it did not choose to be silent."""
    words = "\n".join(_sent_lines(without_internals(text)))
    words = _BLANK_LINES.sub("", without_internals(words)).rstrip()  # taking one out may put another together
    return None if SILENT in text and _says_nothing(words) else words


def draft(text: str) -> str:
    """The part of a still growing answer that may be shown: the end of its last line waits while it may become a
    directive, and the whole while it may become a chosen silence."""
    head, newline, last = without_beginnings(text).rpartition("\n")
    last = _without_beginnings(last)
    if (start := _without_token(last).strip()) and "MEDIA:".startswith(start[:6]):
        last = ""
    shown = without_beginnings(visible(head + newline + last) or "")
    return "" if _says_nothing(shown) else shown


def media(text: str) -> list[str]:
    """The files that the answer names to be attached: paths or addresses, in order, each once."""
    lines = (_without_token(line) for line, is_open in _fenced(text) if is_open)
    paths = [line.strip().removeprefix("MEDIA:").strip() for line in lines if _MEDIA.fullmatch(line)]
    return list(dict.fromkeys(paths))


def is_voice(text: str) -> bool:
    """True if the answer wants its sound to be a voice message."""
    return any(_VOICE.search(_CODE_SPAN.sub("", line)) for line, is_open in _fenced(text) if is_open)


def answered(text: str) -> str | None:
    """The id of the message that it is to be a reply to, as the model has it; None if that is the current one."""
    matches = (_REPLY.match(line) for line, is_open in _fenced(text) if is_open)
    first = next(filter(None, matches), None)
    return first[1] or None if first else None


def _sent_lines(text: str) -> Iterator[str]:
    """The lines without the token, and outside of code fences without directives; dropped lines leave no gaps."""
    fell_out = blank = False
    for line, is_open in _fenced(text):
        rest = _without_token(line)
        if is_open:
            rest = "" if _MEDIA.fullmatch(rest) else _without_tags(rest)
        if rest != line:
            rest = rest.rstrip() if line[:1].isspace() else rest.strip()
            if not rest or (SILENT in line and _says_nothing(rest)):
                fell_out = True
                continue
        if fell_out and blank and not rest.strip():
            continue
        fell_out, blank = False, not rest.strip()
        yield rest


def _fenced(text: str) -> Iterator[tuple[str, bool]]:
    """Each line, and True if it is outside of code fences."""
    fence = ""
    for line in text.split("\n"):
        opening = _FENCE.fullmatch(line)
        if fence:
            if opening and opening[1].startswith(fence) and not opening[2].strip():
                fence = ""
            yield line, False
        elif opening and not ("`" in opening[1] and "`" in opening[2]):
            fence = opening[1]
            yield line, False
        else:
            yield line, True


def _without_token(line: str) -> str:
    while SILENT in line:  # taking one out may put another together
        line = line.replace(SILENT, "")
    return line


def _without_beginnings(line: str) -> str:
    """The line without what may yet become the token or a tag."""
    opened = line.rfind("[[")
    if opened >= 0 and "]]" not in line[opened:]:
        line = line[:opened]
    line = line.removesuffix("[")
    while not line.endswith(SILENT) and (begun := next((n for n in _LENGTHS if line.endswith(SILENT[:n])), 0)):
        line = line[:-begun]
    return line


def _without_tags(line: str) -> str:
    """The line without reply and voice tags, except those that are quoted as code."""
    if "[[" not in line:
        return line
    pieces, at = [], 0
    for span in _CODE_SPAN.finditer(line):
        pieces += [_TAG.sub("", line[at : span.start()]), span[0]]
        at = span.end()
    return "".join((*pieces, _TAG.sub("", line[at:])))


def _says_nothing(text: str) -> bool:
    """True for nothing but spaces, punctuation and the marks of emphasis and code."""
    return all(unicodedata.category(char)[0] in "PZC" or char in "`~^" for char in text)
