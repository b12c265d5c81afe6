"""The things that Feishu gives besides events: the files of messages, names, titles, quoted and bundled messages."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import tzinfo
from typing import Any
from urllib.parse import quote

import structlog

from channels.channel import DeliveryError, NotHandedOut, TooLarge
from channels.download import twice
from channels.feishu import content
from channels.feishu.api import FILE_BYTES_MAX, HINTS, NOT_HANDED_OUT, TOO_LARGE_CODES, FeishuApi
from channels.marks import BUNDLE
from channels.message import Attachment, File, Quote, media_type
from channels.wire import clean, mapping, mappings, text

NOT_FETCHABLE = ("sticker", "other")
log = structlog.get_logger()


async def fetch_file(api: FeishuApi, attachment: Attachment, *, bytes_max: int) -> File:
    message_id, _, key = attachment.key.partition("/")
    if attachment.kind in NOT_FETCHABLE or {message_id, key} & {"", ".", ".."}:
        raise NotHandedOut("Feishu does not hand out such a file")
    path = "/open-apis/im/v1/messages/{}/resources/{}".format(*(quote(part, safe="") for part in (message_id, key)))
    query = {"type": "image" if attachment.kind == "image" else "file"}
    try:
        got = await twice(lambda: api.download(path, query, bytes_max=bytes_max))
    except DeliveryError as error:
        if error.code in TOO_LARGE_CODES:
            raise TooLarge(FILE_BYTES_MAX) from error
        if error.code in NOT_HANDED_OUT:
            raise NotHandedOut(HINTS[error.code], code=error.code) from error
        raise
    kind = media_type(got.headers.get("content-type", ""))
    return File(name=attachment.name or attachment.kind, type=kind, data=got.data)


FOUND_SECONDS = 1800.0
MISSING_SECONDS = 300.0
ENTRIES_MAX = 10_000
LOOKUP_SECONDS = 2.0
BUNDLE_MAX, BUNDLE_LINE_CHARS = 50, 1_000
"""The limits of messages that are forwarded together, and of a line."""
NAMES_MAX = 10


class People:
    """Names, titles and quoted texts, as far as Feishu gives them: a message never fails for what cannot be learnt.
    Cached by path; the longest unused are forgotten first. A lookup that fails is remembered for a while, so that a
    missing permission does not cost a call per message."""

    def __init__(self, api: FeishuApi, zone: tzinfo) -> None:
        self._api = api
        self._zone = zone
        self._known: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        """A name that was found, and until when it holds."""

    async def name(self, open_id: str) -> str | None:
        path = f"/open-apis/contact/v3/users/{quote(open_id, safe='')}"
        return await self._cached(path, lambda data: _name(mapping(data, "user")), {"user_id_type": "open_id"})

    async def title(self, chat_id: str) -> str | None:
        return await self._cached(f"/open-apis/im/v1/chats/{quote(chat_id, safe='')}", _name)

    async def quoted(self, quote_: Quote) -> Quote:
        items = await self._items(quote_.message_id)
        read = await self._read(quote_.message_id, items)
        sender = mapping(items[0], "sender") if items else {}
        files = read.attachments if text(sender, "sender_type") != "app" else ()  # no other app may fetch an app's
        by = text(sender, "id") or None
        return Quote(message_id=quote_.message_id, text=read.text or None, sender=by, attachments=files)

    async def forwarded(self, message_id: str) -> content.Content:
        """A bundle of forwarded messages; without text if it cannot be had."""
        items = await self._items(message_id)
        return await self._read(message_id, items) if items else content.Content(text="")

    async def _items(self, message_id: str) -> list[Mapping[str, Any]]:
        """A message, and behind it what it bundles; nothing of what was taken back. Of cards the whole is asked for."""
        path = f"/open-apis/im/v1/messages/{quote(message_id, safe='')}"
        items = mappings(await self._get(path, {"card_msg_content_type": "user_card_content"}), "items")
        return [it for it in items if it.get("deleted") is not True]

    async def _read(self, message_id: str, items: Sequence[Mapping[str, Any]]) -> content.Content:
        """A bundle's messages, with who wrote each; a long one's beginning. Bundles within it stay closed."""
        inside = [it for it in items if text(it, "upper_message_id") == message_id]
        if not inside:
            return _content(items[0], self._zone) if items else content.Content(text="")
        senders = list(dict.fromkeys(text(mapping(it, "sender"), "id") for it in inside[:BUNDLE_MAX]))
        found = await asyncio.gather(*(self.name(it) for it in senders[:NAMES_MAX] if it))
        names = dict(zip(filter(None, senders[:NAMES_MAX]), found, strict=True))
        lines, files = [BUNDLE], list[Attachment]()
        for item in inside[:BUNDLE_MAX]:
            by, read = text(mapping(item, "sender"), "id"), _content(item, self._zone)
            lines.append(f"{names.get(by) or by or '?'}: {read.text}"[:BUNDLE_LINE_CHARS])
            files += read.attachments
        lines += [f"[{len(inside) - BUNDLE_MAX} more]"] if len(inside) > BUNDLE_MAX else []
        return content.Content(text="\n".join(lines), attachments=tuple(files))

    async def _cached(
        self, path: str, read: Callable[[Mapping[str, Any]], str | None], params: dict[str, str] | None = None
    ) -> str | None:
        value, until = self._known.get(path, (None, float("-inf")))
        if until < time.monotonic():
            value = read(await self._get(path, params))
            self._known[path] = (value, time.monotonic() + (FOUND_SECONDS if value else MISSING_SECONDS))
        self._known.move_to_end(path)
        while len(self._known) > ENTRIES_MAX:
            self._known.popitem(last=False)
        return value

    async def _get(self, path: str, params: dict[str, str] | None = None) -> Mapping[str, Any]:
        """The `data` of the answer; empty without any."""
        try:
            return mapping(await self._api.call(path, params, timeout_seconds=LOOKUP_SECONDS), "data")
        except DeliveryError as error:
            log.info("lookup_failed", what=path.split("/")[-2], error=str(error))
            return {}


def _content(item: Mapping[str, Any], zone: tzinfo) -> content.Content:
    names = {text(mention, "key"): f"@{text(mention, 'name')}" for mention in mappings(item, "mentions")}
    read = content.read(text(item, "msg_type"), mapping(item, "body").get("content"), names, zone)
    return read.of(text(item, "message_id")) if read else content.Content(text="")


def _name(holder: Mapping[str, Any]) -> str | None:
    return clean(text(holder, "name") or text(holder, "en_name")).strip() or None
