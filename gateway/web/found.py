"""The line of a text in which words were looked for, with the places of the words.

A line is cut into pieces, of which every second one was found: a page marks those without knowing how we compare, and no
HTML is made of a person's text.
"""

from collections.abc import Iterator, Sequence

WORDS_MAX = 8
LINE_CHARS = 160
BEFORE_CHARS = 40
"""The characters that are shown before the first word that was found."""


def words_of(query: str) -> list[str]:
    """The words of a search, casefolded, the longest first: a part of another word marks nothing itself."""
    return sorted(set(query.casefold().split()[:WORDS_MAX]), key=len, reverse=True)


def found_line(text: str, words: Sequence[str]) -> list[str]:
    """The line that has the most of the words, the first of several, as pieces."""
    lines = [line.strip() for line in text.splitlines()] or [""]
    best = max(lines, key=lambda line: sum(it in line.casefold() for it in words))
    return _pieces(best, list(_places(best, words)))


def _pieces(line: str, places: Sequence[tuple[int, int]]) -> list[str]:
    first = places[0][0] if places else 0
    start = max(0, first - BEFORE_CHARS) if len(line) > LINE_CHARS else 0
    end = min(len(line), start + LINE_CHARS)
    pieces, at = [], start
    for begin, stop in places:
        if begin >= end:
            break
        pieces += [line[at:begin], line[begin : min(stop, end)]]
        at = min(stop, end)
    pieces.append(line[at:end] + ("…" if end < len(line) else ""))
    return [("…" if start else "") + pieces[0], *pieces[1:]]


def _places(line: str, words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The beginnings and ends of the words in the line, from the left. A letter may become two when its case goes, so each
    folded one knows its own."""
    letters = [(folded, at) for at, char in enumerate(line) for folded in char.casefold()]
    folded, at, end = "".join(it for it, _ in letters), 0, 0
    while at < len(folded):
        here = next((it for it in words if folded.startswith(it, at)), "")
        if here and letters[at][1] >= end:
            end = letters[at + len(here) - 1][1] + 1
            yield letters[at][1], end
        at += len(here) or 1
