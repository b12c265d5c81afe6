"""What the Gemini wire alone has, against the strict emulator, over a real socket."""

import json
from typing import Any

import pytest

from agents.messages import ErrorKind, Message, Usage
from agents.providers.catalog import GEMINI_URL, gemini_url
from agents.providers.config import ProviderConfig
from agents.repair import repair
from tests.agents.providers.contract.subjects import SUBJECTS
from tests.agents.providers.requests import asking, collect, result, user
from tests.emulators.models.gemini.script import Turn, call_part, text_part
from tests.emulators.models.gemini.signature import signed
from tests.emulators.models.script import Call, Fault, Think, says
from tests.emulators.models.script import Turn as AnyTurn

GEMINI = SUBJECTS["gemini"]
MODEL = "gemini-3.1-pro-preview"


@pytest.mark.parametrize("ids", [True, False])
async def test_gemini_signature_goes_back_on_its_part(ids: bool) -> None:
    thoughts = (Think(text="secret", shown=False), Call(name="ls"), Call(name="ls"), Think(text="more", shown=False))
    async with GEMINI.connected(AnyTurn(parts=thoughts), says("ok"), ids=ids) as (emulator, provider):
        _, first = await collect(provider, asking(model=MODEL))
        history: list[Message] = [user("hello"), first, *(result(made.id) for made in first.calls)]
        _, second = await collect(provider, asking(*repair(history, api="google-gemini", family=MODEL), model=MODEL))
    assert second.text == "ok"
    sent = emulator.requests[1].body["contents"][1]["parts"]
    assert [part.get("thoughtSignature") for part in sent] == [
        signed(call_part("ls", {}))["thoughtSignature"],
        None,
        signed(text_part(""))["thoughtSignature"],
    ]


@pytest.mark.parametrize(
    ("address", "url"),
    [
        (None, f"{GEMINI_URL}/v1beta"),
        ("http://host/", "http://host/v1beta"),
        ("http://host/v1beta/", "http://host/v1beta"),
        ("http://host/gemini/v1alpha", "http://host/gemini/v1alpha"),
        ("http://host/v1/gemini", "http://host/v1/gemini/v1beta"),
    ],
)
def test_the_address_may_name_a_version_or_not(address: str | None, url: str) -> None:
    assert gemini_url(ProviderConfig.model_validate({"baseUrl": address})) == url


async def test_a_model_may_come_with_its_folder() -> None:
    async with GEMINI.connected(says("ok")) as (emulator, provider):
        await collect(provider, asking(model=f"models/{MODEL}"))
    assert emulator.requests[0].path == f"/v1beta/models/{MODEL}:streamGenerateContent"


async def test_usage_may_come_behind_the_reason_to_end() -> None:
    usage = {"promptTokenCount": 9, "candidatesTokenCount": 3, "totalTokenCount": 12}
    async with GEMINI.connected(Turn(parts=(text_part("ok"),), usage=usage, late_usage=True)) as (_, provider):
        _, message = await collect(provider, asking(model=MODEL))
    assert (message.text, message.usage) == ("ok", Usage(input=9, output=3))


def fault(status: int, name: str, *details: Any, sse: bool = False, message: str = "words of Google's") -> Fault:
    """An error as Google writes it, with a status or in the stream."""
    error = json.dumps({"error": {"code": status, "message": message, "status": name, "details": details}})
    if sse:
        return Fault(status=200, body=f"data: {error}\n\n", content_type="text/event-stream")
    return Fault(status=status, body=f"[{error}]")


_DAY = {"violations": [7, {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}
_OVERFLOW = "The input token count (9) exceeds the maximum"
_FAULTS: list[tuple[Fault, ErrorKind, bool, float | None]] = [
    (Fault(status=400, message="API key not valid.", code="API_KEY_INVALID"), "auth", False, None),
    (Fault(status=400, type="FAILED_PRECONDITION", message="User location is not supported"), "auth", False, None),
    (Fault(status=400, message="Corrupted thought signature."), "stale_thinking", False, None),
    (Fault(status=400, message="Request payload size exceeds the limit: 1 bytes."), "too_large", False, None),
    (fault(400, "INVALID_ARGUMENT", message=_OVERFLOW), "too_large", False, None),
    (Fault(status=429, code="34.074824224s"), "rate_limited", True, 34.074824224),
    (Fault(status=429, code="12s", headers={"retry-after": "7"}), "rate_limited", True, 7.0),
    (Fault(status=429, code="GenerateRequestsPerMinutePerProject"), "rate_limited", True, None),
    (fault(429, "X", _DAY), "billing", False, None),
    (fault(429, "X", {"retryDelay": "soon"}, {"violations": 7}, 1, {"retryDelay": "3s"}), "rate_limited", True, 3.0),
    (Fault(status=499), "server", True, None),
    (Fault(status=500, body="[" * 200_000), "server", True, None),
    (fault(429, "X", {"retryDelay": "9s"}, sse=True), "rate_limited", True, 9.0),
    (fault(400, "INVALID_ARGUMENT", message=_OVERFLOW, sse=True), "too_large", False, None),
    (fault(0, "UNAVAILABLE", sse=True), "overloaded", True, None),
    (fault(0, "DEADLINE_EXCEEDED", sse=True), "timeout", True, None),
    (fault(0, "INVALID_ARGUMENT", sse=True), "invalid", False, None),
    (fault(600, "SOMETHING_NEW", sse=True), "server", True, None),
]


async def test_faults_end_the_stream_as_errors() -> None:
    async with GEMINI.connected(*(fault for fault, *_ in _FAULTS)) as (_, provider):
        for fault, kind, retryable, wait in _FAULTS:
            pieces, message = await collect(provider, asking(model=MODEL))
            assert pieces == []
            error = message.error
            assert error is not None
            assert (error.kind, error.retryable, error.retry_after_seconds) == (kind, retryable, wait), fault
            assert (fault.message or "words of Google's") not in error.summary
