"""What the Chat wire alone has, against the emulated servers: the official SDK over a real socket."""

import json

from agents.messages import ErrorKind
from tests.agents.providers.contract.subjects import SUBJECTS
from tests.agents.providers.contract.test_contract import failure
from tests.agents.providers.requests import asking, collect
from tests.emulators.models.script import Fault, says

CHAT = SUBJECTS["openai chat"]


def _openrouter(code: int) -> Fault:
    return Fault(status=200, body=json.dumps({"error": {"code": code, "message": "x", "metadata": {}}}))


_STALE = "reasoning_content in the thinking mode must be passed back"
_NO_MONEY = ("project_spend_limit_exceeded", "exceeded_current_quota_error", "1113", "1308", "1321")
_FAULTS: list[tuple[Fault, ErrorKind, bool]] = [
    (Fault(status=400, message=_STALE), "stale_thinking", False),
    (Fault(status=400, type="server_error"), "server", True),
    (Fault(status=400, message="registry/x does not support tools"), "no_tools", False),
    (Fault(status=403, code="unsupported_country_region_territory"), "auth", False),
    (Fault(status=404, code="model_not_found"), "not_found", False),
    (Fault(status=422, message="prompt is too long"), "too_large", False),
    *((Fault(status=429, type=it), "billing", False) for it in ("insufficient_quota", "exceeded_current_quota_error")),
    *((Fault(status=429, code=it), "billing", False) for it in _NO_MONEY),
    *((Fault(status=429, code=it), "overloaded", True) for it in ("slow_down", "1305")),
    *((Fault(status=429, code=it), "rate_limited", True) for it in ("1302", "1322")),
    (Fault(status=529), "overloaded", True),
    (_openrouter(502), "server", True),
    (_openrouter(402), "billing", False),
    (_openrouter(429), "rate_limited", True),
    (Fault(status=200, body='{"object": "chat.completion"}'), "incomplete", True),
    (Fault(status=200, body='{"error": {"message": "'), "incomplete", True),
    (Fault(status=200, body='{"error": {"message": "' + "x" * 1_100_000 + '"}}'), "incomplete", True),
]


async def test_faults_end_the_stream_as_errors() -> None:
    async with CHAT.connected(*(fault for fault, _, _ in _FAULTS)) as (_, provider):
        for fault, kind, retryable in _FAULTS:
            pieces, message = await collect(provider, asking(model=CHAT.model))
            assert (pieces, message.stop_reason) == ([], "error")
            assert failure(message) == (kind, retryable), fault


async def test_azures_filter_of_the_input_counts_as_a_refusal() -> None:
    fault = Fault(status=400, code="content_filter", message="The response was filtered")
    async with SUBJECTS["azure"].connected(fault) as (_, provider):
        _, message = await collect(provider, asking(model="gpt-5.5"))
    assert message.stop_reason == "content_filter"


async def test_an_error_in_mid_stream_is_read_in_the_vendors_own_form() -> None:
    errors: list[tuple[str, str, ErrorKind, bool]] = [
        ("openai chat", "invalid_request_error", "invalid", False),
        ("openrouter", "rate_limit_error", "rate_limited", True),
        ("zhipu", "rate_limit_error", "rate_limited", True),
    ]
    for vendor, type_, kind, retryable in errors:
        turn = says("Half", cut_after=2, then="error", error_type=type_)
        async with SUBJECTS[vendor].connected(turn) as (_, provider):
            _, message = await collect(provider, asking(model=SUBJECTS[vendor].model))
        assert failure(message) == (kind, retryable)
