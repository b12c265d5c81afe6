"""The statements of docs/security.md, and whether security_page.txt names the tests that hold each.

A statement is a bullet, called by its bold words, or a row of a table, called by its first cell. "Not promised" and the
sections of advice state nothing that a test could hold. Whoever adds a statement adds its tests there, or the suite fails.
"""

import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from gateway.config.root import Config
from tests.named import TESTS, exists, held

PAGE = TESTS.parent / "docs" / "security.md"
ADVICE = ("How to harden", "How to report a hole", "What nobody can promise")

TABLE = Path(__file__).with_suffix(".txt")
FIGURE = re.compile(r"`((?:server|limits|approvals)\.\w+)`(?: \(|, )([\d,]+)(?: (KiB|MiB|hour))?")
"""A figure beside a key, which is its default."""
UNITS = {"": 1, "KiB": 1024, "MiB": 1024**2, "hour": 3600}


def statements() -> Iterator[str]:
    """What the page states, as `section / words`; without words, a bullet that has none in bold."""
    section, lines = "", PAGE.read_text(encoding="utf-8").splitlines()
    for line, below in pairwise([*lines, ""]):
        if line.startswith("#"):
            section = line.lstrip("# ").partition(":")[0]
        elif section in ADVICE or line.startswith("* **Not promised**"):
            continue
        elif line.startswith("* "):
            words = re.match(r"\* \*\*(.+?)\*\*", line)
            yield f"{section} / {words[1] if words else ''}"
        elif line.startswith("| ") and not below.startswith("|---") and ".py`" not in line:
            yield f"{section} / {line.split('|')[1].strip()}"


def faults() -> list[str]:
    """What is wrong between the page, the table, the tests, the folders and the config's defaults."""
    page, table, stated = (
        PAGE.read_text(encoding="utf-8"),
        dict(held(TABLE.read_text(encoding="utf-8"))),
        [*statements()],
    )
    places = [it for it in re.findall(r"`(\w+/[\w/]+(?:\.py|/))`", page) if not (TESTS.parent / it).exists()]
    figures = [(key, int(number.replace(",", "")) * UNITS[unit]) for key, number, unit in FIGURE.findall(page)]
    return [
        *(f"no test is named for: {it}" for it in stated if not table.get(it)),
        *(f"stated twice: {it}" for it in {*stated} if stated.count(it) > 1),
        *(f"not on the page: {it}" for it in table if it not in stated),
        *(f"there is no {it}" for lines in table.values() for it in lines if not exists(it)),
        *(f"there is no {it}" for it in places),
        *(f"{key} is not {value} by default" for key, value in figures if default(key) != value),
    ]


def default(key: str) -> Any:
    bare: Any = Config.model_construct
    value = bare()
    for name in key.split("."):
        (attribute,) = [at for at, it in type(value).model_fields.items() if name in (at, it.alias)]
        value = getattr(value, attribute)
    return value
