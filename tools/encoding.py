"""Guess the encoding of a text file: UTF-8, UTF-16, or a Windows "ANSI" code page of China, Japan or the West.

Valid UTF-8 is never guessed about. For anything else, the likeliest encoding is the one that gives the most common
characters of its language: GBK bytes read as Big5 are characters that nobody uses. The tools name a guess.
"""

import codecs
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

CODECS = ("gbk", "gb18030", "big5", "cp932", "cp1252", "utf-16-le", "utf-16-be", "utf-8-sig", "gb2312")
"""Codecs to load before a process gives up its right to open files."""
SAMPLE_BYTES = 65_536
"""Bytes to judge an encoding by, from the first non-ASCII one on."""
LIKELY = 0.7
"""Minimum share of common characters for a guess."""
STRAY_NULS = 0.125
"""Maximum share of NULs in a text; more is UTF-16, or no text."""

_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_NAMES = {"utf-8": "UTF-8", "utf-16-le": "UTF-16", "utf-16-be": "UTF-16", "gbk": "GBK", "gb18030": "GB18030",
          "big5": "Big5", "cp932": "Shift-JIS", "cp1252": "Windows-1252"}  # fmt: skip
_HIGH = re.compile(rb"[\x80-\xff]+")
_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
_CUT = re.compile(rb"[\xc2-\xf4][\x80-\xbf]{0,2}\Z")
_LATIN = re.compile(r"(?:(?<=[A-Za-z])|(?=[^\x00-\x7f][a-z]))[À-ÖØ-öø-þŠšŽžŒœ]|[‘’“”–—…€£§©®°±·«»¿¡\xa0]|\b[àÀéÉ]\b")
_KANA = frozenset(map(chr, range(0x3041, 0x30FF)))
_PUNCTUATION = frozenset(map(chr, (*range(0x3000, 0x3018), *range(0xFF01, 0xFF5F)))) | frozenset(
    "·—‘’“”…℃￥×±°①②③④⑤⑥⑦⑧⑨⑩"
)


@dataclass(frozen=True, slots=True)
class Encoding:
    """`codec` is Python's name, and `title` a reader's."""

    codec: str

    @property
    def title(self) -> str:
        return _NAMES[self.codec]

    def decode(self, data: bytes) -> str:
        """Decode without a BOM. Never raises: invalid bytes become U+FFFD."""
        return data.decode(self.codec, "replace").removeprefix("\ufeff")


UTF_8 = Encoding("utf-8")


def is_valid(data: bytes, codec: str = "utf-8", *, is_whole: bool = True) -> bool:
    """Return whether `data` is valid in this encoding; the last character of a beginning may be cut."""
    try:
        codecs.getincrementaldecoder(codec)().decode(data, final=is_whole)
    except UnicodeDecodeError:
        return False
    return True


def encoding_of(data: bytes, *, is_whole: bool = True, nuls: bool = False) -> Encoding | None:
    """Return the likeliest encoding of a file or its beginning; UTF-8 if no other is likely; None if it is no text.
    `nuls` tolerates stray NULs."""
    for mark, codec in _BOMS:
        if data.startswith(mark):
            return Encoding(codec)
    if count := data[:SAMPLE_BYTES].count(0):
        wide = _wide(data[:SAMPLE_BYTES])
        is_stray = nuls and count <= STRAY_NULS * min(len(data), SAMPLE_BYTES)
        if wide is not None or not is_stray:
            return wide
    if is_valid(data, is_whole=is_whole):
        return UTF_8
    first = next((it.start() for it in _HIGH.finditer(data)), 0)
    sample, wide = data[first : first + SAMPLE_BYTES], _wide(data[:SAMPLE_BYTES])
    scores = {UTF_8: _share_utf8(sample), Encoding("cp1252"): _share_latin(data[max(0, first - 1) : first] + sample)}
    for codec in ("gbk", "gb18030", "big5", "cp932"):
        scores[Encoding(codec)] = _share(sample, codec)
    best = max(scores, key=lambda it: (scores[it], it == UTF_8))
    if scores[best] >= LIKELY:
        return best
    return wide or (Encoding("gbk") if is_valid(sample, "gbk", is_whole=False) else UTF_8)  # rare names, perhaps


def decoded(data: bytes) -> str:
    """Decode bytes of unknown encoding."""
    return (encoding_of(data, nuls=True) or UTF_8).decode(data)


def _wide(data: bytes) -> Encoding | None:
    if len(data) < 4 or len(data) % 2:  # not UTF-16 without a BOM
        return None
    shares = {codec: _share_usual(data.decode(codec, "replace")) for codec in ("utf-16-le", "utf-16-be")}
    best = max(shares, key=shares.__getitem__)
    return Encoding(best) if shares[best] > 0.95 else None


def _share_usual(text: str) -> float:
    usual = sum(" " <= char < "\x7f" or char in "\t\r\n" or char in _hanzi() for char in text)
    return usual / max(1, len(text))


def _share_utf8(data: bytes) -> float:
    good = len(_SEQUENCE.findall(data))  # by chance, no more frequent than bad ones
    bad = len(_HIGH.findall(_CUT.sub(b"", _SEQUENCE.sub(b"", data)) if good else data))
    return good / (good + bad) if good + bad else 1.0


def _share_latin(data: bytes) -> float:
    high = sum(map(len, _HIGH.findall(data)))
    return len(_LATIN.findall(data.decode("cp1252", "replace"))) / max(1, high)


def _share(data: bytes, codec: str) -> float:
    text = [char for char in data.decode(codec, "replace") if char > "\x7f"]
    common, traditional = _common(codec), _common("big5") if codec.startswith("gb") else frozenset[str]()
    broken = sum(char == "\ufffd" for char in text[:-1])  # a sample may end within one
    points = sum(1.0 if char in common else 0.8 * (char in traditional) for char in text)
    return (points - broken) / max(1, len(text))


@cache  # the most common characters, by the oldest standard of a language
def _common(codec: str) -> frozenset[str]:
    match codec:
        case "big5":
            return _pairs(codec, range(0xA4, 0xC7), (*range(0x40, 0x7F), *range(0xA1, 0xFF))) | _PUNCTUATION
        case "cp932":
            return _pairs(codec, range(0x88, 0x99), range(0x40, 0xFD)) | _KANA | _PUNCTUATION
    return _pairs("gb2312", range(0xB0, 0xD8), range(0xA1, 0xFF)) | _PUNCTUATION


@cache
def _hanzi() -> frozenset[str]:
    return _common("gbk") | _common("big5") | _common("cp932")


def _pairs(codec: str, leads: Iterable[int], trails: Iterable[int]) -> frozenset[str]:
    trails = tuple(trails)
    texts = (bytes((lead, trail)).decode(codec, "ignore") for lead in leads for trail in trails)
    return frozenset(text for text in texts if len(text) == 1 and text > "\x7f")
