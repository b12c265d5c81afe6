"""A text that arrives in pieces: the whole as it came, and what of it may be shown already."""

from dataclasses import dataclass

from agents.providers.wellformed import split_half, well_formed


@dataclass(slots=True)
class Growing:
    """`raw` is what came, byte for byte; half an emoji at its end is not shown before its other half is there."""

    raw: str = ""
    _held: str = ""

    def add(self, piece: str) -> str:
        """Take more, and return what may be shown of it, which may be nothing."""
        self.raw += piece
        shown, self._held = split_half(self._held + piece)
        return well_formed(shown)

    @property
    def text(self) -> str:
        return well_formed(self.raw)
