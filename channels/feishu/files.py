"""What people send, fetched: Feishu hands a file out by the message that brought it and the file's key, to no other pair.

So an attachment's key is both, `om_…/img_…`. Stickers, folders, and what comes in cards or in forwarded bundles are not to
be had.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import quote

from channels.channel import Refused, TooLarge
from channels.download import Download, twice
from channels.feishu.api import CodeError, FeishuApi
from channels.feishu.errors import TOO_LARGE_CODES
from channels.message import Attachment, File, media_type

BYTES_MAX = 100 * 1024 * 1024
"""Feishu hands out no larger one."""
_NOT_TO_BE_HAD = ("sticker", "other")


def of_message(message_id: str, attachments: Iterable[Attachment]) -> tuple[Attachment, ...]:
    """The attachments, each with a key by which it can be fetched."""
    return tuple(replace(attachment, key=f"{message_id}/{attachment.key}") for attachment in attachments)


async def fetch(api: FeishuApi, attachment: Attachment, *, bytes_max: int) -> File:
    """Raises DeliveryError."""
    message_id, _, key = attachment.key.partition("/")
    if attachment.kind in _NOT_TO_BE_HAD or {message_id, key} & {"", ".", ".."}:
        raise Refused("Feishu does not hand out such a file")
    path = "/open-apis/im/v1/messages/{}/resources/{}".format(*(quote(part, safe="") for part in (message_id, key)))
    wanted = {"type": "image" if attachment.kind == "image" else "file"}
    got = await twice(lambda: _download(api, path, wanted, bytes_max))
    kind = media_type(got.headers.get("content-type", ""))
    return File(name=attachment.name or attachment.kind, type=kind, data=got.data)


async def _download(api: FeishuApi, path: str, wanted: Mapping[str, str], bytes_max: int) -> Download:
    try:
        return await api.download(path, wanted, bytes_max=bytes_max)
    except CodeError as error:
        if error.code in TOO_LARGE_CODES:
            raise TooLarge(BYTES_MAX) from error
        raise error.error from error
