"""Rows that one test walks through, at one gateway: whatever fails in a row says in which."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def case(*row: object) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case {', '.join(map(str, row))}")
        raise
