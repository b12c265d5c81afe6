"""A conversation that is deleted is gone: from the page, from the agent's memory and from every table."""

import sqlite3
from contextlib import closing
from pathlib import Path

from tests.emulators.models.script import calls, says
from tests.running import AGENTS, Running, running
from tests.stories.at_work import NEVER, RUNS
from tests.web_page import CHAT, WEB, Page, opened

SECRET = "canary-of-the-conversation"


def rows_with(folder: Path, word: str) -> list[str]:
    """The tables that still hold the word, in any column of any row."""
    with closing(sqlite3.connect(folder / "data" / "clawgate.db", timeout=10)) as database:
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return [name for name in tables for row in database.execute(f"SELECT * FROM {name}") if word in str(row)]


async def erase(page: Page, chat: str = CHAT) -> None:
    answer = await page.http.delete(f"/api/chats/{chat}")
    assert (answer.status_code, answer.content) == (204, b"")
    await page.until(lambda: {"id": chat, "deleted": True} in page.named("chat"))
    assert (await page.http.get(f"/api/chats/{chat}")).status_code == 404
    assert (await page.http.delete(f"/api/chats/{chat}")).json()["code"] == "no-such-chat"


async def answered_anew(house: Running, page: Page) -> None:
    """Under the same id it is a new conversation, of which the agent remembers nothing."""
    house.anthropic.script = [says("nice to meet you")]
    answers = len(page.written())
    assert (await page.say("hello again")).status_code == 200
    assert (await page.answers(answers + 1))[-1] == "nice to meet you"
    assert SECRET not in str(house.anthropic.requests[-1].body)
    assert [it["text"] for it in (await page.conversation())["messages"]] == ["hello again", "nice to meet you"]


async def test_web_erase_removes_a_conversation_from_every_table(house: Running, page: Page) -> None:
    house.anthropic.script = [
        calls(("ls", {"path": "."}), before=SECRET),
        says(f"{SECRET}\nMEDIA:{SECRET}.txt"),
    ]
    (house.workspace() / f"{SECRET}.txt").write_text(SECRET)
    file = (await page.upload(SECRET.encode(), f"{SECRET}.txt", "text/plain")).json()
    await page.say(SECRET, files=[file["id"]])
    await page.answers(1)
    await house.idle()
    sent = page.written()[0]["files"][0]
    await page.say("/stop")
    await page.answers(2)
    await page.say("/queue followup")
    await page.answers(3)
    await house.idle()
    await erase(page)
    assert rows_with(house.folder, SECRET) == []
    assert rows_with(house.folder, CHAT) == []
    for gone in (file, sent):
        assert (await page.http.get(f"/api/files/{gone['id']}")).status_code == 404
    await answered_anew(house, page)


async def test_web_erase_during_an_answer_leaves_nothing(tmp_path: Path) -> None:
    command = calls(("exec", {"command": f"sleep 60; : {SECRET}"}), before=SECRET)
    commanding = running(tmp_path, more=RUNS, feishu=WEB)
    async with commanding as house, opened(house.url, link=house.gateway.offer_link()) as page:
        for what in ("a command", "a thought", "a line"):
            house.anthropic.script, asked = [command if what == "a command" else NEVER], len(house.anthropic.requests)
            page.events.clear()
            await page.say(SECRET)
            await house.requested(asked + 1)
            if what == "a line":
                await page.say(f"{SECRET} and this")
            if what == "a command":
                await page.until(lambda: any(it["tools"] for it in page.named("turn")))
            await erase(page)
            assert [it["running"] for it in page.named("turn")][-1] is False, what
            await house.idle()
            assert page.written() == [], what
            assert rows_with(tmp_path, SECRET) == [], what
            await answered_anew(house, page)


async def test_web_erase_works_for_a_removed_agent_and_a_full_queue(
    tmp_path: Path,
) -> None:
    two = f"{AGENTS}    - {{ id: former, model: anthropic/claude-sonnet-4-6 }}\n"
    async with running(tmp_path, agents=two, feishu=WEB) as house, opened(house.url) as page:
        await page.say(SECRET, agent="former")
        await page.answers(1)
        await house.idle()
    more = "limits: { pendingPerSession: 1 }\nqueue: { mode: followup }"
    async with running(tmp_path, script=[NEVER], more=more, feishu=WEB) as house, opened(house.url) as page:
        await page.say("think")
        await house.requested(1)
        for number in range(3):
            await page.say(f"{SECRET} {number}")
        await page.until(lambda: any("waiting already" in it["text"] for it in page.written()))
        assert page.written()[0]["reply_to"] in [it["message"] for it in page.written("you")]
        await erase(page)
        await house.idle()
        assert rows_with(tmp_path, SECRET) == []
        await answered_anew(house, page)


async def test_web_erase_removes_pending_approvals(house: Running, page: Page) -> None:
    house.anthropic.script = [calls(("exec", {"command": f"echo {SECRET} >> ran.txt; true"})), says("asked")]
    await page.say("run it")
    await page.until(lambda: any("/approve" in it["text"] for it in page.written()))
    await house.idle()
    assert rows_with(house.folder, SECRET)
    await erase(page)
    await house.idle()
    assert rows_with(house.folder, SECRET) == []
    await answered_anew(house, page)


async def test_web_erase_spares_other_conversations(house: Running, page: Page) -> None:
    for chat in ("c_same_prefix", "c_same_prefix2", "cXsame_prefix", "c_same_prefi"):
        await page.say(f"remember {chat}.", chat=chat)
    await page.answers(4)
    await house.idle()
    await erase(page, "c_same_prefix")
    assert len(await page.chats()) == 3
    for number, chat in enumerate(("c_same_prefix2", "cXsame_prefix", "c_same_prefi")):
        await page.say("do you?", chat=chat)
        await page.answers(5 + number)
        assert f"remember {chat}." in str(house.anthropic.requests[-1].body)


NOWHERE = ["c_nothing_here", "%00", "..%2F..%2Fx", "%27%20OR%201=1", "%", "x" * 300, "%ED%A0%80"]
TITLES = [("  My\nplan ", "My plan"), ("a\x00\x07b", "a b"), ("", "…"), ("x" * 9999, "x" * 59 + "…")]


async def test_web_rename_reaches_every_page(house: Running, page: Page) -> None:
    await page.say("hello")
    await page.answers(1)
    async with opened(house.url) as other:
        for title, shown in TITLES:
            answer = await page.http.patch(f"/api/chats/{CHAT}", json={"title": title})
            assert answer.json()["title"] == shown
            await other.until(lambda shown=shown: shown in [it["title"] for it in other.named("chat")[-1:]])  # type: ignore[misc]
    for odd in (b"{}", b"[]", b"{", b'{"title": 1}', b'{"title": "x", "id": "c_other"}'):
        headers = {"content-type": "application/json"}
        assert (await page.http.patch(f"/api/chats/{CHAT}", content=odd, headers=headers)).status_code == 400
    for chat in NOWHERE:
        for method, place in (("GET", "chats"), ("DELETE", "chats"), ("PATCH", "chats"), ("GET", "files")):
            renaming = {"title": "x"} if method == "PATCH" else None
            assert (await page.http.request(method, f"/api/{place}/{chat}", json=renaming)).status_code == 404
