"""The login of a person at Feishu: the device flow of RFC 8628, the refresh of tokens, and whose token it is.

No redirect address is needed, so it works where the gateway has no public address. A refresh token works once: a request
for a refresh is made once, and a lost answer loses the login. Source: the open platform's pages on `authen/v2/oauth/token`
and `authen/v1/user_info`; the device flow as the official command line uses it (2026).
"""

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import httpx
import orjson
import structlog

from channels.channel import Unreachable
from channels.download import request
from channels.feishu.config import FeishuAccount
from channels.login import DeviceLogin, LoginFailed, LoginReason, TokenOwner, Tokens
from channels.transport import Transport, client_class
from channels.wire import mapping, scalar, text

DEVICE_PATH = "/oauth/v1/device_authorization"
TOKEN_PATH = "/open-apis/authen/v2/oauth/token"
PERSON_PATH = "/open-apis/authen/v1/user_info"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
OFFLINE = "offline_access"
"""The scope without which there is no refresh token."""
SECONDS_DEFAULT, INTERVAL_SECONDS = 240.0, 5.0
"""Defaults for an answer that leaves them out, as in RFC 8628 and Feishu's own."""
_REASONS: Mapping[str, LoginReason] = {
    "authorization_pending": "pending",
    "slow_down": "slow_down",
    "access_denied": "denied",
    "expired_token": "expired",
    "invalid_grant": "lost",
    "invalid_scope": "app_lacks",
    "20050": "busy",
    "20026": "ended",
    "20037": "ended",
    "20064": "ended",
    "20073": "ended",
    "99991668": "ended",
    "99991677": "ended",
    "99991672": "app_lacks",
    "20010": "barred",
    "21000": "policy",
    "21001": "policy",
}
"""Keys are OAuth errors and Feishu's codes."""
log = structlog.get_logger()


class FeishuLogin:
    """The logins at one app."""

    def __init__(self, account: FeishuAccount) -> None:
        self._account = account
        self.scopes: Sequence[str] = account.login.scopes
        self.seconds = account.timeout_seconds
        self._open = account.base_url.rstrip("/")
        self._accounts = accounts_url(account.base_url)
        self._clients: dict[str, Any] = {}

    async def begin(self, scopes: Sequence[str]) -> DeviceLogin:
        credentials = f"{self._account.app_id}:{self._secret}".encode()
        headers = {"authorization": "Basic " + base64.b64encode(credentials).decode()}
        wanted = " ".join(dict.fromkeys((*scopes, OFFLINE)))
        form = {"client_id": self._account.app_id, "scope": wanted}
        answer = await self._post(self._accounts, DEVICE_PATH, form, headers)
        url = text(answer, "verification_uri_complete") or text(answer, "verification_uri")
        if not text(answer, "device_code") or not is_page(url):
            raise Unreachable("Feishu's answer to a login has no code or no page")
        return DeviceLogin(
            device_code=text(answer, "device_code"),
            user_code=text(answer, "user_code"),
            url=url,
            seconds=_seconds(answer, "expires_in") or SECONDS_DEFAULT,
            interval_seconds=_seconds(answer, "interval") or INTERVAL_SECONDS,
        )

    async def poll(self, device_code: str) -> Tokens:
        return await self._tokens({"grant_type": DEVICE_GRANT, "device_code": device_code})

    async def refresh(self, refresh_token: str) -> Tokens:
        return await self._tokens({"grant_type": "refresh_token", "refresh_token": refresh_token})

    async def owner(self, access_token: str) -> TokenOwner:
        headers = {"authorization": f"Bearer {access_token}"}
        data = mapping(await self._ask("GET", self._open, PERSON_PATH, headers=headers), "data")
        if not text(data, "open_id"):
            raise Unreachable("Feishu's answer does not say whose token it is")
        return TokenOwner(id=text(data, "open_id"), name=text(data, "name"))

    def grant_link(self, scopes: Sequence[str]) -> str:
        wanted = quote(",".join(scopes), safe=",:")
        return f"{self._open}/app/{self._account.app_id}/auth?q={wanted}&op_from=openapi&token_type=user"

    async def close(self) -> None:
        for client in self._clients.values():
            await client.aclose()

    @property
    def _secret(self) -> str:
        return self._account.app_secret.get_secret_value()

    async def _tokens(self, form: Mapping[str, str]) -> Tokens:
        credentials = {"client_id": self._account.app_id, "client_secret": self._secret}
        answer = await self._post(self._open, TOKEN_PATH, {**form, **credentials})
        access, seconds = text(answer, "access_token"), _seconds(answer, "expires_in")
        if not access or not seconds:
            raise Unreachable("Feishu's answer has no access token")
        return Tokens(
            access=access,
            access_seconds=seconds,
            refresh=text(answer, "refresh_token"),
            refresh_seconds=_seconds(answer, "refresh_token_expires_in"),
            scopes=tuple(text(answer, "scope").split()),
        )

    async def _post(
        self, base: str, path: str, form: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        answer = await self._ask("POST", base, path, data=dict(form), headers=dict(headers or {}))
        return mapping(answer, "data") or answer  # some deployments wrap it

    async def _ask(self, method: str, base: str, path: str, **sent: Any) -> Mapping[str, Any]:
        if base not in self._clients:
            self._clients[base] = client_class(httpx)(base_url=base, transport=Transport(httpx, base))
        response = await request(
            self._clients[base], method, path, seconds=self.seconds, platform="Feishu", follow_redirects=False, **sent
        )
        return _answer(response.status_code, response.content, path)


def accounts_url(base_url: str) -> str:
    """Return the address where logins begin: the open platform's with `accounts.` for `open.`, else the same."""
    parts = urlsplit(base_url)
    host = re.sub(r"^open\.", "accounts.", parts.netloc)
    return urlunsplit(parts._replace(netloc=host)).rstrip("/")


def is_page(url: str) -> bool:
    """Return True for an address that may be put under a button."""
    return url.startswith(("https://", "http://")) and url.isprintable() and not set(url) & set(' "<>()`')


def _seconds(answer: Mapping[str, Any], key: str) -> float:
    value = answer.get(key)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and value > 0 else 0.0


def _answer(status: int, content: bytes, path: str) -> Mapping[str, Any]:
    """Return a successful answer. The platform's own texts are dropped: they may repeat what was sent."""
    try:
        answer = orjson.loads(content)
    except orjson.JSONDecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise Unreachable(f"Feishu's answer cannot be read (HTTP {status})")
    code, error = scalar(answer, "code"), text(answer, "error")
    if status < 400 and code in ("", "0") and not error:
        return answer
    reason = _REASONS.get(code) or _REASONS.get(error) or "refused"
    if reason == "refused" and status >= 500:
        raise Unreachable(f"Feishu is busy (HTTP {status})", code=code)
    if reason not in ("pending", "slow_down"):
        log.info("feishu_login_refused", path=path, status=status, code=code, error=error[:40], reason=reason)
    link = text(mapping(answer, "data"), "challenge_url") or text(answer, "challenge_url")
    raise LoginFailed(reason, code if code not in ("", "0") else error[:40], link if is_page(link) else "")
