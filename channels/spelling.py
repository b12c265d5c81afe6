"""Rewrite Markdown into the common subset of all chats: no HTML tags, no reference links, formulas as code. Pure.

Code, unpaired or unknown tags, and unused link definitions stay as they are. Idempotent, so a text and the parts that it is
split into give the same result. Formulas become code because their backslashes, stars and underscores would be markup.
"""

import re
from collections.abc import Callable, Container

_CODE = re.compile(
    r"""
    ^(?:[ >]|(?:[-*+]|[0-9]{1,9}[.)])[ ])*(?P<fence>`{3,}|~{3,})[^\n]*(?:\n[\s\S]*?)??(?:\n[ >]*(?P=fence)[`~]*[ \t]*$|\Z)
  | (?<!`)(?P<ticks>`+)(?!`)(?:(?!\n[ \t]*\n)[\s\S]){0,4000}?(?<!`)(?P=ticks)(?!`)
  | (?:(?<=\n\n)|\A)(?:[ ]{4,}|\t)(?![-*+][ ]|[0-9]+[.)][ ])[^\n]*(?:\n(?:[ ]{4,}|\t)[^\n]*)*
  | \\[\s\S]
    """,
    re.X | re.M,
)
_MARKS = {"b": "**", "strong": "**", "summary": "**", "i": "*", "em": "*", "s": "~~", "del": "~~", "strike": "~~"}
_DROPPED = ("u", "ins", "kbd", "mark", "small", "details")
_TAG = re.compile(
    rf"<(?P<end>/?)(?P<name>{'|'.join((*_MARKS, *_DROPPED, 'sub', 'sup', 'code'))})(?:\s[^<>\n]{{0,200}})?>"
    r"|(?P<border>\|)|(?P<blank>\n[ \t]*\n)",
    re.IGNORECASE,
)
_BREAK = re.compile(r"(?<![ \t])[ \t]*<br[ \t]*/?>[ \t]*", re.IGNORECASE)
_LEAD = re.compile(r"[ >]*(?:(?:[-*+]|[0-9]{1,9}[.)]) +)?")
_BOX = re.compile(r"^([ >]*(?:[-*+]|[0-9]{1,9}[.)]) +)\[([ xX])\](?= )", re.M)
_DEFINITION = re.compile(
    r"^ {0,3}\[(?!\^)([^\[\]\n]{1,200})\]:[ \t]+<?([^\s<>]+)>?"
    r"""(?:[ \t]+(?:"[^"\n]*"|'[^'\n]*'|\([^()\n]*\)))?[ \t]*(?:\n|\Z)""",
    re.M,
)
_REFERENCE = re.compile(r"(?<![\]\\])\[(?!\^)([^\[\]\n]{1,500})\](?:\[([^\[\]\n]{0,200})\])?(?![\[(:])")
_OPEN_MAX = 20
_RAISED = str.maketrans("0123456789+-=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿ")
_LOWERED = str.maketrans("0123456789+-=()", "₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎")


def spelt(markdown: str, *, boxes: bool = False) -> str:
    """Rewrite Markdown that a chat would show raw. With `boxes`, task list items get a box character."""
    written = markdown = shielded(markdown)
    if "]:" in markdown:
        markdown = _resolved(markdown)
    if "<" in markdown:
        markdown = _outside_code(markdown, _untagged)
        markdown = _outside_code(markdown, _broken)
    if boxes and "[" in markdown:
        markdown = _outside_code(markdown, _boxed)
    return markdown if markdown.strip() else written


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    kept: list[str] = []

    def hide(match: re.Match[str]) -> str:
        kept.append(match[0])
        return "\0"

    changed = change(_CODE.sub(hide, text.replace("\0", "\ufffd")))
    pieces = iter(kept)
    return re.sub("\0", lambda _: next(pieces), changed)


def _resolved(markdown: str) -> str:
    def change(text: str) -> str:
        addresses: dict[str, str] = {}
        for match in _DEFINITION.finditer(text):
            addresses.setdefault(_label(match[1]), match[2])
        used = set[str]()

        def link(match: re.Match[str]) -> str:
            label = _label(match[2] or match[1])
            if (address := addresses.get(label)) is None:
                return match[0]
            used.add(label)
            return f"[{match[1]}]({f'<{address}>' if '(' in address or ')' in address else address})"

        pieces = re.split(r"(^ {0,3}\[[^\n]*\]:[^\n]*(?:\n|\Z))", text, flags=re.M)
        text = "".join(piece if at % 2 else _REFERENCE.sub(link, piece) for at, piece in enumerate(pieces))
        return _DEFINITION.sub(lambda it: "" if _label(it[1]) in used and "\0" not in it[0] else it[0], text)

    changed = _outside_code(markdown, change)
    return changed if changed == markdown else changed.rstrip("\n")


def _label(written: str) -> str:
    return " ".join(written.split()).casefold()


def _untagged(text: str) -> str:
    pairs: list[tuple[re.Match[str], re.Match[str]]] = []
    opened: list[re.Match[str]] = []
    for match in _TAG.finditer(text):
        if not match["name"]:
            opened = [it for it in opened if it["name"].lower() == "details"][-_OPEN_MAX:]
        elif not match["end"]:
            opened.append(match)
        elif opened and opened[-1]["name"].lower() == match["name"].lower():
            pairs.append((opened.pop(), match))
        else:
            opened = [it for it in opened if it["name"].lower() == "details"][-_OPEN_MAX:]
    edits: list[tuple[int, int, str]] = []
    for begin, end in pairs:
        edits += _edits(text, begin, end)
    pieces, done = list[str](), 0
    for start, stop, written in sorted(edits):
        pieces += [text[done:start], written]
        done = stop
    return "".join((*pieces, text[done:]))


def _edits(text: str, begin: re.Match[str], end: re.Match[str]) -> list[tuple[int, int, str]]:
    name, inside = begin["name"].lower(), text[begin.end() : end.start()]
    bare = inside.strip()
    before, after = text[: begin.start()][-1:], text[end.end() :][:1]
    edges = [(begin.start(), begin.end(), ""), (end.start(), end.end(), "")]
    if name in ("sub", "sup") and bare:
        small = inside.translate(_RAISED if name == "sup" else _LOWERED)
        if not any(one == other for one, other in zip(inside, small, strict=True)):
            return [(begin.start(), end.end(), small)]
        return [(begin.start(), begin.end(), "^" if name == "sup" else "_"), edges[1]] if len(bare) == 1 else edges
    if name == "code" and bare and not set(inside) & set("\0<`\n"):
        return [(begin.start(), end.end(), f"`{bare}`")]
    if name not in _MARKS or not bare or bare != inside or "\n" in inside:
        return edges
    opens = bare[0].isalnum() or not before.isalnum()
    closes = bare[-1].isalnum() or not after.isalnum()
    marked = {"*", "_", "~"} & {before, after, bare[0], bare[-1]}
    if not opens or not closes or marked:
        return edges
    mark = _MARKS[name]
    return [(begin.start(), begin.end(), mark), (end.start(), end.end(), mark)]


def _broken(text: str) -> str:
    return "\n".join(_line_broken(line) if "<br" in line.lower() else line for line in text.split("\n"))


def _line_broken(line: str) -> str:
    if "|" in line:
        return _BREAK.sub(" / ", line)
    lead = _LEAD.match(line)
    return _BREAK.sub("\n" + re.sub(r"[^>]", " ", lead[0] if lead else ""), line).rstrip(" \n")


def _boxed(text: str) -> str:
    return _BOX.sub(lambda it: it[1] + ("☐" if it[2] == " " else "☑"), text)


_CHARS = 2_000
_PIECES = re.compile(
    rf"""
    ^[ >]*(?P<fence>`{{3,}}|~{{3,}})[^\n]*(?:\n[\s\S]*?)??(?:\n[ >]*(?P=fence)[`~]*[ \t]*$|\Z)
  | (?<!`)(?P<ticks>`+)(?!`)(?:(?!\n[ \t]*\n)[\s\S]){{0,4000}}?(?<!`)(?P=ticks)(?!`)
  | (?P<formula>
        \$\$(?!\$)[\s\S]{{1,{_CHARS}}}?\$\$
      | \\\[(?:(?!\\\[)[\s\S]){{1,{_CHARS}}}?\\\]
      | \\\((?:(?!\\\()[\s\S]){{1,{_CHARS}}}?\\\)
      | (?<![\w$])\$(?=\S)[^$\n]{{1,300}}(?<=\S)\$(?![\w$])
    )
  | \\[\s\S]
    """,
    re.X | re.M,
)
_MARKUP = re.compile(r"[\\_^*~{}<>\[\]\n]")
_RULE = re.compile(r"[ >\t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
_LINES = re.compile(r"[ \t]*\n[ >\t]*")


def shielded(markdown: str) -> str:
    """Turn formulas into code; `$5` and `$PATH` stay unchanged."""
    if "$" not in markdown and "\\(" not in markdown and "\\[" not in markdown:
        return markdown
    rows = _rows(markdown) if "|" in markdown else ()
    return _PIECES.sub(lambda match: _piece(match, rows), markdown)


def _rows(markdown: str) -> set[int]:
    rows: set[int] = set()
    at, before, inside = 0, 0, False
    for line in markdown.split("\n"):
        rule = bool(_RULE.fullmatch(line)) and "|" in markdown[before:at]
        inside = "|" in line and (inside or rule)
        if inside:
            rows |= {before, at} if rule else {at}
        before, at = at, at + len(line) + 1
    return rows


def _piece(match: re.Match[str], rows: Container[int]) -> str:
    formula = match["formula"]
    if formula is None or not formula[1:-1].strip():
        return match[0]
    in_cell = "|" in formula and match.string.rfind("\n", 0, match.start()) + 1 in rows
    if in_cell:
        formula = formula.replace("|", "\\|")
    if not _MARKUP.search(formula):
        return match[0]
    longest = max((len(run) for run in re.findall("`+", formula)), default=0)
    before = match.string[match.string.rfind("\n", 0, match.start()) + 1 : match.start()]
    if "\n" in formula and not before.strip(" >"):
        fence = "`" * max(3, longest + 1)
        alone = match.string[match.end() : match.end() + 1] in ("", "\n")
        return f"{fence}\n{before}{formula}\n{before}{fence}" + ("" if alone else f"\n{before}")
    ticks = "`" * (longest + 1)
    blank = " " if longest else ""
    return f"{ticks}{blank}{_LINES.sub(' ', formula)}{blank}{ticks}"
