"""One fact, warning or error about a config or what it depends on: `check`, `doctor` and start-up print nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from channels.bilingual import NO_WORDS, Bilingual

Status: TypeAlias = Literal["ok", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`fix` is the next step, empty if nothing can be done. No text holds a secret."""

    check: str
    status: Status
    message: Bilingual
    fix: Bilingual = NO_WORDS

    def __str__(self) -> str:
        return self("en")

    def __call__(self, language: Literal["en", "zh"]) -> str:
        """The message with its fix, in this language."""
        dash = "——" if language == "zh" else " — "
        return self.message(language) + (dash + self.fix(language) if self.fix else "")

    def labelled(self, label: str, language: Literal["en", "zh"]) -> str:
        """The text after a label, in this language."""
        return f"{label}{'：' if language == 'zh' else ': '}{self(language)}"

    def cleaned(self, clean: Callable[[str], str]) -> "Finding":
        """Passes each of its texts through `clean`."""
        return Finding(clean(self.check), self.status, self.message.each(clean), self.fix.each(clean))
