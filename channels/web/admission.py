"""The people who may come in: all at this machine while nothing a model drives is there, else those with the token, a
link, or a session.

A command of an agent, and a tool outside of the sandbox, send requests from this machine, too. So as soon as there may be
one, or a token is set, being at this machine is not enough; the gateway then prints a link at its start, which signs in
one browser, once.

A browser can be made to send requests by any page it shows, so what changes something must carry a header that only our
own page can set, and must not come from elsewhere; and a name that a stranger points at 127.0.0.1 is not this
machine's. A session is a random value, kept hashed where every replica looks it up, so that signing out ends it
everywhere; it is signed with the token that began it, so that nonsense costs no look-up, a new token ends them all, and
the signature tells its owner.
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
"""Its name over TLS: browsers then keep it from every other host and path."""
SESSION_SECONDS = 30 * 24 * 3600
PAGE_HEADER = "x-clawgate"
CLOSED = "no token is set"
WRONG_TOKEN = "wrong token"
SPENT_LINK = "sign-in link used or expired"
LINK_PREFIX = "once-"
OPERATOR = "local"
"""The person who has the admin token, or sits at this machine; everybody else is called as in `server.users`."""

_FORWARDED = ("forwarded", "x-forwarded-", "x-real-ip", "via", "cf-connecting-ip", "true-client-ip")
_HOST = re.compile(r"(\[[^\]]*\]|[^\[\]:/@?#]*)(?::\d*)?")

Headers = Sequence[tuple[str, str]]
Way: TypeAlias = Literal["open", "link", "token", "closed"]
"""`open`: all people at this machine; `link`: those who open the link of the start, or have the token if one is set;
`token`: those who have it; `closed`: no one."""


class Sessions(Protocol):
    """The sessions there are, by the hash of their cookie. Raises what the store raises."""

    async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        """Keeps a session until `ends`, and ends those that it replaces."""

    async def end(self, keys: Sequence[str]) -> None: ...

    async def hold(self, keys: Sequence[str], at: float) -> bool:
        """True if one of them has begun and not ended."""


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
    """The hash of the code that has yet to be used, and when it expires."""

    def __post_init__(self) -> None:
        tokens = {OPERATOR: self.token, **self.users}
        self._tokens = {person: given.encode() for person, given in tokens.items() if given}
        self._signers = self._tokens | ({OPERATOR: self.token.encode()} if self.way == "link" else {})
        """The keys that sessions are signed with: a person who came by the link has no token."""

    async def identify(self, headers: Headers, *, changes: bool) -> str:
        """The sender of a request. `changes`: it is not a mere GET. Raises Rejected with what the person is to do."""
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
        is_ours = scheme.lower() == "bearer"  # a proxy with a password of its own passes that on
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
        """A request that changes something comes from our own page. Raises Rejected."""
        self._check_site(headers)
        if _one(headers, PAGE_HEADER) is None:
            raise Rejected("page header missing", status=403, sentence=f"The header {PAGE_HEADER}: 1 is missing.")

    def _check_site(self, headers: Headers) -> None:
        """No page of another site asks for anything, as far as its browser says who asks: the answer would be kept from
        it, the work would not be. Raises Rejected."""
        site = _one(headers, "sec-fetch-site")
        if site not in (None, "same-origin", "none") or not is_own_origin(headers, self.public_host):
            sentence = (
                "The request comes from another site. Behind a proxy, pass the Host header on, or set server.publicUrl."
            )
            raise Rejected("cross-site", status=403, sentence=sentence)

    def offer_link(self) -> str | None:
        """A code that signs in once, as if it were the token; None if no link is offered."""
        return self.new_link() if self.way == "link" else None

    def new_link(self) -> str:
        """Make a code that signs in once, as the operator. The one before it is void."""
        code = f"{LINK_PREFIX}{secrets.token_urlsafe(32)}"
        self._link = (_digest(code), self.now() + self.link_seconds)
        return code

    async def sign_in(self, token: str, headers: Headers) -> str:
        """A new session's cookie, good for `SESSION_SECONDS`; the request's own session ends. Raises Rejected."""
        person = self._owner(token)
        link = None if person else self._use_link(token.strip())
        value = secrets.token_urlsafe(32)
        session, now = f"{value}.{_signature(self._signers[person or OPERATOR], value)}", self.now()
        replaced = [key for _, key in self._presented(headers)]
        try:
            await self.sessions.begin(_digest(session), ends=now + SESSION_SECONDS, at=now, instead_of=replaced)
        except Exception:
            self._link = link or self._link  # it signed in no one
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
        """The owner of the token; every token is compared, so that the time tells nothing."""
        sent = token.strip().encode(errors="replace")
        owners = [person for person, known in self._tokens.items() if hmac.compare_digest(sent, known)]
        return owners[0] if owners else None


def _signature(token: bytes, value: str) -> str:
    return hmac.new(token, b"clawgate web session " + value.encode(errors="replace"), sha256).hexdigest()


def _wrong_token() -> Rejected:
    return Rejected(WRONG_TOKEN, status=401, sentence="That is not a token of this server.", guess=True)


def _digest(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()


def is_own_origin(headers: Headers, public_host: str | None) -> bool:
    """Return True if a request has no Origin, or that of the host that it asks, or of `public_host`."""
    ours = {_bare(_one(headers, "host") or ""), _bare(public_host or "")} - {""}
    return all(_place(origin) in ours for name, origin in headers if name == "origin")


def is_loopback(host: str) -> bool:
    """True if an address to listen on, or a host's name, is this very machine."""
    host = host.strip("[]").rstrip(".").lower()
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _is_here(headers: Headers) -> bool:
    """True if the request is addressed to this machine by a name that no stranger can give it, and did not pass a proxy."""
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
    """The cookies that may be a session's. Cut by hand: the parser of the standard library gives up at a neighbour's cookie
    that is not to its taste, and with it on every one behind."""
    pairs = [pair.strip().partition("=") for key, text in headers if key == "cookie" for pair in text.split(";")]
    return [value for name, _, value in pairs if name in (SECURE_COOKIE, COOKIE)]


def _one(headers: Headers, name: str) -> str | None:
    """The header's value; of several the first."""
    return next((value for key, value in headers if key == name), None)
