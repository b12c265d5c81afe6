"""The prompts' texts: sections of `texts.md` by heading."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path


def wording(name: str) -> str:
    return _texts()[name]


@cache
def _texts() -> Mapping[str, str]:
    pieces = Path(__file__).with_suffix(".md").read_text(encoding="utf-8").removeprefix("# ").split("\n# ")
    return {name: body.strip() for name, _, body in (piece.partition("\n") for piece in pieces)}
