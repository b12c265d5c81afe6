"""A message that is being answered has a reaction in Feishu, for as long as that takes and no longer."""

from pathlib import Path

import pytest

from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, GROUP, Running, feishu_emulator, running
from tests.running import FEISHU as WITHOUT

LONG = says("a long answer " * 30)

FEISHU = WITHOUT.replace('    reaction: ""\n', "")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("channels.feishu.people.QUICK_SECONDS", 0.01)
    monkeypatch.setattr("channels.feishu.people.AGAIN_SECONDS", 0.01)


def standing(house: Running) -> set[str]:
    return {it["message_id"] for it in house.feishu.reactions.values() if it["operator"]["operator_type"] == "app"}


async def test_reaction_lasts_until_the_answer_and_spares_others(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[LONG]) as house:
        house.line.hold(after_pieces=1)
        await house.say("hello", message_id="om_hello")
        await house.until(lambda: standing(house) == {"om_hello"})
        house.feishu.reaction("om_hello", "Typing", ALICE)
        house.line.release()
        await house.idle()
        await house.until(lambda: not standing(house))
        assert len(house.feishu.reactions) == 1
        assert house.feishu.reacted == [("om_hello", "Typing")]


async def test_reaction_left_by_a_dead_process_is_removed(tmp_path: Path) -> None:
    feishu = feishu_emulator()
    async with running(tmp_path, feishu=FEISHU, script=[LONG], emulator=feishu) as house:
        house.line.hold(after_pieces=1)
        await house.say("hello", message_id="om_hello")
        await house.until(lambda: standing(house) == {"om_hello"})
        feishu.fail_next("/reactions", code=231003)
        await house.gateway.lanes.drain(0)
    assert standing(house) == {"om_hello"}
    async with running(tmp_path, feishu=FEISHU, script=[LONG], emulator=feishu) as house:
        await house.until(lambda: feishu.shown(ALICE_CHAT))
        await house.until(lambda: not standing(house))
        assert len(feishu.reacted) == 2


async def test_reaction_is_immediate_for_a_message_resumed_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its author has waited already: nobody asks whether the answer comes quickly."""
    feishu = feishu_emulator()
    async with running(tmp_path, feishu=FEISHU, script=[LONG], emulator=feishu) as house:
        house.line.hold(after_pieces=1)
        await house.say("hello", message_id="om_hello")
        await house.until(lambda: standing(house) == {"om_hello"})
        await house.gateway.lanes.drain(0)
    monkeypatch.setattr("channels.feishu.people.QUICK_SECONDS", 3_600.0)
    async with running(tmp_path, feishu=FEISHU, script=[LONG], emulator=feishu) as house:
        await house.until(lambda: feishu.shown(ALICE_CHAT))
        await house.until(lambda: not standing(house))
        assert len(feishu.reacted) == 2


async def test_reaction_in_a_group_only_when_addressed_or_off(tmp_path: Path) -> None:
    feishu = f"{FEISHU}    requireMention: false\n"
    async with running(tmp_path, feishu=feishu, script=[LONG, LONG]) as house:
        for name, to_bot in (("om_beside", False), ("om_to_bot", True)):
            house.line.hold(after_pieces=1)
            await house.say("hi", chat=GROUP, chat_type="group", message_id=name, mention_bot=to_bot)
            await house.until(lambda: house.line.holding)
            if to_bot:
                await house.until(lambda: standing(house))
            house.line.release()
            await house.idle()
        assert house.feishu.reacted == [("om_to_bot", "Typing")]
    async with running(tmp_path, feishu=f'{FEISHU}    reaction: ""\n', script=[LONG]) as house:
        await house.say("hi")
        await house.idle()
        assert house.feishu.reacted == []


async def test_reaction_refused_by_the_platform_costs_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[LONG, LONG]) as house:
        house.feishu.fail_next("/reactions", code=99991672)
        for number in range(2):
            house.line.hold(after_pieces=1)
            await house.say("hi")
            await house.until(
                lambda: house.line.holding and any("/reactions" in it.path for it in house.feishu.requests)
            )
            house.line.release()
            await house.idle()
            assert len(house.feishu.shown(ALICE_CHAT)) == number + 1
        assert house.feishu.reacted == []


async def test_reaction_left_after_the_answer_is_removed_by_the_next_process(tmp_path: Path) -> None:
    feishu = feishu_emulator()
    async with running(tmp_path, feishu=FEISHU, script=[LONG, LONG], emulator=feishu) as house:
        for name in ("om_hello", "om_again"):
            house.line.hold(after_pieces=1)
            await house.say("hello", message_id=name)
            await house.until(lambda name=name: name in standing(house))  # type: ignore[misc]
            feishu.fail_next("/reactions", code=231003)  # the removal gets lost, as in a kill
            house.line.release()
            await house.idle()
        await house.until(lambda: len(standing(house)) == 2)
        feishu.reaction("om_hello", "Typing", ALICE)
    async with running(tmp_path, feishu=FEISHU, emulator=feishu) as house:
        await house.until(lambda: not standing(house))
        assert len(feishu.reactions) == 1
        assert len(feishu.messages) == 2
