"""Text of strangers, made fit to be shown, and the error that a source of theirs cannot be used."""

import unicodedata


class BadSource(Exception):
    """The source cannot be used; the message says why, and shows nothing that could move a terminal."""


def shown(text: str, chars: int = 300) -> str:
    """A text of strangers on one line, without what moves a terminal."""
    safe = "".join(it if unicodedata.category(it)[0] not in "CZ" or it == " " else "�" for it in text)
    return safe if len(safe) <= chars else safe[: chars - 1] + "…"
