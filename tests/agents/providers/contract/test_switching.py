"""Changing the model in mid-session, in every direction: what any wire has made, every other one accepts."""

import asyncio
import itertools
from dataclasses import dataclass, replace

import pytest

from agents.messages import AssistantMessage, Message, Text
from agents.providers.models import facts_of, nearest
from tests.agents.providers.contract.subjects import SUBJECTS, Subject
from tests.agents.providers.contract.test_contract import ask
from tests.agents.providers.requests import PIXEL, collect, result, user
from tests.emulators.models.script import Call, Say, Think, Turn, says
from tools.tool import Image

pytestmark = pytest.mark.slow  # every wire after every other

TURN = Turn(
    parts=(
        Think(text="I should look twice."),
        Say(text="Looking."),
        Call(name="ls", arguments={"path": "a"}),
        Call(name="read", arguments={"path": "目录/b"}),
    )
)
QUESTION = user("what is in there?", metadata="## Inbound Context\n{}")


@dataclass(frozen=True)
class Made:
    """A turn as one wire made it: an answer with calls, and its last words."""

    calling: AssistantMessage
    speaking: AssistantMessage

    @property
    def results(self) -> list[Message]:
        picture = Image(media_type="image/png", data=PIXEL, name="b.png")
        first, second = (result(call.id) for call in self.calling.calls)
        return [first, replace(second, tool="read", content=(Text(text="a picture"), picture))]


@pytest.fixture(scope="module")
def made() -> dict[str, Made]:
    async def make(subject: Subject) -> Made:
        level = nearest("high", facts_of(subject.model).thinking)
        async with subject.connected(TURN, says("Two files.")) as (_, provider):
            _, calling = await collect(provider, ask(subject, QUESTION, thinking=level))
            assert calling.error is None
            results = Made(calling, calling).results
            _, speaking = await collect(provider, ask(subject, QUESTION, calling, *results, thinking=level))
            assert speaking.error is None
        return Made(calling, speaking)

    async def make_all() -> dict[str, Made]:
        return {name: await make(subject) for name, subject in SUBJECTS.items()}

    return asyncio.run(make_all())


@pytest.mark.parametrize("to", SUBJECTS.values(), ids=SUBJECTS.keys())
def test_history_of_any_other_wire_is_accepted(to: Subject, made: dict[str, Made]) -> None:
    levels = (None, nearest("high", facts_of(to.model).thinking))
    everywhere: list[Message] = []
    for turn in made.values():
        running = [QUESTION, turn.calling, *turn.results]
        finished = [*running, turn.speaking, user("and now?")]
        everywhere += finished
        for level, messages in itertools.product(levels, (finished, running, everywhere)):
            to.body(ask(to, *messages, thinking=level))
