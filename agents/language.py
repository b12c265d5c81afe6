"""The language in which the gateway speaks to a person: English or Chinese, decided by their own words first."""

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
    """Chinese if it is written in Chinese characters and in no letters of Japanese or Korean; otherwise English."""
    return "zh" if _HAN.search(text) and not _KANA_OR_HANGUL.search(text) else "en"


def decided_by(text: str) -> Language | None:
    """The language that a person's text decides: by its characters, or by four words of it. `OK`, a command, an address
    and three words of code decide nothing: people write them in any language."""
    if _KANA_OR_HANGUL.search(text):
        return "en"
    if _HAN.search(text):
        return "zh"
    return "en" if len(_WORD.findall(_COMMAND.sub("", text, count=1))) >= DECIDING_WORDS else None


def language_for(context: MessageContext, default: Language = "en") -> Language:
    """The language in which the gateway answers a message: the one found when it was accepted, else its own text's, its
    platform's, the default."""
    return context.language or decided_by(context.text) or language_of_platform(context, default)


def language_of_platform(context: MessageContext, default: Language) -> Language:
    if platform := context.sender.language:
        return "zh" if platform.lower().startswith("zh") else "en"
    return default
