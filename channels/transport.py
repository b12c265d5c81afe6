"""An httpx transport on aiohttp's connections, used by every HTTP client of channels and model APIs.

httpx's pool scans every connection on each request and wakes up several times per read: half of a turn's CPU time with
fifty chats. `library` is `httpx`, or the `httpx2` of the model SDKs, with the same names. Callers still see httpx's
requests, responses and exceptions, which tell whether a send never left. Small JSON calls keep only its exceptions.
"""

import ssl
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import structlog

if TYPE_CHECKING:
    import aiohttp
    import yarl

log = structlog.get_logger()

CONNECTIONS_MAX = 1000
KEEP_ALIVE_SECONDS = 4.0
"""Idle timeout, shorter than any server's or proxy's (5 seconds in uvicorn and Node), so that none closes a connection as
it is reused. That would make a send ambiguous, and Telegram sends are not retried."""
PIECE_BYTES = 256 * 1024
ANSWER_BYTES_MAX = 32 * 1024 * 1024
"""Maximum decompressed size of a response that is read as a whole."""
_AUTOMATIC = ("accept", "accept-encoding", "content-type", "user-agent")
"""Headers that aiohttp would add by itself; httpx has set them already."""
_OWN = {"accept": "*/*", "accept-encoding": "identity", "user-agent": "clawgate"}


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A complete response, with httpx's names. `headers` are case-insensitive."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


def is_local(url: str) -> bool:
    """Return True for a server on this machine, which needs no proxy."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def proxy_for(url: str) -> str | None:
    """Return the proxy that the environment sets for this URL."""
    parts = urlsplit(url)
    if is_local(url) or urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    proxies = urllib.request.getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


class Transport(httpx.AsyncBaseTransport):
    """The `transport` of an `AsyncClient` of `library`, for requests to the server of `url`."""

    def __init__(self, library: Any, url: str) -> None:
        self._library = library
        self._proxy = proxy_for(url)
        encrypted = any(one.startswith("https:") for one in (url, self._proxy or ""))
        self._ssl: ssl.SSLContext | bool = _certificates(library) if encrypted else True
        self._session: aiohttp.ClientSession | None = None

    async def handle_async_request(self, request: Any) -> Any:
        return await self.send(request, await request.aread())

    async def send(self, request: Any, body: bytes) -> Any:
        """Send the request with this body instead of its own.

        Raises the library's exceptions: ConnectError, ConnectTimeout and ProxyError mean that it never left."""
        import yarl

        parts = request.extensions
        if "sent" not in parts:  # computed once for all retries
            address = yarl.URL(self.address(str(request.url)), encoded=True)
            raw = ((name.lower(), name.decode(), value.decode("latin-1")) for name, value in request.headers.raw)
            framed = [(name, value) for lower, name, value in raw if lower not in _FRAMING]
            parts["sent"] = address, framed, _timeout(parts.get("timeout", {}))
        address, headers, timeout = parts["sent"]
        headers = headers if request.method == "GET" else [*headers, ("Content-Length", str(len(body)))]
        with _translated(self._library):
            response = await self._request(request.method, address, headers, body, timeout)
        return self._library.Response(
            response.status,
            headers=response.raw_headers,
            stream=_body_class(self._library)(response),
            request=request,
            extensions={"http_version": b"HTTP/1.1", "reason_phrase": (response.reason or "").encode("latin-1")},
        )

    async def ask(self, method: str, url: str, headers: Mapping[str, str], body: bytes, seconds: float) -> HttpResponse:
        """Send a small request and return the complete response, without httpx's objects. Raises the same exceptions."""
        import yarl

        address = yarl.URL(self.address(url), encoded=True)
        timeout = _timeout({"pool": seconds, "connect": seconds})
        with _translated(self._library):
            response = await self._request(method, address, {**_OWN, **headers}, body, timeout)
            try:
                content = bytearray()
                while piece := await response.content.readany():
                    content += piece
                    if len(content) > ANSWER_BYTES_MAX:
                        raise self._library.RemoteProtocolError("the answer is too large")
            finally:
                _let_go(response)
        return HttpResponse(response.status, response.headers, bytes(content))

    async def _request(
        self, method: str, address: "yarl.URL", headers: Any, body: bytes, timeout: "aiohttp.ClientTimeout"
    ) -> "aiohttp.ClientResponse":
        if self._proxy and not self._proxy.startswith(("http:", "https:")):
            log.error("proxy_not_usable", proxy=urlsplit(self._proxy).scheme, fix="name an HTTP proxy in HTTPS_PROXY")
            raise self._library.ProxyError("not an HTTP proxy")
        return await self._open_session().request(
            method,
            address,
            headers=headers,
            data=_content(body),
            timeout=timeout,
            proxy=self._proxy,
            allow_redirects=False,
        )

    def address(self, url: str) -> str:
        return url

    async def aclose(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open_session(self) -> "aiohttp.ClientSession":
        if self._session is None:
            import aiohttp

            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=CONNECTIONS_MAX, keepalive_timeout=KEEP_ALIVE_SECONDS, ssl=self._ssl
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_AUTOMATIC,
                auto_decompress=False,
            )
        return self._session


@cache
def client_class(library: Any) -> type[Any]:
    class Client(library.AsyncClient):  # type: ignore[misc]
        """`AsyncClient` without what no server of ours needs: cookies, redirects, other authentication than headers, a log
        line for each request. Its `transport` must be ours."""

        def __init__(
            self, *, transport: Transport, refuse: Callable[[Any], Awaitable[None]] | None = None, **options: Any
        ):
            super().__init__(transport=transport, **options)
            self.to_server, self._refuse = transport, refuse

        async def send(self, request: Any, *, stream: bool = False, body: bytes | None = None, **_: object) -> Any:
            """`body` goes in place of the request's own, so that one request serves many times."""
            if self.is_closed:
                raise RuntimeError("the client has been closed")
            request.extensions.setdefault("timeout", self.timeout.as_dict())
            response = await self.to_server.send(request, await request.aread() if body is None else body)
            response.request = request
            try:
                if self._refuse is not None and not response.is_success:
                    await self._refuse(response)
                if not stream:
                    response._content = await self._whole(response)  # where httpx itself puts it
            except BaseException:
                await response.aclose()
                raise
            return response

        async def _whole(self, response: Any) -> bytes:
            body = bytearray()
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > ANSWER_BYTES_MAX:
                    raise library.RemoteProtocolError("the answer is too large")
            return bytes(body)

    return Client


@cache
def _certificates(library: Any) -> ssl.SSLContext:
    context: ssl.SSLContext = library.create_ssl_context()
    return context


_FRAMING = (b"transfer-encoding", b"connection", b"content-length")
"""Framing headers to drop: the complete body is sent with its length."""


def _content(body: bytes) -> "bytes | AsyncIterator[bytes] | None":
    return (_pieces(body) if len(body) > PIECE_BYTES else body) or None


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), PIECE_BYTES):
        yield body[start : start + PIECE_BYTES]


def _timeout(seconds: dict[str, float | None]) -> "aiohttp.ClientTimeout":
    import aiohttp

    return aiohttp.ClientTimeout(
        connect=seconds.get("pool"), sock_connect=seconds.get("connect"), sock_read=seconds.get("read")
    )


@cache
def _body_class(library: Any) -> type[Any]:
    class ArrivingBody(library.AsyncByteStream):  # type: ignore[misc]
        """The body of one answer as it arrives. Only a connection whose body was read to its end is used again."""

        def __init__(self, response: "aiohttp.ClientResponse") -> None:
            self._response = response

        async def __aiter__(self) -> AsyncIterator[bytes]:
            with _translated(library):
                while chunk := await self._response.content.readany():
                    yield chunk

        async def aclose(self) -> None:
            _let_go(self._response)

    return ArrivingBody


def _let_go(response: "aiohttp.ClientResponse") -> None:
    if response.content.at_eof():
        response.release()
    else:
        response.close()


@contextmanager
def _translated(library: Any) -> Iterator[None]:
    import aiohttp

    try:
        yield
    except (aiohttp.ClientProxyConnectionError, aiohttp.ClientHttpProxyError) as error:
        raise library.ProxyError(_shown(error)) from None
    except aiohttp.ConnectionTimeoutError as error:
        raise library.ConnectTimeout(_shown(error)) from None
    except aiohttp.ClientConnectorError as error:
        raise library.ConnectError(_shown(error)) from None
    except (aiohttp.ServerTimeoutError, TimeoutError) as error:
        raise library.ReadTimeout(_shown(error)) from None
    except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError) as error:
        raise library.UnsupportedProtocol(_shown(error)) from None
    except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError, aiohttp.ClientResponseError) as error:
        raise library.RemoteProtocolError(_shown(error)) from None
    except (aiohttp.ClientError, OSError) as error:
        raise library.ReadError(_shown(error)) from None


def _shown(error: Exception) -> str:
    return type(error).__name__
