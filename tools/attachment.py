"""Files that an agent sends, from the workspace or the web, and file names in chats.

A web file is fetched like any page. Its bytes decide whether it is a picture. A web page instead of a file (a sign-in
form, a hotlink notice) is refused, unless the URL itself names a page.
"""

import mimetypes
import os
import re
import unicodedata
from urllib.parse import unquote, urlsplit

from channels.message import PICTURES, UNKNOWN_TYPE, File, media_type
from tools.paths import called
from tools.picture import image_type
from tools.tool import ToolError
from tools.web.client import WebClient, WebPage
from tools.workspace import Workspace

NAME_CHARS_MAX = 80
NAME_BYTES_MAX = 200
"""File systems allow 255; files with the same name get numbers."""
ENDING_CHARS_MAX = 10

_NOT_IN_NAMES = re.compile(r"[^\w.+-]+")


def attachment(workspace: Workspace, path: str, *, bytes_max: int) -> File:
    """Read a file that the agent wants to send. Raises ToolError. Blocking."""
    with workspace.reading(path) as fd:
        if (size := os.fstat(fd).st_size) > bytes_max:
            message = f"{called(path)!r} has {size:,} bytes, more than the {bytes_max:,} that may be sent"
            raise ToolError("TOO_LARGE", message)
        with os.fdopen(os.dup(fd), "rb") as file:
            data = file.read(bytes_max)
    name = safe_name(path)
    return File(name=name, type=mimetypes.guess_type(name)[0] or UNKNOWN_TYPE, data=data)


def safe_name(name: str) -> str:
    """Reduce a name to letters of any script, digits, dots and dashes; never hidden, a path, or too long for a file
    system."""
    name = unicodedata.normalize("NFC", name.replace("\\", "/").rpartition("/")[2])
    name = _NOT_IN_NAMES.sub("_", name).strip("._")
    stem, dot, ending = name.rpartition(".")
    if not dot or len(ending) > ENDING_CHARS_MAX:
        stem, ending = name, ""
    ending = dot + ending if ending else ""
    room = NAME_BYTES_MAX - len(ending.encode())
    return stem[: NAME_CHARS_MAX - len(ending)].encode()[:room].decode(errors="ignore") + ending or "file"


_HTML = ("text/html", "application/xhtml+xml")
_MARKUP = (b"<!doctype html", b"<html")
_MARKUP_BYTES = 512


async def web_file(client: WebClient, url: str, *, bytes_max: int) -> File:
    """Fetch a file of the web. Raises ToolError."""
    page = await client.get(url, wanted=lambda _: True, bytes_max=bytes_max)
    if not 200 <= page.status < 300:
        raise ToolError("FETCH_STATUS", f"the server answered {page.status}", status=page.status)
    if not page.data:
        raise ToolError("FETCH_EMPTY", "the file is empty")
    if _is_page(page) and not any(_named(it)[0] in _HTML for it in (url, page.url)):
        raise ToolError("FETCH_NOT_A_FILE", "the address leads to a web page, not to a file")
    type_ = _type(page)
    return File(name=_with_ending(_named(url)[1], type_), type=type_, data=page.data)


def _is_page(page: WebPage) -> bool:
    head = page.data[:_MARKUP_BYTES].lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return page.type in _HTML or head.startswith(_MARKUP)


def _named(url: str) -> tuple[str | None, str]:
    name = safe_name(unquote(urlsplit(url).path, errors="replace"))
    return mimetypes.guess_type(name)[0], name


def _type(page: WebPage) -> str:
    declared, picture = media_type(page.type), image_type(page.data[:16])
    if declared == UNKNOWN_TYPE:
        declared = _named(page.url)[0] or UNKNOWN_TYPE
    return picture or (UNKNOWN_TYPE if declared in PICTURES else declared)


def _with_ending(name: str, type_: str) -> str:
    ending = mimetypes.guess_extension(type_) if type_ != UNKNOWN_TYPE else None
    guessed = mimetypes.guess_type(name)[0]
    if ending is None or guessed == type_ or (guessed is not None and type_ not in PICTURES):
        return name
    return safe_name(name + ending)
