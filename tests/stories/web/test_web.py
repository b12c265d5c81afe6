"""A conversation in the web chat, through the real door and back over the real event stream."""

import asyncio
import json
from pathlib import Path

from tests.emulators.models.script import calls, says
from tests.running import AGENTS, Running, running
from tests.stories.at_work import spoken
from tests.web_page import CHAT, WEB, Page, new_id, opened


async def test_web_chat_streams_a_turn_from_start_to_end(house: Running, page: Page) -> None:
    house.anthropic.script = [calls(("ls", {"path": "."}), before="Let me look."), says("There is **nothing** here.")]
    message = new_id()
    house.line.hold(after_pieces=1)
    assert (await page.say("what is there?", message=message)).json() == {}
    await page.until(lambda: any(shown.startswith("<p>There is") for shown in page.drafts()))
    house.line.release()
    assert await page.answers(1) == ["There is **nothing** here."]
    await page.until(lambda: page.named("turn")[-1]["running"] is False)

    assert page.events[0].name == "hello"
    chat = page.named("chat")[0]
    assert (chat["id"], chat["title"], chat["agent"]) == (CHAT, "what is there?", "helper")
    turns = page.named("turn")
    assert {(it["chat"], it["message"]) for it in turns} == {(CHAT, message)}
    assert [it["running"] for it in turns] == [True] * (len(turns) - 1) + [False]
    assert turns[-1]["outcome"] == "replied"
    states = [[tool["state"] for tool in it["tools"]] for it in turns]
    assert (states[0], ["running"] in states, states[-1]) == ([], True, ["done"])
    numbers = [event.number for event in page.events if event.name == "message"]
    assert numbers == sorted({*numbers}, key=lambda it: it or 0)

    own, answer = (await page.conversation())["messages"]
    assert (own["author"], own["message"], own["text"]) == ("you", message, "what is there?")
    assert (answer["author"], answer["reply_to"], answer["agent"]) == ("agent", message, "helper")
    assert [(tool["name"], tool["about"], tool["state"]) for tool in answer["tools"]] == [("ls", ".", "done")]
    assert "<strong>nothing</strong>" in answer["html"]
    assert (page.written(), page.written("you")) == ([answer], [own])
    words = spoken(house)
    assert words.endswith(f"\n\n[message_id: {message}]\nUser: what is there?")
    trusted = json.loads(words.split("```json\n", 1)[1].split("\n```", 1)[0])
    assert (trusted["channel"], trusted["chat_type"]) == ("web", "direct")


async def test_web_chat_redelivered_message_is_idempotent(house: Running, page: Page) -> None:
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
    assert [it["text"] for it in page.written("you")] == ["hello", "and now?"]


NOBODY = ["nobody", "a:b%3A", "x" * 64, "a\x00b", "../../x", "helper "]


async def test_web_chat_agent_choice_and_an_unknown_agent(tmp_path: Path) -> None:
    two = f"{AGENTS}    - {{ id: second, model: anthropic/claude-sonnet-4-6, name: The Second }}\n"
    async with running(tmp_path, agents=two, feishu=WEB) as house, opened(house.url) as page:
        listed = (await page.http.get("/api/chats")).json()["agents"]
        assert [(it["id"], it["name"]) for it in listed] == [("helper", "helper"), ("second", "The Second")]
        await page.say("hello", agent="second", chat="c_the_second")
        await page.say("hello", agent="helper")
        await page.answers(2)
        assert {it["chat"]: it["agent"] for it in page.written()} == {"c_the_second": "second", CHAT: "helper"}
        for number, agent in enumerate(NOBODY, start=3):
            assert (await page.say("hello", agent=agent, chat=f"c_nobody_{number}")).status_code == 200
            assert "no longer available here" in (await page.answers(number))[-1]
        assert len(house.anthropic.requests) == 2


async def test_stop_in_the_web_chat_ends_its_own_conversation(house: Running, page: Page) -> None:
    story = says("Once upon a time there was a gateway.", cut_after=6, then="stall")
    house.anthropic.script = [story, says("fresh")]

    async def is_running() -> bool:
        return any(chat["running"] for chat in await page.chats())

    question = new_id()
    await page.say("tell me a story", message=question)
    await page.until(lambda: any("Once upon" in shown for shown in page.drafts()))
    await page.say("/stop", chat="c_another_one")
    assert "Nothing is running" in (await page.answers(1))[0]
    assert await is_running()
    await page.say("/stop")
    await page.answers(3)
    (kept,) = [it["text"] for it in page.written() if it["reply_to"] == question]
    assert kept.startswith("Once upon")
    assert kept.endswith(" …")
    assert [it["text"][:8] for it in page.written(chat=CHAT) if it["text"] != kept] == ["Stopped."]
    await page.until(lambda: page.named("turn")[-1]["outcome"] == "stopped")
    assert page.named("turn")[-1]["running"] is False
    await house.idle()
    assert not await is_running()
    await page.say("hello again")
    assert (await page.answers(4))[3] == "fresh"


async def test_message_tool_writes_to_the_web_chat(tmp_path: Path) -> None:
    here = ("message", {"action": "send", "channel": "web", "target": CHAT, "message": "by the way"})
    nowhere = ("message", {"action": "send", "channel": "web", "target": "c_not_there", "message": "x"})
    script = [calls(here, nowhere), says("done")]
    agents = AGENTS.replace("message] }", "message], message: { targets: ['web:c_not_there'] } }")
    async with running(tmp_path, script=script, agents=agents, feishu=WEB) as house, opened(house.url) as page:
        await page.say("write")
        assert await page.answers(2) == ["by the way", "done"]
        assert "NOT_DELIVERED" in json.dumps(house.anthropic.requests[-1].body["messages"][-1])


SOUND = {"id": "m_12345678", "chat": CHAT, "agent": "helper", "text": "x", "files": []}
ODD: dict[str, list[object]] = {
    "id": ["short", "m_" + "x" * 63, "m_1234/../8", "m_12345678\n"],
    "chat": ["c 2345678", "c:2345678", "c_\u00e92345678", 12345678],
    "agent": ["x" * 65],
    "text": ["  \n", ["x"]],
    "files": [["f_not_there_"], ["../../etc/passwd"], "f_12345678"],
    "more": [True],
}


async def test_web_chat_invalid_message_asks_no_model(house: Running, page: Page) -> None:
    posts: list[object] = [SOUND | {key: value} for key, values in ODD.items() for value in values]
    for posted in (*posts, {}, [], None, "x"):
        answer = await page.http.post("/webhooks/web/default", json=posted)
        assert answer.status_code == 400, posted
        assert answer.json()["error"]
    for raw in (b"", b"{", b"\xff", b'{"id": "\\ud800"}', b"[" * 10_000, b"x" * 100_000):
        assert (await page.http.post("/webhooks/web/default", content=raw)).status_code == 400
    assert await page.chats() == []
    assert house.anthropic.requests == []


async def test_web_chat_any_text_round_trips(house: Running, page: Page) -> None:
    odd = [
        "a\r\n\r\ndata: x\n\nevent: reset\ndata: {}\n\n",
        "x\u2028\u2029\x85y",
        "\x00\x1b[0m",
        "𝔘🀄" * 9,
        "<script>",
        "/STOP x",
    ]
    house.anthropic.script = lambda _: says("\r\nevent: reset\r\n")
    for number, text in enumerate(odd):
        assert (await page.say(text, chat=f"c_number_{number}")).status_code == 200
    await page.answers(len(odd))
    assert sorted(it["text"] for it in page.written("you")) == sorted(text.replace("\x00", "\ufffd") for text in odd)
    assert page.named("reset") == []
    assert len(await page.chats()) == len(odd)


async def test_web_chat_title_comes_from_the_first_message(house: Running, page: Page) -> None:
    """The page sends one for a choice that is made before the first words; asking what is set is words like others."""
    house.anthropic.script = [says("A plan.")]
    for number, (text, title) in enumerate(
        (("/think low", ""), ("／思考 high", ""), ("make a plan", "make a plan")), start=1
    ):
        await page.say(text)
        await page.answers(number)
        assert [it["title"] for it in await page.chats()] == [title]
    other = CHAT + "_other"
    await page.say("/think", chat=other)
    await page.until(lambda: any(it["title"] == "/think" for it in page.named("chat")))
