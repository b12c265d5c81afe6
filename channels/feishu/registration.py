"""Create a Feishu app by one scan: the device flow of the open platform's app registration.

`begin` returns a link for a QR code. The person who opens it in Feishu confirms a new app, which has a bot, its scopes and
the long connection. `wait` polls until the platform hands out the app's id and secret, and names the person by the open id
that they have in this app. Registration always begins at Feishu, also for Lark. Source: the open platform's own command
line, and protocol notes on `oauth/v1/app/registration` (2026).
"""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

import httpx
import orjson

from channels.channel import DeliveryError, Refused, Unreachable
from channels.download import request
from channels.feishu.login import accounts_url
from channels.registration import EndReason, NewApp, PendingRegistration, RegistrationEnded
from channels.transport import Transport, client_class
from channels.wire import mapping

FEISHU_URL = "https://open.feishu.cn"
LARK_URL = "https://open.larksuite.com"
PATH = "/oauth/v1/app/registration"
CALL_SECONDS = 10.0
SLOWER_SECONDS = 5.0
"""Added to the polling interval on `slow_down` (RFC 8628, section 3.5)."""
INTERVAL_SECONDS_MAX = 60.0
EXPIRES_SECONDS_MAX = 3600.0
_FORM = {"content-type": "application/x-www-form-urlencoded"}
_BEGIN = {
    "action": "begin",
    "archetype": "PersonalAgent",
    "auth_method": "client_secret",
    "request_user_info": "open_id tenant_brand",
}
_USER_CODE = re.compile(r"[A-Za-z0-9-]{4,32}")
_APP_ID = re.compile(r"cli_[A-Za-z0-9]{4,64}")
_SECRET = re.compile(r"[A-Za-z0-9._-]{8,128}")
_OPEN_ID = re.compile(r"ou_[A-Za-z0-9]{4,64}")

_ENDS: Mapping[str, EndReason] = {"access_denied": "denied", "expired_token": "expired", "invalid_grant": "expired"}


class AppRegistration:
    """One registration at the open platform of `base_url`; an app of a Lark tenant is handed out at `lark_url`."""

    def __init__(self, base_url: str = "", lark_url: str = LARK_URL) -> None:
        self._base_url = (base_url or FEISHU_URL).rstrip("/")
        self._lark_url = lark_url

    async def begin(self) -> PendingRegistration:
        answer = await _ask(accounts_url(self._base_url), _BEGIN)
        device_code, user_code = answer.get("device_code"), answer.get("user_code")
        if not (isinstance(device_code, str) and device_code and isinstance(user_code, str)):
            raise _refusal(answer)
        if not _USER_CODE.fullmatch(user_code):
            raise Refused("Feishu's answer to a registration cannot be read")
        return PendingRegistration(
            link=f"{self._base_url}/page/cli?{urlencode({'user_code': user_code})}",
            seconds=min(_number(answer, "expires_in", 300.0), EXPIRES_SECONDS_MAX),
            interval_seconds=min(_number(answer, "interval", 5.0), INTERVAL_SECONDS_MAX),
            device_code=device_code,
        )

    async def wait(self, pending: PendingRegistration) -> NewApp:
        """Poll until a user has confirmed the app. Raises RegistrationEnded, or DeliveryError for a broken answer.
        An unreachable platform is polled again until the registration expires."""
        until, interval = time.monotonic() + pending.seconds, pending.interval_seconds
        base_url = self._base_url
        while (left := until - time.monotonic()) > 0:
            await asyncio.sleep(min(interval, left))
            try:
                answer = await _ask(accounts_url(base_url), {"action": "poll", "device_code": pending.device_code})
            except Unreachable:
                continue
            error = answer.get("error")
            if error == "slow_down":
                interval = min(interval + SLOWER_SECONDS, INTERVAL_SECONDS_MAX)
            elif error == "authorization_pending":
                continue
            elif error:
                raise RegistrationEnded(_ENDS.get(str(error), "refused"))
            elif not answer.get("client_secret") and _brand(answer) == "lark" and base_url != self._lark_url:
                base_url = self._lark_url
            else:
                return _app(answer, self._lark_url if _brand(answer) == "lark" else self._base_url)
        raise RegistrationEnded("expired")


async def _ask(accounts: str, form: Mapping[str, str]) -> Mapping[str, Any]:
    client = client_class(httpx)(base_url=accounts, transport=Transport(httpx, accounts))
    try:
        content = urlencode(form).encode()
        response = await request(
            client, "POST", PATH, seconds=CALL_SECONDS, platform="Feishu", content=content, headers=_FORM
        )
    finally:
        await client.aclose()
    try:
        answer = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        answer = None
    if response.status_code >= 500 or not isinstance(answer, dict):
        raise Unreachable(f"Feishu's answer cannot be read (HTTP {response.status_code})")
    return answer


def _app(answer: Mapping[str, Any], base_url: str) -> NewApp:
    app_id, secret = str(answer.get("client_id", "")), str(answer.get("client_secret", ""))
    open_id = str(mapping(answer, "user_info").get("open_id", ""))
    if not (_APP_ID.fullmatch(app_id) and _SECRET.fullmatch(secret) and _OPEN_ID.fullmatch(open_id)):
        raise Refused("Feishu's answer to a registration cannot be read")
    variables = {"FEISHU_APP_ID": app_id, "FEISHU_APP_SECRET": secret}
    variables |= {"FEISHU_BASE_URL": LARK_URL} if base_url == LARK_URL else {}
    return NewApp(app_id=app_id, scanned_by=open_id, base_url=base_url, variables=variables)


def _brand(answer: Mapping[str, Any]) -> str:
    return str(mapping(answer, "user_info").get("tenant_brand", ""))


def _number(answer: Mapping[str, Any], key: str, default: float) -> float:
    value = answer.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else default


def _refusal(answer: Mapping[str, Any]) -> DeliveryError:
    code = str(answer.get("error") or answer.get("code") or "unknown")[:40]
    return Refused(f"Feishu refused the registration ({code})", code=code)
