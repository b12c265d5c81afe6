"""What the packages are written in, parsed once a process: many a test reads it."""

import ast
import gc
from functools import cache
from pathlib import Path

from gateway.program import PACKAGES

ROOT = Path(__file__).resolve().parents[1]


@cache
def parsed() -> dict[Path, list[ast.AST]]:
    """All that stands in each file. It stays, so no garbage collection walks these million objects, now or later."""
    gc.disable()
    paths = [path for folder in PACKAGES for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {path: [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))] for path in paths}
    gc.freeze()
    gc.enable()
    return found
