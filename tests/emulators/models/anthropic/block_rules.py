"""What Anthropic's Messages API refuses about one block.

Thinking is checked against `signature_of`, with which the emulator signs what it thinks: changed by a byte, it is
refused as the real one refuses it. How blocks must follow each other is in `message_rules`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Collection
from typing import Any, NoReturn

from tests.emulators.models.server import Refusal

IMAGE_CHARS_MAX = 5 * 1024 * 1024

_MEMBERS = {
    "text": {"type", "text", "cache_control", "citations"},
    "image": {"type", "source", "cache_control"},
    "document": {"type", "source", "cache_control", "title", "context", "citations"},
    "tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "tool_result": {"type", "tool_use_id", "content", "is_error", "cache_control"},
    "thinking": {"type", "thinking", "signature"},
    "redacted_thinking": {"type", "data"},
    "server_tool_use": {"type", "id", "name", "input", "cache_control", "caller"},
    "web_search_tool_result": {"type", "tool_use_id", "content", "cache_control", "caller"},
}
ROLES = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": _MEMBERS.keys() - {"image", "document", "tool_result"},
}
_IMAGE_HEADS = {
    "image/png": b"\x89PNG\r\n\x1a\n",
    "image/jpeg": b"\xff\xd8\xff",
    "image/gif": b"GIF8",
    "image/webp": b"RIFF",
}


def refuse(message: str) -> NoReturn:
    raise Refusal(400, "invalid_request_error", message)


def signature_of(thinking: str) -> str:
    """The emulator's signature of a thinking text."""
    return base64.b64encode(hashlib.sha256(b"emulated:" + thinking.encode()).digest()).decode()


def check_block(block: Any, role: str, path: str) -> None:
    kind = block.get("type") if isinstance(block, dict) else None
    if not isinstance(kind, str) or kind not in _MEMBERS:
        expected = ", ".join(f"'{name}'" for name in _MEMBERS)
        refuse(f"{path}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}")
    closed(block, _MEMBERS[kind], f"{path}.{kind}")
    if kind not in ROLES[role]:
        refuse(f"{path}: `{kind}` blocks are not allowed in {role} messages")
    match kind:
        case "text":
            check_text(block, path, "messages")
        case "image":
            _check_image(block, path)
        case "tool_use":
            _check_call(block, f"{path}.tool_use")
        case "tool_result":
            _check_result(block, f"{path}.tool_result")
        case "thinking":
            _check_thinking(block, path)
        case "redacted_thinking":
            if not isinstance(block.get("data"), str) or not block["data"]:
                refuse(f"{path}.redacted_thinking.data: Field required")


def check_text(block: dict[str, Any], path: str, where: str) -> None:
    text = block.get("text")
    if not isinstance(text, str):
        refuse(f"{path}.text.text: Field required")
    if not text:
        if "cache_control" in block:
            refuse(f"{path}.cache_control: cache_control cannot be set for empty text blocks")
        refuse(f"{where}: text content blocks must be non-empty")
    if not text.strip():
        refuse(f"{where}: text content blocks must contain non-whitespace text")


def _check_image(block: dict[str, Any], path: str) -> None:
    source = block.get("source")
    if not isinstance(source, dict):
        refuse(f"{path}.image.source: Field required")
    kind = source.get("type")
    if kind in ("url", "file"):
        return
    if kind != "base64":
        refuse(f"{path}.image.source: Input tag '{kind}' does not match any of the expected tags")
    closed(source, {"type", "media_type", "data"}, f"{path}.image.source.base64")
    head = _IMAGE_HEADS.get(str(source.get("media_type")))
    if head is None:
        allowed = ", ".join(f"'{name}'" for name in _IMAGE_HEADS)
        refuse(f"{path}.image.source.base64.media_type: Input should be {allowed}")
    data = source.get("data")
    if not isinstance(data, str) or data.startswith("data:"):
        refuse(f"{path}.image.source.base64: data must be plain base64")
    if len(data) > IMAGE_CHARS_MAX:
        refuse(f"{path}.image.source.base64: image exceeds 5 MB maximum: {len(data)} bytes > {IMAGE_CHARS_MAX} bytes")
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        refuse(f"{path}.image.source.base64.data: Invalid base64 data")
    if not raw.startswith(head):
        refuse(f"{path}.image.source.base64: The image does not appear to be of type {source['media_type']}")


def _check_call(block: dict[str, Any], path: str) -> None:
    for key, pattern in (("id", r"[a-zA-Z0-9_-]+"), ("name", r"[a-zA-Z0-9_-]{1,128}")):
        if not isinstance(block.get(key), str):
            refuse(f"{path}.{key}: Field required")
        if not re.fullmatch(pattern, block[key]):
            refuse(f"{path}.{key}: String should match pattern '^{pattern}$'")
    if not isinstance(block.get("input"), dict):
        refuse(f"{path}.input: Input should be an object")


def _check_result(block: dict[str, Any], path: str) -> None:
    if not isinstance(block.get("tool_use_id"), str) or not re.fullmatch(r"[a-zA-Z0-9_-]+", block["tool_use_id"]):
        refuse(f"{path}.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    content = block.get("content", "")
    failed = block.get("is_error", False)
    if not isinstance(failed, bool) or not isinstance(content, str | list):
        refuse(f"{path}: Input should be valid")
    if failed and not content:
        refuse(f"{path}: content cannot be empty if `is_error` is true")
    for place, inner in enumerate(content if isinstance(content, list) else []):
        kind = inner.get("type") if isinstance(inner, dict) else None
        if kind not in ("text", "image", "document", "search_result"):
            refuse(f"{path}.content.{place}: Input tag '{kind}' does not match any of the expected tags")
        if failed and kind != "text":
            refuse(f'{path}: all content must be type "text" if "is_error" is true')
        if kind in ("text", "image"):
            check_block(inner, "user", f"{path}.content.{place}")


def _check_thinking(block: dict[str, Any], path: str) -> None:
    thinking, signature = block.get("thinking"), block.get("signature")
    if not isinstance(thinking, str) or not isinstance(signature, str):
        refuse(f"{path}.thinking.signature: Field required")
    if not thinking and not signature:
        refuse(f"{path}: each thinking block must contain thinking")
    if signature != signature_of(thinking):
        refuse(f"{path}: Invalid `signature` in `thinking` block")


def closed(value: Any, members: Collection[str], path: str) -> None:
    """An object with no members but these."""
    if not isinstance(value, dict):
        refuse(f"{path or 'body'}: Input should be an object")
    for name in value:
        if name not in members:
            refuse(f"{path}.{name}: Extra inputs are not permitted".lstrip("."))
