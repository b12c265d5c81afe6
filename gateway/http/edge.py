"""The rules for all that a browser may ask for: under which names it is answered, and what the answers say to browsers.

A name that a stranger points at this machine is not ours: its page could read what ours may. Webhooks of platforms,
metrics and health are asked for by programs under any name, and have their own secrets, or nothing to hide; a list in
`server.allowedHosts` holds for the first two as well.
"""

import re
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from channels.web.admission import COOKIE, is_loopback
from gateway.config.server import ServerConfig
from gateway.http.request import Peers, problem

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
    """Around the app of one config."""

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
                own = {name.lower() for name, _ in headers}  # what an answer says itself holds
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
    """Accepts over TLS only the session cookie that no other host of the domain can set."""
    if name != b"cookie":
        return name, value
    pairs = value.decode("latin-1").split(";")
    return name, ";".join(it for it in pairs if it.strip().partition("=")[0] != COOKIE).encode("latin-1")
