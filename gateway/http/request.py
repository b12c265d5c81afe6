"""Shared parts of the HTTP doors: the peer of a request, the rate limit on wrong secrets, and error responses.

Forwarding headers count only on connections from `server.trustedProxies`; from others they are untrusted. They decide
limits and the Secure flag of cookies, never an identity.

Only wrong secrets are counted, so the right one always passes, even while others at the same address guess. A token is safe
by its length; the limit keeps guesses out of the log and slows a misconfigured client down.

`Edge` protects against DNS rebinding: a request for a host name that is not configured is refused.
"""

import ipaddress
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import urlsplit

import orjson
import structlog
from fastapi import Request, Response
from pydantic import BaseModel, ValidationError
from starlette import routing
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from channels.channel import Rejected
from channels.web.admission import CLOSED, COOKIE, SPENT_LINK, WRONG_TOKEN, is_loopback
from gateway.config.server import ServerConfig
from gateway.http.bodies import Bodies, Unreadable
from gateway.store.errors import DatabaseFault, StoreUnavailable, outage_of

log = structlog.get_logger()

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

ACCEPT_SECONDS = 2.0
"""Timeout for storing a message. Feishu waits 3 seconds for the response, GitHub 10; after that it must redeliver."""
WINDOW_SECONDS = 60.0
ADDRESSES_MAX = 1_000
"""Maximum networks remembered; beyond that, the least recent one is dropped."""
_IPV6_PREFIX = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class Peer:
    """`address` is an IP address, or "" if the connection has none; `secure` is True if the client connected over TLS."""

    address: str
    secure: bool


class Peers:
    """Find the client of a request. `trusted` has addresses and networks, as in `server.trustedProxies`."""

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted: tuple[Network, ...] = tuple(ipaddress.ip_network(it, strict=False) for it in trusted)

    def of(self, scope: Any) -> Peer:
        client = scope.get("client")
        address = client[0] if client else ""
        secure = scope.get("scheme") == "https"
        if not self.trusts(address):
            return Peer(address=address, secure=secure)
        forwarded = [value for name, value in scope["headers"] if name == b"x-forwarded-for"]
        protocols = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
        hops = b",".join(forwarded).decode("latin-1").split(",")
        return Peer(
            address=self._nearest_stranger([hop.strip() for hop in hops], address),
            secure=protocols[-1].strip().lower() == b"https" if protocols else secure,
        )

    def _nearest_stranger(self, hops: Sequence[str], nearest: str) -> str:
        # Skip trusted proxies from the end; everything before the first other hop can be forged.
        for hop in reversed(hops):
            try:
                nearest = str(ipaddress.ip_address(hop.strip("[]")))
            except ValueError:
                return nearest
            if not self.trusts(nearest):
                return nearest
        return nearest

    def trusts(self, address: str) -> bool:
        parsed = _parsed(address) if self._trusted else None
        return parsed is not None and any(parsed in network for network in self._trusted)


@dataclass(eq=False)
class Guesses:
    """Rate limit on wrong secrets: `per_minute` per network are answered normally, further ones with 429."""

    peers: Peers
    per_minute: int
    now: Callable[[], float]
    _wrong: dict[str, list[float]] = field(default_factory=dict)
    """Times of wrong secrets by network, least recent guess first."""

    def wait(self, scope: Any) -> int:
        """Count a wrong secret. Return the seconds that its sender must wait, or 0."""
        now, address = self.now(), network_of(self.peers.of(scope).address)
        wrong = [at for at in self._wrong.pop(address, ()) if at > now - WINDOW_SECONDS]
        self._wrong[address] = wrong
        if len(self._wrong) > ADDRESSES_MAX:
            del self._wrong[next(iter(self._wrong))]
        if len(wrong) >= self.per_minute:
            return max(1, math.ceil(wrong[0] + WINDOW_SECONDS - now))
        wrong.append(now)
        return 0


def network_of(address: str) -> str:
    """Return the network that counts as one sender: an IPv4 address, or the IPv6 prefix of one customer."""
    parsed = _parsed(address)
    if parsed is None or parsed.version == 4:
        return str(parsed or address)
    return str(ipaddress.ip_network((parsed, _IPV6_PREFIX), strict=False))


def _parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return None
    return getattr(parsed, "ipv4_mapped", None) or parsed


class Unserved(Exception):
    """Error response: status, code and sentence."""


JSON_BYTES_MAX = 16_384
JSON_SECONDS = 10.0
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")

_CODES = {CLOSED: "closed", WRONG_TOKEN: "wrong-token", SPENT_LINK: "link-spent"}
_STATUS_CODES = {401: "signed-out", 403: "forbidden"}

Route = Callable[[Request], Awaitable[Response]]
PersonRoute = Callable[[Request, str], Awaitable[Response]]
"""A route for an admitted request and its person."""
T = TypeVar("T", bound=BaseModel)


def catch_errors(route: Route, guesses: Guesses) -> Route:
    """Turn exceptions into JSON errors that the page can show."""

    async def answer(request: Request) -> Response:
        try:
            return await route(request)
        except Rejected as rejected:
            if rejected.guess and (wait := guesses.wait(request.scope)):
                return too_many(wait)
            code = _CODES.get(rejected.reason) or _STATUS_CODES.get(rejected.status, "refused")
            if rejected.guess:
                log.warning("token_refused", reason=rejected.reason)
            return problem(rejected.status, code, rejected.sentence)
        except Unserved as unserved:
            return problem(*unserved.args)
        except Unreadable as unreadable:
            return unread(unreadable)
        except StoreUnavailable as error:
            log.error("web_unavailable", error=repr(error))
            return unavailable(error.fault)

    return answer


def served(path: str, route: Route, *methods: str) -> routing.Route:
    """Build a Starlette route for exactly these methods. FastAPI's signature analysis would cost 0.5 ms per route at
    start."""
    found = routing.Route(path, route, methods=methods)
    found.methods = set(methods)  # Starlette adds HEAD to GET
    return found


def id_in_path(request: Request, parameter: str) -> str:
    """Return an id from the path, or "" if malformed: not every database accepts any text in a query."""
    value: str = request.path_params[parameter]
    return value if _ID.fullmatch(value) else ""


def number_of(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 18 else None


async def read_json(request: Request, model: type[T], bodies: Bodies) -> T:
    """Parse the JSON body. Require its content type, which a form of another site cannot send. Raises Unreadable."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Unreadable(415, "expected content-type: application/json")
    body = await bodies.read(request, bytes_max=JSON_BYTES_MAX, seconds=JSON_SECONDS)
    try:
        return model.model_validate_json(body)
    except ValidationError:
        raise Unreadable(400, f"expected JSON with {', '.join(model.model_fields)}") from None


def answer_json(content: Mapping[str, Any], status: int = 200, **headers: str) -> Response:
    headers |= {"cache-control": "no-store"}
    return Response(orjson.dumps(content), status, headers, media_type="application/json")


def too_many(wait_seconds: int) -> Response:
    sentence = (
        f"Too many wrong tokens from this address. A right one passes; a wrong one is looked at in {wait_seconds} s."
    )
    return problem(429, "too-many-attempts", sentence, retry_seconds=wait_seconds)


def unread(unreadable: Unreadable) -> Response:
    return problem(unreadable.status, "unreadable", f"The request could not be read: {unreadable.reason}.")


def unavailable(fault: DatabaseFault) -> Response:
    """Build the 503 for a database outage, in both languages and without any path."""
    reason = outage_of(fault, "").sentence
    return answer_json({"error": reason.en, "zh": reason.zh, "code": "unavailable", "cause": fault}, 503)


def problem(status: int, code: str, sentence: str, *, retry_seconds: int | None = None) -> Response:
    retry = {} if retry_seconds is None else {"retry-after": str(retry_seconds)}
    return answer_json({"error": sentence, "code": code}, status, **retry)


HEADERS = {
    "content-security-policy": (
        "default-src 'self'; img-src 'self' blob: data:; object-src 'none'; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_RAW = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_TLS_ONLY = [(b"strict-transport-security", b"max-age=31536000")]
_HOST = re.compile(r"(\[[0-9a-f:.]*\]|[^\[\]:/@?#\\\s,]+)(?::\d{1,5})?")


class Edge:
    def __init__(self, app: ASGIApp, config: ServerConfig, peers: Peers) -> None:
        self._app = app
        self._peers = peers
        self._public = urlsplit(config.public_url or "")
        self._named = bool(config.allowed_hosts)
        self._hosts = {host.lower() for host in (*config.allowed_hosts, self._public.hostname or "")} - {""}
        if not self._named:
            self._hosts |= {config.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        for_programs = (
            path == "/metrics"
            or path.startswith("/hooks/")
            or (path.startswith("/webhooks/") and not path.startswith("/webhooks/web/"))
        )
        if path in ("/healthz", "/readyz", "/wake") or (for_programs and not self._named):
            return await self._app(scope, receive, send)
        if secure := self._public.scheme == "https" or self._peers.of(scope).secure:
            scope["headers"] = [_bound(name, value) for name, value in scope["headers"]]

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = list(message["headers"])
                own = {name.lower() for name, _ in headers}  # headers that the response sets itself win
                message["headers"] = headers + [it for it in (_RAW + _TLS_ONLY if secure else _RAW) if it[0] not in own]
            await send(message)

        if self._is_ours([value for name, value in scope["headers"] if name == b"host"]):
            return await self._app(scope, receive, with_headers)
        sentence = (
            "This server is not known under that name. Name it in server.allowedHosts or server.publicUrl; behind a "
            "proxy, pass the Host header on."
        )
        return await problem(403, "unknown-host", sentence)(scope, receive, with_headers)

    def _is_ours(self, names: list[bytes]) -> bool:
        match = _HOST.fullmatch(names[0].decode("latin-1").lower()) if len(names) == 1 else None
        if match is None:
            return False
        host = match[1].strip("[]").rstrip(".")
        if host in self._hosts or "*" in self._hosts or (not self._named and is_loopback(host)):
            return True
        return any(ours.startswith("*.") and host.endswith(ours[1:]) for ours in self._hosts)


def _bound(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Drop, over TLS, the session cookie that another host of the domain could set."""
    if name != b"cookie":
        return name, value
    pairs = value.decode("latin-1").split(";")
    return name, ";".join(it for it in pairs if it.strip().partition("=")[0] != COOKIE).encode("latin-1")
