"""Requests to the web chat's admission, for the tests of who comes in: headers in, the status of the answer out."""

import base64

from channels.channel import Rejected
from channels.web.admission import Admission

TOKEN = "a-token-of-sixteen-or-more"
BEGAN = 1_800_000_000.0
HERE = ("host", "127.0.0.1:8080")
AWAY = ("host", "chat.example.com")
PAGE = ("x-clawgate", "1")
BEARER = ("authorization", f"Bearer {TOKEN}")
BASIC = ("authorization", "Basic " + base64.b64encode(b"user:password").decode())


class Clock:
    def __init__(self) -> None:
        self.now = BEGAN

    def __call__(self) -> float:
        return self.now


def admission(
    *, token: str = TOKEN, here: bool = False, public: str | None = None, now: Clock | None = None
) -> Admission:
    return Admission(token=token, open_here=here, public_host=public, now=now or Clock())


def judged(door: Admission, *headers: tuple[str, str], changes: bool = False) -> int:
    """The status that a request is answered with, 200 where it comes in."""
    try:
        door.judge(headers, changes=changes)
    except Rejected as refusal:
        rejected = refusal
    else:
        return 200
    assert rejected.told
    assert TOKEN not in f"{rejected.told}{rejected.reason}"
    return rejected.status
