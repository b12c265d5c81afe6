"""What only Feishu knows of a message: the sender's name, a group's title, the quoted text. Cached, best effort.

A lookup that fails is remembered for a while, so that a missing permission does not cost a call per message; what cannot
be learnt is simply not there, and a message never fails for it.
"""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from urllib.parse import quote

import structlog

from channels.channel import DeliveryError
from channels.feishu import content
from channels.feishu.api import CodeError, FeishuApi
from channels.message import Quote
from channels.wire import clean

FOUND_SECONDS = 1800.0
MISSING_SECONDS = 300.0
ENTRIES_MAX = 10_000
LOOKUP_SECONDS = 2.0

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Entry:
    value: str | None
    until: float


class Cache:
    """A bounded map that forgets the longest unused first."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: OrderedDict[str, _Entry] = OrderedDict()

    async def get(self, key: str, look_up: Callable[[], Awaitable[str | None]]) -> str | None:
        entry = self._entries.get(key)
        if entry is None or entry.until < self._clock():
            value = await look_up()
            seconds = FOUND_SECONDS if value else MISSING_SECONDS
            entry = _Entry(value=value, until=self._clock() + seconds)
            self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > ENTRIES_MAX:
            self._entries.popitem(last=False)
        return entry.value


class People:
    """Lookups of one account."""

    def __init__(self, api: FeishuApi, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._names = Cache(clock)
        self._titles = Cache(clock)

    async def name(self, open_id: str) -> str | None:
        """A person's display name."""
        return await self._names.get(open_id, lambda: self._name(open_id))

    async def title(self, chat_id: str) -> str | None:
        """A group's title."""
        return await self._titles.get(chat_id, lambda: self._title(chat_id))

    async def quoted(self, quote_: Quote) -> Quote:
        """The quote with its text, where the message can be read."""
        answer = await self._get(f"/open-apis/im/v1/messages/{quote(quote_.message_id, safe='')}")
        items = answer.get("items")
        item = items[0] if isinstance(items, list) and items and isinstance(items[0], dict) else {}
        body, sender = item.get("body"), item.get("sender")
        raw = body.get("content") if isinstance(body, dict) else None
        names = {
            str(mention.get("key")): f"@{mention.get('name')}"
            for mention in item.get("mentions") or ()
            if isinstance(mention, dict)
        }
        parsed = content.read(str(item.get("msg_type", "")), raw, names)
        by = sender.get("id") if isinstance(sender, dict) and isinstance(sender.get("id"), str) else None
        return Quote(message_id=quote_.message_id, text=parsed.text if parsed else None, sender=by)

    async def _name(self, open_id: str) -> str | None:
        path = f"/open-apis/contact/v3/users/{quote(open_id, safe='')}"
        user = (await self._get(path, {"user_id_type": "open_id"})).get("user")
        return _text(user.get("name") or user.get("en_name")) if isinstance(user, dict) else None

    async def _title(self, chat_id: str) -> str | None:
        return _text((await self._get(f"/open-apis/im/v1/chats/{quote(chat_id, safe='')}")).get("name"))

    async def _get(self, path: str, params: dict[str, str] | None = None) -> dict[str, object]:
        """The `data` of the answer; empty where there is none."""
        try:
            data = (await self._api.get(path, params, timeout_seconds=LOOKUP_SECONDS)).get("data")
        except (CodeError, DeliveryError) as error:
            log.info("lookup_failed", what=path.split("/")[-2], error=str(error))
            return {}
        return data if isinstance(data, dict) else {}


def _text(value: object) -> str | None:
    return clean(value).strip() or None if isinstance(value, str) else None
