"""Parts of a prompt in an answer: metadata blocks, id lines, boundary markers, session keys, thoughts and calls.

None of it reaches a chat, even if a model repeats it. A tag such as `<think>` that is quoted as code is talked about,
not used, and stays; what the gateway alone can have written goes from code, too. Each rule takes time that grows with
the length of the text, and a text that has nothing of all this costs one search.
"""

import re
from collections.abc import Collection, Iterator, Sequence

from agents.prompt.fences import BOUNDARY, EXTERNAL, INBOUND

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
_TAG = rf"<(?P<end>/?)(?:antml:)?(?P<name>{_THOUGHTS}|{_CALLS}|function(?==))(?=[\s>/=])[^<>]{{0,500}}>"
_TOKEN = r"<[|｜][^\s|｜<>]{1,60}[|｜]>"
_FENCE = r"^ {0,3}(?P<fence>`{3,}|~{3,})(?P<info>[^\n]*)$"
_SPAN = r"(?<!`)(?P<ticks>`{1,2})(?!`)[^\n]{0,400}?(?<!`)(?P=ticks)(?!`)"
_SCAN = re.compile(f"{_FENCE}|{_SPAN}|{_TAG}|(?P<token>{_TOKEN})", re.MULTILINE | re.IGNORECASE)
_NAMES = ("think", "thought", "antthinking", "reasoning", "tool_", "function", "invoke")
_STARTS = {
    "<<<": ("<<<external", "<<<end_external", BOUNDARY.lower()),
    "<": ("<|", "<｜", *(f"<{end}{ns}{it}" for end in ("", "/") for ns in ("", "antml:") for it in _NAMES)),
    "[": ("[message_id:",),
    "(": ("(untrusted metadata)", "(trusted metadata)"),
    "## ": (f"## {INBOUND.lower()}",),
}
"""Everything that is taken out and ends on its line, by what it begins with."""
_ENDS = {"<<<": ">>>", "<": ">", "[": "]", "(": ")", "## ": ")"}
_KEYS = ("aside:say:agent:", "aside:agent:", "agent:")
_END_CHARS = 900


def without_internals(text: str) -> str:
    if not _SUSPECT.search(text):
        return text
    text = _KEY.sub(_KEY_SHOWN, _OWN.sub("", _BLOCK.sub("", text)))
    return "".join(_used(text)) if "<" in text else text


def without_beginnings(text: str) -> str:
    """A text that still grows, without what could become something of that at its end."""
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
    """The pieces around thoughts, calls and template tokens that are not quoted as code."""
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
    """True if a tag of calls is among words: no call begins with a word, and what closes such a tag is talk, too."""
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
    """The place behind the closing tag; the end of the text without one."""
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
