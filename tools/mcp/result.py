"""The result of a server's call, for a model: text, pictures that could be decoded, and a line about anything else.

All of it is a stranger's: the loop fences and cuts it like a web page. Blocking, for the pictures.
"""

import base64
import binascii
import json
from collections.abc import Iterator

import mcp.types as types

from tools.picture import fitted, unshown
from tools.tool import Image, ToolResult

IMAGES_MAX = 8
PARTS_MAX = 200
NAME_CHARS_MAX = 300


def result_of(answer: types.CallToolResult, server: str) -> ToolResult:
    parts = [part for block in answer.content[:PARTS_MAX] for part in _parts(block)]
    if not any(isinstance(it, str) for it in parts) and answer.structured_content is not None:
        parts.append(json.dumps(answer.structured_content, ensure_ascii=False))
    texts = "\n".join(it for it in parts if isinstance(it, str))
    images = [it for it in parts if isinstance(it, Image)]
    if len(images) > IMAGES_MAX:
        texts += f"\n[{len(images) - IMAGES_MAX} more pictures are left out]"
    return _result(server, texts or "(no text)", *images[:IMAGES_MAX], is_error=answer.is_error)


def refusal_of(error: types.ErrorData, server: str) -> ToolResult:
    return _result(server, f"The server refuses the call: {error.message}", is_error=True)


def _result(server: str, *content: str | Image, is_error: bool) -> ToolResult:
    return ToolResult(content=content, details={"url": f"mcp:{server}"}, is_error=is_error, external=True)


def _parts(block: types.ContentBlock) -> Iterator[str | Image]:
    match block:
        case types.TextContent(text=text):
            yield text
        case types.ImageContent(data=data):
            yield _picture(data, "picture")
        case types.AudioContent(data=data):
            yield f"[audio, {len(data) * 3 // 4:,} bytes: not shown]"
        case types.ResourceLink(uri=uri, name=name):
            yield f"[resource {_short(uri)}: {_short(name)}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            yield f"[resource {_short(uri)}]\n{text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=blob)):
            yield _picture(blob, f"resource {_short(uri)}")


def _picture(data: str, what: str) -> str | Image:
    """The picture, if it is one."""
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return f"[{what}: not shown, it is damaged]"
    picture = fitted(raw)
    if picture is None:
        return f"[{what}, {len(raw):,} bytes: not shown, {unshown(raw)}]"
    return Image(media_type=picture.type, data=base64.b64encode(picture.data).decode())


def _short(text: str) -> str:
    return " ".join(text[:NAME_CHARS_MAX].split())
