"""Tables of statements and the tests that hold them: a statement a line, and below it, indented, a `file: test` each."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).resolve().parent


def held(table: str) -> Iterator[tuple[str, list[str]]]:
    """Each statement with the lines below it."""
    statement, lines = "", list[str]()
    for line in filter(None, table.splitlines()):
        if line.startswith("  "):
            lines.append(line.strip())
            continue
        if statement:
            yield statement, lines
        statement, lines = line, []
    yield statement, lines


def exists(line: str) -> bool:
    """True if the file has that test; `*` is any test at all."""
    path, _, name = line.partition(": ")
    return bool(names_in(path)) if name == "*" else name in names_in(path)


@cache
def names_in(path: str) -> frozenset[str]:
    """The tests of a file: functions, and the state machines that are bound to a name."""
    file = TESTS / path
    body = ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else []
    names = [it.name for it in body if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)]
    names += [at.id for it in body if isinstance(it, ast.Assign) for at in it.targets if isinstance(at, ast.Name)]
    return frozenset(it for it in names if it.startswith(("test_", "Test")))
