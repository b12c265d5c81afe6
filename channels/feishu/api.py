"""Feishu's open API, as far as needed: calls, tokens, uploads, downloads, and the delivery error of each code.

The tenant token is fetched once for all waiting calls, renewed before it expires, and dropped when Feishu rejects it.
Errors also come with HTTP 200, so the `code` decides. Only a call with a stale token is retried here; other retries are the
outbox's. Every call has a total timeout. Unknown codes count as refused. Source: the open platform's list of message and
common error codes (2026).
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias, TypeVar

import httpx
import orjson
import structlog

from channels.channel import DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.condition import Condition
from channels.download import SECONDS as DOWNLOAD_SECONDS
from channels.download import Download, download, request
from channels.feishu.config import FeishuAccount
from channels.message import File
from channels.pace import SingleFlight
from channels.transport import HttpResponse, Transport, client_class
from channels.wire import mapping

TOKEN_PATH = "/open-apis/auth/v3/tenant_access_token/internal"
ENDPOINT_PATH = "/callback/ws/endpoint"
RENEW_SECONDS = 600.0
"""Renew a token this long before it expires: Feishu issues the next one within its last half hour."""
TOKEN_CODES = frozenset({"99991661", "99991663", "99991664", "99991665", "99991668", "99991671"})
"""The tenant token is missing, wrong or expired: fetch a new one, once."""
WITHDRAWN_CODES = frozenset({"230011", "230110", "231003"})
"""The message to reply to is gone: send to the chat instead."""
NO_THREAD_CODES = frozenset({"230071"})
"""The chat has no threads: reply without."""
BAD_CONTENT_CODES = frozenset({"230001", "230025", "230099", "230055", "230054"})
"""The format was refused: send plain text, which may also be longer."""
NO_CARD_CODES = frozenset({"230054"})
"""The message to change is no card."""
AUDIT_CODES = frozenset({"230022", "230028"})
"""The text failed the audit: send a note that says so."""
RATE_CODES = frozenset({"99991400", "230020", "11232", "11233", "11247"})
BUSY_CODES = frozenset({"230049", "1", "1000040343"})
GONE_CODES = frozenset(
    {"230002", "230013", "230018", "230019", "230029", "230050"}
    | {"230053", "230111", "232009", "99992354", "234004", "234040"}
)
TOO_LARGE_CODES = frozenset({"234006", "234037"})
NOT_HANDED_OUT = frozenset({"234038", "234043"})
HINTS = {
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
    "514": "the app id or secret is wrong",
    "1000040344": "the app id or secret is missing",
    "1000040350": "fifty connections of this app are open already: end some of its processes",
    "10014": "the app id does not exist there, or the secret is wrong",
}
UPLOAD_SECONDS = 60.0
FILE_BYTES_MAX = 100 * 1024 * 1024
"""Feishu's limit on downloads."""

Params: TypeAlias = Mapping[str, str] | None
JsonBody: TypeAlias = Mapping[str, Any] | None

T = TypeVar("T")
log = structlog.get_logger()


class FeishuApi:
    """`condition` is updated with whether Feishu issues tokens; None for read-only use."""

    def __init__(self, account: FeishuAccount, condition: Condition | None = None) -> None:
        self._account = account
        self._condition = condition
        self._client: httpx.AsyncClient | None = None
        self._token = ""
        self._token_ends = 0.0
        self._fetching = SingleFlight(self._fetch_token)

    async def call(
        self,
        path: str,
        params: Params = None,
        body: JsonBody = None,
        *,
        method: str = "",
        timeout_seconds: float | None = None,
    ) -> dict[str, Any]:
        """Return the whole answer to a GET, or to a POST if there is a body. Raises DeliveryError with Feishu's code."""
        method = method or ("GET" if body is None else "POST")
        seconds = timeout_seconds or self._account.timeout_seconds
        return await self._with_token(lambda token: self._request(method, path, token, params, body, seconds), seconds)

    async def download(self, path: str, params: Mapping[str, str], *, bytes_max: int) -> Download:
        return await self._with_token(lambda token: self._download(path, params, token, bytes_max), DOWNLOAD_SECONDS)

    async def endpoint(self) -> Mapping[str, Any]:
        """Return the address for a long connection: `URL` and `ClientConfig`. Raises DeliveryError."""
        body = {"AppID": self._account.app_id, "AppSecret": self._account.app_secret.get_secret_value()}
        return mapping(await self._request("POST", ENDPOINT_PATH, body=body), "data")

    async def upload(self, path: str, fields: Mapping[str, str], part: str, file: File) -> Mapping[str, Any]:
        """Upload a file and return the answer's `data`. Raises DeliveryError."""
        form = {"data": fields, "files": {part: (file.name, file.data, file.type)}}
        send = partial(self._request, "POST", path, timeout_seconds=UPLOAD_SECONDS, form=form)
        return mapping(await self._with_token(send, UPLOAD_SECONDS), "data")

    async def app_token(self, refused: str = "") -> str:
        """Return the tenant token, a new one if the current one is `refused`. Raises DeliveryError."""
        if refused and self._token == refused:
            self._token = ""
        return await self._current_token(time.monotonic() + self._account.timeout_seconds)

    async def close(self) -> None:
        self._fetching.cancel()
        if self._client is not None:
            await self._client.aclose()

    async def _with_token(self, request: Callable[[str], Awaitable[T]], seconds: float) -> T:
        until = time.monotonic() + seconds
        for is_last in (False, True):
            token = await self._current_token(until)
            try:
                async with asyncio.timeout(until - time.monotonic()):
                    return await request(token)
            except TimeoutError as error:
                raise Unreachable("Feishu gave no answer in time") from error
            except DeliveryError as error:
                if is_last or error.code not in TOKEN_CODES:
                    raise
            if self._token == token:
                self._token = ""
        raise AssertionError("unreachable")

    async def _current_token(self, until: float) -> str:
        if self._token and time.monotonic() < self._token_ends - RENEW_SECONDS:
            return self._token
        try:
            return await self._fetching.get(until - time.monotonic())
        except Unreachable as error:
            raise Unreachable(str(error), code=error.code, maybe_arrived=False) from error

    async def _fetch_token(self) -> str:
        secret = self._account.app_secret.get_secret_value()
        body = {"app_id": self._account.app_id, "app_secret": secret}
        with self._condition.watching("token") if self._condition else nullcontext():
            answer = await self._request("POST", TOKEN_PATH, body=body)
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
        body: JsonBody = None,
        timeout_seconds: float | None = None,
        form: JsonBody = None,
    ) -> dict[str, Any]:
        headers = {} if form else {"content-type": "application/json; charset=utf-8"}
        headers |= {"authorization": f"Bearer {token}"} if token else {"locale": "zh"}
        sent = form or {"content": None if body is None else orjson.dumps(body)}
        seconds = timeout_seconds or self._account.timeout_seconds
        sending = {"seconds": seconds, "platform": "Feishu", "params": params, "headers": headers, **sent}
        return _answer(await request(self._http(), method, path, **sending), path)

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


def _answer(response: HttpResponse | httpx.Response, path: str) -> dict[str, Any]:
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


def _error(code: str, response: HttpResponse | httpx.Response) -> DeliveryError:
    # Only our own texts: Feishu's may quote what was sent.
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
    return Refused(f"Feishu refused it ({code}): {HINTS.get(code, 'see the list of error codes')}", code=code)
