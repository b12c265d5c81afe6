"""A conversation in the web chat, through the real door and back over the real event stream."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.demo import story
from tests.emulators.models.script import calls, says
from tests.running import AGENTS, running
from tests.stories.at_work import RUNS, results, text_of, users
from tests.stories.test_walkthrough import SIX_TOOLS, TRUSTED_KEYS
from tests.web_page import CHAT, WEB, new_id, opened

CODER = """
agents:
  list:
    - id: coder
      name: 代码助手
      model: anthropic/claude-sonnet-4-6
      systemPrompt: 你是一个全栈开发助手。
      tools: { allow: [read, write, edit, ls, exec, message] }
      skills: { allow: [create-python-script] }
"""


async def test_the_reference_case_is_the_same_in_the_web_chat(tmp_path: Path) -> None:
    story.lay_out(tmp_path / "data" / "workspaces" / "coder")
    script = story.model_script()
    async with running(tmp_path, script=script, agents=CODER, feishu=WEB) as house, opened(house.url) as page:
        message = new_id()
        assert (await page.say(story.ASKED, message=message, agent="coder")).json() == {}
        assert await page.answers(1) == [story.ANSWER]
        await house.idle()

        written = house.workspace("coder") / story.SCRIPT_NAME
        assert written.read_text(encoding="utf-8") == story.SCRIPT
        requests = [received.body for received in house.anthropic.requests]
        assert [received.refusal for received in house.anthropic.requests] == [None] * 4
        assert [[tool["name"] for tool in body["tools"]] for body in requests] == [SIX_TOOLS] * 4
        first = text_of(requests[0]["messages"][0])
        assert first.endswith(f"\n\n[message_id: {message}]\nUser: {story.ASKED}")
        trusted = json.loads(first.split("```json\n", 1)[1].split("\n```", 1)[0])
        assert set(trusted) == TRUSTED_KEYS
        assert (trusted["channel"], trusted["chat_type"]) == ("web", "direct")
        read, _, wrote = results(requests[-1])
        assert "create-python-script" in read
        assert wrote == f"Wrote {story.SCRIPT_NAME} ({len(story.SCRIPT.encode())} bytes)"

        own, answer = (await page.conversation())["messages"]
        assert (own["author"], own["message"], own["text"]) == ("you", message, story.ASKED)
        assert (answer["author"], answer["reply_to"], answer["agent"]) == ("agent", message, "coder")
        assert [(tool["name"], tool["state"]) for tool in answer["tools"]] == [
            ("read", "done"),
            ("ls", "done"),
            ("write", "done"),
        ]
        assert [tool["about"] for tool in answer["tools"]][1:] == [".", story.SCRIPT_NAME]
        assert "<li>" in answer["html"]
        assert page.said() == [answer]
        assert page.said("you") == [own]


async def test_a_page_is_told_of_a_turn_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    script = [calls(("ls", {"path": "."}), before="Let me look."), says("There is **nothing** here.")]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        message = new_id()
        house.line.hold(after_pieces=1)
        await page.say("what is there?", message=message)
        await page.until(lambda: any(shown.startswith("<p>There is") for shown in page.drafts()))
        house.line.release()
        await page.answers(1)
        await page.until(lambda: page.named("turn")[-1]["running"] is False)

        assert page.events[0].name == "hello"
        chat = page.named("chat")[0]
        assert (chat["id"], chat["title"], chat["agent"]) == (CHAT, "what is there?", "helper")
        turns = page.named("turn")
        assert {(it["chat"], it["message"]) for it in turns} == {(CHAT, message)}
        assert [it["running"] for it in turns] == [True] * (len(turns) - 1) + [False]
        assert turns[-1]["outcome"] == "replied"
        states = [[tool["state"] for tool in it["tools"]] for it in turns]
        assert states[0] == []
        assert ["running"] in states
        assert states[-1] == ["done"]
        numbers = [event.number for event in page.events if event.name == "message"]
        assert numbers == sorted({*numbers}, key=lambda it: it or 0)


async def test_the_same_message_five_times_at_once_is_one_turn_and_one_answer(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        message = new_id()
        answers = await asyncio.gather(*(page.say("hello", message=message) for _ in range(5)))
        answers += [await page.say("hello", message=message) for _ in range(5)]
        await page.answers(1)
        await house.idle()
        assert [answer.status_code for answer in answers] == [200] * 10
        assert len(house.anthropic.requests) == 1
        assert [it["author"] for it in (await page.conversation())["messages"]] == ["you", "agent"]
        await page.say("hello", message=message)
        await page.say("and now?")
        await page.answers(2)
        assert [it["text"] for it in page.said("you")] == ["hello", "and now?"]


@pytest.mark.parametrize("agent", ["nobody", "a:b%3A", "x" * 64, "a\x00b", "../../x", "helper "])
async def test_an_agent_that_there_is_not_is_a_sentence_and_not_silence(tmp_path: Path, agent: str) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        assert (await page.say("hello", agent=agent)).status_code == 200
        (answer,) = await page.answers(1)
        assert "no longer configured" in answer
        assert house.anthropic.requests == []
        assert (await page.http.delete(f"/api/chats/{CHAT}")).status_code == 204


async def test_the_person_chooses_whom_to_talk_to(tmp_path: Path) -> None:
    two = f"{AGENTS}    - {{ id: second, model: anthropic/claude-sonnet-4-6, name: The Second }}\n"
    async with running(tmp_path, agents=two, feishu=WEB) as house, opened(house.url) as page:
        told = (await page.http.get("/api/chats")).json()
        assert [(it["id"], it["name"]) for it in told["agents"]] == [("helper", "helper"), ("second", "The Second")]
        await page.say("hello", agent="second", chat="c_the_second")
        await page.say("hello", agent="helper")
        await page.answers(2)
        assert {it["chat"]: it["agent"] for it in page.said()} == {"c_the_second": "second", CHAT: "helper"}


async def test_a_stop_ends_the_running_answer_and_says_so(tmp_path: Path) -> None:
    command = f"sleep 60; : {tmp_path}"
    script = [calls(("exec", {"command": command})), says("fresh")]
    commanding = running(tmp_path, script=script, more=RUNS, feishu=WEB)
    async with commanding as house, opened(house.url, link=house.gateway.offer_link()) as page:
        await page.say("run it")
        await page.until(lambda: any(it["tools"] for it in page.named("turn")))
        assert [chat["running"] for chat in await page.chats()] == [True]
        await page.say("/stop")
        assert (await page.answers(1))[0].startswith("Stopped.")
        await page.until(lambda: page.named("turn")[-1]["outcome"] == "stopped")
        assert page.named("turn")[-1]["running"] is False
        await house.idle()
        assert [chat["running"] for chat in await page.chats()] == [False]
        await page.say("hello again")
        assert (await page.answers(2))[1] == "fresh"


async def test_what_was_read_before_a_stop_is_not_taken_away(tmp_path: Path) -> None:
    script = [says("Once upon a time there was a gateway.", cut_after=6, then="stall"), says("fresh")]
    async with running(tmp_path, script=script, feishu=WEB) as house, opened(house.url) as page:
        told = new_id()
        await page.say("tell me a story", message=told)
        await page.until(lambda: any("Once upon" in shown for shown in page.drafts()))
        await page.say("/stop")
        await page.answers(2)
        (kept,) = [it for it in page.said() if it["reply_to"] == told]
        assert kept["text"].startswith("Once upon")
        assert kept["text"].endswith(" …")
        await page.say("hello again")
        assert (await page.answers(3))[2] == "fresh"


async def test_a_stop_in_another_conversation_stops_only_there(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("slow")], feishu=WEB) as house, opened(house.url) as page:
        house.line.hold()
        await page.say("think")
        await house.requested(1)
        await page.say("/stop", chat="c_another_one")
        assert "nothing to stop" in (await page.answers(1))[0]
        house.line.release()
        assert (await page.answers(2))[1] == "slow"


async def test_what_comes_during_a_turn_is_seen_at_once_and_answered_together(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("slow"), says("both")], feishu=WEB) as house, opened(house.url) as page:
        house.line.hold()
        await page.say("one")
        await house.requested(1)
        await page.say("two")
        newest = new_id()
        await page.say("three", message=newest)
        await page.until(lambda: len(page.said("you")) == 3)
        assert page.said() == []
        house.line.release()
        assert await page.answers(2) == ["slow", "both"]
        words = "\n".join(users(house.anthropic.requests[1].body))
        assert words.index(": two") < words.index(": three")
        assert page.said()[1]["reply_to"] == newest


async def test_a_conversation_beyond_its_limit_is_told_so_at_the_message(tmp_path: Path) -> None:
    more = "limits: { pendingPerSession: 2 }\nqueue: { mode: followup }"
    script = [says("done")] * 3
    async with running(tmp_path, script=script, more=more, feishu=WEB) as house, opened(house.url) as page:
        house.line.hold()
        for number in range(5):
            assert (await page.say(f"n{number}")).status_code == 200
        assert "already waiting" in (await page.answers(1))[0]
        house.line.release()
        await house.idle()
        await page.answers(3)
        texts_ = [it["text"] for it in page.said()]
        assert texts_.count("done") == 2
        (note,) = [it for it in page.said() if "already waiting" in it["text"]]
        assert note["reply_to"] in [it["message"] for it in page.said("you")]
        assert len(page.said("you")) == 5


async def test_older_messages_come_page_by_page(tmp_path: Path) -> None:
    more = "queue: { mode: followup }"
    async with (
        running(tmp_path, script=lambda _: says("ok"), more=more, feishu=WEB) as house,
        opened(house.url) as page,
    ):
        for number in range(28):
            await page.say(f"n{number}")
        await page.answers(28)
        await house.idle()
        newest = await page.conversation()
        assert (len(newest["messages"]), newest["more"]) == (50, True)
        older = await page.conversation(before=newest["messages"][0]["id"])
        assert (len(older["messages"]), older["more"]) == (6, False)
        numbers = [it["id"] for it in (*older["messages"], *newest["messages"])]
        assert numbers == sorted(set(numbers))
        for odd in ("0", "-1", "x", "9" * 40, "1e3"):
            assert (await page.http.get(f"/api/chats/{CHAT}", params={"before": odd})).status_code == 200


async def test_the_tool_that_writes_to_a_chat_writes_to_the_web_chat_too(tmp_path: Path) -> None:
    here = ("message", {"action": "send", "channel": "web", "target": CHAT, "message": "by the way"})
    nowhere = ("message", {"action": "send", "channel": "web", "target": "c_not_there", "message": "x"})
    script = [calls(here, nowhere), says("done")]
    agents = AGENTS.replace("message] }", "message], message: { targets: ['web:c_not_there'] } }")
    async with running(tmp_path, script=script, agents=agents, feishu=WEB) as house, opened(house.url) as page:
        await page.say("write")
        assert await page.answers(2) == ["by the way", "done"]
        assert "NOT_DELIVERED" in json.dumps(house.anthropic.requests[-1].body["messages"][-1])


async def test_nothing_is_asked_of_the_model_for_what_is_no_message(tmp_path: Path) -> None:
    sound = {"id": "m_12345678", "chat": CHAT, "agent": "helper", "text": "x", "files": []}
    odd: list[object] = [
        sound | {"id": "short"},
        sound | {"id": "m_" + "x" * 63},
        sound | {"id": "m_1234/../8"},
        sound | {"id": "m_12345678\n"},
        sound | {"chat": "c 2345678"},
        sound | {"chat": "c:2345678"},
        sound | {"chat": "c_\u00e92345678"},
        sound | {"chat": 12345678},
        sound | {"agent": "x" * 65},
        sound | {"text": "  \n"},
        sound | {"text": ["x"]},
        sound | {"files": ["f_not_there_"]},
        sound | {"files": ["../../etc/passwd"]},
        sound | {"files": "f_12345678"},
        sound | {"more": True},
        {},
        [],
        None,
        "x",
    ]
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:
        for posted in odd:
            answer = await page.http.post("/webhooks/web/default", json=posted)
            assert answer.status_code == 400, posted
            assert answer.json()["error"]
        for raw in (b"", b"{", b"\xff", b'{"id": "\\ud800"}', b"[" * 10_000, b"x" * 100_000):
            assert (await page.http.post("/webhooks/web/default", content=raw)).status_code == 400
        assert await page.chats() == []
        assert house.anthropic.requests == []


async def test_whatever_is_written_comes_back_as_it_was_and_breaks_no_stream(tmp_path: Path) -> None:
    odd = [
        "a\r\n\r\ndata: x\n\nevent: reset\ndata: {}\n\n",
        "x\u2028\u2029\x85y",
        "\x00\x1b[0m",
        "𝔘🀄" * 9,
        "<script>",
        "/STOP x",
    ]
    answer = says("\r\nevent: reset\r\n")
    async with running(tmp_path, script=lambda _: answer, feishu=WEB) as house, opened(house.url) as page:
        for number, text in enumerate(odd):
            assert (await page.say(text, chat=f"c_number_{number}")).status_code == 200
        await page.answers(len(odd))
        kept = [text.replace("\x00", "\ufffd") for text in odd]
        assert sorted(it["text"] for it in page.said("you")) == sorted(kept)
        assert page.named("reset") == []
        assert len(await page.chats()) == len(odd)
