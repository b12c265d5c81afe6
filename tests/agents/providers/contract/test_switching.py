"""Changing the model in mid-session, in every direction: what any wire has made, every other one accepts."""

import asyncio
from dataclasses import dataclass

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
        second = type(second)(
            call_id=second.call_id, tool="read", content=(Text(text="a picture"), picture), is_error=False
        )
        return [first, second]


@pytest.fixture(scope="module")
def made() -> dict[str, Made]:
    async def make(subject: Subject) -> Made:
        level = nearest("high", facts_of(subject.model).thinking)
        async with subject.connected(TURN, says("Two files.")) as (_, provider):
            _, calling = await collect(provider, ask(subject, QUESTION, thinking=level))
            assert calling.error is None
            turn = Made(calling, calling)
            _, speaking = await collect(provider, ask(subject, QUESTION, calling, *turn.results, thinking=level))
            assert speaking.error is None
        return Made(calling, speaking)

    async def make_all() -> dict[str, Made]:
        return {name: await make(subject) for name, subject in SUBJECTS.items()}

    return asyncio.run(make_all())


@pytest.mark.parametrize("to", SUBJECTS.values(), ids=SUBJECTS.keys())
async def test_a_history_made_anywhere_is_accepted_here(to: Subject, made: dict[str, Made]) -> None:
    async with to.connected() as (emulator, provider):
        for maker, turn in made.items():
            finished = [QUESTION, turn.calling, *turn.results, turn.speaking, user("and now?")]
            running = [QUESTION, turn.calling, *turn.results]
            for level in (None, nearest("high", facts_of(to.model).thinking)):
                for messages in (finished, running):
                    _, message = await collect(provider, ask(to, *messages, thinking=level))
                    assert message.error is None, (maker, level, emulator.requests[-1].refusal)


@pytest.mark.parametrize("to", SUBJECTS.values(), ids=SUBJECTS.keys())
async def test_a_history_that_went_through_every_model_is_accepted_here(to: Subject, made: dict[str, Made]) -> None:
    history: list[Message] = []
    for turn in made.values():
        history += [QUESTION, turn.calling, *turn.results, turn.speaking]
    async with to.connected() as (emulator, provider):
        _, message = await collect(provider, ask(to, *history, user("and now?")))
    assert message.error is None, emulator.requests[-1].refusal
