"""The connections to an MCP server at an address: judged as `web_fetch` judges them, and then kept.

The host is looked up for each connection, every address that it has is judged before any is connected to, and the
connection goes to a judged one while TLS keeps the host's name. There are no proxies of the environment and no cookies.
"""

import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from functools import cache
from typing import Any

import httpcore2
import httpx2

from tools.web.client import Blocked, WebClient

ANSWER_BYTES_MAX = 16 * 1024 * 1024
"""The longest answer that is no stream of events, as it arrives: none is packed."""
CONNECT_SECONDS = 10.0
CONNECTIONS_MAX = 20


def guarded_client(web: WebClient, headers: Mapping[str, str], seconds: float) -> httpx2.AsyncClient:
    """`seconds` may pass between two pieces of an answer."""
    return httpx2.AsyncClient(
        transport=GuardedTransport(web),
        headers={"user-agent": "Clawgate (mcp)", **headers, "accept-encoding": "identity"},
        timeout=httpx2.Timeout(CONNECT_SECONDS, read=seconds),
        trust_env=False,
    )


class _JudgedNetwork(httpcore2.AsyncNetworkBackend):
    def __init__(self, web: WebClient) -> None:
        self._web = web
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        try:
            addresses = await self._web.addresses(host.strip("[]"), port)
        except (Blocked, OSError) as error:  # a TimeoutError, too
            raise httpcore2.ConnectError(str(error) or "the name server did not answer in time") from None
        failure: Exception = httpcore2.ConnectError("no address")
        for address in addresses:
            try:
                return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._network.sleep(seconds)


class GuardedTransport(httpx2.AsyncBaseTransport):
    def __init__(self, web: WebClient) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=_certificates(), max_connections=CONNECTIONS_MAX, network_backend=_JudgedNetwork(web)
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        try:
            answer = await self._pool.handle_async_request(asked)
        except httpcore2.TimeoutException as error:
            raise httpx2.ConnectTimeout(str(error), request=request) from error
        except (httpcore2.NetworkError, httpcore2.ProtocolError) as error:
            raise httpx2.ConnectError(str(error), request=request) from error
        streams = any(name.lower() == b"content-type" and b"event-stream" in value for name, value in answer.headers)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Pieces(answer, None if streams else ANSWER_BYTES_MAX),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        await self._pool.aclose()


class _Pieces(httpx2.AsyncByteStream):
    def __init__(self, answer: httpcore2.Response, bytes_max: int | None) -> None:
        self._answer = answer
        self._bytes_max = bytes_max

    async def __aiter__(self) -> AsyncIterator[bytes]:
        received = 0
        try:
            async for piece in self._answer.aiter_stream():
                received += len(piece)
                if self._bytes_max is not None and received > self._bytes_max:
                    raise httpx2.ReadError(f"the answer is longer than {self._bytes_max:,} bytes")
                yield piece
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            raise httpx2.ReadError(str(error)) from error

    async def aclose(self) -> None:
        await self._answer.aclose()


@cache
def _certificates() -> ssl.SSLContext:
    return httpx2.create_ssl_context(trust_env=False)
