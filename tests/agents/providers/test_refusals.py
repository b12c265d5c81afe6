"""Refusals that no vendor sends: whatever a server answers is read, and the log gets a line of names."""

import re
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.providers.refusals import failure_of, is_error
from tests.agents.providers.contract.test_streams import junk

NOTHING: Any = []
DEEP: Any = reduce(lambda inner, _: [inner], range(5000), NOTHING)
MEMBERS = st.sampled_from(["code", "type", "status", "message", "detail", "details", "error", "msg", "loc"])
bodies = st.recursive(junk, lambda inner: st.dictionaries(MEMBERS, inner, max_size=4), max_leaves=8)


@given(bodies, st.sampled_from([0, 400, 403, 422, 429, 500, 504]))
def test_any_body_is_read(body: Any, status: int) -> None:
    error = failure_of(body, status).error
    assert re.fullmatch(r"status=\d{3} type=[\w.-]+ code=[\w.-]+", error.summary)


@pytest.mark.parametrize("member", ["code", "type", "status", "message", "details", "error"])
def test_an_absurd_depth_is_no_reason_to_break(member: str) -> None:
    for body in ({member: DEEP}, {"error": {member: DEEP}}, {"detail": [{"msg": "x", "loc": DEEP}]}):
        assert failure_of(body, 400).error.kind == "invalid"


@pytest.mark.parametrize(
    ("status", "error", "kind"),
    [
        (401, {"type": "invalid_request_error", "code": "invalid_api_key"}, "auth"),
        (404, {"type": "invalid_request_error"}, "not_found"),
        (503, {"type": "server_error"}, "overloaded"),
        (400, {"code": "unknown_parameter"}, "invalid"),
        (403, {"code": "model_not_found"}, "not_found"),
        (400, {"status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}, "auth"),
    ],
)
def test_a_name_that_is_vague_does_not_overrule_a_status_that_is_plain(status: int, error: Any, kind: str) -> None:
    assert failure_of({"error": error}, status).error.kind == kind


STANDING = "Access denied, please make sure your account is in good standing."
NO_CREDIT = {
    "DashScope": (400, {"code": "Arrearage", "message": STANDING, "request_id": "x"}),
    "DashScope, compatible": (400, {"error": {"code": "Arrearage", "type": "Arrearage", "message": STANDING}}),
    "Volcengine": (403, {"error": {"code": "AccountOverdueError", "message": "The request failed"}}),
    "DeepSeek": (
        402,
        {"error": {"message": "Insufficient Balance", "type": "unknown_error", "code": "invalid_request_error"}},
    ),
    "SiliconFlow": (403, {"code": 30001, "message": "Sorry, your account balance is insufficient", "data": None}),
    "Moonshot": (429, {"error": {"type": "exceeded_current_quota_error", "message": "suspended"}}),
    "Zhipu": (429, {"error": {"code": "1113", "message": "您的账户已欠费，请充值后重试。"}}),
    "MiniMax": (0, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}),
    "Tencent": (0, {"Response": {"Error": {"Code": "FailedOperation.ResourcePackExhausted", "Message": "x"}}}),
    "Anthropic": (400, {"error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}}),
    "OpenAI": (429, {"error": {"type": "insufficient_quota", "code": "insufficient_quota", "message": "x"}}),
    "OpenRouter": (402, {"error": {"code": 402, "message": "Insufficient credits"}}),
    "xAI": (403, {"code": "The caller does not have permission", "error": "Your team has used all available credits"}),
    "a router, in Chinese": (403, {"error": {"message": "用户额度不足, 剩余额度: 0", "type": "new_api_error"}}),
    "a router, as a text": (500, {"error": "该令牌额度已用尽"}),
    "a gateway, as a page": (402, "<html>Payment Required</html>"),
}


@pytest.mark.parametrize("name", NO_CREDIT)
def test_an_empty_account_is_called_that_in_every_vendors_words(name: str) -> None:
    status, body = NO_CREDIT[name]
    assert failure_of(body, status).error.kind == "billing"
    if status == 0:
        assert is_error(body)


@pytest.mark.parametrize(
    "message",
    ["You exceeded your current quota, please check your plan", "Too many requests", "load balancer has no worker"],
)
def test_a_rate_limit_is_not_taken_for_an_empty_account(message: str) -> None:
    assert failure_of({"error": {"message": message}}, 429).error.kind == "rate_limited"


@pytest.mark.parametrize(
    "event", [{}, {"choices": [], "code": 0}, {"type": "ping", "status": "ok"}, {"object": "x", "sky": "clear"}]
)
def test_an_event_of_the_future_is_no_error(event: dict[str, Any]) -> None:
    assert not is_error(event)
