"""Text that every wire accepts: no half of a surrogate pair and no NUL, which JSON parsers and databases refuse.

A model may send one emoji as two escaped halves in two events; joined here, they are the emoji again.
"""

from typing import Any

REPLACEMENT = "\ufffd"


def well_formed(text: str) -> str:
    """`text` with pairs joined, lone halves and NULs replaced; the same object where it is healthy."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text.replace("\0", REPLACEMENT) if "\0" in text else text


def well_formed_json(value: Any) -> Any:
    """A parsed JSON value with every string well formed; the same object where it is healthy."""
    match value:
        case str():
            return well_formed(value)
        case dict():
            fixed = {well_formed(key): well_formed_json(member) for key, member in value.items()}
            same = all(new is old for new, old in zip(fixed.values(), value.values(), strict=False))
            return value if same and fixed.keys() == value.keys() else fixed
        case list():
            items = [well_formed_json(item) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        case _:
            return value


def split_half(text: str) -> tuple[str, str]:
    """What may be shown now, and a first half at the end that waits for its second."""
    if text and "\ud800" <= text[-1] <= "\udbff":
        return text[:-1], text[-1]
    return text, ""
