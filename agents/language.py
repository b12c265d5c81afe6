"""The gateway's language for a user: English or Chinese, decided by the user's own text first."""

import re
from typing import Literal, TypeAlias

from channels.message import MessageContext

Language: TypeAlias = Literal["en", "zh"]

_HAN = re.compile("[〇㐀-䶿一-鿿豈-﫿\U00020000-\U0003ffff]")
_WORD = re.compile(r"(?<!\S)[\"'(“‘]?[^\W\d_][^\s/\\=_<>{}$|@#]*(?!\S)")
_COMMAND = re.compile(r"\A\s*[/／]\S*")
DECIDING_WORDS = 4
_KANA_OR_HANGUL = re.compile("[ぁ-ゖァ-ヺㇰ-ㇿｦ-ﾝᄀ-ᇿ㄰-㆏가-힣]")


def language_of(text: str) -> Language:
    """Return Chinese for Chinese characters without Japanese or Korean letters, otherwise English."""
    return "zh" if _HAN.search(text) and not _KANA_OR_HANGUL.search(text) else "en"


def decided_by(text: str) -> Language | None:
    """Return the language that a text proves: by its characters, or by four words. `OK`, commands, addresses and three
    words of code prove nothing: users of any language write them."""
    if _KANA_OR_HANGUL.search(text):
        return "en"
    if _HAN.search(text):
        return "zh"
    return "en" if len(_WORD.findall(_COMMAND.sub("", text, count=1))) >= DECIDING_WORDS else None


def language_for(context: MessageContext, default: Language = "en") -> Language:
    """Return the language to answer a message in: the one stored with it, else its text's, its platform's or the default."""
    return context.language or decided_by(context.text) or language_of_platform(context, default)


def language_of_platform(context: MessageContext, default: Language) -> Language:
    if platform := context.sender.language:
        return "zh" if platform.lower().startswith("zh") else "en"
    return default
