"""Texts in English and Chinese, and the findings and outages made of them, which `check`, `doctor` and start-up print."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias


class Bilingual(str):
    """It is its English text, for all that want a text: logs, JSON and comparisons know nothing of the Chinese. Called with
    a language, it is the text in it. What is joined or formatted is English alone, so both texts are written out."""

    __slots__ = ("zh",)
    zh: str

    def __new__(cls, en: str = "", zh: str | None = None) -> "Bilingual":
        """A name, a path or a vendor's words have one text only."""
        text = super().__new__(cls, en)
        text.zh = en if zh is None else zh
        return text

    def __call__(self, language: Literal["en", "zh"]) -> str:
        return self.zh if language == "zh" else self.en

    @property
    def en(self) -> str:
        return str(self)

    def each(self, change: Callable[[str], str]) -> "Bilingual":
        return Bilingual(change(self.en), change(self.zh))


NO_WORDS = Bilingual()


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


@dataclass(frozen=True, slots=True)
class Outage:
    """The reason why a database or a model does not work, and the next step, for people; `kind` is for programs. Every
    surface shows these words, each in its reader's language."""

    kind: str
    reason: Bilingual
    fix: Bilingual

    @property
    def sentence(self) -> Bilingual:
        """The reason as a sentence of its own."""
        return Bilingual(f"{self.reason.en[:1].upper()}{self.reason.en[1:]}.", f"{self.reason.zh}。")

    @property
    def view(self) -> dict[str, Any]:
        """The outage for programs, in both languages."""
        zh = {"reason": self.reason.zh, "fix": self.fix.zh}
        return {"kind": self.kind, "reason": self.reason.en, "fix": self.fix.en, "zh": zh}

    def finding(self, check: str, name: str = "") -> Finding:
        """The outage of the thing called `name`."""
        reason = Bilingual(f"{name}: {self.reason}", f"{name}：{self.reason.zh}") if name else self.reason
        return Finding(check, "error", reason, self.fix)
