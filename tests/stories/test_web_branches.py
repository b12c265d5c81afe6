"""Branches of a conversation over HTTP: whose they are, what a crash leaves of one, and what deleting does."""

from pathlib import Path

import pytest

from channels.web.archive import MessageBody
from tests.emulators.models.script import Fault, calls, says
from tests.running import FEISHU, Running, running
from tests.stories.test_web_erase import SECRET, erase, rows_with
from tests.web_page import CHAT, WEB, Page, new_id, opened

SERVER = f"server: {{ host: 0.0.0.0, adminToken: {'o' * 40}, users: {{ ann: {'a' * 40}, bob: {'b' * 40} }} }}"


async def instead(page: Page, text: str, of: str, *, message: str = "", chat: str = CHAT) -> tuple[int, str]:
    posted = {"id": message or new_id(), "chat": chat, "agent": "helper", "text": text, "instead": of}
    answer = await page.http.post("/webhooks/web/default", json=posted)
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["code"]


async def shown(page: Page) -> list[str]:
    return [it["text"] for it in (await page.conversation())["messages"]]


def said(house: Running, request: int) -> list[str]:
    """The words in a request to the model, without what the gateway puts before them."""
    messages = house.anthropic.requests[request].body["messages"]
    parts = [it["content"] if isinstance(it["content"], list) else [{"text": it["content"]}] for it in messages]
    return [part["text"].rpartition("\n")[2].removeprefix("User: ") for it in parts for part in it if "text" in part]


async def test_a_branch_that_a_crash_cut_off_before_its_message_was_accepted_is_answered_once(
    house: Running, page: Page
) -> None:
    """The archive has the message and the inbox has not; the page sends it again until it hears of it."""
    house.anthropic.script = [says("one"), says("other one")]
    assert (await page.say("a", message="m_first_of_all")).status_code == 200
    await page.answers(1)
    body = MessageBody(text="A", agent="helper", instead="m_first_of_all")
    await house.gateway.runtime.store.archive.keep(CHAT, "m_second_one", body, 1.0)
    for _ in range(3):
        assert await instead(page, "A", "m_first_of_all", message="m_second_one") == (200, "")
    await page.answers(2)
    await house.idle()
    seen = await page.conversation()
    assert [it["text"] for it in seen["messages"]] == ["A", "other one"]
    assert [len(it) for it in seen["versions"].values()] == [2]
    assert len(house.anthropic.requests) == 2
    assert "one" not in [part["text"] for it in house.anthropic.requests[1].body["messages"] for part in it["content"]]


async def test_a_turn_that_fails_on_a_branch_says_so_there_alone_and_can_be_tried_again(
    house: Running, page: Page
) -> None:
    house.anthropic.script = [says("one"), Fault(status=401), says("other one")]
    await page.say("a", message="m_first_of_all")
    await page.answers(1)
    assert await instead(page, "A", "m_first_of_all", message="m_second_one") == (200, "")
    failed = (await page.answers(2))[1]
    seen = await page.conversation()
    assert [it["text"] for it in seen["messages"]] == ["A", failed]
    assert seen["messages"][1]["turn"]["failed"] is True
    assert await instead(page, "A", "m_second_one") == (200, "")
    await page.answers(3)
    assert await shown(page) == ["A", "other one"]
    assert said(house, -1) == ["A"]
    (numbers,) = (await page.conversation())["versions"].values()
    for number, words in zip(numbers, (["a", "one"], ["A", failed], ["A", "other one"]), strict=True):
        assert (await page.http.patch(f"/api/chats/{CHAT}", json={"branch": number})).status_code == 200
        assert await shown(page) == words


async def test_another_person_begins_no_branch_and_turns_to_none(tmp_path: Path) -> None:
    async with (
        running(tmp_path, script=[says("one"), says("two")], more=SERVER, feishu=WEB) as house,
        opened(house.url, authorization=f"Bearer {'a' * 40}") as ann,
        opened(house.url, authorization=f"Bearer {'b' * 40}") as bob,
    ):
        await ann.say("a", message="m_first_of_all")
        await ann.answers(1)
        assert await instead(bob, "x", "m_first_of_all") == (404, "refused")
        number = (await ann.conversation())["messages"][0]["id"]
        assert (await bob.http.patch(f"/api/chats/{CHAT}", json={"branch": number})).status_code == 404
        assert await shown(ann) == ["a", "one"]
        assert await instead(ann, "A", "m_first_of_all") == (200, "")
        await ann.answers(2)
        assert (await bob.http.patch(f"/api/chats/{CHAT}", json={"branch": number})).status_code == 404
        assert await shown(ann) == ["A", "two"]
        for wrong, status in ((number + 1000, 404), (number, 200)):
            assert (await ann.http.patch(f"/api/chats/{CHAT}", json={"branch": wrong})).status_code == status
        assert await shown(ann) == ["a", "one"]


async def test_versions_have_a_limit_that_is_said(tmp_path: Path) -> None:
    few = f"{FEISHU}  web: {{ versions: 2 }}\n"
    async with (
        running(tmp_path, script=[says("one"), says("two")], feishu=few) as house,
        opened(house.url) as page,
    ):
        await page.say("a", message="m_first_of_all")
        assert await instead(page, "A", "m_of_nobody") == (404, "no-such-message")
        assert await instead(page, "A", "m_first_of_all") == (200, "")
        assert await instead(page, "AA", "m_first_of_all") == (409, "too-many-versions")
        await page.answers(2)
        assert await shown(page) == ["A", "two"]


async def test_a_deleted_conversation_is_gone_with_all_its_branches(house: Running, page: Page) -> None:
    house.anthropic.script = [says(SECRET), says(f"{SECRET}!"), says("plain")]
    await page.say(SECRET, message="m_first_of_all")
    await page.answers(1)
    for text, count in ((f"{SECRET}?", 2), ("harmless", 3)):
        assert await instead(page, text, "m_first_of_all") == (200, "")
        await page.answers(count)
    await house.idle()
    assert await shown(page) == ["harmless", "plain"]
    found = (await page.http.get(f"/api/search?words={SECRET}")).json()["chats"]
    assert len(found[0]["hits"]) == 3
    await erase(page)
    assert rows_with(house.folder, SECRET) == []
    assert rows_with(house.folder, CHAT) == []


@pytest.mark.parametrize(
    ("mode", "asked"), [("collect", [["a", "one", "b"], ["A"]]), ("steer", [["a", "So", "b"], ["A"]])]
)
async def test_another_version_joins_no_turn_that_runs_or_waits(
    tmp_path: Path, mode: str, asked: list[list[str]]
) -> None:
    first = says("one") if mode == "collect" else calls(("ls", {"path": "."}), before="So")
    more = f"queue: {{ mode: {mode}, debounceSeconds: 0.01 }}"
    async with (
        running(tmp_path, script=[first, says("two"), says("other one")], more=more, feishu=WEB) as house,
        opened(house.url) as page,
    ):
        house.line.hold()
        await page.say("a", message="m_first_of_all")
        await house.until(lambda: house.line.holding)
        await page.say("b", message="m_second_one")
        assert await instead(page, "A", "m_first_of_all") == (200, "")
        house.line.release()
        await page.answers(2 if mode == "steer" else 3)
        await house.idle()
        assert [said(house, it) for it in (1, 2)] == asked
        assert await shown(page) == ["A", "other one"]
