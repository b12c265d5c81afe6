"""What Feishu refuses in a message that is sent: members, contents, sizes. Pure.

Source: the open platform's pages on sending and replying, and its table of limits.
"""

from collections.abc import Mapping
from typing import Any

import orjson

TEXT_BYTES_MAX = 150 * 1024
POST_BYTES_MAX = 30 * 1024
UUID_CHARS_MAX = 50
LOCALES = frozenset({"zh_cn", "en_us", "ja_jp", "zh_hk", "zh_tw"})
TAGS = frozenset({"text", "a", "at", "img", "media", "emotion", "hr", "code_block", "md"})


class Refusal(Exception):
    """The request is answered with this code."""

    def __init__(self, code: int, message: str, *, status: int = 400, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.headers = headers or {}


def check_fields(body: object, *, required: set[str], optional: set[str]) -> None:
    """The body is an object with these members and no others, none of them empty text."""
    if not isinstance(body, dict):
        raise Refusal(99992402, "the body must be an object")
    if missing := required - set(body):
        raise Refusal(99992402, f"field validation failed: {sorted(missing)} is required")
    if unknown := set(body) - required - optional:
        raise Refusal(99992402, f"field validation failed: {sorted(unknown)} is not known")
    if not all(isinstance(body[name], str) and body[name] for name in required):
        raise Refusal(99992402, "field validation failed: a required field is not text")


def check_uuid(uuid: object) -> str | None:
    if uuid is None or (isinstance(uuid, str) and 0 < len(uuid) <= UUID_CHARS_MAX):
        return uuid
    raise Refusal(99992402, f"uuid must be text of at most {UUID_CHARS_MAX} characters")


def check_content(kind: str, raw: str) -> tuple[dict[str, Any], str]:
    """The content, and what a person reads of it."""
    try:
        content = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise Refusal(230001, "content is not a valid JSON string") from None
    if not isinstance(content, dict):
        raise Refusal(230001, "content is not an object")
    match kind:
        case "text":
            return content, _text(content, raw)
        case "post":
            return content, _post(content, raw)
        case _:
            raise Refusal(230001, f"msg_type {kind} is not one this app may send here")


def _text(content: Mapping[str, Any], raw: str) -> str:
    text = content.get("text")
    if list(content) != ["text"] or not isinstance(text, str) or not text.strip():
        raise Refusal(230001, "text is empty or not text")
    if len(raw.encode()) > TEXT_BYTES_MAX:
        raise Refusal(230025, "The length of the message content reaches its limit.")
    return text


def _post(content: Mapping[str, Any], raw: str) -> str:
    if len(raw.encode()) > POST_BYTES_MAX:
        raise Refusal(230025, "The length of the message content reaches its limit.")
    if not content or not set(content) <= LOCALES:
        raise Refusal(230001, "post must be wrapped by locale")
    shown = []
    for localised in content.values():
        rows = localised.get("content") if isinstance(localised, dict) else None
        if not isinstance(rows, list) or not rows or not set(localised) <= {"title", "content"}:
            raise Refusal(230001, "post needs content: a list of paragraphs")
        shown = [_paragraph(row) for row in rows]
    return "\n".join(shown)


def _paragraph(row: object) -> str:
    if not isinstance(row, list) or not row or not all(isinstance(node, dict) for node in row):
        raise Refusal(230001, "a paragraph is a list of nodes")
    for node in row:
        if node.get("tag") not in TAGS:
            raise Refusal(230001, f"unknown tag {node.get('tag')}")
        if node["tag"] == "md" and (len(row) > 1 or not isinstance(node.get("text"), str) or not node["text"].strip()):
            raise Refusal(230001, "md must be alone in its paragraph, and not empty")
    return "".join(str(node.get("text", "")) for node in row)
