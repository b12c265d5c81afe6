"""What the Mistral wire alone has, against the strict emulator, over a real socket."""

import json
from dataclasses import replace

import pytest

from agents.messages import Usage
from tests.agents.providers.contract.subjects import KEY, SUBJECTS
from tests.agents.providers.requests import asking, collect
from tests.emulators.models.mistral.script import chunks_of
from tests.emulators.models.script import Fault, says

MISTRAL = SUBJECTS["mistral"]


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_the_address_may_end_in_v1_and_the_key_is_ours(suffix: str) -> None:
    config = {"headers": {"Authorization": "Bearer other"}}
    async with replace(MISTRAL, path=suffix).connected(says("ok"), config=config) as (emulator, provider):
        _, message = await collect(provider, asking(model=MISTRAL.model))
    assert message.text == "ok"
    headers = emulator.requests[0].headers
    assert (headers["authorization"], headers["accept"]) == (f"Bearer {KEY}", "text/event-stream")


async def test_the_cost_may_come_behind_the_end() -> None:
    chunks = chunks_of(says("x"), 1, MISTRAL.model, 1)
    chunks[-1] = {key: value for key, value in chunks[-1].items() if key != "usage"}
    chunks.append({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    bodies = [f"{body}data: {{oops\n\n", body.replace('"choices": [], "usage": ', '"x": ')]
    faults = [Fault(status=200, body=it, content_type="text/event-stream") for it in bodies]
    async with MISTRAL.connected(*faults) as (_, provider):
        messages = [(await collect(provider, asking(model=MISTRAL.model)))[1] for _ in bodies]
    assert [message.text for message in messages] == ["x", "x"]
    assert [message.usage for message in messages] == [Usage(input=5, output=2), Usage(estimated=True)]
