"""A short campaign against real processes: two kills at each of the points that say most. `make chaos` does the rest."""

from pathlib import Path

import pytest

from gateway.config.root import DatabaseConfig
from gateway.store.dead_letters import dead_letters
from tests.chaos.campaign import campaign
from tests.chaos.emulated import EMULATED, OnFeishu
from tests.chaos.points import POINTS, Point
from tests.chaos.scene import scene
from tests.chaos.storm import storm
from tests.waiting import until

ALONE = ("K2", "K5", "K8", "K9", "K11", "K12", "K14", "K16")
ON_TELEGRAM = (("telegram-polling", "K3"), ("telegram-webhook", "K13"), ("telegram-resend", "K14"))
REPLICAS = ("K2", "K5", "K9", "K14", "ROLL")


def points(names: tuple[str, ...]) -> list[Point]:
    return [point for point in POINTS if point.name in names]


@pytest.mark.parametrize("point", points(ALONE), ids=lambda point: point.name)
async def test_killed_there_nothing_is_lost_doubled_or_run_again(point: Point, tmp_path: Path) -> None:
    result = await campaign(point, 2, tmp_path, chat=EMULATED["feishu"](), seed=7)
    assert result.clean, [str(result), *result.verdict.lines()]


@pytest.mark.parametrize(("channel", "name"), ON_TELEGRAM)
async def test_on_telegram_only_what_may_have_arrived_is_given_up_or_doubled_and_the_operator_knows(
    channel: str, name: str, tmp_path: Path
) -> None:
    (point,) = points((name,))
    result = await campaign(point, 2, tmp_path, chat=EMULATED[channel](), seed=7)
    assert result.clean, [str(result), *result.verdict.lines()]
    assert {doubt.given_up for doubt in result.ledger.doubts.values()} <= {channel != "telegram-resend"}
    assert result.ledger.doubts or name == "K3"


@pytest.mark.parametrize("point", points(REPLICAS), ids=lambda point: point.name)
async def test_the_other_replica_goes_on(point: Point, tmp_path: Path, postgres_url: str) -> None:
    result = await campaign(point, 2, tmp_path, chat=EMULATED["feishu"](), seed=7, database=postgres_url, replicas=2)
    assert result.clean, [str(result), *result.verdict.lines()]


async def test_every_event_five_times_over_two_replicas_is_one_turn(tmp_path: Path, postgres_url: str) -> None:
    tally = await storm(tmp_path, chat=EMULATED["feishu"](), seed=7, events=100, database=postgres_url, replicas=2)
    assert tally.clean, [str(tally), *tally.findings]


async def test_a_message_that_keeps_killing_its_process_is_given_up_with_a_note(tmp_path: Path) -> None:
    chat = OnFeishu()
    point = Point(name="POISON", about="every life dies in the same turn", how="inside")
    async with scene(point, tmp_path, chat=chat, seed=7, database=None, replicas=1) as played:
        (replica,) = played.replicas
        await replica.start("K7:1")
        played.write(["plain"])
        for life in range(1, 4):
            if not replica.dead:
                await replica.ended()
            await replica.start("K7:1" if life < 3 else "")
        await until(lambda: chat.emulator.messages)
        (note,) = chat.emulator.messages
        assert "interrupted several times" in note.text
        assert len(dead_letters(DatabaseConfig(url=f"sqlite:///{tmp_path}/data/clawgate.db"))) == 1
