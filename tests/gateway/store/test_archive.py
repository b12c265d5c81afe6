"""The web chat's memory, on a real file and a real server: what a page relies on when it asks for what it has missed, and
who is signed in."""

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
from sqlalchemy import create_engine, text

from channels.abilities import ToolUse
from channels.message import Button, File
from channels.web.archive import Kept, MessageBody, WebMessage
from gateway.config.root import DatabaseConfig
from gateway.store.archive import WEB_NOTICE, DatabaseArchive, place_of
from gateway.store.opening import open_store
from gateway.store.store import Store
from tests.gateway.store.chats import LARGE, finish, leased, opened, page, since
from tests.waiting import PATIENCE_SECONDS, until

DAY = 24 * 3600.0
CHAT, OTHER = "c_one_one", "c_two_two"
SESSION = f"agent:helper:web:default:{CHAT}"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


@pytest.fixture
def archive(store: Store) -> DatabaseArchive:
    return store.archive


def words(text: str, *, agent: str = "helper", **more: object) -> MessageBody:
    return MessageBody(text=text, agent=agent, **more)  # type: ignore[arg-type]


def texts(text: object) -> list[str]:
    assert isinstance(text, list)
    return [it.words.text for it in text if isinstance(it, WebMessage)]


def count(url: str, table: str, where: str = "1=1") -> int:
    """Straight from the database, since what is to be gone must not merely be hidden."""
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1))
    with engine.connect() as connection:
        found = connection.scalar(text(f"SELECT count(*) FROM {table} WHERE {where}"))
    engine.dispose()
    return int(found or 0)


async def test_archive_list_pages_pinned_first_without_repeats(
    archive: DatabaseArchive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.store.archive.CONVERSATIONS_MAX", 3)
    for number in range(10):
        await archive.keep(f"c_{number}_of_ten", f"m_{number}", words(str(number)), 1e9 + number // 4 / 3)
    for number in (0, 1, 5, 7):
        await archive.change(f"c_{number}_of_ten", pinned=True)
    await archive.change("c_9_of_ten", archived=True)
    listed: list[str] = []
    behind = ""
    while found := await archive.conversations(behind=behind):
        assert len(found) <= 3
        listed += [it.title for it in found]
        behind = place_of(found[-1])
    assert listed == ["7", "5", "1", "0", "8", "6", "4", "3", "2"]
    assert [it.title for it in await archive.conversations(archived=True)] == ["9"]
    for wrong in ("x", "0~1~", "0~nan~c_1", "1~1~c'; --"):
        assert [it.title for it in await archive.conversations(behind=wrong)] == ["7", "5", "1"]


async def test_archive_write_is_idempotent(archive: DatabaseArchive) -> None:
    await asyncio.gather(*(archive.keep(CHAT, "m_1", words("hello"), 1.0) for _ in range(10)))
    await archive.keep(CHAT, "m_1", words("another text under the same id"), 2.0)
    assert [(it.title, it.at) for it in await archive.conversations()] == [("hello", 1.0)]
    await archive.keep(OTHER, "m_1", words("there"), 3.0)
    assert [it.title for it in await archive.conversations()] == ["there", "hello"]
    assert await asyncio.gather(*(archive.answer(CHAT, "key", words("hi"), 4.0) for _ in range(5))) == [True] * 5
    assert [it.title for it in await archive.conversations()] == ["hello", "there"]
    assert texts(await page(archive, CHAT, before=None, limit=50)) == ["hello", "hi"]
    assert texts(await since(archive, 0, limit=10)) == ["hello", "there", "hi"]


async def test_archive_replacement_keeps_its_place_and_is_idempotent(
    archive: DatabaseArchive,
) -> None:
    await archive.keep(CHAT, "m_1", words("hello"), 1.0)
    allow = Button(label="Allow", token="t:1")
    for _ in range(2):
        assert await archive.answer(CHAT, "k_1", words("May I?", reply_to="m_1", buttons=(allow,)), 2.0)
    await archive.answer(CHAT, "k_2", words("later"), 3.0)
    asked = (await since(archive, 1, limit=9))[0]
    assert asked.words.buttons == (allow,)
    seen = await archive.last()
    for text_, buttons in (("Allowed.", ()), ("Allowed.", ()), ("Ran.", (allow,)), ("Ran.", (allow,))):
        assert await archive.replace(CHAT, "k_1", text_, buttons)
    (now,) = await since(archive, seen, limit=9)
    assert (now.key, now.words.text, now.words.place, now.at) == ("k_1", "Ran.", asked.number, 2.0)
    assert (now.words.reply_to, now.words.agent, now.words.buttons) == ("m_1", "helper", (allow,))
    assert await archive.messages([asked.number]) == []
    assert texts(await page(archive, CHAT, before=None, limit=9)) == ["hello", "later", "Ran."]
    for chat, key in ((CHAT, "m_1"), (CHAT, "k_9"), (OTHER, "k_1")):
        assert not await archive.replace(chat, key, "x", ())
    await asyncio.gather(*(archive.replace(CHAT, "k_1", f"{number}", ()) for number in range(10)))
    assert len(await page(archive, CHAT, before=None, limit=9)) == 3
    await archive.erase(CHAT, [SESSION])
    assert not await archive.replace(CHAT, "k_1", "too late", ())
    await archive.keep(OTHER, "m_1", words("there"), 4.0)
    assert await archive.last() > now.number


async def test_what_was_said_comes_back_as_it_was(store: Store, archive: DatabaseArchive) -> None:
    tool = ToolUse(id="t1", name="exec", about='ls "a\nb"\x00', state="failed")
    file = await store.files.put(File(name="图 1.png", type="image/png", data=b"\x89PNG\x00\xff"), 1.0)
    text = words("你好\n\n<b>\u2028𝔘", reply_to="m_0", files=(file,), tools=(tool,))
    await archive.keep(CHAT, "m_1", text, 1.5)
    (kept,) = await page(archive, CHAT, before=None, limit=1)
    assert (kept.words, kept.author, kept.key, kept.chat, kept.at) == (text, "you", "m_1", CHAT, 1.5)
    assert await store.files.load(file.id) == (file, b"\x89PNG\x00\xff")


async def test_archive_pages_without_a_gap(
    archive: DatabaseArchive,
) -> None:
    assert (await archive.last(), await since(archive, 0, limit=10)) == (0, [])
    for number in range(7):
        await archive.keep(CHAT, f"m_{number}", words(f"n{number}"), float(number))
        await archive.keep(OTHER, f"m_{number}", words("elsewhere"), float(number))
    newest = await page(archive, CHAT, before=None, limit=3)
    assert texts(newest) == ["n4", "n5", "n6"]
    earlier = await page(archive, CHAT, before=newest[0].number, limit=3)
    assert texts(earlier) == ["n1", "n2", "n3"]
    assert texts(await page(archive, CHAT, before=earlier[0].number, limit=3)) == ["n0"]
    assert await page(archive, "c_nobody_", before=None, limit=3) == []
    everything = await since(archive, 0, limit=20)
    assert (len(everything), everything[-1].number) == (14, await archive.last())
    assert list(await since(archive, everything[1].number, limit=2)) == list(everything[2:4])


async def test_messages_are_measured_in_bytes_before_they_are_loaded(archive: DatabaseArchive) -> None:
    for number, content in enumerate(("x" * 1000, "字" * 1000, "𝔘" * 1000)):
        await archive.keep(CHAT, f"m_{number}", words(content), 1.0)
    measured = list(await archive.since(0, limit=10, bytes_max=LARGE))
    assert [it.bytes // 1000 for it in measured] == [1, 3, 4]
    assert list(await archive.page(CHAT, before=None, limit=10, bytes_max=LARGE)) == measured[::-1]
    assert list(await archive.since(0, limit=10, bytes_max=500)) == measured[:2]
    assert list(await archive.page(CHAT, before=None, limit=10, bytes_max=2000)) == measured[:0:-1]
    assert texts(await archive.messages([measured[2].number, measured[0].number, 999])) == ["x" * 1000, "𝔘" * 1000]
    assert await archive.messages([]) == []


async def test_a_conversation_is_called_by_its_first_words_or_its_file(store: Store, archive: DatabaseArchive) -> None:
    for first, title in (("  two\n\n lines\t here ", "two lines here"), ("x" * 61, "x" * 59 + "…"), (" \n ", "…")):
        assert await title_of(archive, f"c_{title}", "m_1", words(first)) == title
    file = await store.files.put(File(name="plan.pdf", type="application/pdf", data=b"x"), 1.0)
    assert await title_of(archive, CHAT, "m_1", words("", files=(file,))) == "plan.pdf"
    await archive.change(CHAT, title="My\x00plan")
    assert await title_of(archive, CHAT, "m_2", words("later words")) == "My plan"


async def test_the_newest_five_hundred_conversations_are_listed(archive: DatabaseArchive) -> None:
    await asyncio.gather(*(archive.keep(f"c_{number}", "m", words("hello"), float(number)) for number in range(501)))
    listed = await archive.conversations()
    assert [it.at for it in listed] == [float(number) for number in range(500, 0, -1)]


async def title_of(archive: DatabaseArchive, chat: str, key: str, body: MessageBody) -> str:
    kept = await archive.keep(chat, key, body, 1.0)
    return kept.conversation.title if isinstance(kept, Kept) else kept


async def test_archive_of_a_person_is_private(store: Store, archive: DatabaseArchive) -> None:
    plan = await store.files.upload(
        File(name="plan.pdf", type="application/pdf", data=b"x"), 1.0, owner="ann", bytes_max=9
    )
    assert plan is not None
    assert await store.files.find([plan.id], "bob") == []
    assert not await store.files.discard(plan.id, "bob")
    assert await archive.keep(CHAT, "m_1", words("Ärger", files=(plan,)), 1.0, owner="ann")
    assert await archive.answer(CHAT, "k_1", words("no 100% _doubt_"), 2.0)
    assert await archive.keep(CHAT, "m_2", words("mine"), 3.0, owner="bob") == "not theirs"
    for owner, seen in (("ann", 1), ("bob", 0)):
        assert len(await archive.conversations(owner)) == seen
        assert len(await archive.since(0, owner, limit=9, bytes_max=9999)) == 2 * seen
        assert len(await store.files.find([plan.id], owner)) == seen


async def test_what_is_looked_for_is_found_whatever_its_capitals_and_signs(store: Store) -> None:
    archive, search = store.archive, store.search
    await archive.keep(CHAT, "m_1", words("Ärger"), 1.0)
    await archive.answer(CHAT, "k_1", words("no 100% _doubt_"), 2.0)
    for looked_for, hits in {"ärger": 1, "100% _": 1, "mine": 0, "%%": 0, "": 2}.items():
        assert len(await search.hits(CHAT, [looked_for], limit=9)) == hits, looked_for
    assert await search.hits(CHAT, ["doubt", "100%"], limit=9)
    assert not await search.hits(CHAT, ["doubt", "ärger"], limit=9)
    assert [it.text for it in await search.hits(CHAT, [""], limit=1)] == ["no 100% _doubt_"]


async def test_archive_pinned_first_and_archived_until_written(
    archive: DatabaseArchive,
) -> None:
    for at, chat in enumerate((CHAT, OTHER, "c_third")):
        await archive.keep(chat, "m_1", words(chat), float(at))

    async def listed(*, archived: bool = False) -> list[str]:
        return [it.id for it in await archive.conversations(archived=archived)]

    assert (pinned := await archive.change(CHAT, pinned=True))
    assert (pinned.pinned, pinned.archived) == (True, False)
    assert await listed() == [CHAT, "c_third", OTHER]
    assert (aside := await archive.change(CHAT, archived=True))
    assert (aside.pinned, aside.archived) == (False, True)
    assert (await listed(), await listed(archived=True)) == (["c_third", OTHER], [CHAT])
    assert [await archive.archived(owner) for owner in ("local", "ann")] == [1, 0]
    assert await archive.answer(CHAT, "k_1", words("late"), 8.0)
    assert await listed(archived=True) == [CHAT]
    await archive.keep(CHAT, "m_2", words("again"), 9.0)
    assert await listed() == [CHAT, "c_third", OTHER]
    assert (both := await archive.change(CHAT, title="Called", pinned=True))
    assert (both.title, both.pinned) == ("Called", True)
    assert await archive.change("c_nowhere", pinned=True) is None


async def test_archive_erased_conversation_stays_erased(archive: DatabaseArchive, database_url: str) -> None:
    await archive.keep(CHAT, "m_1", words("hello"), 1.0)
    gone = await archive.last()
    assert await archive.erase(CHAT, [])
    assert not await archive.answer(CHAT, "key", words("too late"), 2.0)
    assert await archive.conversations() == []
    assert count(database_url, "web_message") == 0
    await archive.keep(OTHER, "m_2", words("new"), 2.0)
    assert await archive.last() > gone


async def test_archive_erasure_races_with_answers_and_wins(archive: DatabaseArchive, database_url: str) -> None:
    for round_ in range(5):
        await archive.keep(CHAT, "m_1", words("hello"), 1.0)
        answers = [archive.answer(CHAT, f"key{n}", words(f"n{n}"), 2.0) for n in range(8)]
        await asyncio.gather(*answers[:4], archive.erase(CHAT, []), *answers[4:])
        assert count(database_url, "web_message") == 0, round_


async def test_archive_erasure_spares_a_waiting_message(
    store: Store, archive: DatabaseArchive, database_url: str
) -> None:
    """Whoever runs the turn must find its row; the answer goes nowhere."""
    await archive.keep(CHAT, "m_1", words("hello"), 1.0)
    lease = await leased(store, 1, sid=SESSION)
    (part,) = await finish(store, lease, "on its way")
    await leased(store, 2, sid=SESSION)
    assert await archive.erase(CHAT, [SESSION])
    assert count(database_url, "inbox", "status = 0") == 1
    assert count(database_url, "inbox") == 1
    assert count(database_url, "outbox") == 0
    assert not await store.failed(lease, part, "the conversation was deleted")
    await finish(store, lease)
    assert await store.release(lease)


async def test_a_writer_that_has_not_committed_holds_every_later_number_back(postgres_url: str) -> None:
    async with opened(postgres_url) as store:
        with psycopg.connect(postgres_url) as slow:
            slow.execute("SELECT pg_advisory_xact_lock(7305843001217)")
            slow.execute("INSERT INTO web_conversation (id, title, agent, at) VALUES ('c', 'first', 'helper', 1)")
            slow.execute("INSERT INTO web_message (chat, key, author, words, at) VALUES ('c', 'k', 'you', %s, 1)", [W])
            later = asyncio.create_task(store.archive.keep("c_later", "m_1", words("later"), 2.0))
            await until(lambda: waits(slow))
            assert await since(store.archive, 0, limit=10) == []
            slow.commit()
        await later
        assert [it.words.text for it in await since(store.archive, 0, limit=10)] == ["first", "later"]


W = '{"text": "first", "agent": "helper"}'


def waits(connection: psycopg.Connection) -> bool:
    found = connection.execute("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted").fetchone()
    return bool(found and found[0])


async def test_archive_write_wakes_the_other_replica_once(postgres_url: str) -> None:
    heard: asyncio.Queue[str | None] = asyncio.Queue()
    one, other = (open_store(DatabaseConfig(url=postgres_url)) for _ in range(2))
    await one.start(heard.put_nowait)
    await other.start(lambda _: None)

    async def notices() -> list[str | None]:
        """Up to the one we ask for ourselves."""
        await other.notify("marker")
        notices: list[str | None] = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (notice := await heard.get()) != "marker":
                notices.append(notice)
        return notices

    try:
        await notices()
        await other.archive.keep("c_one_one", "m_1", words("hello"), 1.0)
        assert await notices() == [WEB_NOTICE]
        await other.archive.answer("c_one_one", "key", words("hi"), 2.0)
        assert await notices() == [WEB_NOTICE]
        await other.archive.keep("c_one_one", "m_1", words("hello"), 3.0)
        await other.archive.answer("c_one_one", "key", words("hi"), 3.0)
        assert await notices() == []
    finally:
        await one.close()
        await other.close()


async def test_web_session_lasts_until_expiry_or_logout(store: Store, database_url: str) -> None:
    sessions, one, other, third = store.sessions, "1" * 64, "2" * 64, "3" * 64
    await sessions.begin(one, ends=10.0, at=1.0, instead_of=[])
    await sessions.begin(other, ends=100.0, at=1.0, instead_of=[])
    assert [await sessions.hold(["unknown", one], at) for at in (9.0, 10.0)] == [True, False]
    assert not await sessions.hold([], 2.0)
    await sessions.begin(third, ends=200.0, at=10.0, instead_of=[other])
    assert not await sessions.hold([one, other], 2.0)
    assert count(database_url, "web_session") == 1  # what is over is swept
    for keys, held in (([], True), ([third], False), ([third], False)):
        await sessions.end(keys)
        assert await sessions.hold([third], 2.0) == held
