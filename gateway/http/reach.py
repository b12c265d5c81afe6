"""The gateway as others find it, asked over HTTP: the one that serves at an address, and whether a public address leads
to it.

Nothing secret is sent: the command line proves that it has read the config's secrets, and a public address gets nothing.
"""

from collections.abc import Mapping
from typing import Any

import httpx

from channels.transport import Transport, client_class
from channels.wire import mapping

ASK_SECONDS = 5.0


async def readiness_at(address: str, proof: str = "") -> Mapping[str, Any] | None:
    """The answer of `/readyz`; empty if something else answers, None if nobody does."""
    headers = {"authorization": f"Proof {proof}"} if proof else {}
    try:
        _, answer = await _get(address, "/readyz", headers)
    except httpx.HTTPError:
        return None
    return answer if mapping(answer, "config").get("version") else {}


async def unreachable_at(public_url: str, version: str) -> str:
    """The reason why deliveries to a public address do not come to a gateway with this config; empty if they do."""
    try:
        status, answer = await _get(public_url, "/readyz", {})
        if found := mapping(answer, "config").get("version"):
            return "" if found == version else "another gateway answers there, with another config"
        # A proxy may let the webhooks alone through: there a gateway answers a GET with 405, whoever asks.
        webhooks, _ = await _get(public_url, "/webhooks/-/-", {})
    except httpx.HTTPError as error:
        return f"nobody answers there ({type(error).__name__})"
    return "" if webhooks == 405 else f"what answers there is no gateway (HTTP {status})"


async def _get(address: str, path: str, headers: Mapping[str, str]) -> tuple[int, dict[str, Any]]:
    """The status, and the answer if it is a JSON object. Follows no redirect. Raises httpx.HTTPError."""
    transport = Transport(httpx, address)
    async with client_class(httpx)(base_url=address, transport=transport, timeout=ASK_SECONDS) as client:
        response = await client.get(path, headers=headers)
    try:
        answer = response.json()
    except ValueError:
        answer = None
    return response.status_code, answer if isinstance(answer, dict) else {}
