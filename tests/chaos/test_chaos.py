"""A short campaign against real processes: one kill at each of the points that say most. `make chaos` does the rest."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.config.root import DatabaseConfig
from gateway.store.dead_letters import dead_letters
from tests.chaos.campaign import Result, campaign
from tests.chaos.emulated import EMULATED, OnFeishu
from tests.chaos.injuries import POINTS
from tests.chaos.scene import scene
from tests.waiting import until

STAGES = ("K2", "K8", "K12", "K14", "K20", "K23", "K26", "K30", "K31", "K33")
"""One for each stage of a turn, for a command, for an answer that grows, for what is due, for a task, for a hook and for
`clawgate send`. K9 is played by two replicas, below; K17 and K18 are in `test_approvals`."""
MORE = ("K5", "K9", "K19", "K24", "K25", "K27", "K28", "K29", "K32")
NAMED = {point.name: replace(point, most=100) if point.name == "STORM" else point for point in POINTS}


def longer(*values: Any) -> list[Any]:
    """For `make test-all`."""
    return [pytest.param(value, marks=pytest.mark.long) for value in values]


async def played(name: str, folder: Path, channel: str = "feishu", **more: Any) -> Result:
    result = await campaign(NAMED[name], 1, folder, chat=EMULATED[channel](), seed=7, **more)
    if not result.clean:
        pytest.fail("\n".join((str(result), *result.findings(), result.logs)), pytrace=False)
    return result


@pytest.mark.parametrize("name", [*STAGES, *longer(*MORE)])
async def test_killed_there_nothing_is_lost_doubled_or_run_again(name: str, tmp_path: Path) -> None:
    await played(name, tmp_path)


@pytest.mark.parametrize(
    ("channel", "name"), [("telegram-polling", "K3"), ("telegram-webhook", "K13"), ("telegram-resend", "K14")]
)
async def test_chaos_on_telegram_gives_up_only_ambiguous_sends(channel: str, name: str, tmp_path: Path) -> None:
    doubts = (await played(name, tmp_path, channel)).ledger.doubts
    assert {doubt.given_up for doubt in doubts.values()} <= {channel != "telegram-resend"}
    assert doubts or name == "K3"


@pytest.mark.parametrize("name", ["K9", "STORM", *longer("K14", "K18", "K26", "K30", "K31", "K33", "ROLL")])
async def test_chaos_other_replica_takes_over_and_dedupes(name: str, tmp_path: Path, postgres_url: str) -> None:
    await played(name, tmp_path, database=postgres_url, replicas=2)


async def test_a_message_that_keeps_killing_its_process_is_given_up_with_a_note(tmp_path: Path) -> None:
    chat = OnFeishu()
    async with scene("POISON", tmp_path, chat=chat, seed=7) as hurt:
        (replica,) = hurt.replicas
        await replica.start("K7:1")
        hurt.sender.write(["plain"])
        for life in range(1, 4):
            if not replica.dead:
                await replica.ended()
            await replica.start("K7:1" if life < 3 else "")
        await until(lambda: chat.emulator.messages)
        (note,) = chat.emulator.messages
        assert "interrupted several times" in note.text
        assert len(dead_letters(DatabaseConfig(url=hurt.database))) == 1
