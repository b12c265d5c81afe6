"""Terminal output: all commands and the log write through these functions.

Names, titles and messages are untrusted: escape sequences in them control the terminal, and bidi controls reorder the text.
So every text passes `printable` and every JSON document `escaped`, even if the output is piped. Only `lead` is raw, for our
own colours and cursor movements.
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
    """Replace each control or invisible character by U+FFFD."""
    return text if text.isprintable() else _UNSAFE.sub("\ufffd", text.replace("\r\n", "\n"))


def escaped(document: str) -> str:
    """Escape those characters in a JSON document as `\\u`; JSON itself requires that only for C0 controls."""
    return document if document.isprintable() else _UNSAFE.sub(lambda match: json.dumps(match[0])[1:-1], document)


def print_text(text: str = "", *, err: bool = False, nl: bool = True, lead: str = "") -> None:
    typer.echo(lead + printable(text), err=err, nl=nl)


def print_list(
    rows: Sequence[dict[str, Any]], line: Callable[[dict[str, Any]], str], total: str, *, as_json: bool
) -> None:
    """Print a list as JSON, or as a line per row with the `total` on standard error."""
    if as_json:
        print_json(rows)
        return
    for row in rows:
        print_text(" ".join(line(row).splitlines()))
    print_text(total, err=True)


def print_json(value: object) -> None:
    typer.echo(escaped(json.dumps(value, ensure_ascii=False, indent=2)))


def confirm(question: str) -> bool:
    """Ask on standard error. Raise typer.Abort at the end of the input."""
    return typer.confirm(printable(question), err=True)


def prompt(question: str, *, default: str = "", show_default: bool = False, hide_input: bool = False) -> str:
    """Ask on standard error, and return the stripped answer."""
    answer: str = typer.prompt(
        printable(question), default=default, show_default=show_default, hide_input=hide_input, err=True
    )
    return answer.strip()
