"""Where in an answer each of its parts stands: in the order in which they began."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Places:
    taken: dict[str, int] = field(default_factory=dict)

    def of(self, part: str) -> int:
        """The part's place; the next free one at its first mention."""
        return self.taken.setdefault(part, len(self.taken))
