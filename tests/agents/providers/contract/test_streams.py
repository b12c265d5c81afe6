"""What every wire makes of a stream that is not what it should be: read or refused, and nothing else."""

import asyncio
import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.messages import message_json
from agents.providers.anthropic import AnthropicAssembly
from agents.providers.chat import ChatAssembly
from agents.providers.draft import Draft
from agents.providers.gemini import GeminiAssembly
from agents.providers.network import Assembly
from agents.providers.payload import BadStream
from agents.providers.refusals import AttemptFailed
from agents.providers.responses import ResponsesAssembly
from agents.providers.vendors import VENDORS
from tests.agents.providers.contract.subjects import SUBJECTS
from tests.agents.providers.contract.test_contract import recorded
from tests.emulators.models.script import Call, Say, Think, Turn

ASSEMBLIES: dict[str, Callable[[Draft], Assembly]] = {
    "anthropic": AnthropicAssembly,
    "responses": ResponsesAssembly,
    "gemini": GeminiAssembly,
    "mistral": lambda draft: ChatAssembly(draft, VENDORS["mistral"]),
    "openrouter": lambda draft: ChatAssembly(draft, VENDORS["openrouter"]),
}
RICH = Turn(parts=(Think(text="hm"), Say(text="So."), Call(name="ls", arguments={"path": "a"}), Call(name="ls")))
_WORDS = st.sampled_from(["", "text", "thinking", "null", "{}", "ls", "\ud83d"])
junk = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 2) | st.floats() | _WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_WORDS, inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def streams() -> dict[str, list[dict[str, Any]]]:
    """The events of a rich answer, by wire."""

    async def record() -> dict[str, str]:
        return {name: await recorded(SUBJECTS[name], RICH) for name in ASSEMBLIES}

    return {
        name: [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
        for name, body in asyncio.run(record()).items()
    }


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every member and item inside, as (container, key)."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *_places(value[key]))]


@pytest.mark.parametrize("name", ASSEMBLIES)
@given(changes=st.lists(st.tuples(st.integers(0, 10_000), junk), max_size=4), cut=st.integers(0, 30))
def test_whatever_a_server_sends_is_read_or_refused(
    streams: dict[str, list[dict[str, Any]]], name: str, changes: list[tuple[int, Any]], cut: int
) -> None:
    events: list[Any] = copy.deepcopy(streams[name])
    for number, value in changes:
        places = [place for event in events for place in _places(event)]
        container, key = places[number % len(places)]
        container[key] = value
    assembly = ASSEMBLIES[name](Draft(api="a", provider="p", model="m", timestamp=0.0))
    try:
        for event in events[: cut or None]:
            list(assembly.feed(event))
        message = assembly.finish()
    except (BadStream, AttemptFailed):
        return
    assert len({call.id for call in message.calls}) == len(message.calls)
    message_json.validate_json(message_json.dump_json(message))
