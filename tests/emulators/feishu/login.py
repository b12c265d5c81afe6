"""Feishu's logins of people: the device flow, one-use refresh tokens, whose token it is, and what a token may do.

It refuses what Feishu refuses: a wrong `Authorization`, a poll that comes too soon, a code that was used. A refresh token
that is used twice ends the login with all its tokens. Time is the emulator's, and `pass_time` moves it.
"""

import base64
import json
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.emulators.feishu.rules import Refusal

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
USER_SCOPES = (
    *("docx:document:readonly", "docx:document:create", "wiki:node:read", "sheets:spreadsheet:read"),
    *("calendar:calendar:read", "task:task:read", "task:task:write", "offline_access"),
)
"""What the app may ask of people."""


@dataclass(kw_only=True)
class Device:
    """A login that was begun. `state` is what the person has done about it."""

    device_code: str
    user_code: str
    scopes: tuple[str, ...]
    ends: float
    interval: float
    state: str = "pending"
    person: str = ""
    polled: float = float("-inf")


@dataclass(kw_only=True)
class Issued:
    """A pair of tokens. All pairs of one login have its number."""

    login: int
    person: str
    scopes: tuple[str, ...]
    access: str
    access_ends: float
    refresh: str
    refresh_ends: float
    used: bool = False


@dataclass(kw_only=True)
class PeopleLogins:
    app_id: str
    app_secret: str
    users: Mapping[str, str]
    clock: Callable[[], float]
    scopes: set[str] = field(default_factory=lambda: set(USER_SCOPES))
    expires_in: float = 240
    interval: float = 5
    access_seconds: float = 7_200
    refresh_seconds: float = 604_800
    prefix: str = ""
    """What every token begins with behind its kind, so that a test finds one wherever it is."""
    devices: list[Device] = field(default_factory=list)
    pairs: list[Issued] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """The requests: the grant type, or `device` and `user_info`."""
    answers: list[tuple[str, int, dict[str, Any]]] = field(default_factory=list)
    """Answers to give instead of the right ones: for what was asked, the status and the body."""
    before: Callable[[str], Any] = lambda asked: None
    after: Callable[[str], Any] = lambda asked: None
    """Called before a request is looked at, which is dropped if that is awaited as true, and once it is done but not
    answered."""
    _passed: float = 0.0
    _ended: set[int] = field(default_factory=set)

    def routes(self) -> list[Route]:
        return [
            Route("/oauth/v1/device_authorization", self._answering(self._begin, "device"), methods=["POST"]),
            Route("/open-apis/authen/v2/oauth/token", self._answering(self._token), methods=["POST"]),
            Route("/open-apis/authen/v1/user_info", self._answering(self._user_info, "user_info"), methods=["GET"]),
        ]

    # what people and tests do

    def now(self) -> float:
        return self.clock() + self._passed

    def pass_time(self, seconds: float) -> None:
        self._passed += seconds

    def approve(self, user_code: str, person: str, *, scopes: Sequence[str] | None = None) -> None:
        """A person opens the link, compares the code and grants what was asked, or these scopes alone."""
        device = self._device(user_code)
        device.state, device.person = "approved", person
        if scopes is not None:
            device.scopes = tuple(scopes)

    def deny(self, user_code: str) -> None:
        self._device(user_code).state = "denied"

    def issue(self, person: str, *scopes: str) -> dict[str, Any]:
        """The answer to a finished login of that person."""
        return self._issued(len(self.pairs), person, (*scopes, "offline_access"))

    def end(self, person: str) -> None:
        """The person, or an administrator, revokes the login."""
        self._ended |= {it.login for it in self.pairs if it.person == person}

    def answer_next(self, asked: str, code: int, *, status: int = 400, **more: Any) -> None:
        self.answers.append((asked, status, {"code": code, "error_description": "refused", **more}))

    def person_of(self, token: str, scopes: Sequence[str] = ()) -> str:
        """The person whose access token it is. Raises Refusal as every call with one does."""
        pair = next((it for it in self.pairs if it.access == token), None)
        if pair is None or pair.login in self._ended:
            raise Refusal(99991668, "Invalid access token for authorization.", status=401)
        if pair.access_ends <= self.now():
            raise Refusal(99991677, "Authentication token expired.", status=401)
        if lacks := [it for it in scopes if it not in self.scopes]:
            raise Refusal(99991672, f"Access denied. One of the following scopes is required: [{', '.join(lacks)}].")
        if lacks := [it for it in scopes if it not in pair.scopes]:
            raise Refusal(99991679, f"Unauthorized. The user has not granted: [{', '.join(lacks)}].", status=401)
        return pair.person

    # the API

    def _answering(self, handler: Callable[[Request], Any], asked: str = "") -> Callable[[Request], Any]:
        async def answering(request: Request) -> Response:
            name = asked or (await _fields(request)).get("grant_type", "").rpartition(":")[2]
            self.asked.append(name)
            if await _called(self.before, name):
                return Response(status_code=503)
            given = next((it for it in self.answers if it[0] == name), None)
            if given is not None:
                self.answers.remove(given)
                return JSONResponse(given[2], status_code=given[1])
            try:
                answer: dict[str, Any] = await handler(request)
                status = 400 if "error" in answer else 200
            except Refusal as refusal:
                answer, status = {"code": refusal.code, "msg": refusal.message}, refusal.status
            await _called(self.after, name)
            return JSONResponse(answer, status_code=status)

        return answering

    async def _begin(self, request: Request) -> dict[str, Any]:
        credentials = base64.b64encode(f"{self.app_id}:{self.app_secret}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {credentials}":
            return {"error": "invalid_client", "error_description": "client authentication failed"}
        if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            return {"error": "invalid_request", "error_description": "content type"}
        fields = await _fields(request)
        if set(fields) != {"client_id", "scope"} or fields["client_id"] != self.app_id:
            return {"error": "invalid_request", "error_description": "client_id and scope"}
        scopes = tuple(fields["scope"].split())
        if not self.scopes.issuperset(scopes):
            return {"error": "invalid_scope", "error_description": "the app lacks a scope"}
        letters = secrets.token_hex(4).upper()
        device = Device(
            device_code=f"{self.prefix}d-{secrets.token_urlsafe(40)}",
            user_code=f"{letters[:4]}-{letters[4:]}",
            scopes=scopes,
            ends=self.now() + self.expires_in,
            interval=self.interval,
        )
        self.devices.append(device)
        page = "https://accounts.feishu.cn/oauth/v1/device/verify"
        return {
            "device_code": device.device_code,
            "user_code": device.user_code,
            "verification_uri": page,
            "verification_uri_complete": f"{page}?user_code={device.user_code}",
            "expires_in": self.expires_in,
            "interval": self.interval,
        }

    async def _token(self, request: Request) -> dict[str, Any]:
        fields = await _fields(request)
        if (fields.pop("client_id", ""), fields.pop("client_secret", "")) != (self.app_id, self.app_secret):
            return {"code": 20002, "error": "invalid_client"}
        match fields:
            case {"grant_type": grant, "device_code": code, **rest} if grant == DEVICE_GRANT and not rest:
                return self._polled(code)
            case {"grant_type": "refresh_token", "refresh_token": token, **rest} if not rest:
                return self._refreshed(token)
        return {"code": 20036, "error": "unsupported_grant_type"}

    def _polled(self, code: str) -> dict[str, Any]:
        device = next((it for it in self.devices if it.device_code == code), None)
        if device is None or device.state == "used":
            return {"error": "invalid_grant"}
        if device.ends <= self.now():
            return {"error": "expired_token"}
        early = self.now() - device.polled < 0.9 * device.interval
        device.polled = self.now()
        if early:
            return {"error": "slow_down"}
        match device.state:
            case "pending":
                return {"error": "authorization_pending"}
            case "denied":
                return {"error": "access_denied"}
        device.state = "used"
        return self._issued(len(self.pairs), device.person, device.scopes)

    def _refreshed(self, token: str) -> dict[str, Any]:
        pair = next((it for it in self.pairs if it.refresh and it.refresh == token), None)
        if pair is None:
            return {"code": 20026, "error": "invalid_grant"}
        if pair.login in self._ended:
            return {"code": 20064, "error": "invalid_grant"}
        if pair.used:
            self._ended.add(pair.login)
            return {"code": 20073, "error": "invalid_grant"}
        if pair.refresh_ends <= self.now():
            return {"code": 20037, "error": "invalid_grant"}
        pair.used = True
        return self._issued(pair.login, pair.person, pair.scopes)

    def _issued(self, login: int, person: str, scopes: tuple[str, ...]) -> dict[str, Any]:
        is_lasting = "offline_access" in scopes
        pair = Issued(
            login=login,
            person=person,
            scopes=scopes,
            access=f"u-{self.prefix}{secrets.token_urlsafe(40)}",
            access_ends=self.now() + self.access_seconds,
            refresh=f"ur-{self.prefix}{secrets.token_urlsafe(40)}" if is_lasting else "",
            refresh_ends=self.now() + self.refresh_seconds,
        )
        self.pairs.append(pair)
        answer = {"code": 0, "access_token": pair.access, "expires_in": self.access_seconds, "token_type": "Bearer"}
        answer |= {"scope": " ".join(scopes)}
        refresh = {"refresh_token": pair.refresh, "refresh_token_expires_in": self.refresh_seconds}
        return answer | (refresh if is_lasting else {})

    async def _user_info(self, request: Request) -> dict[str, Any]:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer":
            raise Refusal(99991661, "Missing access token for authorization.")
        person = self.person_of(token)
        data = {"open_id": person, "union_id": f"on_{person}", "name": self.users.get(person, "?"), "tenant_key": "t"}
        return {"code": 0, "msg": "success", "data": data}

    def _device(self, user_code: str) -> Device:
        return next(it for it in self.devices if it.user_code == user_code)


async def _fields(request: Request) -> dict[str, str]:
    raw = await request.body()
    if request.headers.get("content-type", "").startswith("application/json"):
        return dict(json.loads(raw))
    return dict(parse_qsl(raw.decode(), keep_blank_values=True))


async def _called(hook: Callable[[str], Any], name: str) -> bool:
    waiting = hook(name)
    return bool(await waiting) if waiting is not None else False
