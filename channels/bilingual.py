"""Texts in English and Chinese, and the findings and outages made of them, which `check`, `doctor` and start-up print."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias


class Bilingual(str):
    """A `str` with the English text, which logs, JSON and comparisons see; call it with a language for that text.

    Joining or formatting yields English only, so write out both texts."""

    __slots__ = ("zh",)
    zh: str

    def __new__(cls, en: str = "", zh: str | None = None) -> "Bilingual":
        """Omit `zh` for names, paths and vendors' texts, which have one form."""
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
    """`fix` is the next step, or empty. No text contains a secret."""

    check: str
    status: Status
    message: Bilingual
    fix: Bilingual = NO_WORDS

    def __str__(self) -> str:
        return self("en")

    def __call__(self, language: Literal["en", "zh"]) -> str:
        """Return the message with its fix in this language."""
        dash = "——" if language == "zh" else " — "
        return self.message(language) + (dash + self.fix(language) if self.fix else "")

    def labelled(self, label: str, language: Literal["en", "zh"]) -> str:
        return f"{label}{'：' if language == 'zh' else ': '}{self(language)}"

    def cleaned(self, clean: Callable[[str], str]) -> "Finding":
        return Finding(clean(self.check), self.status, self.message.each(clean), self.fix.each(clean))


@dataclass(frozen=True, slots=True)
class Outage:
    """The reason for an unavailable database or model, and the next step, for people; `kind` is for programs."""

    kind: str
    reason: Bilingual
    fix: Bilingual

    @property
    def sentence(self) -> Bilingual:
        return Bilingual(f"{self.reason.en[:1].upper()}{self.reason.en[1:]}.", f"{self.reason.zh}。")

    @property
    def view(self) -> dict[str, Any]:
        """Return the outage as JSON, in both languages."""
        zh = {"reason": self.reason.zh, "fix": self.fix.zh}
        return {"kind": self.kind, "reason": self.reason.en, "fix": self.fix.en, "zh": zh}

    def finding(self, check: str, name: str = "") -> Finding:
        reason = Bilingual(f"{name}: {self.reason}", f"{name}：{self.reason.zh}") if name else self.reason
        return Finding(check, "error", reason, self.fix)
