"""Feishu's open API, as far as we need it: calls, tokens, downloads, names, and which delivery error a code means.

The tenant token is fetched once for everybody who waits, renewed before it ends, and dropped when Feishu says that it
is wrong. Errors also come with HTTP 200, so the `code` decides. Nothing is repeated here but the one call whose token was
stale; repeating is the outbox's business. A code we do not know is refused: the open platform's list of message and
common error codes (2026) is the source.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
import orjson
import structlog

from channels.channel import DeliveryError, Gone, NotHandedOut, RateLimited, Refused, TooLarge, Unreachable
from channels.download import Download, download, twice
from channels.feishu import content
from channels.feishu.config import FeishuAccount
from channels.message import Attachment, File, Quote, media_type
from channels.pace import SingleFlight
from channels.transport import Transport, client_class
from channels.wire import clean, mapping, mappings, text

TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"
ENDPOINT_PATH = "/callback/ws/endpoint"
RENEW_SECONDS = 600.0
"""A token is renewed this long before it ends: within its last half hour Feishu hands out the next one."""
TOKEN_CODES = frozenset({"99991661", "99991663", "99991664", "99991665", "99991668", "99991671"})
"""The tenant token is missing, wrong or expired: fetch a new one, once."""
WITHDRAWN_CODES = frozenset({"230011", "230110", "231003"})
"""The message to reply to is gone: send to the chat instead."""
NO_THREAD_CODES = frozenset({"230071"})
"""The chat knows no threads: reply without."""
BAD_CONTENT_CODES = frozenset({"230001", "230025", "230099", "230055", "230054"})
"""It is what we made of the text that was not taken: send it as plain text, which may also be longer."""
NO_CARD_CODES = frozenset({"230054"})
"""What is to be changed is no card."""
AUDIT_CODES = frozenset({"230022", "230028"})
"""The text did not pass an audit: the person gets a note that says so."""
RATE_CODES = frozenset({"99991400", "230020", "11232", "11233", "11247"})
BUSY_CODES = frozenset({"230049", "1", "1000040343"})
GONE_CODES = frozenset(
    {"230002", "230013", "230018", "230019", "230029", "230050"}
    | {"230053", "230111", "232009", "99992354", "234004", "234040"}
)
TOO_LARGE_CODES = frozenset({"234006", "234037"})
NOT_HANDED_OUT = frozenset({"234038", "234043"})
_HINTS = {
    "99991672": "the app lacks a permission (scope); add it in the developer console and publish a version",
    "99991401": "this machine's address is not on the app's IP whitelist",
    "99991403": "the app's monthly API quota is used up",
    "230006": "the app's bot is switched off, or no version has been published",
    "230022": "the text was refused as sensitive content",
    "230028": "the text did not pass the tenant's audit",
    "230025": "the text is too long",
    "230027": "the app may not send there",
    "230035": "the app may not send there",
    "234002": "the app may not read this file; is the scope im:message:readonly there, and a version published?",
    "234009": "the app may not read this file; is the scope im:message:readonly there, and a version published?",
    "234038": "the chat is in restricted mode: its files cannot be fetched",
    "234043": "what comes in cards, stickers and forwarded bundles cannot be fetched",
    "10003": "the app id or secret is malformed",
    "403": "the app's events do not come by long connection; choose 使用长连接接收事件 in the developer console",
    "514": "the app id or secret is wrong; is baseUrl right for this app?",
    "1000040344": "the app id or secret is missing",
    "1000040350": "fifty connections of this app are open already: end some of its processes",
    "10014": "the app id does not exist there, or the secret is wrong; is baseUrl right for this app?",
}
UPLOAD_SECONDS = 60.0
FILE_BYTES_MAX = 100 * 1024 * 1024
"""Feishu hands out no larger one."""
_NOT_FETCHABLE = ("sticker", "other")

Params: TypeAlias = Mapping[str, str] | None
Body: TypeAlias = Mapping[str, Any] | None

T = TypeVar("T")
log = structlog.get_logger()


class FeishuApi:
    def __init__(self, account: FeishuAccount) -> None:
        self._account = account
        self._client: httpx.AsyncClient | None = None
        self._token = ""
        self._token_ends = 0.0
        self._fetching = SingleFlight(self._fetch_token)

    async def call(
        self,
        path: str,
        params: Params = None,
        body: Body = None,
        *,
        method: str = "",
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """The whole answer to a GET, or to a POST where there is a body. Raises DeliveryError with Feishu's code."""
        method = method or ("GET" if body is None else "POST")
        return await self._with_token(lambda token: self._request(method, path, token, params, body, timeout_seconds))

    async def download(self, path: str, params: Mapping[str, str], *, bytes_max: int) -> Download:
        return await self._with_token(lambda token: self._download(path, params, token, bytes_max))

    async def endpoint(self) -> Mapping[str, Any]:
        """Where a long connection may be opened: `URL` and `ClientConfig`. Raises DeliveryError."""
        body = {"AppID": self._account.app_id, "AppSecret": self._account.app_secret.get_secret_value()}
        return mapping(await self._request("POST", ENDPOINT_PATH, body=body), "data")

    async def upload(self, path: str, fields: Mapping[str, str], part: str, file: File) -> Mapping[str, Any]:
        """The `data` of the answer to an upload. Raises DeliveryError."""
        form = {"data": fields, "files": {part: (file.name, file.data, file.type)}}
        send = partial(self._request, "POST", path, timeout_seconds=UPLOAD_SECONDS, form=form)
        return mapping(await self._with_token(send), "data")

    async def close(self) -> None:
        self._fetching.cancel()
        if self._client is not None:
            await self._client.aclose()

    async def _with_token(self, request: Callable[[str], Awaitable[T]]) -> T:
        """Sends the request, once more with a new token where the first was stale."""
        token = await self._current_token()
        try:
            return await request(token)
        except DeliveryError as error:
            if error.code not in TOKEN_CODES:
                raise
        if self._token == token:
            self._token = ""
        return await request(await self._current_token())

    async def _current_token(self) -> str:
        if self._token and time.monotonic() < self._token_ends - RENEW_SECONDS:
            return self._token
        return await self._fetching.get()

    async def _fetch_token(self) -> str:
        secret = self._account.app_secret.get_secret_value()
        body = {"app_id": self._account.app_id, "app_secret": secret}
        try:
            answer = await self._request("POST", TOKEN_PATH, body=body)
        except Unreachable as error:
            raise Unreachable(str(error), code=error.code, maybe_arrived=False) from error
        token, ends = answer.get("tenant_access_token"), answer.get("expire")
        if not isinstance(token, str) or not token or not isinstance(ends, int | float):
            raise Unreachable("Feishu's token answer has no token")
        self._token, self._token_ends = token, time.monotonic() + max(float(ends), RENEW_SECONDS + 1)
        return token

    async def _request(
        self,
        method: str,
        path: str,
        token: str = "",
        params: Params = None,
        body: Body = None,
        timeout_seconds: float | None = None,
        form: Body = None,
    ) -> dict[str, Any]:
        headers = {} if form else {"content-type": "application/json; charset=utf-8"}
        headers |= {"authorization": f"Bearer {token}"} if token else {"locale": "zh"}
        sent = form or {"content": None if body is None else orjson.dumps(body)}
        timeout = timeout_seconds or self._account.timeout_seconds
        try:
            response = await self._http().request(method, path, params=params, headers=headers, timeout=timeout, **sent)
        except httpx.HTTPError as error:
            arrived = not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
            reason = f"Feishu cannot be reached ({type(error).__name__})"
            raise Unreachable(reason, maybe_arrived=arrived) from error
        return _answer(response, path)

    async def _download(self, path: str, params: Mapping[str, str], token: str, bytes_max: int) -> Download:
        headers = {"authorization": f"Bearer {token}"}
        got = await download(self._http(), path, params=params, headers=headers, bytes_max=bytes_max)
        is_json = got.headers.get("content-type", "").startswith("application/json")
        if got.status != 200 or (is_json and "content-disposition" not in got.headers):
            _answer(httpx.Response(got.status, headers=got.headers, content=got.data), path)
            raise Unreachable(f"Feishu answers a download with what is no file (HTTP {got.status})")
        return got

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            base = self._account.base_url.rstrip("/")
            self._client = client_class(httpx)(base_url=base, transport=Transport(httpx, base))
        return self._client


def _answer(response: httpx.Response, path: str) -> dict[str, Any]:
    """The body of a good answer. Raises DeliveryError."""
    try:
        answer = orjson.loads(response.content)
        code = answer["code"]
        if not isinstance(code, int):
            raise TypeError
    except (orjson.JSONDecodeError, KeyError, TypeError):
        if response.status_code == 429:
            raise _error("0", response) from None
        if 400 <= response.status_code < 500:
            raise Refused(f"Feishu answered HTTP {response.status_code} without a code") from None
        raise Unreachable(f"Feishu's answer cannot be read (HTTP {response.status_code})") from None
    if code == 0 and response.status_code < 400:
        return dict(answer)
    log_id = response.headers.get("x-tt-logid", "")
    facts = {"code": code, "status": response.status_code, "words": " ".join(str(answer.get("msg", "")).split())[:300]}
    log.info("feishu_error", path=path.split("?")[0], log_id=log_id, **facts)
    raise _error(str(code), response)


def _error(code: str, response: httpx.Response) -> DeliveryError:
    """What `code` stands for. Its text is ours: Feishu's may quote what was sent."""
    if code in RATE_CODES or response.status_code == 429:
        reset = response.headers.get("x-ogw-ratelimit-reset") or response.headers.get("retry-after") or ""
        seconds = min(float(reset), 3600.0) if reset.isdecimal() else None
        return RateLimited(f"Feishu asks to slow down ({code})", code=code, retry_after_seconds=seconds)
    if code in BUSY_CODES or response.status_code >= 500:
        return Unreachable(f"Feishu is busy ({code}, HTTP {response.status_code})", code=code)
    if code in GONE_CODES or code in WITHDRAWN_CODES:
        return Gone(f"the chat, topic or person is out of reach ({code})", code=code)
    return refused(code)


def refused(code: str) -> Refused:
    return Refused(f"Feishu refused it ({code}): {_HINTS.get(code, 'see the list of error codes')}", code=code)


async def fetch_file(api: FeishuApi, attachment: Attachment, *, bytes_max: int) -> File:
    message_id, _, key = attachment.key.partition("/")
    if attachment.kind in _NOT_FETCHABLE or {message_id, key} & {"", ".", ".."}:
        raise NotHandedOut("Feishu does not hand out such a file")
    path = "/open-apis/im/v1/messages/{}/resources/{}".format(*(quote(part, safe="") for part in (message_id, key)))
    wanted = {"type": "image" if attachment.kind == "image" else "file"}
    try:
        got = await twice(lambda: api.download(path, wanted, bytes_max=bytes_max))
    except DeliveryError as error:
        if error.code in TOO_LARGE_CODES:
            raise TooLarge(FILE_BYTES_MAX) from error
        if error.code in NOT_HANDED_OUT:
            raise NotHandedOut(_HINTS[error.code], code=error.code) from error
        raise
    kind = media_type(got.headers.get("content-type", ""))
    return File(name=attachment.name or attachment.kind, type=kind, data=got.data)


FOUND_SECONDS = 1800.0
MISSING_SECONDS = 300.0
ENTRIES_MAX = 10_000
LOOKUP_SECONDS = 2.0
BUNDLE_MAX, BUNDLE_LINE_CHARS = 50, 1_000
"""Of the messages that somebody forwards together."""
NAMES_MAX = 10


class People:
    """Names, titles and quoted texts, as far as Feishu gives them: a message never fails for what cannot be learnt.

    Cached by path; the longest unused are forgotten first. A lookup that fails is remembered for a while, so that a
    missing permission does not cost a call per message."""

    def __init__(self, api: FeishuApi) -> None:
        self._api = api
        self._known: OrderedDict[str, tuple[str | None, float]] = OrderedDict()
        """What was found, and until when it holds."""

    async def name(self, open_id: str) -> str | None:
        path = f"/open-apis/contact/v3/users/{quote(open_id, safe='')}"
        return await self._cached(path, lambda data: _name(mapping(data, "user")), {"user_id_type": "open_id"})

    async def title(self, chat_id: str) -> str | None:
        return await self._cached(f"/open-apis/im/v1/chats/{quote(chat_id, safe='')}", _name)

    async def quoted(self, quote_: Quote) -> Quote:
        items = await self._items(quote_.message_id)
        found = await self._read(quote_.message_id, items)
        sender = mapping(items[0], "sender") if items else {}
        files = found.attachments if text(sender, "sender_type") != "app" else ()  # an app's are nobody else's to have
        by = text(sender, "id") or None
        return Quote(message_id=quote_.message_id, text=found.text or None, sender=by, attachments=files)

    async def forwarded(self, message_id: str) -> content.Content:
        """A bundle of forwarded messages; without text where it cannot be had."""
        items = await self._items(message_id)
        return await self._read(message_id, items) if items else content.Content(text="")

    async def _items(self, message_id: str) -> list[Mapping[str, Any]]:
        """A message, and behind it what it bundles. Of cards the whole is asked for."""
        path = f"/open-apis/im/v1/messages/{quote(message_id, safe='')}"
        return mappings(await self._get(path, {"card_msg_content_type": "user_card_content"}), "items")

    async def _read(self, message_id: str, items: Sequence[Mapping[str, Any]]) -> content.Content:
        """Of a bundle its messages, with who wrote each; of a long one its beginning. Bundles within it stay closed."""
        inside = [it for it in items if text(it, "upper_message_id") == message_id]
        if not inside:
            return _content(items[0]) if items else content.Content(text="")
        senders = list(dict.fromkeys(text(mapping(it, "sender"), "id") for it in inside[:BUNDLE_MAX]))
        found = await asyncio.gather(*(self.name(it) for it in senders[:NAMES_MAX] if it))
        names = dict(zip(filter(None, senders[:NAMES_MAX]), found, strict=True))
        lines, files = [content.FORWARDED], list[Attachment]()
        for item in inside[:BUNDLE_MAX]:
            by, read = text(mapping(item, "sender"), "id"), _content(item)
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
        """The `data` of the answer; empty where there is none."""
        try:
            return mapping(await self._api.call(path, params, timeout_seconds=LOOKUP_SECONDS), "data")
        except DeliveryError as error:
            log.info("lookup_failed", what=path.split("/")[-2], error=str(error))
            return {}


def _content(item: Mapping[str, Any]) -> content.Content:
    """A message as the API gives it."""
    names = {text(mention, "key"): f"@{text(mention, 'name')}" for mention in mappings(item, "mentions")}
    read = content.read(text(item, "msg_type"), mapping(item, "body").get("content"), names)
    return read.of(text(item, "message_id")) if read else content.Content(text="")


def _name(holder: Mapping[str, Any]) -> str | None:
    return clean(text(holder, "name") or text(holder, "en_name")).strip() or None
