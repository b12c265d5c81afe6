"""Requests to the web chat's admission, for the tests of who comes in: headers in, the status of the answer out."""

import base64
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from channels.channel import Rejected
from channels.web.admission import COOKIE, Admission, Way

TOKEN = "a-token-of-sixteen-or-more"
BEGAN = 1_800_000_000.0
HERE = ("host", "127.0.0.1:8080")
AWAY = ("host", "chat.example.com")
PAGE = ("x-clawgate", "1")
BEARER = ("authorization", f"Bearer {TOKEN}")
BASIC = ("authorization", "Basic " + base64.b64encode(b"user:password").decode())

T = TypeVar("T")


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now


class KnownSessions:
    """`channels.web.admission.Sessions`, as one process remembers them."""

    def __init__(self) -> None:
        self.ends: dict[str, float] = {}
        self.looked_up = 0

    async def begin(self, key: str, *, ends: float, at: float, instead_of: Sequence[str]) -> None:
        await self.end(instead_of)
        self.ends[key] = ends

    async def end(self, keys: Sequence[str]) -> None:
        for key in keys:
            self.ends.pop(key, None)

    async def hold(self, keys: Sequence[str], at: float) -> bool:
        self.looked_up += 1
        return any(self.ends.get(key, at) > at for key in keys)


def admission(
    *,
    token: str = TOKEN,
    way: Way = "token",
    public: str | None = None,
    now: Clock | None = None,
    sessions: KnownSessions | None = None,
) -> Admission:
    sessions = sessions or KnownSessions()
    return Admission(token=token, way=way, sessions=sessions, public_host=public, now=now or Clock())


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """What a coroutine that waits for nothing returns."""
    try:
        work.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("it waits for something")


def judged(door: Admission, *headers: tuple[str, str], changes: bool = False) -> int:
    """The status that a request is answered with, 200 where it comes in."""
    try:
        at_once(door.judge(headers, changes=changes))
    except Rejected as refusal:
        rejected = refusal
    else:
        return 200
    assert rejected.sentence
    assert TOKEN not in f"{rejected.sentence}{rejected.reason}"
    return rejected.status


def session(door: Admission, *headers: tuple[str, str], token: str = TOKEN) -> tuple[str, str]:
    """The cookie of whoever signs in. Raises Rejected."""
    return ("cookie", f"{COOKIE}={at_once(door.sign_in(token, headers))}")
