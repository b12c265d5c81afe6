"""Ask a gateway over HTTP: the one that serves at an address, and whether a public address leads to it.

No secret is sent: the command line proves that it has read the config's secrets, and a public address gets no proof.
The self-watch sends a platform's URL check through the public address, with a value that only this gateway can make: it
reaches no turn, and what answers it proves to be this gateway.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Mapping
from typing import Any

import httpx

from channels.bilingual import NO_WORDS, Bilingual, Finding
from channels.channel import WebhookRequest
from channels.transport import Transport, client_class
from channels.wire import mapping

ASK_SECONDS = 5.0
_JSON = ("content-type", "application/json; charset=utf-8")
_ANOTHER = Bilingual("another gateway answers there, with another config", "在该地址应答的是另一个网关，配置也不同")


async def readiness_at(address: str, proof: str = "") -> Mapping[str, Any] | None:
    """Return the answer of `/readyz`; empty if something else answers, None if nothing does."""
    headers = {"authorization": f"Proof {proof}"} if proof else {}
    try:
        _, answer = await _get(address, "/readyz", headers)
    except httpx.HTTPError:
        return None
    return answer if mapping(answer, "config").get("version") else {}


async def wake_at(address: str, proof: str) -> bool:
    """Make the gateway at an address look for new work in its database. Return False if it did not answer."""
    try:
        async with _client(address) as client:
            response = await client.post("/wake", headers={"authorization": f"Proof {proof}"})
    except httpx.HTTPError:
        return False
    return response.status_code == 204


async def unreachable_at(public_url: str, version: str) -> Bilingual:
    """Return why a public address does not lead to a gateway with this config; empty if it does."""
    try:
        status, answer = await _get(public_url, "/readyz", {})
        if serving := mapping(answer, "config").get("version"):
            return NO_WORDS if serving == version else _ANOTHER
        # A proxy may pass only webhooks, where a gateway answers an unknown GET with 405.
        webhooks, _ = await _get(public_url, "/webhooks/-/-", {})
    except httpx.HTTPError as error:
        return _nobody(error)
    if webhooks == 405:
        return NO_WORDS
    return Bilingual(f"what answers there is no gateway (HTTP {status})", f"该地址应答的不是网关（HTTP {status}）")


_MARKED = re.compile(rb"clawgate-watch-([0-9a-f]{32})-([0-9a-f]{64})")
"""The value of our own URL check."""


def marked(proof: str, nonce: str) -> str:
    """Return a value for a URL check that only a gateway with this proof (`operator_proof`) can make."""
    return f"clawgate-watch-{nonce}-{_hmac(proof, f'asks {nonce}')}"


def recognised(proof: str, body: bytes) -> str | None:
    """Return the answer to our own URL check, by the body that answers it on its platform; None for any other body. It
    proves that this very gateway, or a replica with its config, has verified the delivery."""
    found = _MARKED.search(body) if proof else None
    if found is None or not hmac.compare_digest(found[0].decode(), marked(proof, found[1].decode())):
        return None
    return _hmac(proof, f"has verified {found[1].decode()}")


async def unverified_at(public_url: str, path: str, proof: str, check: Callable[[str], WebhookRequest]) -> Bilingual:
    """Send this gateway a URL check, through its public address. Return why it was not verified; empty if it was."""
    nonce = secrets.token_hex(16)
    delivery = check(marked(proof, nonce))
    try:
        async with _client(public_url) as client:
            response = await client.post(path, content=delivery.body, headers=[*delivery.headers, _JSON])
    except httpx.HTTPError as error:
        return _nobody(error)
    if response.text == _hmac(proof, f"has verified {nonce}"):
        return NO_WORDS
    if response.status_code == 200:
        return _ANOTHER
    status = f"HTTP {response.status_code}"
    return Bilingual(f"a signed delivery is refused there ({status})", f"该地址拒绝了带签名的推送（{status}）")


def led(server_address: str, public_url: str, reason: Bilingual) -> Finding:
    """Return the finding on a public address that does not lead here for this reason, or that does."""
    fix = Bilingual(
        f"let the name and the proxy lead to {server_address}, and try it from outside, too",
        f"请让域名和代理指向 {server_address}，并从外部再试一次",
    )
    result = reason or Bilingual("leads to this gateway", "指向此网关")
    message = Bilingual(f"{public_url}: {result}", f"{public_url}：{result.zh}")
    return Finding("publicUrl", "error" if reason else "ok", message, fix if reason else NO_WORDS)


def _hmac(proof: str, text: str) -> str:
    return hmac.new(proof.encode(), f"clawgate self-watch {text}".encode(), hashlib.sha256).hexdigest()


def _nobody(error: httpx.HTTPError) -> Bilingual:
    name = type(error).__name__
    return Bilingual(f"nobody answers there ({name})", f"该地址没有应答（{name}）")


async def _get(address: str, path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    async with _client(address) as client:
        response = await client.get(path, headers=headers)
    try:
        answer = response.json()
    except ValueError:
        answer = None
    return response.status_code, answer if isinstance(answer, dict) else {}


def _client(address: str) -> httpx.AsyncClient:
    client: httpx.AsyncClient = client_class(httpx)(
        base_url=address, transport=Transport(httpx, address), timeout=ASK_SECONDS
    )
    return client
