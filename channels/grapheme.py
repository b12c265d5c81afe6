"""Characters as people see them, of however many code points: where a text must not be cut. Pure.

The rules are those that matter in chats, from Unicode's own categories; in doubt they do not cut. The full table of
Unicode's segmentation is not here.
"""

import unicodedata

_VIRAMA = 9
"""The combining class of what joins two Indic consonants."""
_FLAG_HALVES = "".join(map(chr, range(0x1F1E6, 0x1F200)))


def joined(text: str, at: int) -> bool:
    """True if the code points on both sides of this place are one character to the eye: an emoji and its skin tone, a
    letter and its accent, the two halves of a flag."""
    if not 0 < at < len(text):
        return False
    before, after = text[at - 1], text[at]
    if after < "\u0300":
        return False
    if before == "\u200d" or after == "\u200d" or unicodedata.combining(before) == _VIRAMA:
        return True
    if unicodedata.category(after) in ("Mn", "Me", "Mc") or after in "\u0e33\u0eb3":
        return True
    if "\U0001f3fb" <= after <= "\U0001f3ff" or "\U000e0020" <= after <= "\U000e007f":
        return True
    if "\u1100" <= after <= "\u11ff":
        return "\u1100" <= before <= "\u11ff" or ("\uac00" <= before <= "\ud7a3" and after >= "\u1160")
    earlier = text[max(0, at - 1_000) : at]
    return after in _FLAG_HALVES and (len(earlier) - len(earlier.rstrip(_FLAG_HALVES))) % 2 == 1
