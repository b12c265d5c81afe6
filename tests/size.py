"""`make size`: how large the house is, and each room and file against tests/size.toml, which `make check` holds.

What serves is what `python -m gateway` can reach by imports, read and not run. Rooms count every line that ships: Python,
and the page with its scripts and styles. A file is one noun, of FILE_MIN to FILE_MAX lines; one that only a single module
imports has ONE_USER_MIN at least. A smaller file gives its reason in tests/size.toml.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from gateway.program import PACKAGES
from tests.parsed import ROOT, parsed

ENTRANCES = (
    "gateway/__main__.py",
    "gateway/cli/__init__.py",
    "tools/supervisor.py",
    "tools/web/page.py",
    "tools/documents/child.py",
)
"""The last three are programs of their own, started by their names."""
MIGRATIONS = "gateway/store/migrations"
BUDGETS = ROOT / "tests" / "size.toml"
COUNTED = (".py", ".js", ".css", ".html")
FILE_MIN, ONE_USER_MIN, FILE_MAX = 80, 120, 600


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """One module. `functions` are the lengths of its functions and methods, the inner ones counted again."""

    path: str
    lines: int
    functions: tuple[int, ...]
    imports: frozenset[str]


def source(path: Path) -> Source:
    text = path.read_text(encoding="utf-8")
    nodes = parsed().get(path) or [*ast.walk(ast.parse(text))]
    made = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return Source(
        path=str(path.relative_to(ROOT)),
        lines=len(text.splitlines()),
        functions=tuple((node.end_lineno or node.lineno) - node.lineno + 1 for node in made),
        imports=frozenset(_imported(nodes)),
    )


def _imported(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Paths of modules, and of names in them, which are no files: `agents/runner.py`, `agents/runner/Runner.py`."""
    for node in nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            within = getattr(node, "module", None)
            for module in [within, *(f"{within}.{name}" for name in names)] if within else names:
                yield module.replace(".", "/") + ".py"


def sources(*folders: str) -> list[Source]:
    return [source(path) for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def serving(product: Iterable[Source]) -> list[Source]:
    """The closure of imports, with the packages that the modules are in."""
    known = {it.path: it for it in product}
    reached: set[str] = set()
    ahead = list(ENTRANCES)
    while ahead:
        path = ahead.pop()
        if path in known and path not in reached:
            reached.add(path)
            ahead += [*known[path].imports, *(f"{parent}/__init__.py" for parent in Path(path).parents)]
    return [known[path] for path in sorted(reached)]


def report() -> Iterator[str]:
    product = [it for it in sources(*PACKAGES) if it.lines]
    serves = serving(product)
    functions = sorted(length for it in serves for length in it.functions)
    largest = max(serves, key=lambda it: it.lines)
    yield f"serving      {_total(serves)}, from gateway/cli on"
    p90 = quantiles(functions, n=10)[-1]
    yield f"  functions  median {median(functions):.0f}, p90 {p90:.0f}, longest {functions[-1]} lines"
    yield f"  largest    {largest.lines} lines, {largest.path}"
    others = [it for it in product if it not in serves]
    yield f"migrations   {_total([it for it in others if it.path.startswith(MIGRATIONS)])}"
    for it in others:
        if not it.path.startswith(MIGRATIONS):
            yield f"not serving  {it.lines} lines, {it.path}"
    doubles = sources("tests/emulators", "tests/demo")
    yield f"tests        {_total([it for it in sources('tests') if it not in doubles])}"
    yield f"doubles      {_total(doubles)}: emulators and demo"


def rooms() -> dict[str, int]:
    """The lines of each room that has a budget: of its files, and of folders beneath that have none of their own."""
    lines = dict.fromkeys(_table("rooms"), 0)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in COUNTED:
                homes = [str(it.relative_to(ROOT)) for it in path.parents if it.is_relative_to(ROOT)]
                home = next(it for it in homes if it in lines)
                lines[home] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


def excess() -> Iterator[str]:
    """A sentence for each room and file that breaks its limit, and for each reason that nothing needs any more."""
    budgets = _table("rooms")
    for room, lines in rooms().items():
        if lines > budgets[room]:
            yield (
                f"{room} has {lines:,} lines, and its budget in tests/size.toml is {budgets[room]:,}: "
                "make what is new pay for itself, or raise it with the reason in the commit"
            )
    product = [it for it in sources(*PACKAGES) if it.lines and not it.path.startswith(MIGRATIONS)]
    small = {it.path for it in product if it.lines < _least(it, product) and not it.path.endswith("__init__.py")}
    reasons = _table("small")
    yield from (
        f"{it.path} has {it.lines} lines, more than {FILE_MAX}: split it" for it in product if it.lines > FILE_MAX
    )
    yield from (
        f"{path} is small: merge it, or give its reason in tests/size.toml" for path in sorted(small - {*reasons})
    )
    yield from (f"{path} is not small: strike it from tests/size.toml" for path in sorted({*reasons} - small))


def _least(source: Source, product: list[Source]) -> int:
    """How many lines a file needs to stand on its own."""
    users = [it for it in product if source.path in it.imports and it.path != source.path]
    return ONE_USER_MIN if len(users) == 1 else FILE_MIN


def _table(name: str) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads(BUDGETS.read_text(encoding="utf-8"))[name]
    return table


def _total(found: list[Source]) -> str:
    return f"{sum(it.lines for it in found):,} lines in {len([it for it in found if it.lines])} files"


def main() -> None:
    budgets = _table("rooms")
    if "--check" not in sys.argv:
        print(*report(), sep="\n")  # noqa: T201
        print(*(f"  {room:26} {lines:6,} of {budgets[room]:6,}" for room, lines in rooms().items()), sep="\n")  # noqa: T201
    if found := [*excess()]:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
