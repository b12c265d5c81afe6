"""What only Feishu knows of a message: the sender's name, a group's title, the quoted text. Cached, best effort.

A lookup that fails is remembered for a while, so that a missing permission does not cost a call per message; what cannot
be learnt is simply not there, and a message never fails for it.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

import structlog

from channels.channel import DeliveryError
from channels.feishu import content
from channels.feishu.api import FeishuApi
from channels.message import Quote
from channels.wire import clean, mapping, mappings, text

FOUND_SECONDS = 1800.0
MISSING_SECONDS = 300.0
ENTRIES_MAX = 10_000
LOOKUP_SECONDS = 2.0

log = structlog.get_logger()


class People:
    """Lookups of one account, cached by the path that was asked for; the longest unused are forgotten first."""

    def __init__(self, api: FeishuApi, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        """What was found, and until when it holds."""

    async def name(self, open_id: str) -> str | None:
        """A person's display name."""
        path = f"/open-apis/contact/v3/users/{quote(open_id, safe='')}"
        return await self._cached(path, lambda data: _name(mapping(data, "user")), {"user_id_type": "open_id"})

    async def title(self, chat_id: str) -> str | None:
        """A group's title."""
        return await self._cached(f"/open-apis/im/v1/chats/{quote(chat_id, safe='')}", _name)

    async def quoted(self, quote_: Quote) -> Quote:
        """The quote with its text, where the message can be read."""
        answer = await self._get(f"/open-apis/im/v1/messages/{quote(quote_.message_id, safe='')}")
        item = next(iter(mappings(answer, "items")), {})
        names = {text(mention, "key"): f"@{text(mention, 'name')}" for mention in mappings(item, "mentions")}
        parsed = content.read(text(item, "msg_type"), mapping(item, "body").get("content"), names)
        by = text(mapping(item, "sender"), "id") or None
        return Quote(message_id=quote_.message_id, text=parsed.text if parsed else None, sender=by)

    async def _cached(
        self, path: str, read: Callable[[Mapping[str, Any]], str | None], params: dict[str, str] | None = None
    ) -> str | None:
        value, until = self._known.get(path, (None, float("-inf")))
        if until < self._clock():
            value = read(await self._get(path, params))
            self._known[path] = (value, self._clock() + (FOUND_SECONDS if value else MISSING_SECONDS))
        self._known.move_to_end(path)
        while len(self._known) > ENTRIES_MAX:
            self._known.popitem(last=False)
        return value

    async def _get(self, path: str, params: dict[str, str] | None = None) -> Mapping[str, Any]:
        """The `data` of the answer; empty where there is none."""
        try:
            return mapping(await self._api.call(path, params, timeout_seconds=LOOKUP_SECONDS), "data")
        except DeliveryError as error:
            log.info("lookup_failed", what=path.split("/")[-2], error=str(error))
            return {}


def _name(holder: Mapping[str, Any]) -> str | None:
    return clean(text(holder, "name") or text(holder, "en_name")).strip() or None
