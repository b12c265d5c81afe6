"""What Mistral refuses about one chunk of a message's content, and the words in which it refuses anything.

Thinking is checked against `signature_of`, with which the emulator signs what it thinks: changed by a byte, it is
refused. How messages follow each other is in `message_rules`.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Collection, Sequence
from typing import Any, NoReturn, TypeAlias

from tests.emulators.models.server import Refusal

Place: TypeAlias = tuple[str | int, ...]
"""Where in the body something is, as the validator names it."""

IMAGE_BYTES_MAX = 10 * 1024 * 1024
_MEMBERS = {
    "text": {"type", "text"},
    "image_url": {"type", "image_url"},
    "thinking": {"type", "thinking", "signature", "closed"},
}
_ROLES = {
    "system": {"text", "thinking"},
    "user": {"text", "image_url"},
    "assistant": {"text", "thinking"},
    "tool": {"text"},
}
_IMAGE_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def refuse(message: str, *, type_: str = "invalid_request_error", code: str | None = None) -> NoReturn:
    raise Refusal(400, type_, message, code=code)


def invalid(place: Place, type_: str, message: str) -> NoReturn:
    """The validator's 422. `param` carries the place, for a refusal has no list."""
    raise Refusal(422, type_, message, param=json.dumps(["body", *place]))


def closed(value: Any, members: Collection[str], place: Place) -> None:
    """An object with no members but these."""
    if not isinstance(value, dict):
        invalid(place, "model_attributes_type", "Input should be a valid dictionary or object to extract fields from")
    for name in value:
        if name not in members:
            invalid((*place, name), "extra_forbidden", "Extra inputs are not permitted")


def text_at(value: dict[str, Any], name: str, place: Place) -> str:
    """A member that must be a string."""
    if name not in value:
        invalid((*place, name), "missing", "Field required")
    text = value[name]
    if not isinstance(text, str):
        invalid((*place, name), "string_type", "Input should be a valid string")
    return text


def signature_of(thinking: Sequence[dict[str, Any]]) -> str:
    """The emulator's signature of what was thought."""
    text = json.dumps(list(thinking), sort_keys=True)
    return base64.b64encode(hashlib.sha256(b"emulated:" + text.encode()).digest()).decode()


def check_content(content: object, role: str, place: Place, *, vision: bool) -> None:
    """Text, or a list of chunks that the role may have. Empty is refused: there is nothing to say."""
    if not isinstance(content, str | list):
        invalid(place, "string_type", "Input should be a valid string")
    if not content:
        refuse(f"{role.capitalize()} message must have content", type_=f"invalid_{role}_message")
    for number, chunk in enumerate(content if isinstance(content, list) else []):
        check_chunk(chunk, role, (*place, number), vision=vision)


def check_chunk(chunk: Any, role: str, place: Place, *, vision: bool) -> None:
    kind = chunk.get("type") if isinstance(chunk, dict) else None
    if not isinstance(kind, str) or kind not in _MEMBERS:
        tags = ", ".join(f"'{name}'" for name in _MEMBERS)
        message = f"Input tag '{kind}' found using 'type' does not match any of the expected tags: {tags}"
        invalid(place, "union_tag_invalid", message)
    closed(chunk, _MEMBERS[kind], (*place, kind))
    if kind not in _ROLES[role]:
        refuse(f"Unexpected content chunk types in {role} message: ['{kind}']", type_=f"invalid_{role}_message")
    match kind:
        case "text":
            if not text_at(chunk, "text", (*place, kind)):
                refuse(f"Text chunks in {role} message must not be empty", type_=f"invalid_{role}_message")
        case "image_url":
            _check_image(chunk, (*place, kind), vision=vision)
        case "thinking":
            _check_thinking(chunk, (*place, kind))


def _check_thinking(chunk: dict[str, Any], place: Place) -> None:
    thinking = chunk.get("thinking")
    if not isinstance(thinking, list):
        invalid((*place, "thinking"), "list_type", "Input should be a valid list")
    for number, item in enumerate(thinking):
        closed(item, {"type", "text"}, (*place, "thinking", number))
        text_at(item, "text", (*place, "thinking", number))
    if not isinstance(chunk.get("closed", True), bool):
        invalid((*place, "closed"), "bool_type", "Input should be a valid boolean")
    if chunk.get("signature") != signature_of(thinking):
        refuse("Invalid `signature` in thinking chunk", type_="invalid_assistant_message")


def _check_image(chunk: dict[str, Any], place: Place, *, vision: bool) -> None:
    url = chunk.get("image_url")
    if isinstance(url, dict):
        closed(url, {"url", "detail"}, (*place, "image_url"))
        url = url.get("url")
    if not isinstance(url, str):
        invalid((*place, "image_url"), "string_type", "Input should be a valid string")
    if not vision:
        refuse("Image input is not enabled for this model")
    if not url.startswith("data:"):
        if not url.startswith(("https://", "http://")):
            refuse("image_url must be an https URL or a base64 data URL")
        return
    head, _, data = url.removeprefix("data:").partition(";base64,")
    if head not in _IMAGE_HEADS:
        refuse(f"Image of type {head} is not supported: it must be one of {', '.join(_IMAGE_HEADS)}")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        refuse("image_url is not valid base64")
    if not raw.startswith(_IMAGE_HEADS[head]):
        refuse(f"The image is not of type {head}, as its URL says")
    if len(raw) > IMAGE_BYTES_MAX:
        refuse(f"Image is too large: {len(raw)} bytes, the maximum is {IMAGE_BYTES_MAX}")
