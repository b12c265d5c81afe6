"""A text of the gateway that people read in English or in Chinese."""

from collections.abc import Callable
from typing import Literal


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
        """Changes both texts."""
        return Bilingual(change(self.en), change(self.zh))


NO_WORDS = Bilingual()
