"""A page of a list for the console: found by words and by the fields that a row has, fifty rows at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from gateway.http.request import number_of
from gateway.operate.clipped import brief

T = TypeVar("T")
ROWS_MAX = 50
FIELDS = ("agent", "channel")
"""The fields that a row must have exactly so; a row without the field is not meant."""


def page(
    rows: Sequence[Mapping[str, Any]], query: Mapping[str, str], *, begin: str = "from", marked: str = ""
) -> dict[str, Any]:
    """The rows that hold every one of the `words`, from the number that the parameter `begin` names. `count` is how many
    rows are meant, and `names` has the field `marked` of each, if one is named."""
    words = query.get("words", "").casefold().split()
    only = {name: query[name] for name in FIELDS if query.get(name)}
    meant = [it for it in rows if _is_meant(it, only) and holds(words, it)]
    first = number_of(query.get(begin, "")) or 0
    shown = {"rows": brief(meant[first : first + ROWS_MAX]), "from": first, "count": len(meant)}
    return shown | ({"names": [it[marked] for it in meant]} if marked else {})


def page_of(found: Sequence[T], query: Mapping[str, str], view: Callable[[T], Mapping[str, Any]]) -> dict[str, Any]:
    """The `page` of the views of what was found. Unless something is looked for, only those of the page are made."""
    if query.get("words") or any(map(query.get, FIELDS)):
        return page([view(it) for it in found], query)
    first = number_of(query.get("from", "")) or 0
    rows = [view(it) for it in found[first : first + ROWS_MAX]]
    return {"rows": brief(rows), "from": first, "count": len(found)}


def holds(words: Sequence[str], *values: Any) -> bool:
    if not words:
        return True
    text = "\n".join(it for value in values for it in _texts(value)).casefold()
    return all(it in text for it in words)


def _is_meant(row: Mapping[str, Any], only: Mapping[str, str]) -> bool:
    return all(row.get(name) == wanted for name, wanted in only.items())


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for it in value.values():
            yield from _texts(it)
    elif isinstance(value, list | tuple):
        for it in value:
            yield from _texts(it)
