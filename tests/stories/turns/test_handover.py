"""A chat that a colleague answers, through the whole gateway: asked for, taken over, relayed both ways, given back."""

import asyncio
import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from gateway.config.load import load
from gateway.operate import sessions
from gateway.operate.status import handovers
from gateway.state.runtime import ConfigState
from tests.case import case
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import AGENTS, ALICE, ALICE_CHAT, BOB, FEISHU, GROUP, SECRETS, Running, running
from tests.stories.at_work import NEVER, users
from tests.stories.channels.test_telegram import PIXEL, bot
from tests.stories.operate.test_sessions_command import traces
from tests.stories.process.test_process import ask
from tests.web_page import opened

CARL = "ou_ca410000000000000000000000000000"
DAVE = "ou_da4e0000000000000000000000000000"
CANARY = "canary-of-alice-91827"
DESK = "oc_de5c0000000000000000000000000000"
IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
AT_DESK: dict[str, Any] = {"chat": DESK, "chat_type": "group"}
MORE = f"handover: {{ to: 'feishu:{DESK}' }}"
HANDING = AGENTS.replace("exec, message", "handover")
OVER: Any = calls(("handover", {"reason": "Alice wants a refund"}))
ANYTIME = FEISHU + "    timestampWindowSeconds: null\n"


def desk(folder: Path, script: Any = (), *, more: str = "", agents: str = HANDING, **config: Any) -> Any:
    return running(folder, script=script, more=f"{MORE}\n{more}", agents=agents, **config)


def read(house: Running, chat: str) -> list[str]:
    """What people read in a chat, without marks."""
    return [_plain(it) for it in house.feishu.shown(chat)]


def _plain(text: str) -> str:
    return html.unescape(text).replace("**", "").replace("\u200b", "")


async def shown(house: Running, chat: str, text: str) -> None:
    await house.until(lambda: any(text in it for it in read(house, chat)))
    await house.idle()


def notice(house: Running) -> str:
    """The id of the newest notice in the on-call chat."""
    sent = [it for it in house.feishu.messages if it.chat_id == DESK and "needs a person" in house.feishu.reads(it)]
    return sent[-1].message_id


async def press(house: Running, label: str, *, sender: str = CARL) -> None:
    await house.push(house.feishu.press_event(notice(house), label, sender=sender))
    await house.idle()


async def replied(house: Running, text: str, *, to: str = "", sender: str = CARL, **more: Any) -> None:
    """Somebody in the on-call chat replies to the notice, or to another message there."""
    where = AT_DESK | {"parent_id": to or notice(house), "root_id": to or notice(house)}
    await house.say(text, sender=sender, **where, **more)
    await house.idle()


async def asked(house: Running, ask: str = "/human I want a refund", **who: Any) -> None:
    house.feishu.users[CARL] = "Carl"
    house.feishu.chats[DESK] = "Desk"
    await house.say(ask, **who)
    await shown(house, who.get("chat", ALICE_CHAT), "I have called a colleague")
    await shown(house, DESK, "needs a person")


async def taken(house: Running, ask: str = "/human I want a refund", **who: Any) -> None:
    await asked(house, ask, **who)
    await press(house, "Take over")
    await shown(house, who.get("chat", ALICE_CHAT), "Carl has taken over")


async def test_handover_relays_both_ways_and_the_agent_remembers(tmp_path: Path) -> None:
    async with desk(tmp_path, [says("Hello Alice."), says("I have read it.")]) as house:
        await house.say("hello")
        await shown(house, ALICE_CHAT, "Hello Alice.")
        await asked(house)
        first = read(house, DESK)[-1]
        assert f"Alice needs a person in `feishu:default:{ALICE_CHAT}`." in first
        assert "Reason: I want a refund\n\n> Alice: hello\n> helper: Hello Alice." in first
        await press(house, "Take over")
        assert "✓ Carl has taken over." in read(house, DESK)[-1]
        await house.say("It is *broken*, see @all")
        await shown(house, DESK, "Alice: It is *broken*, see @all")
        (relayed,) = [it for it in house.feishu.messages if "broken" in house.feishu.reads(it)]
        assert relayed.reply_to == notice(house)
        await replied(house, "Send it back, _please_", to=relayed.message_id)
        await shown(house, ALICE_CHAT, "Carl: Send it back, _please_")
        assert len(house.anthropic.requests) == 1
        await replied(house, "/back", mention_bot=True)
        await shown(house, ALICE_CHAT, "Carl has given the chat back. I answer here again.")
        await shown(house, DESK, "Carl has given the chat back. helper answers Alice again.")
        assert house.feishu.card(notice(house)).buttons == {}
        await house.say("thanks")
        await shown(house, ALICE_CHAT, "I have read it.")
        body = house.anthropic.requests[-1].body
        said = str(users(body))
        assert "Alice: It is *broken*, see @all\\n(The gateway relayed this message to a colleague" in said
        assert "Carl: Send it back, _please_" in said
        assert "Send it back" not in str([it for it in body["messages"] if it["role"] == "assistant"])


async def test_handover_tool_ends_the_turn_in_silence(tmp_path: Path) -> None:
    async with desk(tmp_path, [OVER, says("I will now say something else.")]) as house:
        house.feishu.chats[DESK] = "Desk"
        await house.say("I want my money back")
        await shown(house, DESK, "Reason: Alice wants a refund\n\n> Alice: I want my money back")
        await shown(house, ALICE_CHAT, "I have called a colleague")
        assert len(read(house, ALICE_CHAT)) == 1
        await house.say("are you there?")
        await shown(house, DESK, "Alice: are you there?")
        await house.say("/human")
        await shown(house, ALICE_CHAT, "A colleague has been called already.")
        assert len(house.anthropic.requests) == 2


async def test_handover_tool_is_offered_only_with_an_on_call_chat(tmp_path: Path) -> None:
    for more in ("", MORE):
        async with running(tmp_path, script=[says("x")], agents=HANDING, more=more) as house:
            await house.say("hello")
            await house.replies(1)
            names = [it["name"] for it in house.anthropic.requests[0].body["tools"]]
            assert ("handover" in names) is bool(more)


async def test_handover_command_without_an_on_call_chat_names_the_key_to_owners(tmp_path: Path) -> None:
    async with running(tmp_path, more=f'owners: ["feishu:{BOB}"]') as house:
        await house.say("/human")
        assert (await house.replies(1))[0] == "No colleague is on call here."
        await house.say("/human", sender=BOB)
        assert "`handover.to`" in (await house.replies(2))[1]
        await house.say("/人工 为什么")
        assert (await house.replies(3))[2] == "目前没有可转接的同事。"


async def test_handover_stops_the_running_answer_and_relays_what_waits(tmp_path: Path) -> None:
    async with desk(tmp_path, [NEVER]) as house:
        await house.say("a long story")
        await house.requested(1)
        await house.say("and more")
        await asked(house)
        await shown(house, DESK, "Alice: and more")
        assert len(house.anthropic.requests) == 1
        assert "> Alice: a long story" in read(house, DESK)[0]
        assert not any(it == "Alice: a long story" for it in read(house, DESK))


ENDS: dict[str, tuple[Callable[[Running], Any], str]] = {
    "button": (lambda house: press(house, "Give back"), "Carl has given the chat back."),
    "reply": (lambda house: replied(house, "/back", mention_bot=True), "Carl has given the chat back."),
    "command": (
        lambda house: house.say("/back", sender=CARL, mention_bot=True, **AT_DESK),
        "Carl has given the chat back.",
    ),
    "person": (lambda house: house.say("/back"), "Alice has ended it."),
    "owner": (
        lambda house: house.say("/back", sender=BOB, mention_bot=True, **AT_DESK),
        "Bob has given the chat back.",
    ),
    "owner's button": (lambda house: press(house, "Give back", sender=BOB), "Bob has given the chat back."),
}


@pytest.mark.parametrize("way", ENDS)
async def test_handover_is_given_back_in_both_chats_once(tmp_path: Path, way: str) -> None:
    more = f'owners: ["feishu:{BOB}"]'
    async with desk(tmp_path, [says("me again")], more=more) as house:
        await taken(house)
        end, sentence = ENDS[way]
        await end(house)
        await shown(house, ALICE_CHAT, f"{sentence} I answer here again.")
        await shown(house, DESK, f"{sentence} helper answers Alice again.")
        assert sum(sentence in it for it in read(house, ALICE_CHAT)) == 1
        assert sum(sentence in it for it in read(house, DESK)) == 2  # the notice says so, too
        await replied(house, "too late")
        await shown(house, DESK, "This chat has been given back already. Nothing was sent.")
        await house.say("hello")
        await shown(house, ALICE_CHAT, "me again")
        assert not any("too late" in it for it in read(house, ALICE_CHAT))


async def test_handover_not_needed_gives_it_back_at_once(tmp_path: Path) -> None:
    async with desk(tmp_path, [says("me again")]) as house:
        await asked(house)
        await press(house, "Not needed")
        await shown(house, ALICE_CHAT, "Carl says that nobody is needed. I answer here again.")
        assert len(read(house, DESK)) == 1
        await house.say("hello")
        await shown(house, ALICE_CHAT, "me again")


async def test_handover_first_press_wins_and_others_read_who_did(tmp_path: Path) -> None:
    async with desk(tmp_path) as house:
        await asked(house)
        take = house.feishu.press_event(notice(house), "Take over", sender=CARL)
        late = [house.feishu.press_event(notice(house), it, sender=BOB) for it in ("Take over", "Not needed")]
        twice = house.feishu.press_event(notice(house), "Take over", sender=CARL)
        for event in (take, take, twice, *late):
            await house.push(event)
            await house.idle()
        await shown(house, DESK, "Carl has taken over this chat, and gives it back by /back.")
        assert sum("Carl has taken over" in it for it in read(house, ALICE_CHAT)) == 1
        assert sum("gives it back by" in it for it in read(house, DESK)) == 2
        await replied(house, "Let me", sender=BOB)
        await shown(house, DESK, "Nothing was sent. Carl has taken over this chat")
        await house.say("/back", sender=BOB, mention_bot=True, **AT_DESK)
        await shown(house, DESK, "You have taken over no chat.")
        await press(house, "Give back", sender=BOB)
        assert sum("gives it back by" in it for it in read(house, DESK)) == 4
        await house.say("still here?")
        await shown(house, DESK, "Alice: still here?")
        assert not any("Let me" in it for it in read(house, ALICE_CHAT))


async def test_handover_reply_before_it_is_taken_sends_nothing(tmp_path: Path) -> None:
    async with desk(tmp_path) as house:
        await asked(house)
        await replied(house, "hello?")
        await shown(house, DESK, "Nothing was sent: press Take over first.")
        assert len(read(house, ALICE_CHAT)) == 1


async def test_handover_speaks_the_languages_of_both_chats(tmp_path: Path) -> None:
    async with desk(tmp_path, more="language: zh") as house:
        house.feishu.users[CARL], house.feishu.chats[DESK] = "Carl", "Desk"
        await house.say("/人工 我要退款")
        await shown(house, ALICE_CHAT, "已为你请同事来接待。")
        await shown(house, DESK, "Alice 需要人工接待（`feishu:default:")
        await shown(house, DESK, "原因：我要退款")
        card = house.feishu.messages[-1] if house.feishu.messages[-1].chat_id == DESK else house.feishu.messages[-2]
        assert list(house.feishu.card(card.message_id).buttons) == ["接手", "无需接手"]
        await house.push(house.feishu.press_event(card.message_id, "接手", sender=CARL))
        await shown(house, ALICE_CHAT, "Carl 已接手，将在这里回答你。")
        await house.say("/交还")
        await shown(house, ALICE_CHAT, "Alice 已结束转接。由我继续在这里回答。")


OUTSIDE: dict[str, Callable[[Running], Any]] = {
    "press from elsewhere": lambda house: house.push(_elsewhere(house)),
    "bot's press": lambda house: press(house, "Take over", sender=""),
    "reply from elsewhere": lambda house: house.say(
        "me", sender=BOB, chat=GROUP, chat_type="group", parent_id=notice(house)
    ),
    "back from elsewhere": lambda house: house.say(
        "/back", sender=BOB, chat=GROUP, chat_type="group", mention_bot=True
    ),
}


def _elsewhere(house: Running) -> dict[str, Any]:
    event = house.feishu.press_event(notice(house), "Take over", sender=BOB)
    event["event"]["context"]["open_chat_id"] = GROUP
    return event


@pytest.mark.parametrize("way", OUTSIDE)
async def test_handover_is_not_taken_or_answered_from_another_chat(tmp_path: Path, way: str) -> None:
    async with desk(tmp_path, [says("an ordinary answer")] * 2) as house:
        await asked(house)
        await OUTSIDE[way](house)
        await house.idle()
        (row,) = await house.gateway.runtime.store.later.active("handover")
        assert '"state":"asked"' in row.body
        assert len(read(house, ALICE_CHAT)) == 1


async def test_handover_of_an_on_call_chat_that_lets_few_write(tmp_path: Path) -> None:
    """A member without access to the bot there takes nothing over and answers nobody."""
    feishu = FEISHU + f'    groupSenders: ["{CARL}", "{ALICE}"]\n'
    async with desk(tmp_path, feishu=feishu) as house:
        await asked(house)
        await press(house, "Take over", sender=BOB)
        await replied(house, "let me", sender=BOB)
        assert len(read(house, DESK)) == 1
        await press(house, "Take over")
        await shown(house, ALICE_CHAT, "Carl has taken over")


async def test_handover_of_a_group_is_of_all_who_write_there(tmp_path: Path) -> None:
    there = IN_GROUP
    async with desk(tmp_path, [says("me again")]) as house:
        await taken(house, **there)
        await house.say("Bob's question", sender=BOB, **there)
        await shown(house, DESK, "Bob: Bob's question")
        await replied(house, "for both of you")
        await shown(house, GROUP, "Carl: for both of you")
        await house.say("/back", sender=BOB, **there)
        await shown(house, GROUP, "Only the one who asked for a colleague")
        await house.say("/back", **there)
        await shown(house, GROUP, "Alice has ended it.")


async def test_handover_ends_after_hours_without_a_message(tmp_path: Path) -> None:
    clock = Clock()
    async with desk(tmp_path, [says("me again")] * 2, now=clock, feishu=ANYTIME) as house:
        await taken(house)
        clock.now += 7 * 3600
        await house.say("are you there?")
        await shown(house, DESK, "Alice: are you there?")
        clock.now += 7 * 3600
        await replied(house, "yes")
        await shown(house, ALICE_CHAT, "Carl: yes")
        clock.now += 8 * 3600 + 1
        await shown(house, ALICE_CHAT, "Nobody has written for a while. I answer here again.")
        await shown(house, DESK, "Nobody has written for a while. helper answers Alice again.")
        await asked(house, "/human again")
        clock.now += 8 * 3600 + 1
        await shown(house, ALICE_CHAT, "Nobody has taken over in time. I answer here again.")
        await house.say("hello")
        await shown(house, ALICE_CHAT, "me again")


async def test_handover_ends_with_the_config(tmp_path: Path, database_url: str) -> None:
    """By a reload, and by a start without the section."""
    more = f'database: {{ url: "{database_url}" }}'
    async with desk(tmp_path, [says("me again")], more=more) as house:
        await taken(house)
        file = tmp_path / "config.yaml"
        file.write_text(file.read_text(encoding="utf-8").replace(MORE, ""), encoding="utf-8")
        await house.gateway.apply(load(file, SECRETS).config, SECRETS, ConfigState(version="2"))
        await shown(house, ALICE_CHAT, "Nobody is on call any more. I answer here again.")
        await shown(house, DESK, "Nobody is on call any more. helper answers Alice again.")
        await house.say("hello")
        await shown(house, ALICE_CHAT, "me again")
        emulator = house.feishu
    async with desk(tmp_path, more=more, emulator=emulator) as house:
        await taken(house)
    async with running(tmp_path, script=[says("once more")], more=more, emulator=emulator) as house:
        await house.until(lambda: sum("Nobody is on call" in it for it in read(house, ALICE_CHAT)) == 2)
        await house.say("hello")
        await shown(house, ALICE_CHAT, "once more")


async def test_handover_relays_files_both_ways(tmp_path: Path) -> None:
    async with desk(tmp_path) as house:
        await taken(house)

        def uploads() -> list[bytes]:
            return [house.feishu.resources[key].data for key in house.feishu.uploads]

        await house.push(house.feishu.file_event(b"the bill", name="bill.txt", sender=ALICE, chat=ALICE_CHAT))
        await house.until(lambda: uploads() == [b"the bill"])
        there: dict[str, Any] = {"parent_id": notice(house), "root_id": notice(house)}
        await house.push(house.feishu.image_event(PIXEL, sender=CARL, **AT_DESK, **there))
        await house.until(lambda: uploads() == [b"the bill", PIXEL])
        await house.idle()
        house.feishu.fail_next("/resources/", status=400)
        await house.push(house.feishu.file_event(b"lost", name="lost.txt", sender=ALICE, chat=ALICE_CHAT))
        await shown(house, DESK, "Alice: [file: lost.txt]")
        files = [it.chat_id for it in house.feishu.messages if it.msg_type in ("file", "image")]
        assert files == [DESK, ALICE_CHAT]


async def test_handover_to_telegram_of_a_person_on_the_page(tmp_path: Path) -> None:
    """The on-call chat is a group on another platform, or the direct chat with the person on call."""
    for is_direct in (False, True):
        folder = tmp_path / str(is_direct)
        folder.mkdir()
        async with (
            bot(
                folder,
                "polling",
                more=f"handover: {{ to: 'telegram:{500000022 if is_direct else -4000000031}' }}",
                feishu_more="  web: {}\n",
                agents=HANDING,
            ) as it,
            opened(it.house.url) as page,
        ):
            telegram = it.telegram
            carl = telegram.private(500000022, "Carl")
            place = carl if is_direct else telegram.group()
            await page.say("/human please")
            assert (await page.answers(1))[0].startswith("I have called a colleague.")
            (first,) = await it.replies(1)
            assert first.chat_id == place
            assert first.reply_markup is not None
            data = {it["text"]: it["callback_data"] for row in first.reply_markup["inline_keyboard"] for it in row}
            await it.happens(telegram.press_update(first.message_id, data["Take over"], chat=place, sender=carl))
            assert (await page.answers(2))[1] == "Carl has taken over and answers you here."
            await page.say("Where is my parcel?")
            relayed = (await it.replies(2))[1]
            assert relayed.text.endswith(": Where is my parcel?")
            answer = telegram.photo_update(
                PIXEL, caption="It is _here_.", chat=place, sender=carl, reply_to=relayed.message_id
            )
            await it.happens(answer, answer)
            await page.answers(3)
            (last,) = page.written()[2:]
            assert "Carl" in last["text"]
            assert "It is" in last["text"]
            assert [it["type"] for it in last["files"]] == ["image/png"]
            await it.happens(telegram.text_update("/back", chat=place, sender=carl, reply_to=relayed.message_id))
            assert (await page.answers(4))[3] == "Carl has given the chat back. I answer here again."
            await it.house.idle()
            assert it.house.anthropic.requests == []


async def test_handover_goes_on_after_stop_and_a_new_conversation(tmp_path: Path) -> None:
    async with desk(tmp_path, [says("Hello Alice."), says("me again")]) as house:
        await house.say("my secret plan")
        await shown(house, ALICE_CHAT, "Hello Alice.")
        await taken(house)
        for command in ("/stop", "/new"):
            await house.say(command)
            await house.idle()
            await house.say(f"after {command}")
            await shown(house, DESK, f"Alice: after {command}")
        await house.say("/status")
        await shown(house, ALICE_CHAT, "Handed over: to Carl")
        await house.say("/back")
        await shown(house, ALICE_CHAT, "Alice has ended it.")
        await house.say("hello")
        await shown(house, ALICE_CHAT, "me again")
        assert "my secret plan" not in str(house.anthropic.requests[-1].body)
        assert "after /new" in str(house.anthropic.requests[-1].body)


@pytest.mark.parametrize("way", ["person", "session", "retention"])
async def test_handover_leaves_nothing_after_an_erasure(tmp_path: Path, database_url: str, way: str) -> None:
    clock, more = Clock(), f'database: {{ url: "{database_url}" }}\nretention: {{ days: 30 }}'
    async with desk(tmp_path, [says("hi"), says("me again")], more=more, feishu=ANYTIME, now=clock) as house:
        await house.say(f"I am {CANARY}")
        await shown(house, ALICE_CHAT, "hi")
        await taken(house, f"/human {CANARY}")
        await house.push(house.feishu.file_event(CANARY.encode(), name=f"{CANARY}.txt", sender=ALICE, chat=ALICE_CHAT))
        await house.until(lambda: len(house.feishu.uploads) == 1)
        await house.say(f"my {CANARY}")
        await shown(house, DESK, f"Alice: my {CANARY}")
        await replied(house, "I see")
        await shown(house, ALICE_CHAT, "Carl: I see")
        assert {it.rpartition("/")[2] for it in traces(house, CANARY)} & {"clawgate.db", "clawgate.db-wal", "outbox"}
        if way == "retention":
            clock.now += 8 * 3600 + 1
            await shown(house, ALICE_CHAT, "Nobody has written for a while.")
            await asyncio.to_thread(sessions.age, house.gateway.config, clock.now + 31 * 86_400)
        else:
            found = sessions.listed(house.gateway.config)[0] if way == "session" else None
            person = ("feishu", ALICE) if way == "person" else None
            await asyncio.to_thread(sessions.erase, house.gateway.config, session=found, person=person)
        assert traces(house, CANARY) == []
        assert await house.gateway.runtime.store.later.active("handover") == []
        await replied(house, "are you there?")  # what it replies to is not known any more
        await house.say("hello")
        await shown(house, ALICE_CHAT, "me again")
        assert not any("are you there?" in it for it in read(house, ALICE_CHAT))


async def test_handover_is_in_the_copy_of_a_persons_data_without_the_colleague(tmp_path: Path) -> None:
    async with desk(tmp_path) as house:
        await taken(house)
        await house.say("my words")
        await shown(house, DESK, "Alice: my words")
        held = await house.gateway.runtime.store.people.held("feishu", ALICE)
        assert "my words" in str(held.conversations)
        (row,) = held.tables["later"]
        assert (row["kind"], row["body"]) == ("handover", "{}")
        assert CARL not in str(held.tables["later"])


async def test_handover_is_named_by_status_and_the_list_of_sessions(tmp_path: Path) -> None:
    async with desk(tmp_path, [says("hi")]) as house:
        await house.say("hello")
        await shown(house, ALICE_CHAT, "hi")
        loaded = load(tmp_path / "config.yaml", SECRETS)
        assert handovers(loaded) == []
        await asked(house)
        assert str(handovers(loaded)[0].message) == "1 handed over: Alice → …"
        await press(house, "Take over")
        assert str(handovers(loaded)[0].message) == "1 handed over: Alice → Carl"
        code, output = await ask("sessions", "list", "--config", str(tmp_path / "config.yaml"), more=SECRETS)
        assert (code, output.count("handed over")) == (0, 1), output


async def test_handover_costs_an_ordinary_turn_no_statement(tmp_path: Path) -> None:
    reads: list[str] = []

    def read_row(*given: Any) -> None:
        reads.extend([given[2]] if "FROM later WHERE id = " in given[2] and "'H-" in str(given[3]) else [])

    event.listen(Engine, "before_cursor_execute", read_row)
    try:
        async with running(tmp_path, script=[says("hi")]) as house:
            await house.say("hello", parent_id="om_0", root_id="om_0")
            await shown(house, ALICE_CHAT, "hi")
        assert reads == []
        async with desk(tmp_path, [says("hi again")]) as house:
            await house.say("hello")
            await shown(house, ALICE_CHAT, "hi again")
        assert len(reads) == 2
    finally:
        event.remove(Engine, "before_cursor_execute", read_row)


WHO = {"colleague": CARL, "other": BOB, "owner": DAVE, "person": ALICE}
WHERE: dict[str, dict[str, Any]] = {
    "on-call chat": AT_DESK,
    "another group": {"chat": GROUP, "chat_type": "group"},
    "the chat": {"chat": ALICE_CHAT},
}
ENDED = {
    ("colleague", "on-call chat", "button"),
    ("colleague", "on-call chat", "command"),
    ("colleague", "on-call chat", "command as a reply"),
    ("owner", "on-call chat", "button"),
    ("owner", "on-call chat", "command"),
    ("owner", "on-call chat", "command as a reply"),
    ("person", "the chat", "command"),
    ("person", "the chat", "command as a reply"),
}
SENT = {("colleague", "on-call chat", "reply")}


@pytest.mark.parametrize("who", WHO)
async def test_handover_matrix_of_who_may_do_what_where(tmp_path: Path, who: str) -> None:
    """Each way in, by each person, in each chat: what ends the handover, what is sent to the person, and nothing else."""
    more = f'owners: ["feishu:{DAVE}"]'
    async with desk(tmp_path, lambda _: says("an ordinary answer"), more=more) as house:
        for where, chat in WHERE.items():
            if where == "the chat" and who != "person":
                continue  # a direct chat
            for way in ("button", "reply", "command", "command as a reply"):
                with case((who, where, way)):
                    await taken(house)
                    before = len(read(house, ALICE_CHAT))
                    quoted = {"parent_id": notice(house), "root_id": notice(house)}
                    more_of = chat | ({"mention_bot": True} if "chat_type" in chat else {})
                    if way == "button":
                        pressed = house.feishu.press_event(notice(house), "Give back", sender=WHO[who])
                        pressed["event"]["context"]["open_chat_id"] = chat["chat"]
                        await house.push(pressed)
                    elif way == "reply":
                        await house.say("my words", sender=WHO[who], **more_of, **quoted)
                    else:
                        await house.say("/back", sender=WHO[who], **more_of, **(quoted if "reply" in way else {}))
                    await house.idle()
                    open_rows = await house.gateway.runtime.store.later.active("handover")
                    assert (not open_rows) is ((who, where, way) in ENDED)
                    new = read(house, ALICE_CHAT)[before:]
                    assert ("Carl: my words" in new) is ((who, where, way) in SENT)
                    assert "an ordinary answer" not in new
                    if open_rows:
                        await house.say("/back")
                        await house.idle()
