"""Who may come in: on loopback whoever sits at the machine, everybody else with the token or a session made with it.

A browser can be made to send requests by any page it shows, so what changes something must carry a header that only our
own page can set, and must not come from elsewhere; and a name that somebody points at 127.0.0.1 is not this machine's. A
session is a signed date: replicas share it, restarts do not end it, and a new token ends them all.
"""

import hmac
import ipaddress
import re
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from urllib.parse import urlsplit

from channels.channel import Rejected

COOKIE = "clawgate_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Its name over TLS: browsers then keep it from every other host and path."""
SESSION_SECONDS = 30 * 24 * 3600
PAGE_HEADER = "x-clawgate"
CLOSED = "no token is set"
WRONG_TOKENS_MAX = 20
WRONG_TOKENS_SECONDS = 60.0
ADDRESSES_MAX = 1_000

_FORWARDED = ("forwarded", "x-forwarded-", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip")
_HOST = re.compile(r"(\[[^\]]*\]|[^\[\]:/@?#]*)(?::\d*)?")

Headers = Sequence[tuple[str, str]]


class Admission:
    """`open_here`: the server can be reached from this machine only. Without that and without a token it is closed."""

    def __init__(
        self,
        *,
        token: str,
        open_here: bool,
        public_host: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._token = token.encode()
        self._open_here = open_here
        self._public_host = _bare(public_host) if public_host else None
        self._now = now
        self._wrong: dict[str, list[float]] = {}
        """When wrong tokens came, by address; who tried last stands last."""

    def judge(self, headers: Headers, *, changes: bool) -> None:
        """Let a request in. `changes`: it is not a mere GET. Raises Rejected with what the person is to do."""
        if changes:
            self.judge_origin(headers)
        else:
            self._judge_site(headers)
        if self._open_here and _is_here(headers):
            return
        if not self._token:
            told = (
                "The web chat is closed: set server.adminToken (CLAWGATE_ADMIN_TOKEN) to open it beyond this machine."
            )
            raise Rejected(CLOSED, status=403, told=told)
        if self.signed_in(headers):
            return
        scheme, _, token = (_one(headers, "authorization") or "").partition(" ")
        if scheme.lower() != "bearer":  # a proxy with a password of its own passes that on
            raise Rejected("not signed in", status=401, told="Sign in with the token of this server.")
        self.check(token)

    def judge_origin(self, headers: Headers) -> None:
        """A request that changes something comes from our own page. Raises Rejected."""
        self._judge_site(headers)
        if _one(headers, PAGE_HEADER) is None:
            raise Rejected("page header missing", status=403, told=f"The header {PAGE_HEADER}: 1 is missing.")

    def _judge_site(self, headers: Headers) -> None:
        """No page of another site asks for anything, as far as its browser says who asks: the answer would be kept from
        it, the work would not be. Raises Rejected."""
        host, origin = _bare(_one(headers, "host") or ""), _one(headers, "origin")
        ours = origin is None or (bool(place := _place(origin)) and place in (host, self._public_host))
        if not ours or _one(headers, "sec-fetch-site") not in (None, "same-origin", "none"):
            told = (
                "The request comes from another site. Behind a proxy, pass the Host header on, or set server.publicUrl."
            )
            raise Rejected("cross-site", status=403, told=told)

    def check(self, token: str, *, address: str = "") -> None:
        """Raises Rejected for a wrong token, and for any where too many wrong ones have come from that address: whoever
        tries them keeps nobody else out."""
        now = self._now()
        wrong = [at for at in self._wrong.pop(address, ()) if at > now - WRONG_TOKENS_SECONDS]
        self._wrong[address] = wrong
        if len(self._wrong) > ADDRESSES_MAX:
            del self._wrong[next(iter(self._wrong))]
        if len(wrong) >= WRONG_TOKENS_MAX:
            raise Rejected("too many wrong tokens", status=429, told="Too many wrong tokens. Try again in a minute.")
        if not self._token or not hmac.compare_digest(token.strip().encode(errors="replace"), self._token):
            wrong.append(now)
            raise Rejected("wrong token", status=401, told="That is not the token of this server.")

    def session(self) -> str:
        """The value of a session's cookie, good for `SESSION_SECONDS`."""
        ends = str(int(self._now()) + SESSION_SECONDS)
        return f"{ends}.{self._signature(ends)}"

    def signed_in(self, headers: Headers) -> bool:
        return any(self._is_session(value) for value in _cookies(headers))

    def _is_session(self, value: str) -> bool:
        ends, _, signature = value.partition(".")
        known = bool(self._token) and hmac.compare_digest(
            signature.encode(errors="replace"), self._signature(ends).encode()
        )
        return known and ends.isdecimal() and int(ends) > self._now()

    def _signature(self, ends: str) -> str:
        return hmac.new(self._token, b"clawgate web session " + ends.encode(errors="replace"), sha256).hexdigest()


def is_loopback(host: str) -> bool:
    """Whether an address to listen on, or a host's name, is this very machine."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_here(headers: Headers) -> bool:
    """Addressed to this machine by a name that nobody else can give it, and not handed on by a proxy."""
    host = _HOST.fullmatch(_one(headers, "host") or "")
    return host is not None and is_loopback(host[1]) and not any(key.startswith(_FORWARDED) for key, _ in headers)


def _place(origin: str) -> str:
    """Host and port of an origin; empty where it has none."""
    try:
        return _bare(urlsplit(origin).netloc)
    except ValueError:
        return ""


def _bare(place: str) -> str:
    """A host and port as a browser's Origin has it: without the scheme's own port."""
    return place.lower().removesuffix(":443").removesuffix(":80")


def _cookies(headers: Headers) -> list[str]:
    """Those that may be a session's. Cut by hand: the parser of the standard library gives up at a neighbour's cookie
    that is not to its taste, and with it on every one behind."""
    pairs = [pair.strip().partition("=") for key, text in headers if key == "cookie" for pair in text.split(";")]
    return [value for name, _, value in pairs if name in (SECURE_COOKIE, COOKIE)]


def _one(headers: Headers, name: str) -> str | None:
    """The header's value; of several the first."""
    return next((value for key, value in headers if key == name), None)
