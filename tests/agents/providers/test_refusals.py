"""Refusals that no vendor sends: whatever a server answers is read, and the log gets a line of names."""

import re
from functools import reduce
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.providers.refusals import failure_of
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
