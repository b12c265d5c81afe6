"""What people send, fetched: Telegram is asked for the path of a file, which holds for an hour, and then for the file.

Its name and its type are the message's. The address of a file has the token in it, so it stays inside of the API: here
is only the path, and what is no plain path is not asked for.
"""

import mimetypes
from urllib.parse import quote

from channels.channel import Refused, TooLarge, Unreachable
from channels.download import twice
from channels.message import UNKNOWN_TYPE, Attachment, File
from channels.telegram.api import TelegramApi
from channels.telegram.errors import MethodError
from channels.telegram.wire import number, text

BYTES_MAX = 20 * 1024 * 1024
"""Telegram hands out no larger one."""


async def fetch(api: TelegramApi, attachment: Attachment, *, bytes_max: int) -> File:
    """Raises DeliveryError."""
    return await twice(lambda: _fetch(api, attachment, bytes_max))


async def _fetch(api: TelegramApi, attachment: Attachment, bytes_max: int) -> File:
    path, size = await _found(api, attachment.key)
    if size is not None and size > bytes_max:
        raise TooLarge(bytes_max)
    data = await api.download(checked(path), bytes_max=bytes_max)
    if size is not None and len(data) != size:
        raise Unreachable("the file came incomplete")
    name = path.rpartition("/")[2]
    kind = attachment.type or mimetypes.guess_type(name)[0] or UNKNOWN_TYPE
    return File(name=attachment.name or name, type=kind, data=data)


async def _found(api: TelegramApi, file_id: str) -> tuple[str, int | None]:
    """Where the file is, and how large."""
    try:
        file = await api.call("getFile", {"file_id": file_id})
    except MethodError as error:
        if error.too_big:
            raise TooLarge(BYTES_MAX) from error
        raise error.error from error
    if not isinstance(file, dict) or not (path := text(file, "file_path")):
        raise Unreachable("Telegram does not say where the file is")
    return path, number(file, "file_size")


def checked(path: str) -> str:
    """The path, fit for an address. Raises Refused."""
    if path.startswith("/"):
        raise Refused("the Bot API server keeps files on its own disk: run it without --local")
    if any(part in ("", ".", "..") for part in path.split("/")):
        raise Refused("Telegram names a file by what is no path")
    return quote(path, safe="/", errors="replace")
