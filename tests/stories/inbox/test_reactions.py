"""What people say without words: an entry of the bot's menu is a command, a thumb on an answer is kept beside it."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.operate.sessions import erase, exported, found, listed, markdown
from tests.emulators.models.script import says
from tests.running import ALICE, BOB, SECRETS, Running, push, running
from tests.stories.at_work import users
from tests.stories.config.test_config_edits import House, house
from tests.waiting import until


def chosen(it: Running, key: str, *, by: str = ALICE) -> dict[str, Any]:
    body = {"operator": {"operator_id": {"open_id": by}}, "event_key": key, "timestamp": 1790000000}
    return it.feishu.event("application.bot.menu_v6", body)


async def test_feishu_menu_entry_is_a_command_in_the_direct_chat(tmp_path: Path) -> None:
    async with running(tmp_path, script=lambda body: says("yes")) as it:
        await it.say("remember this")
        await it.replies(1)
        new = chosen(it, "new")
        for _ in range(2):  # Feishu may deliver it again
            assert (await it.push(new)).status_code == 200
        await it.replies(2)
        await it.say("and now?")
        await it.replies(3)
        assert [text.rpartition("\n")[2] for text in users(it.anthropic.requests[-1].body)] == ["Alice: and now?"]
        for key in ("/status", "status"):
            count = len(it.feishu.messages)
            await it.push(chosen(it, key))
            assert "Agent: `helper`" in (await it.replies(count + 1))[-1]
        assert {message.chat_id for message in it.feishu.messages} == {it.feishu.messages[0].chat_id}
        await it.idle()


async def test_feishu_menu_entry_without_a_command_does_nothing(tmp_path: Path) -> None:
    async with running(tmp_path) as it:
        for key in ("new_session", "hello there", "", "//", "new\n/stop", "nonsense " * 90):
            assert (await it.push(chosen(it, key))).status_code == 200, key
            await it.idle()
            assert (it.feishu.messages, it.anthropic.requests) == ([], []), key


async def test_feishu_menu_grants_no_more_than_typing(tmp_path: Path) -> None:
    feishu = """
    mode: webhook
    appId: cli_test000000000001
    appSecret: ${FEISHU_APP_SECRET}
    encryptKey: ${FEISHU_ENCRYPT_KEY}
    verificationToken: ${FEISHU_VERIFICATION_TOKEN}
    dmPolicy: allowlist
"""
    async with running(tmp_path, feishu=f"{feishu}    allowFrom: [{ALICE}]\n", more="commands: { usage: owner }") as it:
        await it.push(chosen(it, "help", by=BOB))
        await it.idle()
        assert it.feishu.messages == []
        await it.push(chosen(it, "help"))
        assert "/new" in (await it.replies(1))[0]
        await it.push(chosen(it, "usage"))
        assert "usage" in (await it.replies(2))[1].lower()
        await it.idle()


async def react(it: House, emoji: str, *, operator: str = "user", message: str = "") -> None:
    if it.way.startswith("feishu"):
        names = {"👍": "THUMBSUP", "👎": "ThumbsDown", "❤": "HEART"}
        body = {
            "message_id": message or it.feishu.messages[0].message_id,
            "reaction_type": {"emoji_type": names[emoji]},
            "operator_type": operator,
            "user_id": {"open_id": ALICE},
        }
        event = it.feishu.event("im.message.reaction.created_v1", body)
        assert (await push(it.feishu, it.url, event)).status_code == 200
        return
    update = it.telegram.text_update("unused", chat=it.alice, sender=it.alice)
    said = update.pop("message")
    update["message_reaction"] = {
        "chat": said["chat"],
        "message_id": int(message or it.telegram.messages[0].message_id),
        "user": said["from"],
        "date": said["date"],
        "old_reaction": [],
        "new_reaction": [{"type": "emoji", "emoji": emoji}],
    }
    await it.telegram.push(update)


@pytest.mark.parametrize("way", ["feishu webhook", "telegram polling"])
async def test_reaction_to_an_answer_is_kept_and_erased_with_the_person(tmp_path: Path, way: str) -> None:
    async with house(tmp_path, way, script=lambda body: says("the answer")) as it:
        await it.say("tell me")
        await until(lambda: it.feishu.messages or it.telegram.messages)
        await it.idle()
        await react(it, "👍")
        await react(it, "👎")
        await react(it, "❤")
        await react(it, "👍", message="om_unknown" if way.startswith("feishu") else "999")
        if way.startswith("feishu"):
            await react(it, "👍", operator="app")
        await it.say("/help")
        sent = it.feishu.messages or it.telegram.messages
        await until(lambda: len(sent) == 2)
        await react(it, "👎", message=str(sent[1].message_id))  # a command's answer is no agent's
        await it.say("thanks")
        await until(lambda: len(it.anthropic.requests) == 2)
        await it.idle()
        person = ("feishu", ALICE) if way.startswith("feishu") else ("telegram", str(it.alice))
        config = load(tmp_path / "config.yaml", SECRETS).config
        (session,) = [each for each in listed(config) if it.way.split()[0] in each.sid]
        read = found(config, session.id)
        assert read is not None
        zone = config.server.zone
        by = f"{person[0]}:default:{person[1]}"
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db")) as database:
            rows = database.execute("SELECT sid FROM mark WHERE kind LIKE 'reaction%'").fetchall()
        assert rows == [(session.sid,)]
        assert f"*(👎 {by})*" in "\n".join(markdown(*read, zone))
        (mark,) = [mark["content"] for mark in read[2]]
        assert (mark["by"], mark["emoji"], mark["agent"]) == (by, "👎", "helper")
        assert (bool(mark["prompt"]), mark["models"]) == (True, ["anthropic/claude-sonnet-4-6"])
        assert by in exported(*read, zone)
        assert len(it.anthropic.requests) == 2
        assert "👎" not in str(it.anthropic.requests[-1].body)  # it is for the operator, not for the model
    erase(config, person=person)
    assert ALICE.encode() not in (tmp_path / "data" / "clawgate.db").read_bytes() or way.startswith("telegram")
    assert not [each for each in listed(config) if it.way.split()[0] in each.sid]
