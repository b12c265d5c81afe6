"""What happens by itself in a Telegram group goes on when the group becomes a supergroup, which has another id."""

import time
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.operate import schedules
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import AGENTS, SECRETS
from tests.stories.at_work import RUNS, results
from tests.stories.channels.test_telegram import Bot, bot
from tests.stories.later.test_schedule_limits import later, rows
from tests.stories.later.test_schedules import on
from tests.stories.tools.test_background import GO

LARGE = -1002000000077
AGENT = AGENTS.replace("exec,", "exec, process, schedule,")
HOUR = 3_601.0


def model(body: dict[str, Any]) -> Any:
    newest = str(body["messages"][-1])
    if "tool_result" in newest:
        return says(f"then: {results(body)[-1][:60]}")
    if "plan a text" in newest:
        return calls(("schedule", {"action": "create", "at": "every 1h", "say": "Time!"}))
    if "plan work" in newest:
        return calls(("schedule", {"action": "create", "at": "every 1h", "task": "Look at the clock."}))
    if "begin" in newest:
        return calls(("process", {"action": "start", "command": f"{GO}; exit 3", "notify": True}))
    return says("Looked.")


async def asked(it: Bot, text: str, chat: int, count: int) -> Any:
    """Alice writes; the newest message once there are so many."""
    alice = it.telegram.user(500000011, "Alice")
    await it.happens(it.telegram.text_update(f"@{it.telegram.bot['username']} {text}", chat=chat, sender=alice))
    newest = (await it.replies(count))[-1]
    await it.house.idle()
    return newest


async def migrates(it: Bot, small: int) -> None:
    """The group becomes a supergroup, and the gateway has seen it."""
    await it.happens(*it.telegram.migrate(small, LARGE))
    await it.house.until(lambda: _is_at(it, LARGE))


async def _is_at(it: Bot, group: int) -> bool:
    """True if all that is due later is kept under this id."""
    moves = it.house.gateway.runtime.choices.moves
    return bool(moves) and {row.place for row in (await rows(it.house)).values()} <= {f"telegram:default:{group}"}


async def allow(it: Bot, group: int) -> None:
    """The operator writes the id of the group into the config, in place of all groups."""
    file, gateway = it.house.folder / "config.yaml", it.house.gateway
    allowed = f"    groupPolicy: allowlist\n    groupAllowFrom: ['{group}']\n"
    before, _, after = file.read_text().rpartition("    groupPolicy: open\n")
    file.write_text(before + allowed + after)
    await gateway.apply(load(file, SECRETS).config, SECRETS, gateway.runtime.config_state)


@pytest.mark.parametrize("how", ["plan a text", "plan work"])
@pytest.mark.parametrize("listed", ["old", "none", "new"])
async def test_supergroup_move_keeps_schedules_whichever_id_is_allowed(
    tmp_path: Path, database_url: str, how: str, listed: str
) -> None:
    clock, said = Clock(time.time()), "Time!" if how == "plan a text" else "Looked."
    async with bot(tmp_path, "polling", script=model, agents=AGENT, more=on(database_url), now=clock) as it:
        small = it.telegram.group()
        await asked(it, how, small, 1)
        await migrates(it, small)
        [row] = (await rows(it.house)).values()
        if listed != "none":
            await allow(it, small if listed == "old" else LARGE)
        await later(it.house, clock, HOUR)
        answer = (await it.replies(2))[1]
        assert (answer.chat_id, answer.text) == (LARGE, said)
        await it.house.idle()
        if listed != "old":  # people are not heard there until the operator has put in the new id
            assert row.id in (await asked(it, "/schedules", LARGE, 3)).text
            assert (await asked(it, f"/schedules cancel {row.id}", LARGE, 4)).text == f"{row.id} is cancelled."


async def test_supergroup_move_finds_schedules_of_the_old_id_at_start(tmp_path: Path) -> None:
    """An earlier version has followed the group and left its reminders, or a process has died in between."""
    clock = Clock(time.time())
    async with bot(tmp_path, "polling", script=model, agents=AGENT, now=clock) as it:
        small = it.telegram.group()
        await asked(it, "plan work", small, 1)
        await migrates(it, small)
        store = it.house.gateway.runtime.store.later
        assert await store.move("telegram:default:", str(LARGE), str(small)) == 1
        [row] = (await rows(it.house)).values()
        assert row.id in (await asked(it, "/schedules", LARGE, 2)).text
        await allow(it, LARGE)
        await later(it.house, clock, HOUR)
        assert [it.chat_id for it in (await it.replies(3))[1:]] == [LARGE, LARGE]
        await it.house.idle()
        assert (await rows(it.house))[row.id].place == f"telegram:default:{small}"
        kept = it.telegram
    async with bot(tmp_path, "polling", script=model, agents=AGENT, now=clock, emulator=kept) as it:
        await it.house.until(lambda: _is_at(it, LARGE))


async def test_supergroup_move_keeps_schedules_of_the_config(tmp_path: Path) -> None:
    clock = Clock(time.time())
    async with bot(tmp_path, "polling", script=model, agents=AGENT, now=clock) as it:
        small = it.telegram.group()
        await asked(it, "hello", small, 1)
        await migrates(it, small)
        file, gateway = tmp_path / "config.yaml", it.house.gateway
        standup = f'schedules: [ {{ id: standup, to: "telegram:{small}", at: "every 1h", task: "Look." }} ]'
        file.write_text(f"{file.read_text()}\n{standup}\n")
        await gateway.apply(load(file, SECRETS).config, SECRETS, gateway.runtime.config_state)
        await it.house.until(lambda: gateway.runtime.store.later.next_due())
        await later(it.house, clock, HOUR)
        assert (await it.replies(2))[1].chat_id == LARGE
        await it.house.idle()
        told = str(it.house.anthropic.requests[-1].body["messages"])
        assert "hello" in told  # in the conversation that the group had before
        assert schedules.listed(gateway.config)[0]["state"] == "active"


@pytest.mark.parametrize("rewritten", [True, False])
async def test_supergroup_move_reports_a_command_end_in_the_new_group(
    tmp_path: Path, database_url: str, rewritten: bool
) -> None:
    more = on(database_url, RUNS)
    async with bot(tmp_path, "polling", script=model, agents=AGENT, more=more) as it:
        small = it.telegram.group()
        await asked(it, "begin", small, 1)
        await migrates(it, small)
        await allow(it, LARGE)
        if not rewritten:
            await it.house.gateway.runtime.store.later.move("telegram:default:", str(LARGE), str(small))
        (it.house.workspace() / "go").touch()
        report = (await it.replies(2))[1]
        assert (report.chat_id, report.reply_to) == (LARGE, None)  # messages are counted anew there
        assert "exit code 3" in report.text
        await it.house.idle()
        assert len(it.telegram.messages) == 2
