"""App registration by one scan, as strict as the platform: form bodies, one-use device codes, and a pace of polling."""

import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

PATH = "/oauth/v1/app/registration"
BEGIN = {
    "action": "begin",
    "archetype": "PersonalAgent",
    "auth_method": "client_secret",
    "request_user_info": "open_id tenant_brand",
}


@dataclass(kw_only=True)
class PendingApp:
    user_code: str
    ends: float
    polled: float
    error: str = "authorization_pending"
    app: Mapping[str, Any] | None = None


@dataclass(kw_only=True)
class AppRegistrations:
    """The registrations of an emulated platform. A test confirms or ends the newest one."""

    interval_seconds: int = 1
    expires_seconds: int = 300
    closed: bool = False
    """The platform takes no registrations."""
    is_lark: bool = False
    """This host is Lark's: only it hands out the secret of a Lark tenant's app."""
    pending: dict[str, PendingApp] = field(default_factory=dict)
    polls: int = 0
    refusals: list[str] = field(default_factory=list)

    def routes(self) -> list[BaseRoute]:
        return [Route(PATH, self._answer, methods=["POST"])]

    @property
    def link_code(self) -> str:
        return self._newest.user_code

    def confirm(self, app_id: str, app_secret: str, open_id: str, *, brand: str = "feishu") -> None:
        user = {"open_id": open_id, "tenant_brand": brand}
        self._newest.app = {"client_id": app_id, "client_secret": app_secret, "user_info": user}

    def end(self, error: str) -> None:
        self._newest.error = error

    @property
    def _newest(self) -> PendingApp:
        return list(self.pending.values())[-1]

    async def _answer(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode(), strict_parsing=True))
        if request.headers.get("content-type") != "application/x-www-form-urlencoded":
            return self._refused("invalid_request")
        if form.get("action") == "poll":
            return self._poll(form)
        if form != BEGIN or self.closed:
            return self._refused("invalid_request")
        device_code, user_code = secrets.token_urlsafe(32), f"{secrets.token_hex(2)}-{secrets.token_hex(2)}".upper()
        now = time.monotonic()
        self.pending[device_code] = PendingApp(user_code=user_code, ends=now + self.expires_seconds, polled=now)
        return JSONResponse(
            {
                "device_code": device_code,
                "user_code": user_code,
                "verification_uri": "https://open.feishu.cn/page/cli",
                "expires_in": self.expires_seconds,
                "interval": self.interval_seconds,
            }
        )

    def _poll(self, form: Mapping[str, str]) -> Response:
        self.polls += 1
        known = self.pending.get(form.get("device_code", ""))
        if known is None or form.keys() != {"action", "device_code"}:
            return self._refused("invalid_grant")
        now = time.monotonic()
        is_early, known.polled = now - known.polled < 0.9 * self.interval_seconds, now
        if now >= known.ends:
            return self._refused("expired_token")
        if is_early:
            return self._refused("slow_down")
        if known.app is None:
            return JSONResponse({"error": known.error}, status_code=400)
        if known.app["user_info"]["tenant_brand"] == "lark" and not self.is_lark:
            return JSONResponse({**known.app, "client_secret": ""})
        del self.pending[form["device_code"]]
        return JSONResponse(known.app)

    def _refused(self, error: str) -> Response:
        self.refusals.append(error)
        return JSONResponse({"error": error, "error_description": error}, status_code=400)
