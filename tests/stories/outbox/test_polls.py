"""Votes in a poll that an agent sent reach the agent, as a press of its button does."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.app.gateway import Gateway
from gateway.config.load import load
from gateway.store.opening import open_store
from tests.emulators.models.script import calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import SECRETS, started
from tests.stories.channels.test_telegram import MODES, PUBLIC, SECRET, Bot, bot
from tests.stories.operate.test_sessions_command import listed, sessions
from tests.stories.outbox.test_message_tool import does

BOB, CAROL = 500000012, 500000013
SILENT = says("__SILENT__")
POLL = calls(does("poll", message="Lunch?", options=["Noodles", "Rice\nand beans", "Soup"]))


async def offered(it: Bot, chat: int, *, sender: int, thread: int | None = None) -> int:
    """The agent sends its poll there; the message id."""
    it.telegram.user(BOB, "Bob")
    it.telegram.user(CAROL, "Carol")
    it.house.anthropic.script = [POLL, SILENT]
    known = len(it.telegram.messages)
    text = "@fixture_helper_bot ask"
    await it.happens(it.telegram.text_update(text, chat=chat, sender=sender, thread=thread))
    sent = (await it.replies(known + 1))[known]
    await it.house.idle()
    assert (sent.kind, sent.thread) == ("poll", thread)
    return sent.message_id


def asked(it: Bot) -> str:
    """The newest message that the model was asked."""
    return json.dumps(it.house.anthropic.requests[-1].body["messages"][-1], ensure_ascii=False)


@MODES
@pytest.mark.parametrize("where", ["direct", "group", "topic"])
async def test_poll_vote_and_its_revocation_begin_turns_in_its_conversation(
    tmp_path: Path, mode: str, where: str
) -> None:
    async with bot(tmp_path, mode) as it:
        alice = it.telegram.private()
        chat = alice if where == "direct" else it.telegram.supergroup(forum=where == "topic")
        thread = it.telegram.topic(chat, "Food", by=alice) if where == "topic" else None
        poll = await offered(it, chat, sender=alice, thread=thread)
        assert "poll_answer" in it.telegram.allowed
        it.house.anthropic.script = [says("rice it is"), says("none then")]
        vote = it.telegram.vote_update(poll, 1, chat=chat, sender=alice)
        await it.happens(vote, vote)
        await it.replies(2)
        await it.house.idle()
        await it.happens(vote)
        assert "Alice: [poll vote: Rice and beans]" in asked(it)
        assert "Lunch?" in asked(it)
        answer = it.telegram.messages[1]
        assert (answer.text, answer.chat_id, answer.thread, answer.reply_to) == ("rice it is", chat, thread, poll)
        await it.happens(it.telegram.vote_update(poll, chat=chat, sender=alice))
        await it.replies(3)
        await it.house.idle()
        assert "Alice: [poll vote revoked]" in asked(it)
        assert len(it.house.anthropic.requests) == 4
        assert it.telegram.callback_answers == []


async def test_poll_vote_of_a_foreign_poll_or_unknown_option_is_ignored(tmp_path: Path) -> None:
    async with bot(tmp_path, "webhook") as it:
        alice = it.telegram.private()
        poll = await offered(it, alice, sender=alice)
        odd: list[dict[str, Any]] = [
            {"poll_id": "1234567890"},
            {"poll_id": 7},
            {"poll_id": ""},
            {"poll_id": "9" * 65},
            {"option_ids": [3]},
            {"option_ids": [-1]},
            {"option_ids": [True]},
            {"option_ids": ["0"]},
            {"option_ids": None},
            {"user": None},
        ]
        vote = it.telegram.vote_update(poll, 0, chat=alice, sender=alice)["poll_answer"]
        await it.happens(*(it.telegram.update("poll_answer", vote | change) for change in odd))
        await it.house.idle()
        assert len(it.house.anthropic.requests) == 2
        assert len(it.telegram.messages) == 1


async def test_poll_vote_of_who_may_not_write_begins_no_turn_and_gets_no_code(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling", dm_policy="pairing") as it:
        alice, team = it.telegram.private(started=True), it.telegram.supergroup()
        poll = await offered(it, team, sender=alice)
        channel: Any = it.house.gateway.runtime.setup.channels["telegram", "default"]
        channel.access = channel.access.model_copy(update={"group_senders": (str(alice),)})
        stranger = it.telegram.vote_update(poll, 0, chat=team, sender=BOB)
        it.telegram.people[CAROL]["is_bot"] = True
        robot = it.telegram.vote_update(poll, 0, chat=team, sender=CAROL)
        await it.happens(stranger, robot)
        it.house.anthropic.script = [says("noted")]
        await it.happens(it.telegram.vote_update(poll, 2, chat=team, sender=alice))
        assert [sent.text for sent in await it.replies(2)] == ["Lunch?", "noted"]
        await it.house.idle()
        assert ("Soup" in asked(it), "Noodles" in asked(it)) == (True, False)
        assert len(it.telegram.messages) == 2


async def test_poll_vote_of_an_anonymous_administrator_is_the_groups(tmp_path: Path) -> None:
    async with bot(tmp_path, "webhook") as it:
        alice, team = it.telegram.private(), it.telegram.supergroup()
        poll = await offered(it, team, sender=alice)
        it.house.anthropic.script = [says("noted")]
        await it.happens(it.telegram.vote_update(poll, 0, chat=team, sender=team))
        await it.replies(2)
        assert "Team chat: [poll vote: Noodles]" in asked(it)


async def test_poll_votes_of_a_crowd_share_a_turn_and_each_is_heard(tmp_path: Path, database_url: str) -> None:
    more = f'{PUBLIC}\ndatabase: {{ url: "{database_url}" }}'
    async with bot(tmp_path, "webhook", more=more) as it:
        alice, team = it.telegram.private(), it.telegram.supergroup()
        poll = await offered(it, team, sender=alice)
        crowd = [it.telegram.user(500001000 + number, f"Voter{number}x") for number in range(30)]
        it.house.line.hold()
        it.house.anthropic.script = [says("first"), says("all")]
        await it.happens(it.telegram.vote_update(poll, 0, chat=team, sender=alice))
        await it.house.requested(3)
        votes = [it.telegram.vote_update(poll, 1, chat=team, sender=voter) for voter in crowd]
        await it.happens(*votes, *votes)
        it.house.line.release()
        await it.replies(3)
        await it.house.idle()
        assert len(it.house.anthropic.requests) == 4
        assert [name for number in range(30) if (name := f"Voter{number}x") not in asked(it)] == []
        assert asked(it).count("Rice and beans") == 30
        await it.happens(*votes)
        await it.house.idle()
        assert len(it.house.anthropic.requests) == 4


async def test_poll_vote_after_the_request_for_the_poll_was_recalled_is_ignored(
    tmp_path: Path, database_url: str
) -> None:
    more = f'{PUBLIC}\ndatabase: {{ url: "{database_url}" }}'
    async with bot(tmp_path, "webhook", more=more) as it:
        alice = it.telegram.private()
        poll = await offered(it, alice, sender=alice)
        store = it.house.gateway.runtime.store
        asked_in = next(message for (chat, _), message in it.telegram.known.items() if chat == alice)["message_id"]
        scope = "telegram:default:"
        name = f"{scope}message:{alice}:{asked_in}"
        assert await store.changes.recall(name, f"{scope}{alice}", str(asked_in), 1.0) is not None
        await it.happens(it.telegram.vote_update(poll, 0, chat=alice, sender=alice))
        await it.house.idle()
        assert len(it.house.anthropic.requests) == 2
        assert await store.sent_parts(poll=it.telegram.known[alice, poll]["poll"]["id"]) == []
        (kept,) = await store.sent_parts(ext_id=str(poll))
        assert "Noodles" not in kept.payload


async def test_poll_vote_after_the_conversation_was_erased_is_ignored(tmp_path: Path) -> None:
    async with bot(tmp_path, "webhook") as it:
        alice = it.telegram.private()
        poll = await offered(it, alice, sender=alice)
        (session,) = await listed(it.house)
        code, output = await sessions(it.house, "erase", session["id"], "--yes")
        assert code == 0, output
        await it.happens(it.telegram.vote_update(poll, 0, chat=alice, sender=alice))
        await it.house.idle()
        assert len(it.house.anthropic.requests) == 2
        assert len(it.telegram.messages) == 1


async def test_poll_vote_after_a_restart_reaches_the_agent(tmp_path: Path, database_url: str) -> None:
    telegram, more = TelegramEmulator(), f'{PUBLIC}\ndatabase: {{ url: "{database_url}" }}'
    async with bot(tmp_path, "polling", emulator=telegram, more=more) as it:
        alice = telegram.private()
        poll = await offered(it, alice, sender=alice)
    async with bot(tmp_path, "polling", emulator=telegram, more=more, script=[says("noted")]) as it:
        await it.happens(telegram.vote_update(poll, 2, chat=alice, sender=alice))
        await it.replies(2)
        assert "[poll vote: Soup]" in asked(it)
        assert [sent.text for sent in telegram.messages] == ["Lunch?", "noted"]


async def test_poll_vote_at_another_replica_and_again_at_the_first_is_one_turn(
    tmp_path: Path, postgres_url: str
) -> None:
    async with bot(tmp_path, "webhook", more=f'{PUBLIC}\ndatabase: {{ url: "{postgres_url}" }}') as it:
        alice = it.telegram.private()
        poll = await offered(it, alice, sender=alice)
        config = load(tmp_path / "config.yaml", SECRETS).config
        second = Gateway(config, SECRETS, store=open_store(config.database))
        await started(second)
        try:
            async with serve_on_loopback(second.app, http=second.connections.protocol) as url:
                it.house.anthropic.script = [says("noted")]
                vote = it.telegram.vote_update(poll, 2, chat=alice, sender=alice)
                for each in (url, it.house.url) * 2:
                    door = f"{each}/webhooks/telegram/default"
                    assert (await it.telegram.deliver_once(door, vote, secret=SECRET)).status_code == 200
                await it.replies(2)
                for house in (it.house, replace(it.house, gateway=second)):
                    await house.idle()
                assert "[poll vote: Soup]" in asked(it)
                assert [sent.text for sent in it.telegram.messages] == ["Lunch?", "noted"]
                await second.drain()
        finally:
            await second.lanes.drain(0)
            await second.close()
