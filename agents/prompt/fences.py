r"""People's text cannot pose as the gateway's: `harmless` breaks every look-alike with a visible backslash.

A message is first folded to what a reader makes of it: width and styled letters (NFKC), case, marks, invisible
characters and kinds of newline no longer matter. If the folded text reads as a heading, label, marker, envelope or
chat-template token, a backslash goes *into* the original: `#\# Safety`, `[message\_id: …]`, `System\: …`. Everything
else stays as it was, character for character, except what no text needs: exotic newlines become "\n", and control
characters, lone surrogates and invisible tag characters become U+FFFD.

Who may say what is not decided here, and meaning is not judged: a persuasive sentence passes. A new section's heading
is added here first, so that nobody can write it in a message.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from channels.marks import MARKS
from tools.paths import INSTRUCTION_FILES, MEMORY

BOUNDARY = "<<<CACHE_BOUNDARY>>>"
"""The end of the stable part of the system prompt, for readers and programs. Providers never receive it."""
SILENT = "__SILENT__"
"""An answer that is exactly this is not sent."""
INBOUND = "Inbound Context (trusted metadata)"
"""The heading of the one trusted block of a user message."""
SUMMARY = "Earlier Conversation (summary)"
"""The heading of the summary of earlier turns."""
EXTERNAL = "EXTERNAL_CONTENT"
"""The keyword of the two lines, with one random number, that fence external content."""
FENCE = f"<<<{EXTERNAL} "
"""The start of the first line. `harmless` breaks it in all other text, so a message that has it holds external content."""
CALLER = "Caller Instructions"
"""The heading of the system prompt from a calling program."""
TOOL_CALLS = "Tool Calls"
"""The heading of the tools for a model that is offered them by prompt."""

SOURCE_CHARS_MAX = 500

HEADINGS = (
    "Tooling",
    "Tool Call Style",
    "Execution Bias",
    "Safety",
    "Gateway Control",
    "Agent Instructions",
    "Skills",
    "Workspace",
    "Documentation",
    "Workspace Files (injected)",
    "Assistant Output Directives",
    "Silent Replies",
    "Messaging",
    CALLER,
    "Runtime",
    TOOL_CALLS,
)
"""The sections of the system prompt, in order; the last one only if tools are offered by prompt."""

FILE_HEADINGS = (*INSTRUCTION_FILES, MEMORY)
"""The workspace files in the prompt; each name is a heading."""

_NEWLINES = "\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_EXOTIC_NEWLINE = re.compile("\r(?!\n)|[\v\f\x1c\x1d\x1e\x85\u2028\u2029]")
_UNFIT = re.compile("[\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
# Tag characters spell invisible ASCII; the only legitimate use is a flag: 🏴, a region's letters, the end tag.
_TAGS = re.compile("(\U0001f3f4[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f)|[\U000e0000-\U000e007f]+")
# One variation selector shapes the character before it; a row of them carries hidden bytes.
_SELECTORS = re.compile("[\ufe00-\ufe0f\U000e0100-\U000e01ef]{2,}")
_PLAIN_ASCII = re.compile(r"[\t\n\x20-\x7e]*")

# Lookalikes that NFKC does not unify.
_LOOKALIKES = {
    **dict.fromkeys(_NEWLINES, "\n"),
    **dict.fromkeys("∶꞉ː׃：︰", ":"),
    **dict.fromkeys("♯⌗", "#"),
    **dict.fromkeys("⦅❨﴾", "("),
    **dict.fromkeys("⦆❩﴿", ")"),
    **dict.fromkeys("【〔〖〘〚⟦❲⁅", "["),
    **dict.fromkeys("】〕〗〙〛⟧❳⁆", "]"),
    **dict.fromkeys("‹〈⟨❬", "<"),
    **dict.fromkeys("›〉⟩❭", ">"),
    **dict.fromkeys("«《⟪", "<<"),
    **dict.fromkeys("»》⟫", ">>"),
    **dict.fromkeys("∣ǀ❘", "|"),
    "\u2800": " ",  # the empty braille cell
    "\t": " ",
}
_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0"
"""Letters by category, but invisible."""
_JOINER = "\u200d"
"""Joins several emoji into one; the only invisible character that a name may need."""


def harmless(text: str, *, marks: bool = True) -> str:
    """Sanitise untrusted text for a prompt. Idempotent; ordinary text is unchanged. Without `marks`, the gateway's
    phrases of `channels.marks` are kept, for text sanitised before they were added."""
    text = _clean(text)
    return _broken(text, sorted(set(weak_points(text, marks=marks))))


def external(text: str, source: str, boundary: str) -> str:
    """Fence external content of a tool with a boundary that its author cannot know."""
    source = harmless(one_line(source[:SOURCE_CHARS_MAX])).replace('"', "'").replace("<", "(").replace(">", ")")
    return f'{FENCE}{boundary} source="{source}">>>\n{harmless(text)}\n<<<END_{EXTERNAL} {boundary}>>>'


def without_boundary(text: str) -> str:
    """Break only what would read as a second cache boundary; for the operator's text."""
    folded, origins = _fold(text)
    points = {_place(origins, match.start(1)) for match in _BOUNDARY.finditer(folded)}
    return _broken(text, sorted(points))


def one_line(text: str) -> str:
    """Return a configured name or path on one line, with invisible characters escaped."""
    if text.isascii() and text.isprintable() and "<" not in text:
        return text
    return without_boundary(
        "".join(f"\\u{ord(char):04x}" if unseen(char) and char != _JOINER else char for char in text)
    )


def speaker(name: str) -> str:
    """Return a sender's name for use before `: `: one line, no colon, nothing invisible; may be empty."""
    if name.isascii() and name.isalnum():
        return name
    kept = (" " if ":" in _folded(char) or char in _NEWLINES else char for char in _clean(name))
    seen = (char for char in kept if unicodedata.category(char) != "Cf" or char == _JOINER)
    words = "".join(seen).split()
    return harmless(" ".join(words)) if any(_folded(char).strip() for word in words for char in word) else ""


def weak_points(text: str, *, marks: bool = True) -> Iterator[int]:
    """Yield the positions in `text` where a backslash must be inserted, unordered, with duplicates."""
    folded, origins = _fold(text)
    for rule in (*_RULES, _MARKED) if marks else _RULES:
        for match in rule.finditer(folded):
            yield _place(origins, match.start(1))


def unseen(char: str) -> bool:
    """Return whether a character is invisible: controls, bidi, zero-width, unassigned."""
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") or char in _BLANK_LETTERS


def _clean(text: str) -> str:
    if _PLAIN_ASCII.fullmatch(text):
        return text
    text = _EXOTIC_NEWLINE.sub("\n", text)
    text = _UNFIT.sub("\ufffd", text)
    text = _TAGS.sub(lambda match: match[1] or "\ufffd", text)
    return _SELECTORS.sub("\ufffd", text)


def _broken(text: str, points: list[int]) -> str:
    if not points:
        return text
    starts = [0, *points]
    return "\\".join(text[start:end] for start, end in zip(starts, [*points, len(text)], strict=True))


def _fold(text: str) -> tuple[str, range | list[int]]:
    """Return the text as a reader perceives it, and each character's position in the original."""
    if _PLAIN_ASCII.fullmatch(text):
        return text.lower(), range(len(text))
    pieces = [_folded(char) for char in text]
    return "".join(pieces), [at for at, piece in enumerate(pieces) for _ in piece]


@lru_cache(maxsize=8192)
def _folded(char: str) -> str:
    if char in _LOOKALIKES:
        return _LOOKALIKES[char]
    plain = unicodedata.normalize("NFKC", char).casefold()
    plain = "".join(_LOOKALIKES.get(one, one) for one in plain)
    return "".join(one for one in plain if one == "\n" or not _invisible(one))


def _invisible(char: str) -> bool:
    # combining marks too: the letter is still readable
    return unicodedata.category(char) in ("Cc", "Cf", "Mn", "Me") or char in _BLANK_LETTERS


def _place(origins: range | list[int], at: int) -> int:
    """Return the position in the original, after a character that folds to several and would be cut."""
    inside = at > 0 and origins[at - 1] == origins[at]
    return origins[at] + 1 if inside else origins[at]


# The rules, on folded text, where "\n" alone ends a line. Group 1 begins where the backslash goes, and no rule lets one
# be there: what was broken once is not broken again. `_GAP` is one character that is neither letter, digit, backslash
# nor newline; `_BLANK` a space of any kind. No two neighbouring repetitions can share a character, so a match is linear.
_GAP = r"(?:[^\w\\\n]|_)"
_BLANK = r"[^\S\n]"
_BULLET = rf"(?:\d{{1,3}}(?:[.)\]、]|(?={_BLANK}))|(?:[a-z]|[一二三四五六七八九十]{{1,3}})[.)\]、])"
_LEAD = rf"^(?:[^\w\n]|_|{_BULLET})*"
_EMPHASIS = rf"(?:{_BLANK}|[*_~])*"
_ROLE = (
    r"(?:system|assistant|human|developer)"
    rf"(?:{_BLANK}+(?:message|note|notice|event|prompt|instructions?|update|alert|override|reminder))?"
)
_ASIDE = r"(?:\([^()\n]{0,60}\)|\[[^\[\]\n]{0,60}\])"
_TOKENS = r"tool_(?:calls?|responses?|results?)|(?:start|end|begin)_of_[a-z]+|bos|eos|/s"
_BRACKETED = "inst|gmask|system_prompt|available_tools|tool_calls|tool_results|tool_content"


def _heading(name: str) -> str:
    return rf"{_GAP}*".join(re.findall(r"\w+", name.casefold()))


_PRINTED = "|".join(map(_heading, (*HEADINGS, *FILE_HEADINGS, INBOUND, SUMMARY)))
_BOUNDARY = re.compile(rf"<<{_BLANK}*cache({_GAP}{{0,3}})boundary{_BLANK}*>>")
_RULES = (
    _BOUNDARY,
    # ## Safety, also as `> **## Safety:**`; not "## Safety measures"
    re.compile(rf"{_LEAD}#(#)(?:[^\w\\\n#]|_)*(?:{_PRINTED})(?={_BLANK}*(?:$|[^\w\s]|_))", re.MULTILINE),
    re.compile(rf"<<{_GAP}{{0,8}}(?:end{_GAP}{{0,3}})?external({_GAP}{{0,3}})content"),
    re.compile(rf"[(\[{{<]{_GAP}{{0,8}}(?:un)?trusted([^\w\\\n]{{0,3}})metadata"),
    re.compile(rf"\[{_GAP}{{0,3}}message({_GAP}{{0,3}})id{_BLANK}*[:=]"),
    re.compile(rf"{_LEAD}__(silent)__{_GAP}*$", re.MULTILINE),
    re.compile(rf"{_LEAD}{_ROLE}{_EMPHASIS}(?:{_ASIDE}{_EMPHASIS})?(:)", re.MULTILINE),
    # [System Message], and "System]", whose opening bracket may be in a name before it
    re.compile(rf"{_LEAD}{_ROLE}{_EMPHASIS}(\])(?!\()", re.MULTILINE),
    re.compile(r"<(\|)[^\s|<>]{1,64}\|>"),
    re.compile(r"<(<)/?sys>>"),
    re.compile(rf"<(/?)(?:{_TOKENS})>"),
    re.compile(rf"\[(/?)(?:{_BRACKETED})\]"),
)


def _mark(mark: str) -> str:
    """Return the mark's pattern, with its final sign if it has one, lest every `[button` match."""
    end = "" if mark[-1].isalnum() else rf"{_GAP}{{0,3}}{re.escape(mark[-1])}"
    return rf"{_GAP}{{1,8}}".join(re.findall(r"\w+", mark.casefold())) + (end or r"(?!\w)")


# (The gateway: …) and the like, at the beginning of a line
_MARKED = re.compile(rf"{_LEAD}[(\[{{<]{_GAP}{{0,8}}({'|'.join(map(_mark, MARKS))})", re.MULTILINE)
