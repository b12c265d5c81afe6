"""What an agent does in chats on its own initiative: files, replies, changes, reactions, buttons and polls."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.models.script import calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.line import Line
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, Running, running
from tests.stories.channels.test_telegram import bot
from tests.stories.outbox.test_media import PNG
from tests.stories.process.test_process import platforms, polled, started
from tests.stories.turns.test_interrupted_calls import errors
from tests.waiting import until
from tests.web_page import CHAT, WEB, new_id, opened


def does(action: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    return "message", {"action": action, **arguments}


def files(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "plan.png").write_bytes(PNG)
    (folder / "b.png").write_bytes(PNG + b"b")
    (folder / "hi.ogg").write_bytes(b"OggS")
    (folder / "report.pdf").write_bytes(b"%PDF-1.7 text")


def schema(house: Running) -> dict[str, Any]:
    (found,) = (it for it in house.anthropic.requests[-1].body["tools"] if it["name"] == "message")
    members: dict[str, Any] = found["input_schema"]["properties"]
    return members


async def test_message_tool_offers_only_what_the_channel_can(tmp_path: Path) -> None:
    for name in "ftw":
        (tmp_path / name).mkdir()
    async with running(
        tmp_path / "f", script=[calls(does("poll", message="?", options=["a", "b"])), says("no")]
    ) as house:
        await house.say("hi")
        await house.replies(1)
        members = schema(house)
        assert members["action"]["enum"] == ["send", "reply", "edit", "delete", "react", "buttons"]
        assert {"media", "voice", "reply_to", "message_id", "emoji", "buttons"} <= set(members)
        assert "options" not in members
        (error,) = errors(house)
        assert error["error_code"] == "INVALID_ARGUMENT"
    async with bot(tmp_path / "t", "polling", script=[says("hi")]) as it:
        await it.happens(it.telegram.text_update("hi", chat=it.telegram.private()))
        await it.replies(1)
        assert "poll" in schema(it.house)["action"]["enum"]
    async with running(tmp_path / "w", script=[says("hi")], feishu=WEB) as house, opened(house.url) as page:
        await page.say("hi")
        await house.requested(1)
        assert schema(house)["action"]["enum"] == ["send", "edit", "buttons"]
        assert {"emoji", "options", "voice", "reply_to"}.isdisjoint(schema(house))


async def test_message_tool_sends_no_files_without_a_read_tool(tmp_path: Path) -> None:
    agents = "agents: { list: [{ id: helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [message] } }] }"
    async with running(tmp_path, agents=agents, script=[calls(does("send", media=["plan.png"])), says("no")]) as house:
        files(house.workspace())
        await house.say("hi")
        assert await house.replies(1) == ["no"]
        assert "media" not in schema(house)
        assert errors(house)[0]["error_code"] == "INVALID_ARGUMENT"


async def test_message_tool_in_feishu_sends_replies_edits_and_recalls(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        files(house.workspace())
        house.anthropic.script = [
            calls(does("send", message="see", media=["plan.png", "report.pdf"]), does("reply", message="yes")),
            calls(does("send", media=["nowhere.txt"]), does("send", media=["/etc/passwd"])),
            calls(does("react", emoji="👍"), does("react", emoji="no such thing")),
            says("done"),
        ]
        await house.say("show me")
        await house.replies(5)
        text, picture, file, reply, _ = house.feishu.messages
        assert [it.msg_type for it in house.feishu.messages] == ["post", "image", "file", "post", "post"]
        assert [it.reply_to is not None for it in house.feishu.messages] == [False, False, False, True, True]
        assert house.feishu.resources[picture.text].data == PNG
        assert (house.feishu.resources[file.text].name, reply.text) == ("report.pdf", "yes")
        assert [it["error_code"] for it in errors(house)] == ["NOT_FOUND", "NOT_FOUND", "NOT_DELIVERED"]
        assert [emoji for _, emoji in house.feishu.reacted] == ["THUMBSUP"]
        house.anthropic.script = [
            calls(
                does("edit", message_id=text.message_id, message="seen"),
                does("delete", message_id=reply.message_id),
                does("delete", message_id=reply.message_id),
            ),
            says("changed"),
        ]
        await house.say("change it")
        await house.replies(6)
        assert len(errors(house)) == 3  # those of before
        assert "seen" in [it.text for it in house.feishu.messages]
        assert house.feishu.known[reply.message_id].recalled


async def test_message_tool_refuses_messages_of_other_chats(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("to Alice")]) as house:
        await house.say("hi")
        await house.replies(1)
        foreign, asked = house.feishu.messages[0].message_id, house.feishu.messages[0].reply_to
        deeds = [does("reply", message="x", reply_to=it) for it in (foreign, asked, "om_never")]
        deeds += [does("edit", message_id=foreign, message="x"), does("delete", message_id=foreign)]
        deeds += [does("react", message_id=asked, emoji="👍"), does("delete", message_id=asked)]
        deeds += [does("send", target=ALICE_CHAT, message="x")]
        house.anthropic.script = [calls(*deeds), says("nothing")]
        await house.say("spy", sender=BOB, chat=GROUP, chat_type="group", mention_bot=True)
        await house.replies(2)
        assert [it["error_code"] for it in errors(house)] == ["NOT_FOUND"] * 7 + ["TARGET_NOT_ALLOWED"]
        assert house.feishu.shown(ALICE_CHAT) == ["to Alice"]
        assert house.feishu.reacted == []


async def test_message_tool_on_telegram_sends_albums_polls_and_edits(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling") as it:
        alice = it.telegram.private()
        files(it.house.workspace())
        it.house.anthropic.script = [
            calls(
                does("send", message="both", media=["plan.png", "b.png"]),
                does("send", media=["hi.ogg"], voice=True),
                does("poll", message="When?", options=["today", "tomorrow"]),
                does("send", message="first"),
                does("react", emoji="❤️"),
                does("react", emoji="✅"),
            ),
            says("done"),
        ]
        await it.happens(it.telegram.text_update("go", chat=alice))
        await it.replies(6)
        kinds = [(sent.kind, sent.text) for sent in it.telegram.messages]
        assert kinds == [
            ("photo", "both"),
            ("photo", ""),
            ("voice", ""),
            ("poll", "When?"),
            ("text", "first"),
            ("text", "done"),
        ]
        assert [reaction.emoji for reaction in it.telegram.reactions] == ["❤"]
        assert [error["error_code"] for error in errors(it.house)] == ["NOT_DELIVERED"]
        first, last = (str(it.telegram.messages[number].message_id) for number in (4, 5))
        it.house.anthropic.script = [
            calls(does("edit", message_id=first, message="**second**"), *[does("delete", message_id=last)] * 2),
            says("ok"),
        ]
        await it.happens(it.telegram.text_update("change", chat=alice))
        await it.replies(7)
        assert it.telegram.shown(alice)[-2:] == ["second", "ok"]
        assert it.telegram.deleted == [int(last)]


async def test_message_tool_button_press_joins_the_session(tmp_path: Path) -> None:
    offer = calls(does("buttons", message="Deploy?", buttons=["Yes, **now**", "No"]))
    async with running(tmp_path, script=[offer, says("__SILENT__")]) as house:
        await house.say("deploy", chat=GROUP, chat_type="group", mention_bot=True)
        await house.replies(1)
        await house.idle()
        card = house.feishu.messages[0].message_id
        assert list(house.feishu.card(card).buttons) == ["Yes, **now**", "No"]
        token = house.feishu.card(card).buttons["No"]["token"]
        house.anthropic.script = [says("deployed")]
        press = house.feishu.press_event(card, "Yes, **now**", sender=BOB)
        for _ in range(2):  # the platform repeats itself
            assert (await house.push(press)).json()["toast"]["content"] == "Received"
        await house.replies(2)
        await house.idle()
        asked = json.dumps(house.anthropic.requests[-1].body["messages"][-1])
        assert "[button: Yes, **now**]" in asked
        assert "Deploy?" in asked
        assert BOB in asked
        assert (house.feishu.messages[1].text, house.feishu.messages[1].reply_to) == ("deployed", card)
        assert len(house.anthropic.requests) == 3
        known = len(house.feishu.messages)
        other = house.feishu.messages[1].message_id
        for message, value in ((other, token), (card, token[:-1] + "7"), (card, "bt:nothing:0"), (card, "bt::")):
            await house.push(house.feishu.press_event(message, sender=BOB, value={"token": value}))
            await house.idle()
        lines = [it.text for it in house.feishu.messages[known:]]
        assert len(lines) == 4
        assert all("button" in line for line in lines)
        assert len(house.anthropic.requests) == 3


async def test_message_tool_button_belongs_to_one_conversation(tmp_path: Path) -> None:
    agents = """
agents:
  list:
    - { id: helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [message] }, session: { scope: sender } }
"""
    offer = calls(does("buttons", message="Your secret?", buttons=["1234"]))
    async with running(tmp_path, agents=agents, script=[offer, says("__SILENT__")]) as house:
        await house.say("mine", chat=GROUP, chat_type="group", mention_bot=True)
        await house.replies(1)
        await house.idle()
        card = house.feishu.messages[0].message_id
        await house.push(house.feishu.press_event(card, "1234", sender=BOB))
        assert "button" in (await house.replies(2))[1]
        await house.idle()
        assert len(house.anthropic.requests) == 2
        house.anthropic.script = [says("thanks")]
        await house.push(house.feishu.press_event(card, "1234", sender=ALICE))
        assert (await house.replies(3))[2] == "thanks"


@pytest.mark.parametrize("direct", [True, False])
async def test_message_tool_buttons_on_telegram_go_with_an_edit(tmp_path: Path, direct: bool) -> None:
    async with bot(tmp_path, "polling") as it:
        alice = it.telegram.private()
        chat = alice if direct else it.telegram.supergroup(forum=True)
        thread = None if direct else it.telegram.topic(chat, "Releases", by=alice)
        it.house.anthropic.script = [calls(does("buttons", message="Go?", buttons=["是", "否"])), says("__SILENT__")]
        update = it.telegram.text_update("@fixture_helper_bot ask", chat=chat, sender=alice, thread=thread)
        await it.happens(update)
        (offered, *_) = await it.replies(1)
        await it.house.idle()
        assert offered.reply_markup is not None
        assert offered.thread == thread
        data = offered.reply_markup["inline_keyboard"][0][0]["callback_data"]
        edit = does("edit", message_id=str(offered.message_id), message="Going.")
        it.house.anthropic.script = [calls(edit), says("__SILENT__")]
        await it.happens(it.telegram.press_update(offered.message_id, data, chat=chat, sender=alice))
        await it.house.until(lambda: it.telegram.edits)
        await it.house.idle()
        assert "[button: 是]" in json.dumps(it.house.anthropic.requests[-1].body, ensure_ascii=False)
        assert (it.telegram.edits[-1].text, it.telegram.edits[-1].reply_markup) == ("Going.", None)
        assert len(it.telegram.callback_answers) == 1


async def test_message_tool_button_in_the_web_chat(tmp_path: Path) -> None:
    script = [calls(does("buttons", message="Go?", buttons=["Yes"])), says("asked")]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        await page.say("ask me")
        await page.answers(2)
        await house.idle()
        (offer,) = (it for it in page.written() if it["buttons"])
        house.anthropic.script = [says("went")]
        press = {"token": offer["buttons"][0]["token"], "message": offer["message"]}
        posted = {"id": new_id("p"), "chat": CHAT, "agent": "helper", "press": press}
        assert (await page.http.post("/webhooks/web/default", json=posted)).status_code == 200
        assert await page.answers(3) == ["Go?", "asked", "went"]
        assert [it["text"] for it in page.written("you")] == ["ask me", "[button: Yes]"]


@pytest.mark.slow
async def test_message_tool_killed_while_sending_a_file_shows_it_once(tmp_path: Path) -> None:
    async with platforms(tmp_path) as (feishu, anthropic, config):
        files(tmp_path / "data" / "workspaces" / "helper")
        send = does("send", message="here", media=["report.pdf"])
        anthropic.script = [calls(send)]
        feishu.fail_next("/im/v1/messages", code=99991400, status=429, headers={"x-ogw-ratelimit-reset": "3"}, times=1)
        async with started(config) as run:
            await feishu.push(
                f"{run.url}/webhooks/feishu/default", feishu.text_event("go", sender=ALICE, chat=ALICE_CHAT)
            )
            await until(lambda: any(it.path == "/open-apis/im/v1/messages" for it in feishu.requests))
            await run.end(signal.SIGKILL)
        anthropic.script = [says("done")]
        async with started(config):
            await feishu.sent(3)
        assert [it.msg_type for it in feishu.messages] == ["post", "file", "post"]
        assert "INTERRUPTED" not in json.dumps(anthropic.requests[-1].body)


@pytest.mark.slow
async def test_message_tool_killed_after_the_send_knows_it_was_sent(tmp_path: Path) -> None:
    """What was sent and put on record is known, though the tool's result was never journaled."""
    telegram = TelegramEmulator()
    async with polled(tmp_path, telegram) as (anthropic, config):
        anthropic.script = [calls(does("send", message="one"), does("send", message="two"))]
        async with started(config) as run:
            alice = telegram.private()
            await telegram.push(telegram.text_update("go", chat=alice))
            await telegram.sent(1)
            await run.end(signal.SIGKILL)
        anthropic.script = [says("done")]
        async with started(config):
            await until(lambda: telegram.shown(alice)[-1:] == ["done"])
        shown = telegram.shown(alice)
        assert len(shown) == len(set(shown))
        assert shown[0] == "one"


STEPS = {
    "made": ("POST", "/cardkit/v1/cards"),
    "sent": ("POST", "/reply"),
    "changed": ("PUT", "/content"),
    "finished": ("PUT", "/cardkit/v1/cards/"),
}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_draft_killed_at_any_step_shows_the_answer_once(tmp_path: Path, step: str) -> None:
    method, path = STEPS[step]
    line, long = Line(), "first words " + "and more " * 30 + "the end"
    async with platforms(tmp_path, line=line) as (feishu, anthropic, config):
        text = config.read_text(encoding="utf-8").replace("    streaming: off\n", "")
        config.write_text(text.replace('reaction: ""', "reaction: Typing"), encoding="utf-8")
        anthropic.script = [says(long), says(long)]

        def is_there() -> bool:
            return any(it.method == method and path in it.path for it in feishu.requests)

        line.hold(after_pieces=2)
        async with started(config) as run:
            event = feishu.text_event("go", sender=ALICE, chat=ALICE_CHAT)
            await feishu.push(f"{run.url}/webhooks/feishu/default", event)
            await until(lambda: line.holding)
            if step == "finished":
                await until(lambda: any("/content" in it.path for it in feishu.requests))
                line.release()
            await until(is_there)
            await run.end(signal.SIGKILL)
        line.release()
        async with started(config):
            await until(lambda: feishu.shown(ALICE_CHAT) == [long])
            await until(lambda: not feishu.reactions)
            assert len(feishu.shown(ALICE_CHAT)) == 1
