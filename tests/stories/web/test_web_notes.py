"""A person's notes over HTTP, as the settings of the web chat ask for them."""

from pathlib import Path
from typing import Any

import pytest

from tests.running import Running, client, running
from tests.web_page import WEB, Page, new_id, opened

NOTES = "/api/agents/helper/notes"
ANN, BOB = "canary-ann-token-00000000000000000", "canary-bob-token-00000000000000000"
USERS = f"server: {{ users: {{ ann: {ANN}, bob: {BOB} }} }}"
AGENTS = """
agents:
  list:
    - { id: helper, model: anthropic/claude-sonnet-4-6 }
    - { id: other, model: anthropic/claude-sonnet-4-6 }
"""


async def texts(page: Page, path: str = NOTES) -> list[tuple[int, str]]:
    answer = await page.http.get(path)
    assert answer.status_code == 200, answer.text
    return [(it["number"], it["text"]) for it in answer.json()["notes"]]


async def take(page: Page, text: str, *, id_: str = "") -> Any:
    return await page.http.post(NOTES, json={"id": id_ or new_id("n"), "text": text})


async def test_web_note_is_idempotent(house: Running, page: Page) -> None:
    for _ in range(2):
        answer = await take(page, "  tea\0 ", id_="n_00000001")
        assert [it["text"] for it in answer.json()["notes"]] == ["tea�"]
        assert (answer.json()["notes_max"], answer.json()["chars_max"]) == (200, 2000)
    await take(page, "milk")
    assert (await page.http.put(f"{NOTES}/1", json={"text": "coffee"})).status_code == 200
    assert await texts(page) == [(1, "coffee"), (2, "milk")]
    for status in (200, 200):  # the second finds it done
        assert (await page.http.delete(f"{NOTES}/2")).status_code == status
    assert await texts(page) == [(1, "coffee")]
    gone = [await page.http.put(f"{NOTES}/{it}", json={"text": "x"}) for it in ("2", "3", "x", "9" * 20)]
    assert [it.json()["code"] for it in gone] == ["no-such-note"] * 4
    assert (await page.http.delete(f"{NOTES}/7")).status_code == 404
    for text in ("", "  ", "x" * 2001):
        assert (await take(page, text)).status_code == 400
    assert (await take(page, "字" * 2000)).status_code == 200
    assert (await page.http.get("/api/agents/nobody/notes")).json()["code"] == "no-such-agent"


async def test_web_notes_are_per_person_and_agent(tmp_path: Path) -> None:
    async with (
        running(tmp_path, feishu=WEB, agents=AGENTS, more=USERS) as house,
        opened(house.url, authorization=f"Bearer {ANN}") as ann,
        opened(house.url, authorization=f"Bearer {BOB}") as bob,
    ):
        await take(ann, "of ann")
        await take(bob, "of bob", id_="n_of_both")
        await take(ann, "and too", id_="n_of_both")
        async with ann.watching():
            await ann.say("/remember the third")
            await ann.answers(1)
            await ann.say("hello")
            await ann.answers(2)
        assert await texts(ann) == [(1, "of ann"), (2, "and too"), (3, "the third")]
        assert await texts(ann, "/api/agents/other/notes") == []
        assert await texts(bob) == [(1, "of bob")]
        assert (await bob.http.put(f"{NOTES}/3", json={"text": "mine"})).status_code == 404
        told = str(house.anthropic.requests[-1].body["messages"])
        assert "and too" in told
        assert "of bob" not in told


@pytest.mark.parametrize("closed", ["off", "owner"])
async def test_web_notes_follow_the_command_policy(tmp_path: Path, closed: str) -> None:
    more = f"commands: {{ remember: {closed} }}\nowners: ['feishu:ou_a']"
    async with running(tmp_path, feishu=WEB, more=more) as house, opened(house.url) as page:
        for answer in (await page.http.get(NOTES), await take(page, "x"), await page.http.delete(f"{NOTES}/1")):
            assert (answer.status_code, answer.json()["code"]) == (403, "notes-closed")
        assert (await page.http.get("/api/agents/helper/choices")).json()["notes"] is False


async def test_web_notes_have_a_limit_and_refuse_other_sites(
    house: Running, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.memory.NOTES_MAX", 5)
    async with client(house.url) as other:
        assert (await other.post(NOTES, json={"id": new_id("n"), "text": "x"})).status_code == 403
    assert await texts(page) == []
    for number in range(5):
        assert (await take(page, f"{number}")).status_code == 200
    answer = await take(page, "one more")
    assert (answer.status_code, answer.json()["code"]) == (409, "too-many-notes")
