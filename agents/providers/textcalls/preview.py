"""What may be shown of an answer while it comes: all that stands before its first call, or before what may become one.

From a call's header on nothing more is shown until the answer is over and read as a whole (`answer`).
"""

import re
from typing import Literal

from agents.providers.textcalls.forms import HEADER_CHARS_MAX, Forms

_OPENS = re.compile(r"[<\[]")
_BARE_BEGUN = re.compile(r'(?:\[\s*)?(?:\{\s*(?:"[a-z]{0,10}(?:"\s*)?)?)?|\[[\w.-]{0,120}(?:\][ \t]*\r?(?:\n\s*)?)?')


class Preview:
    """`alone`: forms that are calls only where they begin an answer, besides `forms`, which are anywhere."""

    def __init__(self, forms: Forms, alone: Forms | None = None) -> None:
        self._forms = forms
        self._alone = alone
        self._longest = max(map(len, forms.openings))
        self._state: Literal["beginning", "words", "call"] = "beginning"
        self._held = ""
        self._silent = True
        """Nothing but blank space has been shown: what stands before a call at the beginning goes with it."""

    def feed(self, piece: str) -> str:
        """The next of the answer's characters, as many as may be shown by now."""
        if self._state == "call":
            return ""
        if self._state == "words" and not self._held and not _OPENS.search(piece):
            return piece
        self._held += piece
        if self._state == "beginning":
            self._state = self._begun(self._held.lstrip())
        if self._state != "words":
            return ""
        shown = self._safe()
        if self._silent and not self._held[:shown].strip():
            return ""
        self._silent = False
        released, self._held = self._held[:shown], self._held[shown:]
        return released

    def _begun(self, text: str) -> Literal["beginning", "words", "call"]:
        if not text or (self._alone and _BARE_BEGUN.fullmatch(text)):
            return "beginning"
        return "call" if self._alone and self._alone.header(text, 0) else "words"

    def _safe(self) -> int:
        at = 0
        while found := self._forms.opening.search(self._held, at):
            if self._forms.header(self._held, found.start()):
                self._state = "call"
                return found.start()
            if len(self._held) - found.start() <= HEADER_CHARS_MAX:
                return found.start()
            at = found.end()
        for begun in _OPENS.finditer(self._held, max(at, len(self._held) - self._longest)):
            if any(opening.startswith(self._held[begun.start() :]) for opening in self._forms.openings):
                return begun.start()
        return len(self._held)
