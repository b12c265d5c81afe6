"""Prepare the model's final text for display: remove directives and internals, recognise deliberate silence.

Directives are never sent, whether or not the channel supports them. Applying them, formatting and splitting happen
elsewhere.

Internals are parts of a prompt: metadata blocks, id lines, boundary markers, session keys, thoughts and calls. They
never reach a chat, even if a model repeats them. A tag such as `<think>` quoted as code stays; what only the gateway
can have written is removed from code too. Each rule is linear, and text without any of this costs one search.
"""

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence

from agents.prompt.fences import BOUNDARY, EXTERNAL, INBOUND, SILENT

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
    """Return the text to send; None if the model chose silence, empty if nothing else is left."""
    words = "\n".join(_sent_lines(without_internals(text)))
    words = _BLANK_LINES.sub("", without_internals(words)).rstrip()  # a removal may form another one
    return None if SILENT in text and _says_nothing(words) else words


def draft(text: str) -> str:
    """Return the part of a streaming answer that may be shown. A possible directive at its end, or a possible silence,
    is held back."""
    head, newline, last = without_beginnings(text).rpartition("\n")
    last = _without_openings(last)
    if (start := _without_token(last).strip()) and "MEDIA:".startswith(start[:6]):
        last = ""
    shown = without_beginnings(visible(head + newline + last) or "")
    return "" if _says_nothing(shown) else shown


def media(text: str) -> list[str]:
    """Return the files to attach: paths or URLs, in order, deduplicated."""
    lines = (_without_token(line) for line, is_open in _fenced(text) if is_open)
    paths = [line.strip().removeprefix("MEDIA:").strip() for line in lines if _MEDIA.fullmatch(line)]
    return list(dict.fromkeys(paths))


def is_voice(text: str) -> bool:
    """Return whether audio is to be sent as a voice message."""
    return any(_VOICE.search(_CODE_SPAN.sub("", line)) for line, is_open in _fenced(text) if is_open)


def answered(text: str) -> str | None:
    """Return the model's reply_to id, not validated; None for the current message."""
    matches = (_REPLY.match(line) for line, is_open in _fenced(text) if is_open)
    first = next(filter(None, matches), None)
    return first[1] or None if first else None


def _sent_lines(text: str) -> Iterator[str]:
    """Yield the lines without the silence token and, outside of code fences, without directives. Dropped lines leave
    no gaps."""
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
    """Yield each line and whether it is outside of code fences."""
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
    while SILENT in line:  # a removal may form another one
        line = line.replace(SILENT, "")
    return line


def _without_openings(line: str) -> str:
    """Drop a suffix that may yet become the token or a tag."""
    opened = line.rfind("[[")
    if opened >= 0 and "]]" not in line[opened:]:
        line = line[:opened]
    line = line.removesuffix("[")
    while not line.endswith(SILENT) and (begun := next((n for n in _LENGTHS if line.endswith(SILENT[:n])), 0)):
        line = line[:-begun]
    return line


def _without_tags(line: str) -> str:
    """Remove reply and voice tags, except in code spans."""
    if "[[" not in line:
        return line
    pieces, at = [], 0
    for span in _CODE_SPAN.finditer(line):
        pieces += [_TAG.sub("", line[at : span.start()]), span[0]]
        at = span.end()
    return "".join((*pieces, _TAG.sub("", line[at:])))


def _says_nothing(text: str) -> bool:
    return all(unicodedata.category(char)[0] in "PZC" or char in "`~^" for char in text)


_SUSPECT = re.compile(r"[<＜]|trusted metadata\)|message_id:|agent:|inbound_meta|made the JSON", re.IGNORECASE)
_LABEL = r"^[^\n]{0,80}\((?:un)?trusted metadata\)[^\n]{0,4}(?:\n|\Z)"
_ABOUT = r"^The gateway made the JSON below[^\n]*(?:\n|\Z)"
_LINE = r"(?!```)[^\n]*(?:\n|\Z)"
_BLOCK = re.compile(
    rf"(?:{_LABEL}(?:{_ABOUT})?|{_ABOUT})(?<=\n)```\w*\n(?=[ \t]*[\[{{])(?:(?<=\n){_LINE})*(?:```[^\n]*(?:\n+|\Z))?"
    rf'|(?:{_LABEL}|{_ABOUT})(?:(?<=\n)[ \t]*[\[\]{{}}"]{_LINE})*',
    re.MULTILINE | re.IGNORECASE,
)
_OWN = re.compile(
    r"^[^\n]*\"clawgate\.inbound_meta\.v1\"[^\n]*(?:\n|\Z)"
    r"|\[message_id:[ \t]*[A-Za-z0-9_.:@=+/~-]{1,256}\][ \t]*\n?"
    rf"|<<<[ \t]*(?:END_)?{EXTERNAL}[^\n>]{{0,700}}(?:>>>\n?|(?=\n)|\Z)|{re.escape(BOUNDARY)}\n?",
    re.MULTILINE | re.IGNORECASE,
)
_KEY = re.compile(r"(?<![\w:])(?:aside:(?:say:)?)?agent:[\w.%-]+:[a-z]+:[\w.%-]+:[\w.%@:+=-]*\w", re.IGNORECASE)
_KEY_SHOWN = "[session]"
_THOUGHTS = "think|thinking|thought|thoughts|antthinking|reasoning"
_CALLS = "tool_calls?|tool_uses?|tool_responses?|tool_results?|tool_code|function_calls?|function_results|invoke"
_ELEMENT = rf"<(?P<end>/?)(?:antml:)?(?P<name>{_THOUGHTS}|{_CALLS}|function(?==))(?=[\s>/=])[^<>]{{0,500}}>"
_TOKEN = r"<[|｜][^\s|｜<>]{1,60}[|｜]>"
_CODE_FENCE = r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$"
_SPAN = r"(?<!`)(?P<ticks>`{1,2})(?!`)[^\n]{0,400}?(?<!`)(?P=ticks)(?!`)"
_SCAN = re.compile(f"{_CODE_FENCE}|{_SPAN}|{_ELEMENT}|(?P<token>{_TOKEN})", re.MULTILINE | re.IGNORECASE)
_NAMES = ("think", "thought", "antthinking", "reasoning", "tool_", "function", "invoke")
_STARTS = {
    "<<<": ("<<<external", "<<<end_external", BOUNDARY.lower()),
    "<": ("<|", "<｜", *(f"<{end}{ns}{it}" for end in ("", "/") for ns in ("", "antml:") for it in _NAMES)),
    "[": ("[message_id:",),
    "(": ("(untrusted metadata)", "(trusted metadata)"),
    "## ": (f"## {INBOUND.lower()}",),
}
"""Removed constructs that end on their line, by opening."""
_ENDS = {"<<<": ">>>", "<": ">", "[": "]", "(": ")", "## ": ")"}
_KEYS = ("aside:say:agent:", "aside:agent:", "agent:")
_END_CHARS = 900


def without_internals(text: str) -> str:
    if not _SUSPECT.search(text):
        return text
    text = _KEY.sub(_KEY_SHOWN, _OWN.sub("", _BLOCK.sub("", text)))
    return "".join(_used(text)) if "<" in text else text


def without_beginnings(text: str) -> str:
    """Drop the end of a streaming text if it may become an internal."""
    line = text[-_END_CHARS:].rpartition("\n")[2].lower()
    points = [len(line)]
    for opening, starts in _STARTS.items():
        at = line.rfind(opening)
        while at > 0 and opening == "<" == line[at - 1]:
            at -= 1
        if at >= 0 and _ENDS[opening] not in line[at:] and _begins(line[at:], starts):
            points.append(at)
    word = re.split(r"[^\w.%@:+=-]", line)[-1]
    if word and _begins(word, _KEYS):
        points.append(len(line) - len(word))
    return text[: len(text) - len(line) + min(points)]


def _begins(end: str, starts: Sequence[str]) -> bool:
    return any(start.startswith(end) or end.startswith(start) for start in starts)


def _used(text: str) -> Iterator[str]:
    """Yield the text around thoughts, calls and template tokens, except those quoted as code."""
    at, shown, talked = 0, list[str](), set[str]()
    while match := _SCAN.search(text, at):
        if match["fence"] or match["ticks"]:
            end = _code_end(text, match)
            shown.append(text[at:end])
        elif match["token"]:
            shown.append(text[at : match.start()])
            end = match.end()
        elif _is_talk(text, match, talked):
            talked.add(match["name"].lower())
            shown.append(text[at : match.end()])
            end = match.end()
        elif match["end"]:
            end = match.end()
            leads = match["name"].lower() in _THOUGHTS.split("|") and text[end : end + 1] in "\n" and text[end:].strip()
            shown = [] if leads else [*shown, text[at : match.start()]]  # a template had opened it
        else:
            shown.append(text[at : match.start()])
            end = _element_end(text, match)
        at = end
    yield from (*shown, text[at:])


def _is_talk(text: str, match: re.Match[str], talked: Collection[str]) -> bool:
    """Return whether a call tag is only mentioned: no call begins with a word, and its closing tag is prose, too."""
    if match["name"].lower() in _THOUGHTS.split("|"):
        return False
    if match["end"]:
        return match["name"].lower() in talked
    follows = text[match.end() :].lstrip()[:1]
    return not {" ", "="} & {*match[0]} and bool(follows) and follows not in "{[<"


def _code_end(text: str, match: re.Match[str]) -> int:
    if not match["fence"]:
        return match.end()
    if match["fence"][0] == "`" and "`" in match["info"]:  # code within a line
        return match.start("info")
    close = re.compile(rf"^ {{0,3}}{match['fence']}{match['fence'][0]}*[ \t]*$", re.MULTILINE)
    end = close.search(text, match.end())
    return end.end() if end else len(text)


def _element_end(text: str, match: re.Match[str]) -> int:
    """Return the end of the closing tag; the end of the text without one."""
    if match[0].endswith("/>"):
        return match.end()
    depth, name = 1, re.escape(match["name"])
    for tag in re.compile(rf"<(/?)(?:antml:)?{name}(?=[\s>/=])[^<>]{{0,500}}>", re.IGNORECASE).finditer(
        text, match.end()
    ):
        depth += -1 if tag[1] else 1
        if not depth:
            return tag.end()
    return len(text)
