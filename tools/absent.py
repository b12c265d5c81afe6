"""Names that were not in a workspace when a command began: no prompt reads them before it has ended.

The supervisor renames what a command makes by such a name, a tenth of a second later; a command that makes it again and
again would have it read nearly always. This process alone knows its commands.
"""

import os
from collections.abc import Collection
from contextlib import suppress

from tools.paths import names_in

_at_work: list["Absent"] = []


class Absent:
    """One command's, from before it begins until `end`. `names` are those that it may not make, in small letters."""

    def __init__(self, folder: int, names: Collection[str]) -> None:
        self._folder, self._names, there = os.fstat(folder), names, list[str]()
        for place, inside in ((".", ""), ("skills", "skills/")):
            with suppress(OSError):
                there += [f"{inside}{it}" for it in names_in(folder, place)]
        self._there = {it for it in there if not is_absent(folder, it)}
        _at_work.append(self)

    def end(self) -> None:
        with suppress(ValueError):
            _at_work.remove(self)

    def holds(self, folder: os.stat_result, name: str) -> bool:
        is_guarded = name.casefold() in self._names or (bool(self._names) and name.startswith("skills/"))
        return is_guarded and name not in self._there and os.path.samestat(folder, self._folder)


def is_absent(folder: int, name: str) -> bool:
    """True if a command that runs in the folder of that descriptor may have put it there. To be asked after the reading."""
    status = os.fstat(folder)
    return any(it.holds(status, name) for it in tuple(_at_work))
