"""What one Feishu message carries: characters, and the bytes of the finished request, in which a Chinese character is
three and a quote two. How Markdown is cut to that is `channels.split`'s.
"""

import orjson

from channels import split as markdown
from channels.split import Limit

PART_CHARS_MAX = 4_000
PART_BYTES_MAX = 20_000
"""Of the text as JSON. It is encoded twice, and Feishu's 30 KB count the outer form."""
_QUOTES = 2


def split(text: str, *, chars_max: int = PART_CHARS_MAX, bytes_max: int = PART_BYTES_MAX) -> list[str]:
    """The parts, in order; one empty text gives none. Without the fences and heads put in again, they are the text."""
    limits = (Limit(measure=len, most=chars_max), Limit(measure=_bytes, most=bytes_max - _QUOTES))
    return markdown.split(text, limits)


def _bytes(text: str) -> int:
    return len(orjson.dumps(text.encode("utf-8", errors="replace").decode())) - _QUOTES
