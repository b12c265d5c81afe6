"""Telegram's Bot API, as far as we need it: one call, what its answer means, and the download of a file.

The token is part of every address, so it is put in where nothing else looks any more, behind the HTTP client: neither
its log lines nor its exceptions can hold it. Nothing is repeated here; repeating is the outbox's business.
"""

import asyncio
import urllib.request
from collections.abc import Mapping
from typing import Any

import httpx
import orjson
import structlog

from channels.channel import RateLimited, Refused, Unreachable
from channels.download import download
from channels.telegram.config import TelegramAccount
from channels.telegram.errors import MethodError
from channels.telegram.wire import loads

NEVER_LEFT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
CONNECT_SECONDS_MAX = 10.0
"""Less than the whole: what failed before it left must be told from what may have arrived."""
HIDDEN = b"***"
FILES = "/file/"

log = structlog.get_logger()


class TelegramApi:
    """One bot's access."""

    def __init__(self, account: TelegramAccount) -> None:
        self._account = account
        self._client: httpx.AsyncClient | None = None

    async def call(
        self, method: str, body: Mapping[str, Any] | None = None, *, timeout_seconds: float | None = None
    ) -> Any:
        """The `result`. Raises MethodError or DeliveryError."""
        timeout = timeout_seconds or self._account.timeout_seconds
        soon = min(0.8 * timeout, CONNECT_SECONDS_MAX)
        each = httpx.Timeout(timeout, connect=soon, pool=soon)
        try:
            # The client's own timeout is for one read; an answer that comes drop by drop would never end.
            async with asyncio.timeout(timeout):
                response = await self._http().post(f"/{method}", content=orjson.dumps(body or {}), timeout=each)
        except (httpx.HTTPError, TimeoutError) as error:
            arrived = not isinstance(error, NEVER_LEFT)
            reason = f"Telegram cannot be reached ({type(error).__name__})"
            raise Unreachable(reason, maybe_arrived=arrived) from error
        return self._result(response, method)

    async def download(self, path: str, *, bytes_max: int) -> bytes:
        """The file at a path that `getFile` gave. Raises DeliveryError."""
        got = await download(self._http(), FILES + path, bytes_max=bytes_max)
        if got.status == 200:
            return got.data
        code = str(got.status)
        log.info("telegram_file_refused", status=got.status)
        if got.status == 429:
            raise RateLimited("Telegram asks to slow down", code=code)
        if got.status == 404 or got.status >= 500:  # a path holds for an hour; asked again, it is another
            raise Unreachable(f"Telegram does not hand out the file (HTTP {code})", code=code)
        raise Refused(f"Telegram refuses the file (HTTP {code})", code=code)

    async def renew(self) -> None:
        """Begin anew with other connections: one may look alive and be dead."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def close(self) -> None:
        await self.renew()

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            root, token = self._account.api_root.rstrip("/"), self._account.bot_token.get_secret_value().strip()
            self._client = httpx.AsyncClient(
                base_url=root,
                transport=_WithToken(token, root=httpx.URL(root).raw_path.decode().rstrip("/"), proxy=_proxy(root)),
                headers={"content-type": "application/json"},
                follow_redirects=False,
            )
        return self._client

    def _result(self, response: httpx.Response, method: str) -> Any:
        status, token = response.status_code, self._account.bot_token.get_secret_value().strip()
        try:
            answer = loads(response.content.replace(token.encode(), HIDDEN))  # some servers quote the address
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or not isinstance(answer.get("ok"), bool):
            if status == 429:
                answer = {"ok": False}
            elif 400 <= status < 500:
                raise Refused(f"HTTP {status} without Telegram's words: is apiRoot right?", code=str(status))
            else:
                raise Unreachable(f"Telegram's answer cannot be read (HTTP {status})", code=str(status))
        if answer["ok"]:
            return answer.get("result")
        retry_after = response.headers.get("retry-after") or ""
        error = MethodError(answer, status, float(retry_after) if retry_after.isdecimal() else None)
        log.info("telegram_error", method=method, status=error.status, description=error.shown)
        raise error


class _WithToken(httpx.AsyncBaseTransport):
    """The last step before the wire: `/sendMessage` becomes `/bot<token>/sendMessage`, and `/file/photos/1.jpg`
    `/file/bot<token>/photos/1.jpg`."""

    def __init__(self, token: str, *, root: str, proxy: str | None) -> None:
        self._token = token
        self._root = root
        self._inner = httpx.AsyncHTTPTransport(proxy=proxy)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path = request.url.raw_path.decode().removeprefix(self._root)
        file = path.removeprefix(FILES) if path.startswith(FILES) else None
        path = f"/bot{self._token}{path}" if file is None else f"{FILES}bot{self._token}/{file}"
        addressed = httpx.Request(
            request.method,
            request.url.copy_with(raw_path=f"{self._root}{path}".encode()),
            headers=request.headers,
            stream=request.stream,
            extensions=request.extensions,
        )
        return await self._inner.handle_async_request(addressed)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _proxy(root: str) -> str | None:
    """As the environment says: a client with a transport of its own does not ask it."""
    url = httpx.URL(root)
    if url.host in ("127.0.0.1", "localhost", "::1") or urllib.request.proxy_bypass(url.host):
        return None
    found = urllib.request.getproxies()
    proxy = found.get(url.scheme) or found.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy
