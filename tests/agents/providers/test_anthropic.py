"""What the Anthropic wire alone has, against the strict emulator: the official SDK over a real socket."""

from tests.agents.providers.contract.subjects import SUBJECTS
from tests.agents.providers.requests import asking, collect
from tests.emulators.models.script import Fault, says

CLAUDE = SUBJECTS["anthropic"]


async def test_anthropic_headers_may_name_an_older_version() -> None:
    config = {"headers": {"Anthropic-Version": "2023-06-01"}}
    async with CLAUDE.connected(says("ok"), config=config) as (emulator, provider):
        _, message = await collect(provider, asking(model="claude-sonnet-4-5"))
    assert message.text == "ok"
    assert emulator.requests[0].headers["anthropic-version"] == "2023-06-01"


async def test_errors_are_logged_by_request() -> None:
    broken = says("Half", cut_after=4, then="error", error_type="authentication_error")
    blocked = Fault(status=400, type="invalid_request_error", message="Output blocked by content filtering policy")
    async with CLAUDE.connected(broken, blocked) as (_, provider):
        messages = [(await collect(provider, asking()))[1] for _ in range(2)]
    assert [message.stop_reason for message in messages] == ["error", "content_filter"]
    assert [message.error and message.error.summary for message in messages] == [
        "status=200 type=authentication_error code=none request_id=req_0001",
        "status=400 type=invalid_request_error code=none request_id=req_0002",
    ]
