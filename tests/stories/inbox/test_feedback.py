"""How people rate answers: by a reaction and by a command, taken back, listed, and rehearsed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gateway.cli import app
from gateway.operate.sessions import erase
from gateway.rehearse.kept import picked
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, SECRETS, Running, running
from tests.stories.channels.test_telegram import MODES, bot


def reacted(house: Running, message: str, name: str, *, taken_back: bool = False, by: str = ALICE) -> dict[str, Any]:
    body = {
        "message_id": message,
        "reaction_type": {"emoji_type": name},
        "operator_type": "user",
        "user_id": {"open_id": by},
    }
    kind = "deleted" if taken_back else "created"
    return house.feishu.event(f"im.message.reaction.{kind}_v1", body)


async def cli(*arguments: str) -> Any:
    return await asyncio.to_thread(lambda: CliRunner().invoke(app, arguments))


async def verdicts(house: Running) -> list[tuple[str, str, str]]:
    found = await house.gateway.runtime.store.chatter.feedback(0.0)
    return sorted((it.by.rpartition(":")[2], it.verdict, it.why) for it in found)


async def test_feedback_by_command_is_listed_filtered_and_picked_for_a_rehearsal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, script=lambda body: says("the answer")) as house:
        await house.say("/bad")
        assert "not answered anything" in (await house.replies(1))[0]
        for text, count in (("first", 2), ("/bad 太长了", 3), ("second", 4), ("/good", 5)):
            await house.say(text)
            await house.replies(count)
            await house.idle()
        assert "谢谢" in house.feishu.messages[2].text
        assert await verdicts(house) == [(ALICE, "bad", "太长了"), (ALICE, "good", "")]
        store = house.gateway.runtime.store
        (bad,) = await store.layers.listed(before=None, only={"feedback": "bad"})
        (good,) = await store.layers.listed(before=None, only={"feedback": "good"})
        assert bad.turn < good.turn
        assert [it.id for it in (await picked(store.layers, last=5, feedback="bad")).turns] == [bad.turn]
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    config = ["--config", str(tmp_path / "config.yaml"), "--json"]
    listed = await cli("feedback", *config)
    assert listed.exit_code == 0, listed.output
    assert [(it["turn"], it["feedback"], it["why"], it["agent"]) for it in json.loads(listed.stdout)] == [
        (bad.turn, "bad", "太长了", "helper"),
        (good.turn, "good", "", "helper"),
    ]
    turns = await cli("turns", "list", "--feedback", "bad", *config)
    assert [it["id"] for it in json.loads(turns.stdout)] == [bad.turn]
    assert (await cli("feedback", "--since", "soon", *config)).exit_code != 0
    erase(house.gateway.runtime.setup.config, person=("feishu", ALICE))
    again = await cli("feedback", *config)
    assert json.loads(again.stdout) == []


async def test_feedback_is_one_per_person_and_taken_back_with_the_reaction(tmp_path: Path) -> None:
    async with running(tmp_path, script=lambda body: says("the answer")) as house:
        house.feishu.chats[GROUP] = "Team"
        await house.say("tell us", chat=GROUP, chat_type="group", mention_bot=True)
        await house.replies(1)
        await house.idle()
        message = house.feishu.messages[0].message_id
        for name, by in (("THUMBSUP", ALICE), ("ThumbsDown", ALICE), ("THUMBSUP", BOB)):
            await house.push(reacted(house, message, name, by=by))
        assert await verdicts(house) == sorted([(ALICE, "bad", ""), (BOB, "good", "")])
        await house.push(reacted(house, message, "THUMBSUP", taken_back=True))  # an older one: the last counts
        assert await verdicts(house) == sorted([(ALICE, "bad", ""), (BOB, "good", "")])
        await house.push(reacted(house, message, "ThumbsDown", taken_back=True))
        assert await verdicts(house) == [(BOB, "good", "")]
        assert house.feishu.shown(ALICE_CHAT) == []


@MODES
async def test_feedback_on_telegram_is_taken_back_with_the_reaction(tmp_path: Path, mode: str) -> None:
    async with bot(tmp_path, mode, script=[says("the answer")]) as it:
        alice = it.telegram.private()
        await it.happens(it.telegram.text_update("hello", chat=alice))
        (sent,) = await it.replies(1)
        await it.house.idle()
        update = it.telegram.reaction_update(sent.message_id, "👎", chat=alice, sender=alice)
        await it.happens(update)

        async def rated(*expected: str) -> bool:
            return [it_[1] for it_ in await verdicts(it.house)] == list(expected)

        await it.house.until(lambda: rated("bad"))
        gone = it.telegram.reaction_update(sent.message_id, "👎", chat=alice, sender=alice)
        body = gone["message_reaction"]
        body |= {"old_reaction": body["new_reaction"], "new_reaction": []}
        await it.happens(gone)
        await it.house.until(lambda: rated())
