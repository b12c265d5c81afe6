"""Where text that is a call ends, while it is still coming: it ends here, more is needed, or it is no call. Pure.

Readers remember how far they looked, so a long call that comes in small pieces is not read over and over. Which forms
there are is in `forms`, what they say in `grammar`.
"""

import re
from typing import Literal, Protocol, TypeAlias

Verdict: TypeAlias = int | Literal["more", "none"]

_JSON_MARKS = re.compile(r'[\\"{}\[\]]')
_SOMETHING = re.compile(r"\S")
_BEGUN = re.compile(r"[<\\]")


class Reader(Protocol):
    def awake(self, piece: str) -> bool:
        """Whether this next piece may bring the end, so that it is worth asking."""

    def end(self, text: str, *, final: bool) -> Verdict:
        """The offset behind the call at the start of `text`. `final`: no more will come, and none of it is needed."""


class Fixed:
    """A tag that stands for itself."""

    def __init__(self, tag: str) -> None:
        self._tag = tag

    def awake(self, piece: str) -> bool:
        return True

    def end(self, text: str, *, final: bool) -> Verdict:
        return len(self._tag)


class Rest:
    """Everything that follows."""

    def awake(self, piece: str) -> bool:
        return False

    def end(self, text: str, *, final: bool) -> Verdict:
        return len(text) if final else "more"


class Until:
    """Up to a closing tag, or all there is."""

    def __init__(self, closing: str) -> None:
        self._closing = closing
        self._looked = 0

    def awake(self, piece: str) -> bool:
        return self._closing[-1] in piece

    def end(self, text: str, *, final: bool) -> Verdict:
        at = text.find(self._closing, self._looked)
        if at >= 0:
            return at + len(self._closing)
        self._looked = max(0, len(text) - len(self._closing) + 1)
        return len(text) if final else "more"


class Tagged:
    """A payload between tags. In JSON a closing tag may stand within a string, which does not close it."""

    def __init__(
        self,
        header: re.Pattern[str],
        *,
        growing: re.Pattern[str],
        closing: str,
        stops: tuple[str, ...] = (),
        behind: str = "",
    ) -> None:
        """`stops` end it without being part of it; the closing tag of what is no JSON stands `behind` another."""
        self._header = header
        self._growing = growing
        self._closing = closing
        self._behind = behind
        self._tokens = re.compile(r'\\.|"|' + "|".join(map(re.escape, (closing, *stops))), re.DOTALL)
        self._longest = max(map(len, (closing, *stops)))
        self._body: int | None = None
        self._is_json: bool | None = None
        self._in_string = False
        self._looked = 0

    def awake(self, piece: str) -> bool:
        return self._is_json is None or ">" in piece

    def end(self, text: str, *, final: bool) -> Verdict:
        if self._body is None:
            head = self._header.match(text)
            if head is None:
                growing = self._growing.fullmatch(text) is not None
                return ("more" if not final else len(text)) if growing else "none"
            self._body = self._looked = head.end()
        if self._is_json is None and (first := _SOMETHING.search(text, self._body)):
            self._is_json = first[0] in "{[`"
        found = self._closed_at(text, self._body) if self._is_json is not None else None
        if found is not None:
            return found
        return self._given_up(text, self._body) if final else "more"

    def _closed_at(self, text: str, body: int) -> int | None:
        for token in self._tokens.finditer(text, self._looked):
            self._looked = token.end()
            if token[0] == '"':
                self._in_string = not self._in_string
            elif token[0][0] == "\\" or (self._is_json and self._in_string):
                continue
            elif token[0] != self._closing:
                return token.start()
            elif self._is_json or self._in_place(text, body, token.start()):
                return token.end()
        tail = max(self._looked, len(text) - self._longest)
        begun = _BEGUN.search(text, tail)
        self._looked = begun.start() if begun else len(text)
        return None

    def _in_place(self, text: str, body: int, at: int) -> bool:
        before = text[max(body, at - 200) : at].rstrip()
        return not before or before.endswith(self._behind)

    def _given_up(self, text: str, body: int) -> int:
        """It never ended as it should. A quote may be missing, so the first closing tag counts wherever it stands."""
        at = text.find(self._closing, body)
        return at + len(self._closing) if at >= 0 else len(text)


class JsonAfter:
    """A JSON value behind a header, and what may close it.

    Without a value the first `otherwise` characters are taken, or it is no call at all. `ends` says what is asked of
    the end: a call that is `cut` is still call text, others are ordinary text then.
    """

    def __init__(
        self,
        header: re.Pattern[str],
        *,
        growing: str,
        closers: tuple[str, ...] = (),
        otherwise: int | None = None,
        ends: Literal["may be cut", "must be whole", "must be closed"] = "may be cut",
    ) -> None:
        self._header = header
        self._growing = re.compile(growing, re.DOTALL)
        self._closers = closers
        self._otherwise = otherwise
        self._ends = ends
        self._json: JsonEnd | None = None
        self._after: int | None = None

    def awake(self, piece: str) -> bool:
        return self._json is None or self._after is not None or "}" in piece or "]" in piece

    def end(self, text: str, *, final: bool) -> Verdict:
        if self._json is None:
            head = self._header.match(text)
            if head is None and self._growing.fullmatch(text):
                return self._cut(text) if final else "more"
            if head is None:
                return "none" if self._otherwise is None else self._otherwise
            self._json = JsonEnd(head.end())
            name = head.groupdict().get("name", "")
            self._closers = tuple(closer.replace("{name}", name) for closer in self._closers)
        if self._after is None:
            self._after = self._json.find(text)
        if self._after is None:
            return self._cut(text) if final else "more"
        return self._closed(text, self._after, final=final)

    def _cut(self, text: str) -> Verdict:
        return len(text) if self._ends == "may be cut" else "none"

    def _closed(self, text: str, after: int, *, final: bool) -> Verdict:
        if not self._closers:
            return after
        rest = text[after:].lstrip()
        for closer in self._closers:
            if rest.startswith(closer):
                return len(text) - len(rest) + len(closer)
        if not final and any(closer.startswith(rest) for closer in self._closers):
            return "more"
        return "none" if self._ends == "must be closed" else after


class JsonEnd:
    """Where a JSON value ends that begins at `start`: by its brackets, whatever stands between them."""

    def __init__(self, start: int) -> None:
        self._looked = start
        self._depth = 0
        self._in_string = False

    def find(self, text: str) -> int | None:
        while mark := _JSON_MARKS.search(text, self._looked):
            if mark[0] == "\\" and self._in_string:
                if mark.end() == len(text):
                    self._looked = mark.start()
                    return None
                self._looked = mark.end() + 1
                continue
            self._looked = mark.end()
            if mark[0] == '"':
                self._in_string = not self._in_string
            elif mark[0] != "\\" and not self._in_string:
                self._depth += 1 if mark[0] in "{[" else -1
                if self._depth <= 0:
                    return mark.end()
        self._looked = len(text)
        return None
