"""How the emulator encrypts what it thinks: changed by a byte, cut or from elsewhere, it is not its own any more.

It is bound to its own item alone, not to what stands before it, and holds nothing that anybody could read.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from typing import Any

_KEY = b"emulated"
_PREFIX = "gAAAA"


def sealed(item_id: str, summary: Sequence[Any]) -> str:
    """The encrypted content of the reasoning item with this id and this summary."""
    content = json.dumps([item_id, list(summary)], ensure_ascii=False).encode()
    return _PREFIX + base64.urlsafe_b64encode(hmac.digest(_KEY, content, hashlib.sha256) * 3).decode()


def unfinished(content: str) -> str:
    """What stands in an item that has only begun: looks alike, and is not good to be sent again."""
    return content[: len(_PREFIX) + 8]


def is_sealed(item_id: str, summary: Sequence[Any], content: str) -> bool:
    return hmac.compare_digest(sealed(item_id, summary).encode(), content.encode())
