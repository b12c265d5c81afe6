"""Chats found with their lines, pinned above the others or put aside, and no one else's."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from gateway.store.archive import WebHit
from tests.emulators.models.script import says
from tests.running import Running, running
from tests.stories.web.test_web_streams import history
from tests.stories.web.test_web_users import SERVER, bearer
from tests.waiting import until
from tests.web_page import CHAT, WEB, Page, opened

ASIDE = "c_aside_aside_aside"


async def moved(page: Page, chat: str, **change: object) -> dict[str, object]:
    answer = await page.http.patch(f"/api/chats/{chat}", json=change)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def found(page: Page, words: str) -> list[tuple[str, list[str], list[list[str]]]]:
    answer = await page.http.get("/api/search", params={"words": words})
    return [(it["chat"]["id"], it["title"], [hit["line"] for hit in it["hits"]]) for it in answer.json()["chats"]]


async def test_web_search_lists_chats_with_matching_lines(house: Running, page: Page) -> None:
    house.anthropic.script = [says("Hello.\nThe <b>Heron</b> lands at noon."), says("Nothing.")]
    await page.say("When does the heron land?")
    await page.answers(1)
    await page.say("Another thing", chat=ASIDE)
    await page.answers(2)
    await moved(page, ASIDE, archived=True)
    lines = [["The <b>", "Heron", "</b> lands at noon."], ["When does the ", "heron", " land?"]]
    assert await found(page, "HERON") == [(CHAT, ["When does the ", "heron", " land?"], lines)]
    assert await found(page, "noon heron") == [
        (CHAT, ["When does the ", "heron", " land?"], [["The <b>", "Heron", "</b> lands at ", "noon", "."]])
    ]
    assert [it[0] for it in await found(page, "thing")] == [ASIDE]
    assert await found(page, "heron thing") == await found(page, " ") == []
    [hit, _] = (await page.http.get("/api/search?words=heron")).json()["chats"][0]["hits"]
    assert [it["id"] for it in (await page.conversation())["messages"] if it["author"] == "agent"] == [hit["message"]]


async def test_web_search_hit_can_be_paged_to(house: Running, page: Page) -> None:
    await history(house, *[5] * 120)
    [it] = (await page.http.get("/api/search", params={"words": "40 word"})).json()["chats"]
    number = it["hits"][0]["message"]
    newest = await page.conversation()
    assert number not in [it["id"] for it in newest["messages"]]
    back = await page.conversation(before=newest["messages"][0]["id"], until=number)
    numbers = [it["id"] for it in back["messages"]]
    assert numbers[25] == number
    assert numbers[-1] + 1 == newest["messages"][0]["id"]
    assert back["more"]


async def test_web_chat_is_pinned_or_archived_by_its_person(
    tmp_path: Path,
) -> None:
    async with (
        running(tmp_path, script=[says("One."), says("Two."), says("Back.")], more=SERVER, feishu=WEB) as house,
        opened(house.url, authorization=bearer("ann")) as ann,
        opened(house.url, authorization=bearer("bob")) as bob,
    ):
        for at, chat in enumerate((CHAT, ASIDE)):
            await ann.say("hello", chat=chat)
            await ann.answers(at + 1)
        assert (await moved(ann, CHAT, pinned=True))["pinned"] is True
        await ann.until(lambda: any(it.get("pinned") for it in ann.named("chat")))
        assert [it["id"] for it in await ann.chats()] == [CHAT, ASIDE]
        assert (await moved(ann, ASIDE, archived=True, title="Aside"))["archived"] is True
        listed = (await ann.http.get("/api/chats")).json()
        assert ([it["id"] for it in listed["chats"]], listed["archived"]) == ([CHAT], 1)
        [aside] = (await ann.http.get("/api/archived")).json()["chats"]
        assert (aside["id"], aside["title"]) == (ASIDE, "Aside")

        assert (await bob.http.patch(f"/api/chats/{CHAT}", json={"pinned": False})).status_code == 404
        assert (await bob.http.get("/api/archived")).json() == {"chats": [], "next": None}
        assert (await bob.http.get("/api/chats")).json()["archived"] == 0
        assert await found(bob, "hello") == []
        assert (await ann.http.patch(f"/api/chats/{CHAT}", json={"pinned": 1})).status_code == 400
        assert (await ann.http.patch(f"/api/chats/{CHAT}", json={"owner": "bob"})).status_code == 400

        await ann.say("again", chat=ASIDE)
        await ann.answers(3)
        assert [it["id"] for it in await ann.chats()] == [CHAT, ASIDE]
        await moved(ann, ASIDE, archived=True)
        assert (await ann.http.delete(f"/api/chats/{ASIDE}")).status_code == 204
        assert (await ann.http.get("/api/archived")).json() == {"chats": [], "next": None}


async def test_web_search_is_cancelled_with_its_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with (
        running(tmp_path, more=SERVER, feishu=WEB) as house,
        opened(house.url, authorization=bearer("ann")) as ann,
        opened(house.url, authorization=bearer("bob")) as bob,
    ):
        for number in range(4):
            await ann.say("hello", chat=f"c_of_ann_{number}_of_ann")
        await bob.say("hello", chat=ASIDE)
        await ann.answers(4)
        await bob.answers(1)
        search, may_go_on, searched = house.gateway.runtime.store.search, asyncio.Event(), list[tuple[str, str]]()
        hits = search.hits

        async def slow(chat: str, words: Sequence[str], *, limit: int) -> Sequence[WebHit]:
            searched.append((chat, words[0]))
            if chat != ASIDE:
                await may_go_on.wait()
            return await hits(chat, words, limit=limit)

        monkeypatch.setattr(search, "hits", slow)
        leaving = [asyncio.create_task(found(ann, word)) for word in ("first", "second")]
        await until(lambda: len(searched) == 1)
        assert [it[0] for it in await found(bob, "hello")] == [ASIDE]
        for it in leaving:
            it.cancel()
        await asyncio.wait(leaving)
        await ann.http.get("/api/chats")  # a later request: the server has seen that the others are closed
        staying = asyncio.create_task(found(ann, "hello"))
        may_go_on.set()
        assert len(await staying) == 4
        begun = [word for chat, word in searched if chat != ASIDE]
        assert begun[0] in ("first", "second")
        assert begun[1:] == ["hello"] * 4
