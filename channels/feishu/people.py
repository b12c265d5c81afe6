"""Feishu data that is not in events: files, names, titles, quoted and bundled messages.

A reaction marks a message while it is being answered, since Feishu has no typing indicator. Reactions are listed before
they are removed, so one left by an earlier process is removed as well.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import tzinfo
from typing import Any
from urllib.parse import quote

import structlog

from channels.abilities import Progress
from channels.channel import DeliveryError, NotHandedOut, RateLimited, Refused, TooLarge, Unreachable
from channels.download import twice
from channels.feishu import content
from channels.feishu.api import FILE_BYTES_MAX, HINTS, NOT_HANDED_OUT, TOO_LARGE_CODES, FeishuApi
from channels.feishu.content import mentions
from channels.feishu.post import Content
from channels.marks import BUNDLE
from channels.message import Attachment, File, MessageContext, Quote, media_type
from channels.moment import timestamp
from channels.wire import clean, mapping, mappings, scalar, text

log = structlog.get_logger()

NOT_FETCHABLE = ("sticker", "other")


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
BUNDLE_MAX, BUNDLE_LINE_CHARS, BUNDLE_DEPTH_MAX = 50, 1_000, 3
"""Limits of a bundle: messages, characters of each, and nesting."""
CLOSED = "[Feishu does not say what is in it]"
NAMES_MAX = 10
MEMBER_PAGES_MAX = 100
"""Pages of 100 members that are searched for one."""


class People:
    """Names, titles and quoted texts, as far as Feishu gives them; a failed lookup never fails a message.

    An LRU cache by path. Failed lookups are cached for a while, so that a missing permission does not cost a call per
    message."""

    def __init__(self, api: FeishuApi, zone: tzinfo) -> None:
        self._api = api
        self._zone = zone
        self._known: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        """Cached names with their expiry."""

    async def name(self, open_id: str) -> str | None:
        path = f"/open-apis/contact/v3/users/{quote(open_id, safe='')}"
        return await self._cached(path, lambda data: _name(mapping(data, "user")), {"user_id_type": "open_id"})

    async def title(self, chat_id: str) -> str | None:
        return await self._cached(f"/open-apis/im/v1/chats/{quote(chat_id, safe='')}", _name)

    async def quoted(self, quote_: Quote) -> Quote:
        items = await self._items(quote_.message_id)
        items = [] if items and items[0].get("deleted") is True else items
        read = await self._read(quote_.message_id, items)
        sender = mapping(items[0], "sender") if items else {}
        files = (
            read.attachments if text(sender, "sender_type") != "app" else ()
        )  # files of other apps cannot be fetched
        by = text(sender, "id") or None
        return replace(quote_, text=read.text or None, sender=by, attachments=files)

    async def bot(self, message_id: str, bot: str | None) -> tuple[str, bool]:
        """Return the app that sent a message, and whether it mentions `bot`. The event has neither for certain: its ids
        may be those of the sender's app. Raises DeliveryError."""
        path = f"/open-apis/im/v1/messages/{quote(message_id, safe='')}"
        data = mapping(await self._api.call(path, timeout_seconds=LOOKUP_SECONDS), "data")
        item = next(iter(mappings(data, "items")), {})
        return text(mapping(item, "sender"), "id"), content.mentions(item.get("mentions"), bot)[1]

    async def is_member(self, chat_id: str, open_id: str) -> bool:
        """Look for a person in a group's list of members, which needs the scope `im:chat:readonly`. Raises
        DeliveryError."""
        path, page = f"/open-apis/im/v1/chats/{quote(chat_id, safe='')}/members", ""
        for _ in range(MEMBER_PAGES_MAX):
            params = {"member_id_type": "open_id", "page_size": "100", **({"page_token": page} if page else {})}
            data = mapping(await self._api.call(path, params, timeout_seconds=LOOKUP_SECONDS), "data")
            if any(text(it, "member_id") == open_id for it in mappings(data, "items")):
                return True
            page = text(data, "page_token")
            if data.get("has_more") is not True or not page:
                return False
        return False

    async def whole(self, message_id: str, bot: str | None = None) -> Content | None:
        """Return the content of a message whose event lacks it: a bundle, a card, or an empty one.

        Empty if the message was recalled, None if it is unavailable. `bot` is the open id whose mentions are removed."""
        items = await self._items(message_id)
        if items and items[0].get("deleted") is True:
            return Content(text="")
        read = await self._read(message_id, items, bot)
        return read if read.text or read.attachments else None

    async def _items(self, message_id: str) -> list[Mapping[str, Any]]:
        path = f"/open-apis/im/v1/messages/{quote(message_id, safe='')}"
        return mappings(await self._get(path, {"card_msg_content_type": "user_card_content"}), "items")

    async def _read(self, message_id: str, items: Sequence[Mapping[str, Any]], bot: str | None = None) -> Content:
        if not items:
            return Content(text="")
        if text(items[0], "msg_type") != content.BUNDLES and text(items[0], "message_id") in ("", message_id):
            return _content(items[0], self._zone, bot)
        inside: dict[str, list[Mapping[str, Any]]] = {}
        for item in sorted(items, key=lambda it: _milliseconds(it) or 0):
            if upper := text(item, "upper_message_id"):
                inside.setdefault(upper, []).append(item)
        senders = list(dict.fromkeys(text(mapping(it, "sender"), "id") for it in items[: BUNDLE_MAX + 1]))
        asked = [it for it in senders if it][:NAMES_MAX]
        names = dict(zip(asked, await asyncio.gather(*map(self.name, asked)), strict=True))
        bundle = _Bundle(inside=inside, names=names, zone=self._zone)
        lines = bundle.lines(message_id, 0)
        return Content(text="\n".join((BUNDLE, *lines)), attachments=tuple(bundle.attachments))

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
        try:
            return mapping(await self._api.call(path, params, timeout_seconds=LOOKUP_SECONDS), "data")
        except DeliveryError as error:
            log.info("lookup_failed", what=path.split("/")[-2], error=str(error))
            return {}


@dataclass
class _Bundle:
    """Read messages that were forwarded together; `inside` has them by the bundle that contains them."""

    inside: Mapping[str, Sequence[Mapping[str, Any]]]
    names: Mapping[str, str | None]
    zone: tzinfo
    attachments: list[Attachment] = field(default_factory=list)
    _left: int = BUNDLE_MAX

    def lines(self, bundle: str, depth: int) -> list[str]:
        indent, lines = "  " * depth, list[str]()
        if depth > BUNDLE_DEPTH_MAX or not self.inside.get(bundle):
            return [indent + CLOSED]
        for at, item in enumerate(messages := self.inside[bundle]):
            if not self._left:
                lines.append(f"{indent}[{len(messages) - at} more]")
                break
            self._left -= 1
            lines += self._message(item, depth)
        return lines

    def _message(self, item: Mapping[str, Any], depth: int) -> list[str]:
        indent, by, sent = "  " * depth, text(mapping(item, "sender"), "id"), _milliseconds(item)
        when = f"{timestamp(sent / 1000, self.zone)} " if sent else ""
        read = Content(text="[recalled]") if item.get("deleted") is True else _content(item, self.zone)
        self.attachments += read.attachments
        words = read.text or "[nothing written]"
        if (more := len(words) - BUNDLE_LINE_CHARS) > 0:
            words = f"{words[:BUNDLE_LINE_CHARS]}… [{more:,} more characters]"
        shown = f"{when}{self.names.get(by) or by or '?'}: {words}".replace("\n", f"\n{indent}")
        nested = text(item, "msg_type") == content.BUNDLES
        return [indent + shown, *(self.lines(text(item, "message_id"), depth + 1) if nested else ())]


def _content(item: Mapping[str, Any], zone: tzinfo, bot: str | None = None) -> Content:
    names, _ = mentions(item.get("mentions"), bot)
    read = content.read(text(item, "msg_type"), mapping(item, "body").get("content"), names, zone)
    return read.of(text(item, "message_id")) if read else Content(text="")


def _milliseconds(item: Mapping[str, Any]) -> int | None:
    value = scalar(item, "create_time")
    return int(value) if re.fullmatch(r"[0-9]{13}", value) else None


def _name(holder: Mapping[str, Any]) -> str | None:
    return clean(text(holder, "name") or text(holder, "en_name")).strip() or None


QUICK_SECONDS = 0.4
"""A faster reply needs no reaction."""
CALL_SECONDS = 4.0
AGAIN_SECONDS = 1.0
ATTEMPTS_MAX = 4
CLOSE_SECONDS = 2.0

EMOJI = {
    "👍": "THUMBSUP",
    "👎": "ThumbsDown",
    "👌": "OK",
    "❤": "HEART",
    "😊": "SMILE",
    "🙂": "SMILE",
    "👏": "APPLAUSE",
    "🎉": "PARTY",
    "🙏": "THANKS",
    "🔥": "Fire",
    "🤔": "THINKING",
    "👀": "GLANCE",
    "✅": "DONE",
    "❌": "CrossMark",
}
"""Feishu's names of common emoji."""


async def react(api: FeishuApi, message_id: str, emoji: str) -> None:
    """React with an emoji, or with Feishu's name of one. Raises DeliveryError."""
    name = EMOJI.get(emoji.strip().replace("\ufe0f", ""), emoji.strip())
    path = f"/open-apis/im/v1/messages/{quote(message_id, safe='')}/reactions"
    await api.call(path, body={"reaction_type": {"emoji_type": name}})


@dataclass(kw_only=True, slots=True)
class Reactions:
    """`emoji` is one of Feishu's, or empty for none."""

    api: FeishuApi
    account: str
    app_id: str
    emoji: str
    _turns: dict[str, asyncio.Event] = field(default_factory=dict)
    """An event per message being answered, set when it is done."""
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def show(self, progress: Progress) -> None:
        """Never block or raise. In a group, react only to messages that mention the bot."""
        context = progress.context
        if progress.outcome is not None:
            if over := self._turns.pop(context.message_id, None):
                over.set()
            return
        addressed = context.chat.kind == "direct" or context.mentioned
        if self.emoji and addressed and context.press is None and context.message_id not in {*self._turns, ""}:
            over = self._turns[context.message_id] = asyncio.Event()
            task = asyncio.create_task(self._present(progress, self.emoji, over))
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def close(self) -> None:
        for over in self._turns.values():
            over.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()

    async def _present(self, progress: Progress, emoji: str, over: asyncio.Event) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0 if progress.resumed else QUICK_SECONDS):
                await over.wait()
            return
        path = f"/open-apis/im/v1/messages/{quote(progress.context.message_id, safe='')}/reactions"
        try:
            body = {"reaction_type": {"emoji_type": emoji}}
            await self.api.call(path, body=body, timeout_seconds=CALL_SECONDS)
        except DeliveryError as error:
            log.info("feishu_reaction_not_shown", account=self.account, code=error.code, reason=str(error))
            if isinstance(error, Refused):
                self.emoji = ""  # it would be refused for every message
            if not isinstance(error, Unreachable):
                return
        await over.wait()
        await self.remove(progress.context)

    async def remove(self, context: MessageContext) -> None:
        """Remove the reaction, unless the message is still being answered."""
        if not self.emoji or context.message_id in {*self._turns, ""} or context.press:
            return
        path = f"/open-apis/im/v1/messages/{quote(context.message_id, safe='')}/reactions"
        for attempt in range(ATTEMPTS_MAX):
            try:
                await self._remove(path, self.emoji)
            except (RateLimited, Unreachable):
                await asyncio.sleep(AGAIN_SECONDS * 2**attempt)
            except DeliveryError:
                return  # withdrawn together with the message
            else:
                return

    async def _remove(self, path: str, emoji: str) -> None:
        listed = await self.api.call(path, {"reaction_type": emoji}, timeout_seconds=CALL_SECONDS)
        for item in mappings(mapping(listed, "data"), "items"):
            if text(mapping(item, "operator"), "operator_id") == self.app_id:
                one = f"{path}/{quote(text(item, 'reaction_id'), safe='')}"
                await self.api.call(one, method="DELETE", timeout_seconds=CALL_SECONDS)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("feishu_reaction_failed", exc_info=error)
