"""Terminal output: commands print, and the log writes its lines, through these functions alone.

Names, titles and messages come from chat users. A terminal obeys escape sequences in them, and bidi controls reorder what
a reader sees, so every text passes `printable` and every JSON document `escaped`, also when the output is piped. Only
`lead` is written raw: it is for our own colours and cursor movements.
"""

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import typer

_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 without tab and newline, DEL, C1
    "\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"  # line separators, bidi marks, embeddings, overrides and isolates
    "\u200b\u2060-\u2064\ufeff\ufff9-\ufffb\U000e0000-\U000e007f"  # zero width, annotations, tags
    "\ud800-\udfff]"  # halves of a pair, which no encoding can write
)


def printable(text: str) -> str:
    """Return the text with U+FFFD in place of each character that a terminal obeys or a reader cannot see."""
    return text if text.isprintable() else _UNSAFE.sub("\ufffd", text.replace("\r\n", "\n"))


def escaped(document: str) -> str:
    """Return an equal JSON document with those characters as `\\u` escapes: JSON itself requires that of C0 alone."""
    return document if document.isprintable() else _UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], document)


def print_text(text: str = "", *, err: bool = False, nl: bool = True, lead: str = "") -> None:
    typer.echo(lead + printable(text), err=err, nl=nl)


def print_list(
    rows: Sequence[dict[str, Any]], line: Callable[[dict[str, Any]], str], total: str, *, as_json: bool
) -> None:
    """Print a list, as JSON or one line for each row; the `total` goes to standard error."""
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print_text(" ".join(line(row).splitlines()))
    print_text(total, err=True)


def print_json(value: object) -> None:
    typer.echo(escaped(json.dumps(value, ensure_ascii=False, indent=2)))


def confirm(question: str) -> bool:
    """Ask on standard error. Raises typer.Abort at the end of the input."""
    return typer.confirm(printable(question), err=True)


def prompt(question: str, *, default: str = "", show_default: bool = False, hide_input: bool = False) -> str:
    """Ask on standard error, and return the answer without blanks around it."""
    answer: str = typer.prompt(
        printable(question), default=default, show_default=show_default, hide_input=hide_input, err=True
    )
    return answer.strip()
