"""`web_fetch`: a page as Markdown, text and JSON unchanged, and of anything else its type and length."""

import asyncio
import codecs
import json
import os
import re

from pydantic import Field

from tools.config import FetchConfig
from tools.sandbox.launch import output_of, program
from tools.tool import Arguments, Call, ToolError, ToolResult
from tools.web.client import Resolve, WebClient, WebPage

PARALLEL = 4
"""Concurrent fetches of one agent; more wait."""
EXTRACT_SECONDS = 20.0
EXTRACT_BYTES_MAX = 64 * 1024 * 1024
NOTE_CHARS = 1_000
"""Characters of a result that are reserved for its head, its note and the fence around it."""
CHARS_MIN = 200
_HTML = ("text/html", "application/xhtml+xml")
_TEXT = re.compile(r"text/[a-z0-9.+-]+|application/(?:[a-z0-9.-]+\+)?(?:json|xml|yaml|x-yaml|x-ndjson|javascript)")
_CHARSETS = re.compile(
    r"utf-8|utf-16(?:-[bl]e)?|ascii|iso8859-\d+|cp125\d|cp866|koi8-[ru]|gbk|gb2312|gb18030|big5(?:hkscs)?|shift_jis|cp932|"
    r"euc_(?:jp|kr)|cp949"
)
"""Not every codec is a charset: some are archives, and some take forever."""
_META = re.compile(rb"<meta[^>]{0,200}?charset\s*=\s*[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
_BOMS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))


class Fetcher:
    """Shared by all fetches of one agent."""

    def __init__(self, config: FetchConfig, resolve: Resolve | None = None) -> None:
        self.client = WebClient(config, resolve)
        self.slots = asyncio.Semaphore(PARALLEL)


class FetchArguments(Arguments):
    url: str = Field(description="The page's address, with http:// or https://.", min_length=1)
    max_chars: int | None = Field(default=None, ge=1, description="How much to show; as much as fits if left out.")
    offset: int | None = Field(default=None, ge=0, description="Where to go on, as an earlier result said.")


class WebFetch:
    spec = FetchArguments.spec(
        "web_fetch",
        summary="read a page of the web",
        description=(
            "Fetch an address of the public web and read it: a page as Markdown with its title and links, text and JSON as "
            "they are, of anything else only what it is. A long one comes in parts: the result says how to go on. "
            "Nothing is sent besides the request: no cookies, no credentials."
        ),
        effect="safe",
    )
    parse = staticmethod(FetchArguments.parse)

    def __init__(self, fetcher: Fetcher, result_chars: int) -> None:
        self._fetcher = fetcher
        self._chars_max = max(CHARS_MIN, result_chars - NOTE_CHARS)

    async def run(self, arguments: FetchArguments, call: Call) -> ToolResult:
        async with self._fetcher.slots:
            page = await self._fetcher.client.get(arguments.url.strip(), wanted=is_text)
            title, text, what = await _read(page)
        details = {"url": page.url, "status": page.status, "type": page.type}
        head = [f"HTTP {page.status}"] if page.status != 200 else []
        head += [f"# {title}"] if title else []
        if not is_text(page.type):
            size = "of unknown size" if page.length is None else f"{page.length:,} bytes"
            head.append(f"[{page.type[:100] or 'no declared type'}, {size}: only text can be read]")
            return ToolResult(content=("\n".join(head),), details=details, external=True)
        offset = arguments.offset or 0
        if text and offset >= len(text):
            raise ToolError("INVALID_ARGUMENT", f"'offset' is beyond the end: there are {len(text)} characters")
        part = text[offset : offset + min(arguments.max_chars or self._chars_max, self._chars_max - len(title))]
        end = offset + len(part)
        notes = [f"[The main part of the page; {len(text):,} characters.]"] if what == "article" and not offset else []
        if offset or end < len(text):
            more = f"; go on with offset={end}" if end < len(text) else ""
            notes = [f"[Characters {offset + 1:,} to {end:,} of {len(text):,}{more}]"]
        content = "\n\n".join((*head, part or "(nothing to read)", *notes))
        return ToolResult(content=(content,), details=details, external=True)


def is_text(kind: str) -> bool:
    return kind in _HTML or _TEXT.fullmatch(kind) is not None


async def _read(page: WebPage) -> tuple[str, str, str]:
    text = _decoded(page)
    if page.type in _HTML and text.strip():
        title, text, what = await _extracted(text, page.url)
        return " ".join(title.split())[:300], text, what
    return "", text, ""  # unchanged


def _decoded(page: WebPage) -> str:
    data = page.data
    for bom, name in _BOMS:
        if data.startswith(bom):
            return data[len(bom) :].decode(name, errors="replace")
    charset = page.charset
    if not charset and page.type in _HTML and (declared := _META.search(data[:2048])):
        charset = declared[1].decode("ascii")
    return data.decode(_charset(charset), errors="replace")


def _charset(name: str) -> str:
    try:
        codec = codecs.lookup(name or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return codec if _CHARSETS.fullmatch(codec) else "utf-8"


async def _extracted(html: str, url: str) -> tuple[str, str, str]:
    try:
        with os.fdopen(os.memfd_create("page", os.MFD_CLOEXEC), "wb+") as file:
            file.write(html.encode(errors="replace"))
            file.seek(0)
            words = (*program("tools.web.page", "-I"), url)
            read = json.loads(await output_of(words, file, seconds=EXTRACT_SECONDS, bytes_max=EXTRACT_BYTES_MAX))
    except (TimeoutError, ValueError):
        raise ToolError("FETCH_FAILED", "the page is too entangled to be read") from None
    return read["title"], read["markdown"], read["part"]
