r"""Formulas of TeX in Markdown, made code. Pure.

No dialect here knows them, and to each of them a backslash, a star or an underscore of one is markup: `$$\int x\,dx$$`
would lose its backslash. As code a formula is shown as it was written. Idempotent.
"""

import re
from collections.abc import Container

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
    """The Markdown with its formulas as code; `$5` and `$PATH` stay as they are."""
    if "$" not in markdown and "\\(" not in markdown and "\\[" not in markdown:
        return markdown
    rows = _rows(markdown) if "|" in markdown else ()
    return _PIECES.sub(lambda match: _piece(match, rows), markdown)


def _rows(markdown: str) -> set[int]:
    """Return where the lines of tables begin."""
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
