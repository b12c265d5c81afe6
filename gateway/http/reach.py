"""Ask a gateway over HTTP: the one that serves at an address, and whether a public address leads to it.

No secret is sent: the command line proves that it has read the config's secrets, and a public address gets no proof.
"""

from collections.abc import Mapping
from typing import Any

import httpx

from channels.bilingual import NO_WORDS, Bilingual
from channels.transport import Transport, client_class
from channels.wire import mapping

ASK_SECONDS = 5.0
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
        name = type(error).__name__
        return Bilingual(f"nobody answers there ({name})", f"该地址没有应答（{name}）")
    if webhooks == 405:
        return NO_WORDS
    return Bilingual(f"what answers there is no gateway (HTTP {status})", f"该地址应答的不是网关（HTTP {status}）")


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
