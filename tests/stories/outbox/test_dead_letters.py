"""Dead letters: seen and sent again from the command line, beside the running gateway."""

import re
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from gateway.store.dead_letters import UnreadableMessage, dead_letters, replay
from tests.emulators.models.script import says
from tests.running import SECRETS, Running, running
from tests.stories.process.test_process import ask

pytestmark = pytest.mark.slow  # it starts processes


@pytest.fixture
def database(database_url: str) -> str:
    """`more` for `running`, on either engine."""
    return f'database: {{ url: "{database_url}" }}'


async def asks(house: Running, *words: str) -> tuple[int, str]:
    return await ask(*words, "--config", str(house.folder / "config.yaml"), more=SECRETS)


async def test_dead_letter_of_a_refused_part_is_listed_and_replayed(tmp_path: Path, database: str) -> None:
    async with running(tmp_path, script=[says("lost words")], more=database) as house:
        house.feishu.fail_next("/reply", times=1, status=400, code=230006)
        await house.say("hello")
        await house.idle()
        assert house.feishu.messages == []
        code, lines = await asks(house, "dead-letters", "list")
        assert code == 0
        assert "part-1" in lines
        assert "230006" in lines
        assert "lost words" not in lines
        assert await asks(house, "dead-letters", "replay", "part-1") == (0, "part-1: queued again\n")
        assert await house.replies(1) == ["lost words"]
        await house.idle()
        assert "0 dead letters" in (await asks(house, "dead-letters", "list"))[1]


async def test_dead_letter_of_a_message_can_be_replayed(
    tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, script=[says("at last")], more=database) as house:
        monkeypatch.setattr("gateway.turns.turns.ATTEMPTS_MAX", 0)
        await house.say("hello")
        assert "interrupted several times" in (await house.replies(1))[0]
        await house.idle()
        monkeypatch.setattr("gateway.turns.turns.ATTEMPTS_MAX", 3)
        config = house.gateway.config.database
        (dead_letter,) = dead_letters(config)
        assert replay(config, [dead_letter.name]) == [dead_letter.name]
        assert replay(config, [dead_letter.name]) == []
        assert (await house.replies(2))[1] == "at last"


async def test_dead_letter_replay_errors_and_old_names(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as house:
        missing = "no dead letter: part-9 — `dead-letters list` shows them\n"
        assert await asks(house, "dead-letters", "replay", "part-9") == (1, missing)
        code, output = await asks(house, "dead-letters", "replay")
        assert (code, "--all" in output) == (1, True)
        assert await asks(house, "dead-letters", "replay", "--all") == (0, "")
        assert await asks(house, "letters") == (0, "0 dead letters\n")
        assert await asks(house, "replay", "--all") == (0, "")
        _, output = await ask("--help")
        assert re.findall(r"(?<!dead-)\b(?:letters|replay)\b  ", output) == []


PLACES = [(mode, place) for mode in ("collect", "followup", "steer", "stop") for place in range(3)]
FEW = [*PLACES[:3], ("followup", 1), ("steer", 2), ("stop", 0)]
"""They are sorted out before any mode looks at them."""


@pytest.mark.parametrize("places", [FEW, pytest.param(PLACES, marks=pytest.mark.long)], ids=["few", "all"])
async def test_dead_letter_of_an_unreadable_message_unblocks_its_chat(
    tmp_path: Path, database: str, places: list[tuple[str, int]]
) -> None:
    """After a downgrade, or a hand on the database: first, in the middle or last of those that wait behind a turn."""
    more = f"{database}\nqueue: {{ debounceSeconds: 0 }}"
    async with running(tmp_path, script=lambda _: says("fine"), more=more) as house:
        config = house.gateway.config.database
        for count, (mode, place) in enumerate(places, 1):
            said = await with_one_unreadable(house, mode, place, chat=f"oc_{count:030}")
            readable = [number for number in range(3) if number != place]
            found = [number for number in range(3) if f"message {number}" in said]
            assert found == ([] if mode == "stop" else readable), (mode, place)
            await house.say("and now?", chat=f"oc_{count:030}")
            await house.idle()
            assert house.feishu.messages[-1].text == "fine", (mode, place)
            assert [it.kind for it in dead_letters(config)] == ["message"] * count, (mode, place)
            assert house.counted(f'clawgate_dead_letters_total{{kind="message"}} {count}.0'), (mode, place)
        with pytest.raises(UnreadableMessage, match="message-"):
            replay(config, [it.name for it in dead_letters(config)])
        assert len(dead_letters(config)) == len(places)


async def with_one_unreadable(house: Running, mode: str, place: int, *, chat: str) -> str:
    """Three messages wait behind a turn, and one of them becomes unreadable; the last request after that."""
    await house.say(f"/queue {'followup' if mode == 'stop' else mode}", chat=chat)
    await house.idle()
    house.line.hold()
    await house.say("nought", chat=chat)
    await house.until(lambda: house.line.holding)
    for number in range(3):
        await house.say(f"message {number} of {chat}", chat=chat)
    engine = create_engine(house.gateway.config.database.url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        odd = text("UPDATE inbox SET body = :body WHERE body LIKE :named")
        connection.execute(odd, {"body": '{"agent": "helper"}', "named": f"%message {place} of {chat}%"})
    engine.dispose()
    if mode == "stop":
        stopped = len(house.feishu.messages)
        await house.say("/stop", chat=chat)
        await house.replies(stopped + 1)
    house.line.release()
    await house.idle()
    return str(house.anthropic.requests[-1].body)
