"""Files that the bot sends: uploaded first, then sent as a message that names them.

A picture that Feishu does not take as one goes as a file. What it does not take at all is told in a sentence in the
file's place: the answer that the file belongs to must not fail. Sizes and types: the open platform's pages on uploads.
"""

from pathlib import PurePath
from typing import Any

import structlog

from channels.channel import Fetch, Refused
from channels.feishu.api import FeishuApi
from channels.message import PICTURES, File, StoredFile, not_sent
from channels.wire import text

IMAGE_BYTES_MAX = 10 * 1024 * 1024
FILE_BYTES_MAX = 30 * 1024 * 1024
_KINDS = {
    ".pdf": "pdf",
    ".mp4": "mp4",
    ".doc": "doc",
    ".docx": "doc",
    ".xls": "xls",
    ".xlsx": "xls",
    ".ppt": "ppt",
    ".pptx": "ppt",
}
_VOICE = ("audio/ogg", "audio/opus")
"""What Feishu plays as a voice message: opus."""

log = structlog.get_logger()


async def uploaded(api: FeishuApi, stored: Fetch, file: StoredFile, *, voice: bool) -> tuple[str, dict[str, Any]]:
    """The kind and content of the message that a file is. Raises DeliveryError, but not for what Feishu refuses."""
    found = await stored(file.id)
    data = found[1] if found else b""
    if not data or len(data) > FILE_BYTES_MAX:
        return "text", {"text": not_sent(file)}
    whole = File(name=file.name, type=file.type, data=data)
    try:
        if file.type in PICTURES and len(data) <= IMAGE_BYTES_MAX:
            try:
                answer = await api.upload("/open-apis/im/v1/images", {"image_type": "message"}, "image", whole)
                return "image", {"image_key": text(answer, "image_key")}
            except Refused as error:
                log.info("feishu_picture_refused", code=error.code)
        as_voice = voice and file.type in _VOICE
        kind = "opus" if as_voice else _KINDS.get(PurePath(file.name).suffix.lower(), "stream")
        answer = await api.upload("/open-apis/im/v1/files", {"file_type": kind, "file_name": file.name}, "file", whole)
        return "audio" if as_voice else "file", {"file_key": text(answer, "file_key")}
    except Refused as error:
        log.error("feishu_file_refused", code=error.code, reason=str(error))
        return "text", {"text": not_sent(file)}
