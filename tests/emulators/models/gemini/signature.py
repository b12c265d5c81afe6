"""The emulator's thought signatures: made of the part they stand on, so that they are good for no other.

The real ones are sealed reasoning. What can be known of them from outside is kept: they are base64, they are bound to
their part, and a changed or foreign one is refused.
"""

import base64
import hashlib
import json
from typing import Any

from agents.providers.gemini import PLACEHOLDER_SIGNATURE
from tests.emulators.models import shapes


def signed(part: dict[str, Any]) -> dict[str, Any]:
    return part | {"thoughtSignature": base64.b64encode(_seal(part)).decode()}


def decoded(text: str) -> bytes | None:
    """The bytes, in either alphabet of base64; None where it is none."""
    return shapes.decoded(text.replace("-", "+").replace("_", "/"))


def is_own(part: dict[str, Any]) -> bool:
    return decoded(part["thoughtSignature"]) == _seal(part)


def is_placeholder(part: dict[str, Any]) -> bool:
    return bool(part.get("thoughtSignature") == PLACEHOLDER_SIGNATURE)


def _seal(part: dict[str, Any]) -> bytes:
    """Over what was said. Not over ids: a client may give a call one of its own."""
    content: dict[str, Any] = {"text": part.get("text"), "thought": bool(part.get("thought"))}
    call = part.get("functionCall")
    if isinstance(call, dict):
        content = {"name": call.get("name"), "args": call.get("args") or {}}
    return hashlib.sha256(b"emulated:" + json.dumps(content, sort_keys=True).encode()).digest()
