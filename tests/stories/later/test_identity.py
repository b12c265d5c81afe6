"""The identity with which tools act on Feishu: the app's, or that of the one person whose words a turn serves."""

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from channels.message import Chat, MessageContext, Sender
from tests.running import ALICE, ALICE_CHAT, Running, running
from tools.identity import NEEDS_PERSON
from tools.tool import Call, ToolError

MESSAGE = MessageContext(
    channel="feishu",
    account="default",
    chat=Chat(id=ALICE_CHAT, kind="direct"),
    message_id="om_1",
    sender=Sender(id=ALICE),
    text="",
    sent_at=datetime.fromtimestamp(0, UTC),
)
CALL = Call(id="call_1", key="key", message=MESSAGE)


async def code(house: Running, call: Call, account: str = "default") -> str:
    """The code with which a person's token is refused."""
    with pytest.raises(ToolError) as refused:
        await house.gateway.logins.token(call, account, person=True)
    return refused.value.code


async def test_app_token_is_shared_renewed_once_and_scrubbed(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        logins = house.gateway.logins
        first = await logins.token(CALL, "default", person=False)
        assert first in house.feishu.tokens
        assert await logins.token(CALL, "default", person=False) == first
        house.feishu.expire_tokens()
        second = await logins.token(CALL, "default", person=False, refused=first)
        assert second != first
        assert await logins.token(CALL, "default", person=False, refused=first) == second
        for token in (first, second):
            assert token not in house.gateway.runtime.scrubber.scrub(f"the token {token} is secret")


async def test_turn_without_its_one_person_has_no_identity(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        nobody = replace(CALL, message=replace(MESSAGE, sender=Sender(id="")))
        program = replace(CALL, message=replace(MESSAGE, channel="api"))
        elsewhere = replace(CALL, message=replace(MESSAGE, account="family"))
        for call in (nobody, program, elsewhere, replace(CALL, several=True)):
            assert await code(house, call) == NEEDS_PERSON
        assert await code(house, CALL, "family") == "UNAVAILABLE"
