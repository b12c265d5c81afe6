"""Notes and the index of past turns, on a real file and a real server."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agents.messages import Text, UserMessage, message_json
from channels.web.archive import MessageBody
from gateway.store.memory import NOTES_MAX, STEP_ROWS, Speaker, forget, forget_notes
from gateway.store.records import Entry, SessionMark, Spoken
from gateway.store.store import Store
from tests.gateway.store.chats import accept, leased, opened
from tests.gateway.store.test_archive import count
from tools.memory import terms, wanted_terms

ANN, BEN = "telegram:main:1", "telegram:main:12"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


async def say(store: Store, number: int, *texts: str, sid: str = "chat", by: str = "") -> int:
    """A finished turn with these messages, of a person if they are said `by` somebody; its number."""
    lease = await leased(store, number, sid=sid)
    view = await store.load(lease, history_turns=1, waiting_max=1)
    assert view.work is not None
    turn = view.work.waiting[0].turn
    rows = [message_json.dump_json(UserMessage(content=(Text(text=it),))).decode() for it in texts]
    said = Spoken(message=f"om_{number}", person=by, parts=1)
    heard = Spoken(message="om_0", person="feishu:heard", how="heard")
    entries = [Entry(turn=turn, kind="user", content=row, spoken=[said, heard]) for row in rows]
    await store.finish(lease, [*entries, Entry(turn=turn, kind="final", content="{}")], [], at=1.0)
    await store.release(lease)
    return turn


async def find(store: Store, query: str, *, sid: str = "chat") -> list[int]:
    return list(await store.memory.search(sid, wanted_terms(query), 10))


async def test_memory_note_is_idempotent(store: Store) -> None:
    memory = store.memory
    taken = [await memory.take_note(ANN, "a", "x", turn=7, at=1.0) for _ in range(2)]
    assert [*taken, await memory.take_note(ANN, "b", "y", turn=8, at=1.0)] == [1, 1, 1]
    assert await memory.take_note(ANN, "a", "z", turn=9, at=1.0) == 2
    assert [await memory.delete_note(ANN, "a", 2, turn=turn) for turn in (10, 10, 11)] == [True, True, False]
    assert not await memory.delete_note(BEN, "a", 1, turn=12)
    assert await memory.take_note(ANN, "a", "w", turn=13, at=1.0) == 3  # no number is given twice
    assert [it.text for it in await memory.notes(ANN, "a")] == ["x", "w"]
    numbers = await asyncio.gather(*(memory.take_note(BEN, "a", "n", turn=20 + it, at=1.0) for it in range(8)))
    assert sorted(it or 0 for it in numbers) == list(range(1, 9))
    for turn in range(100, 100 + NOTES_MAX - 8):
        assert await memory.take_note(BEN, "a", "n", turn=turn, at=1.0) is not None
    assert await memory.take_note(BEN, "a", "one more", turn=99, at=1.0) is None
    assert await memory.write(lambda connection: forget_notes(connection, "telegram", "1")) == 4
    assert (await memory.notes(ANN, "a"), len(await memory.notes(BEN, "a"))) == ([], NOTES_MAX)


async def test_the_speakers_of_a_conversation_are_those_whose_words_it_still_has(store: Store) -> None:
    people = ("feishu:ann", "feishu:ben", "feishu:ann", "feishu:cat", "")  # the last turn is the operator's own
    turns = [await say(store, number, "x", by=person) for number, person in enumerate(people, 1)]
    memory, after = store.memory, turns[-1] + 1
    assert await memory.speakers("chat", after) == [
        Speaker(person="feishu:ann", first=turns[0], last=turns[2]),
        Speaker(person="feishu:ben", first=turns[1], last=turns[1]),
        Speaker(person="feishu:cat", first=turns[3], last=turns[3]),
    ]
    assert [it.person for it in await memory.speakers("chat", turns[1])] == ["feishu:ann"]
    assert await memory.speakers("other", after) == []
    assert await memory.speakers_in("chat", turns[1:3]) == [(turns[1], "feishu:ben"), (turns[2], "feishu:ann")]
    await store.mark("chat", SessionMark(turn=turns[3], kind="undone", at=1.0))
    assert [it.person for it in await memory.speakers("chat", after)] == ["feishu:ann", "feishu:ben"]
    await store.mark("chat", SessionMark(turn=turns[1], kind="new", at=1.0))
    assert [it.person for it in await memory.speakers("chat", after)] == ["feishu:ann"]


async def test_memory_index_is_built_in_steps_by_the_first_search(store: Store, database_url: str) -> None:
    first = await say(store, 1, *(f"row {it} alpha" for it in range(STEP_ROWS)), "beta")
    second = await say(store, 2, "alpha gamma")
    await say(store, 3, "alpha beta gamma", sid="other")
    both = await asyncio.gather(*(find(store, "alpha beta") for _ in range(5)))
    assert both == [[first, second]] * 5  # the first turn has both words
    assert count(database_url, "word") == STEP_ROWS + 5  # row, alpha, beta and a number each; alpha, gamma
    assert await find(store, "gamma beta") == [second, first]
    third = await say(store, 4, "beta alpha")
    assert await find(store, "alpha beta") == [third, first, second]
    lease = await leased(store, 5)
    await store.append(lease, [Entry(turn=99, kind="user", content="{}")])  # a turn that runs
    assert await find(store, "gamma") == [second]


async def test_memory_index_forgets_what_is_erased(tmp_path: Path, database_url: str) -> None:
    async with opened(database_url) as store:
        await say(store, 1, "heliotrope")
        mine = await say(store, 2, "heliotrope", sid="other")
        assert len(await find(store, "heliotrope")) == 1
        assert await find(store, "heliotrope", sid="other") == [mine]
        await store.archive.keep("c_1", "m_1", _words(), 1.0)
        assert await store.archive.erase("c_1", ["chat"])
        assert await find(store, "heliotrope") == []
        assert await find(store, "heliotrope", sid="other") == [mine]
        assert not await store.memory.write(lambda connection: forget(connection, "other"))
        assert count(database_url, "word") == count(database_url, "indexed") == 0
        assert await find(store, "heliotrope", sid="other") == [mine]  # made anew of what there is
        await accept(store, 3)


def _words() -> MessageBody:
    return MessageBody(text="x", agent="a")


@pytest.mark.parametrize(
    ("text", "query", "found"),
    [
        ("我们的数据库在上海", "数据库", True),
        ("我们的数据库在上海", "据", True),
        ("我们的数据库在上海", "北京", False),
        ("Ｍｙｓｑｌ 8.4", "MySQL", True),
        ("用MySQL数据库", "mysql数据", True),
        ("mail a.b@example.com", "b@example.com", True),
        ("コーヒーを飲む", "コーヒー", True),
        ("database_url=x", "database url", True),
        ("Straße", "STRASSE", True),
        ("one", "on", False),
        ("'); DROP TABLE word; --\" OR NEAR(a*)", "drop \" ' & | ! :* near(", True),
    ],
)
async def test_words_are_found_whatever_the_language(database_url: str, text: str, query: str, found: bool) -> None:
    async with opened(database_url) as store:
        turn = await say(store, 1, text)
        assert await find(store, query) == ([turn] if found else [])
    assert (set(wanted_terms(query)) <= set(terms(text))) is found
