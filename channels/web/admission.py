"""Authentication of the web chat: everybody on this machine while no model can run commands there, else the admin token, a
link, or a session.

An agent's command, and a tool outside the sandbox, can send requests from this machine, too. So once one is possible, or a
token is set, a local request is not enough; the gateway then prints a link at its start that signs in one browser, once.

Any page can make a browser send requests (CSRF), so a request that changes something must carry a header that only our page
can set, and must be same-origin. Foreign host names that resolve to 127.0.0.1 (DNS rebinding) are refused. A session is a
random value, stored hashed where every replica can look it up, so that signing out ends it everywhere. It is signed with
the token that started it: forged ones need no look-up, a new token ends all, and the signature identifies the owner.
"""

import hmac
import ipaddress
import re
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

from channels.channel import Rejected

COOKIE = "clawgate_session"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Name over TLS: browsers accept this prefix only from the host itself."""
SESSION_SECONDS = 30 * 24 * 3600
PAGE_HEADER = "x-clawgate"
CLOSED = "no token is set"
WRONG_TOKEN = "wrong token"
SPENT_LINK = "sign-in link used or expired"
LINK_PREFIX = "once-"
OPERATOR = "local"
"""The holder of the admin token, or a user of this machine; others are named in `server.users`."""

_FORWARDED = ("forwarded", "x-forwarded-", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip")
_HOST = re.compile(r"(\[[^\]]*\]|[^\[\]:/@?#]*)(?::\d*)?")

Headers = Sequence[tuple[str, str]]
Way: TypeAlias = Literal["open", "link", "token", "closed"]
"""`open`: everybody on this machine; `link`: by the link of the start, or by the token if set; `token`: by the token;
`closed`: nobody."""


class Sessions(Protocol):
    """Stored sessions, by the hash of their cookie. Raises what the store raises."""

    async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        """Store a session until `ends`, and end those that it replaces."""

    async def end(self, keys: Sequence[str]) -> None: ...

    async def hold(self, keys: Sequence[str], at: float) -> bool:
        """Return True if one of the sessions is active."""


@dataclass(kw_only=True)
class Admission:
    token: str = field(repr=False)
    way: Way
    sessions: Sessions
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    public_host: str | None = None
    link_seconds: float = 3600.0
    now: Callable[[], float] = time.time
    _link: tuple[str, float] | None = None
    """Hash and expiry of the unused code."""

    def __post_init__(self) -> None:
        tokens = {OPERATOR: self.token, **self.users}
        self._tokens = {person: given.encode() for person, given in tokens.items() if given}
        self._signers = self._tokens | ({OPERATOR: self.token.encode()} if self.way == "link" else {})
        """Keys that sign sessions; a link needs one without a token."""

    async def identify(self, headers: Headers, *, changes: bool) -> str:
        """Return the sender of a request. `changes`: it is not a GET. Raises Rejected with what the person should do."""
        if changes:
            self.check_origin(headers)
        else:
            self._check_site(headers)
        if self.way == "open" and _is_here(headers):
            return OPERATOR
        if self.way in ("open", "closed"):
            sentence = (
                "The web chat is closed: set server.adminToken (CLAWGATE_ADMIN_TOKEN, in .env) to open it beyond here."
            )
            raise Rejected(CLOSED, status=403, sentence=sentence)
        scheme, _, token = (_one(headers, "authorization") or "").partition(" ")
        is_ours = scheme.lower() == "bearer"  # a proxy may forward its own credentials
        if person := (is_ours and self._owner(token)) or await self.signed_in(headers):
            return person
        if is_ours:
            raise _wrong_token()
        sentence = "Sign in with the token of this server."
        if self.way == "link":
            sentence = (
                "Open the sign-in link that the gateway prints at its start (restart it for another one), or sign in with "
                "server.adminToken."
            )
        raise Rejected("not signed in", status=401, sentence=sentence)

    def check_origin(self, headers: Headers) -> None:
        """Require a request from our own page. Raises Rejected."""
        self._check_site(headers)
        if _one(headers, PAGE_HEADER) is None:
            raise Rejected("page header missing", status=403, sentence=f"The header {PAGE_HEADER}: 1 is missing.")

    def _check_site(self, headers: Headers) -> None:
        site = _one(headers, "sec-fetch-site")
        if site not in (None, "same-origin", "none") or not is_own_origin(headers, self.public_host):
            sentence = (
                "The request comes from another site. Behind a proxy, pass the Host header on, or set server.publicUrl."
            )
            raise Rejected("cross-site", status=403, sentence=sentence)

    def offer_link(self) -> str | None:
        """Return a one-time sign-in code; None if no link is offered."""
        return self.new_link() if self.way == "link" else None

    def new_link(self) -> str:
        """Create a one-time sign-in code for the operator, and revoke the previous one."""
        code = f"{LINK_PREFIX}{secrets.token_urlsafe(32)}"
        self._link = (_digest(code), self.now() + self.link_seconds)
        return code

    async def sign_in(self, token: str, headers: Headers) -> str:
        """Return a new session's cookie, valid for `SESSION_SECONDS`, and end the request's own session. Raises
        Rejected."""
        person = self._owner(token)
        link = None if person else self._use_link(token.strip())
        value = secrets.token_urlsafe(32)
        session, now = f"{value}.{_signature(self._signers[person or OPERATOR], value)}", self.now()
        replaced = [key for _, key in self._presented(headers)]
        try:
            await self.sessions.begin(_digest(session), ends=now + SESSION_SECONDS, at=now, instead_of=replaced)
        except Exception:
            self._link = link or self._link  # not used up: the sign-in failed
            raise
        return session

    def _use_link(self, code: str) -> tuple[str, float]:
        if not code.startswith(LINK_PREFIX):
            raise _wrong_token()
        link = self._link
        if link is None or link[1] <= self.now() or not hmac.compare_digest(_digest(code), link[0]):
            sentence = (
                "This sign-in link has been used or has expired. Restart the gateway for another one, or sign in with "
                "server.adminToken."
            )
            raise Rejected(SPENT_LINK, status=401, sentence=sentence, guess=True)
        self._link = None
        return link

    async def sign_out(self, headers: Headers) -> None:
        await self.sessions.end([key for _, key in self._presented(headers)])

    async def signed_in(self, headers: Headers) -> str | None:
        for person, key in self._presented(headers):
            if await self.sessions.hold([key], self.now()):
                return person
        return None

    def _presented(self, headers: Headers) -> Iterator[tuple[str, str]]:
        for value, _, signature in (cookie.partition(".") for cookie in _cookies(headers)):
            for person, token in self._signers.items():
                if hmac.compare_digest(signature.encode(errors="replace"), _signature(token, value).encode()):
                    yield person, _digest(f"{value}.{signature}")

    def _owner(self, token: str) -> str | None:
        sent = token.strip().encode(errors="replace")
        # Compare every token, to leak nothing by timing.
        owners = [person for person, known in self._tokens.items() if hmac.compare_digest(sent, known)]
        return owners[0] if owners else None


def _signature(token: bytes, value: str) -> str:
    return hmac.new(token, b"clawgate web session " + value.encode(errors="replace"), sha256).hexdigest()


def _wrong_token() -> Rejected:
    return Rejected(WRONG_TOKEN, status=401, sentence="That is not a token of this server.", guess=True)


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


def is_own_origin(headers: Headers, public_host: str | None) -> bool:
    """Return True if a request has no Origin, or that of its own host or of `public_host`."""
    ours = {_bare(_one(headers, "host") or ""), _bare(public_host or "")} - {""}
    return all(_place(origin) in ours for name, origin in headers if name == "origin")


def is_loopback(host: str) -> bool:
    """Return True if a listen address or host name is this machine."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_here(headers: Headers) -> bool:
    host = _HOST.fullmatch(_one(headers, "host") or "")
    return host is not None and is_loopback(host[1]) and not any(key.startswith(_FORWARDED) for key, _ in headers)


def _place(origin: str) -> str:
    try:
        return _bare(urlsplit(origin).netloc)
    except ValueError:
        return ""


def _bare(place: str) -> str:
    return place.lower().removesuffix(":443").removesuffix(":80")


def _cookies(headers: Headers) -> list[str]:
    # The standard library's parser stops at the first malformed cookie.
    pairs = [pair.strip().partition("=") for key, text in headers if key == "cookie" for pair in text.split(";")]
    return [value for name, _, value in pairs if name in (SECURE_COOKIE, COOKIE)]


def _one(headers: Headers, name: str) -> str | None:
    return next((value for key, value in headers if key == name), None)
