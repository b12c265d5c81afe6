"""Thoughts that a model wrote into its answer: `<think>…</think>` at the very beginning, separated from the rest.

Anywhere else the tag is ordinary text. Blank space around the thoughts belongs to neither side.
"""

from typing import Literal

OPENING = "<think>"
CLOSING = "</think>"


class Thoughts:
    """Separates thoughts from text in a streamed answer. `end` is where the text begins."""

    def __init__(self) -> None:
        self.end = 0
        self._state: Literal["not yet", "thinking", "about to speak", "speaking"] = "not yet"
        self._held = ""
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @property
    def over(self) -> bool:
        """Whether all that follows is text."""
        return self._state == "speaking"

    def feed(self, piece: str) -> tuple[str, str]:
        if self._state == "speaking":
            return "", piece
        self._held += piece
        if self._state == "not yet":
            begun = self._held.lstrip()
            if begun.startswith(OPENING):
                self._skip(len(self._held) - len(begun) + len(OPENING))
                self._state = "thinking"
            elif OPENING.startswith(begun):
                return "", ""
            else:
                return "", self._speak()
        thought = self._think() if self._state == "thinking" else ""
        if self._state == "about to speak":
            self._skip(len(self._held) - len(self._held.lstrip()))
            return thought, self._speak() if self._held else ""
        return thought, ""

    def finish(self) -> tuple[str, str]:
        """What is left when the answer is over: thoughts without an end are thoughts all the same."""
        match self._state:
            case "thinking":
                left = "" if CLOSING.startswith(self._held) else self._held
                self._skip(len(self._held))
                return self._keep(left), ""
            case "not yet":
                return "", self._speak()
            case "about to speak" | "speaking":
                return "", ""

    def _think(self) -> str:
        if not self._pieces:
            self._skip(len(self._held) - len(self._held.lstrip()))
        at = self._held.find(CLOSING)
        if at >= 0:
            thought = self._held[:at]
            self._skip(at + len(CLOSING))
            self._state = "about to speak"
        else:
            thought = self._held[: len(self._held) - _begun(self._held)]
            self._skip(len(thought))
        return self._keep(thought)

    def _keep(self, thought: str) -> str:
        if thought:
            self._pieces.append(thought)
        return thought

    def _skip(self, chars: int) -> None:
        self._held = self._held[chars:]
        self.end += chars

    def _speak(self) -> str:
        text, self._held, self._state = self._held, "", "speaking"
        return text


def _begun(text: str) -> int:
    """How many characters at the end may be the beginning of the closing tag."""
    return next((count for count in range(len(CLOSING) - 1, 0, -1) if text.endswith(CLOSING[:count])), 0)
