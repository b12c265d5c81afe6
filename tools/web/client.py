"""One GET of an untrusted URL: from a model, a page or a redirect.

The URL is checked before it is parsed, and every address of its host before any connection. The connection goes to a
checked address while TLS keeps the host's name: a second lookup could answer differently. Each redirect is checked
again. There are no environment proxies, cookies, credentials or reused connections. Time is limited, and so are bytes,
before and after decompression.
"""

import asyncio
import ipaddress
import re
import socket
import zlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias

from tools.config import FetchConfig, private
from tools.tool import ToolError

if TYPE_CHECKING:
    import ssl

    import httpx


Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address

_NETWORKS = "192.0.0.0/24 192.88.99.0/24 168.63.129.16/32 fec0::/10 5f00::/16 3fff::/20 64:ff9b:1::/48"
_DENIED = tuple(map(ipaddress.ip_network, _NETWORKS.split()))
"""Networks that some Python versions call global: relays, protocol assignments, a cloud's metadata, the former
site-local."""
_EMBEDDED = tuple(
    (ipaddress.IPv6Network(network), shift, mask)
    for network, shift, mask in (
        ("::/96", 0, 0),  # IPv4-compatible
        ("::ffff:0:0/96", 0, 0),  # mapped
        ("::ffff:0:0:0/96", 0, 0),  # SIIT
        ("64:ff9b::/96", 0, 0),  # NAT64
        ("2002::/16", 80, 0),  # 6to4
        ("2001::/32", 64, 0),  # Teredo: its server
        ("2001::/32", 0, 0xFFFFFFFF),  # and its client, inverted
    )
)
_ISATAP = (0x00005EFE, 0x02005EFE)


def is_public(address: Address) -> bool:
    """Return whether it is public, and so is every IPv4 address embedded in it."""
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return not any(address in network for network in _DENIED) and all(map(is_public, embedded(address)))


def embedded(address: Address) -> Iterable[ipaddress.IPv4Address]:
    """Yield the IPv4 addresses that an IPv6 address carries."""
    if isinstance(address, ipaddress.IPv6Address):
        number = int(address)
        for network, shift, mask in _EMBEDDED:
            if address in network:
                yield ipaddress.IPv4Address(((number >> shift) & 0xFFFFFFFF) ^ mask)
        if (number >> 32) & 0xFFFFFFFF in _ISATAP:
            yield ipaddress.IPv4Address(number & 0xFFFFFFFF)


Resolve: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]

URL_CHARS_MAX = 2048
RESOLVE_SECONDS = 3.0
CONNECT_SECONDS = 5.0
READ_SECONDS = 10.0
ADDRESSES_TRIED = 3
PIECE_BYTES = 65_536
MEMBERS_MAX = 1_000
LOOKUPS = 4
"""Concurrent lookups, in separate threads: a name server that never answers blocks nothing else."""
USER_AGENT = "Clawgate (web_fetch)"
DEFAULT_PORTS = {"http": 80, "https": 443}
REDIRECTS = (301, 302, 303, 307, 308)

_UNFIT = re.compile(
    r"[\x00-\x20\x7f-\xa0\\\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff\ud800-\udfff]"
)
_CHARSET = re.compile(r"charset\s*=\s*[\"']?([A-Za-z0-9._:-]{1,40})", re.IGNORECASE)
_USER = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*:)?//[^/?#]*@")
_HOST = re.compile(r"[a-z0-9._-]{1,253}|[0-9a-f:.]{2,45}")


@dataclass(frozen=True, kw_only=True, slots=True)
class WebPage:
    """The response from `url`, after redirects. `data` is empty for an unwanted type; `length` is as declared."""

    url: str
    status: int
    type: str
    charset: str
    length: int | None
    data: bytes = field(repr=False)


class Blocked(Exception):
    """An address that may not be connected to; raised while connecting."""


@dataclass
class WebClient:
    """`resolve` replaces the name server: it returns the addresses of a host as texts. Raises OSError."""

    config: FetchConfig
    resolve: Resolve | None = None

    def __post_init__(self) -> None:
        self._private = [private(entry) for entry in self.config.allow_private]
        self._lookups = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="fetch-lookup")

    @property
    def private_hosts(self) -> set[str]:
        return {entry[0] for entry in self._private if isinstance(entry, tuple)}

    async def get(self, url: str, *, wanted: Callable[[str], bool], bytes_max: int | None = None) -> WebPage:
        """Fetch a page; its body only if its type is `wanted`, no longer than `bytes_max` or as configured. Raises
        ToolError, which names the rule and no address."""
        import httpcore

        try:
            async with asyncio.timeout(self.config.total_seconds):
                return await self._follow(url, wanted, bytes_max or self.config.max_bytes)
        except (TimeoutError, httpcore.TimeoutException):
            raise ToolError("FETCH_TIMEOUT", "the server did not answer in time", retryable=True) from None
        except Blocked as error:
            raise blocked(str(error)) from None
        except (httpcore.NetworkError, OSError) as error:
            what = "the host is unknown" if isinstance(error, socket.gaierror) else "the server cannot be reached"
            raise ToolError("FETCH_FAILED", what, retryable=True) from None
        except (httpcore.ProtocolError, zlib.error):
            raise ToolError("FETCH_FAILED", "the server's answer is no sound HTTP") from None

    async def _follow(self, url: str, wanted: Callable[[str], bool], bytes_max: int) -> WebPage:
        current = self.judged(url)
        for _ in range(self.config.redirects + 1):
            answer = await self._get(current, wanted, bytes_max)
            if isinstance(answer, WebPage):
                return answer
            following = self.judged(answer, base=current)
            if current.scheme == "https" and following.scheme != "https":
                raise blocked("it redirects from https to http")
            current = following
        raise ToolError("FETCH_FAILED", f"it redirects more than {self.config.redirects} times")

    def judged(self, text: str, *, base: "httpx.URL | None" = None) -> "httpx.URL":
        """Return the URL to request, if it is allowed. Raises ToolError."""
        import httpx

        if len(text) > URL_CHARS_MAX:
            raise blocked(f"a URL has at most {URL_CHARS_MAX} characters")
        if _UNFIT.search(text):
            raise blocked("the URL holds blanks, control characters or backslashes")
        try:
            url = base.join(text) if base else httpx.URL(text)
            host = host_of(url)
        except (httpx.InvalidURL, UnicodeError, ValueError):
            raise blocked("that is no sound URL") from None
        if url.scheme not in DEFAULT_PORTS:
            raise blocked("only http and https addresses can be fetched")
        if url.userinfo or _USER.match(text):
            raise blocked("a URL with a user name or a password is not fetched")
        if not _HOST.fullmatch(host):
            raise blocked("the URL has no sound host")
        port = port_of(url)
        if port not in self.config.ports and (host, port) not in self._private:
            raise blocked(f"port {port} is not among tools.web.fetch.ports")
        return url.copy_with(fragment=None)

    async def _get(self, url: "httpx.URL", wanted: Callable[[str], bool], bytes_max: int) -> WebPage | str:
        import httpcore

        host, failure = host_of(url), None
        for address in await self.addresses(host, port_of(url)):
            try:
                return await self._ask(url, host, address, wanted, bytes_max)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError

    async def _ask(
        self, url: "httpx.URL", host: str, address: str, wanted: Callable[[str], bool], bytes_max: int
    ) -> WebPage | str:
        import httpcore

        headers = [
            ("Host", url.netloc.decode("ascii")),
            ("User-Agent", USER_AGENT),
            ("Accept", "text/html,application/xhtml+xml,text/*;q=0.9,application/json;q=0.9,*/*;q=0.1"),
            ("Accept-Encoding", "gzip, identity"),
        ]
        timeout = {"connect": CONNECT_SECONDS, "read": READ_SECONDS, "write": READ_SECONDS}
        # an address, not a name: nothing is looked up again
        target = httpcore.URL(scheme=url.raw_scheme, host=address.encode(), port=port_of(url), target=url.raw_path)
        named = {"timeout": timeout, "sni_hostname": host}
        async with (
            httpcore.AsyncConnectionPool(ssl_context=_certificates(), max_keepalive_connections=0) as pool,
            pool.stream("GET", target, headers=headers, extensions=named) as response,
        ):
            answered = {name.lower(): value.decode("latin-1") for name, value in response.headers}
            if response.status in REDIRECTS and (location := answered.get(b"location")):
                return location.encode("latin-1").decode(errors="replace")
            kind, _, parameters = answered.get(b"content-type", "").partition(";")
            kind, charset = kind.strip().lower(), _CHARSET.search(parameters)
            declared = answered.get(b"content-length", "")
            length = int(declared) if declared.isdecimal() and len(declared) < 16 else None
            packed = answered.get(b"content-encoding", "")
            return WebPage(
                url=str(url),
                status=response.status,
                type=kind,
                charset=charset[1].lower() if charset else "",
                length=length,
                data=await self._body(response, packed, bytes_max) if wanted(kind) else b"",
            )

    async def _body(self, response: Any, encoding: str, limit: int) -> bytes:
        encoding = encoding.strip().lower()
        if encoding not in ("", "identity", "gzip", "x-gzip"):
            raise ToolError("FETCH_FAILED", "the page is packed in a way that was not asked for")
        unpacker = _Gunzip() if "gzip" in encoding else None
        data, received = bytearray(), 0
        async for chunk in response.aiter_stream():
            received += len(chunk)
            for start in range(0, len(chunk), PIECE_BYTES):
                piece = chunk[start : start + PIECE_BYTES]
                data += unpacker.unpack(piece, limit + 1 - len(data)) if unpacker else piece
                if len(data) > limit or received > limit:
                    raise ToolError("FETCH_TOO_LARGE", f"the page is longer than {limit:,} bytes")
        if unpacker and received and not unpacker.member.eof:
            raise ToolError("FETCH_FAILED", "the packed page is damaged")
        return bytes(data)

    async def addresses(self, host: str, port: int) -> list[str]:
        """Resolve a host; all its addresses must be allowed. Raises Blocked, OSError or TimeoutError."""
        async with asyncio.timeout(RESOLVE_SECONDS):
            records = await (self.resolve or self._look_up)(host, port)
        judged = [ipaddress.ip_address(text) for text in dict.fromkeys(records)]
        if not judged:
            raise socket.gaierror("no address")
        if not all(self._may(host, port, address) for address in judged):
            raise Blocked("the host has an address that is not public (tools.web.fetch.allowPrivate)")
        return [str(address) for address in judged[:ADDRESSES_TRIED]]

    async def connect(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to one of the host's checked addresses. Raises Blocked and OSError."""
        failure = OSError()
        for address in await self.addresses(host, port):
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(address, port)
            except OSError as error:
                failure = error
        raise failure

    def _may(self, host: str, port: int, address: Address) -> bool:
        for entry in self._private:
            if isinstance(entry, tuple):
                if entry[0] == host and entry[1] in (None, port):
                    return True
            elif address in entry:
                return all(self._may(host, port, it) for it in embedded(address))
        return is_public(address)

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        records = await asyncio.get_running_loop().run_in_executor(self._lookups, look_up)
        return [str(address[0]) for *_, address in records]


def blocked(rule: str) -> ToolError:
    return ToolError("FETCH_BLOCKED", f"{rule}; nothing was fetched")


def host_of(url: "httpx.URL") -> str:
    return url.raw_host.decode("ascii").rstrip(".")


def port_of(url: "httpx.URL") -> int:
    return DEFAULT_PORTS[url.scheme] if url.port is None else url.port


class _Gunzip:
    """Decompresses the members of a gzip stream in sequence (RFC 1952, 2.2)."""

    def __init__(self) -> None:
        self.member = zlib.decompressobj(wbits=31)
        self._begun = 1

    def unpack(self, packed: bytes, most: int) -> bytearray:
        """Decompress at most this number of bytes. Raises zlib.error."""
        data = bytearray()
        while packed and len(data) < most:
            if self.member.eof:
                self._begun += 1
                if self._begun > MEMBERS_MAX:  # each costs a copy of the rest
                    raise zlib.error("too many members")
                self.member = zlib.decompressobj(wbits=31)
            data += self.member.decompress(packed, most - len(data))
            packed = self.member.unused_data
        return data


@cache
def _certificates() -> "ssl.SSLContext":
    import httpx

    return httpx.create_ssl_context(trust_env=False)
