"""The web chat's memory, on a real file and a real server: what a page relies on when it asks for what it has missed."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import create_engine, text

from channels.channel import ToolUse
from channels.message import File
from channels.web.archive import ChatHistory, MessageBody, WebMessage
from gateway.routing import control_session
from gateway.store.store import Store
from tests.gateway.store.chats import LARGE, finish, leased, opened, page, since

DAY = 24 * 3600.0
CHAT, OTHER = "c_one_one", "c_two_two"
SESSION = f"agent:helper:web:default:{CHAT}"


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with opened(database_url) as store:
        yield store


@pytest.fixture
def archive(store: Store) -> ChatHistory:
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


async def test_the_same_message_is_kept_once_however_often_it_comes(archive: ChatHistory) -> None:
    await asyncio.gather(*(archive.keep(CHAT, "m_1", words("hello"), 1.0) for _ in range(10)))
    await archive.keep(CHAT, "m_1", words("another text under the same id"), 2.0)
    assert texts(await page(archive, CHAT, before=None, limit=50)) == ["hello"]
    assert [(it.title, it.at) for it in await archive.conversations()] == [("hello", 1.0)]


async def test_the_same_answer_is_kept_once_however_often_it_is_sent(archive: ChatHistory) -> None:
    await archive.keep(CHAT, "m_1", words("hello"), 1.0)
    assert await asyncio.gather(*(archive.answer(CHAT, "key", words("hi"), 2.0) for _ in range(5))) == [True] * 5
    assert texts(await page(archive, CHAT, before=None, limit=50)) == ["hello", "hi"]


async def test_the_same_id_in_another_conversation_is_another_message(archive: ChatHistory) -> None:
    await archive.keep(CHAT, "m_1", words("here"), 1.0)
    await archive.keep(OTHER, "m_1", words("there"), 2.0)
    assert texts(await since(archive, 0, limit=10)) == ["here", "there"]


async def test_what_was_said_comes_back_as_it_was(archive: ChatHistory) -> None:
    tool = ToolUse(id="t1", name="exec", about='ls "a\nb"\x00', state="failed")
    file = await archive.put(File(name="图 1.png", type="image/png", data=b"\x89PNG\x00\xff"), 1.0)
    text = words("你好\n\n<b>\u2028𝔘", reply_to="m_0", files=(file,), tools=(tool,))
    await archive.keep(CHAT, "m_1", text, 1.5)
    (kept,) = await page(archive, CHAT, before=None, limit=1)
    assert (kept.words, kept.author, kept.key, kept.chat, kept.at) == (text, "you", "m_1", CHAT, 1.5)
    assert await archive.file(file.id) == (file, b"\x89PNG\x00\xff")


async def test_a_page_holds_the_newest_messages_oldest_first_and_the_one_before_goes_on_without_a_gap(
    archive: ChatHistory,
) -> None:
    for number in range(7):
        await archive.keep(CHAT, f"m_{number}", words(f"n{number}"), float(number))
        await archive.keep(OTHER, f"m_{number}", words("elsewhere"), float(number))
    newest = await page(archive, CHAT, before=None, limit=3)
    assert texts(newest) == ["n4", "n5", "n6"]
    earlier = await page(archive, CHAT, before=newest[0].number, limit=3)
    assert texts(earlier) == ["n1", "n2", "n3"]
    assert texts(await page(archive, CHAT, before=earlier[0].number, limit=3)) == ["n0"]
    assert await page(archive, "c_nobody_", before=None, limit=3) == []


async def test_who_has_seen_a_number_is_told_all_above_it_in_order(archive: ChatHistory) -> None:
    assert (await archive.last(), await since(archive, 0, limit=10)) == (0, [])
    for number in range(5):
        await archive.keep(CHAT if number % 2 else OTHER, f"m_{number}", words(f"n{number}"), float(number))
    everything = await since(archive, 0, limit=10)
    assert texts(everything) == ["n0", "n1", "n2", "n3", "n4"]
    assert await archive.last() == everything[-1].number
    assert texts(await since(archive, everything[1].number, limit=2)) == ["n2", "n3"]


async def test_messages_are_measured_in_bytes_before_they_are_loaded(archive: ChatHistory) -> None:
    for number, content in enumerate(("x" * 1000, "字" * 1000, "𝔘" * 1000)):
        await archive.keep(CHAT, f"m_{number}", words(content), 1.0)
    measured = list(await archive.since(0, limit=10, bytes_max=LARGE))
    assert [it.bytes // 1000 for it in measured] == [1, 3, 4]
    assert list(await archive.page(CHAT, before=None, limit=10, bytes_max=LARGE)) == measured[::-1]
    assert list(await archive.since(0, limit=10, bytes_max=500)) == measured[:2]
    assert list(await archive.page(CHAT, before=None, limit=10, bytes_max=2000)) == measured[:0:-1]
    assert texts(await archive.messages([measured[2].number, measured[0].number, 999])) == ["x" * 1000, "𝔘" * 1000]
    assert await archive.messages([]) == []


async def test_a_number_is_never_given_out_again(archive: ChatHistory) -> None:
    await archive.keep(CHAT, "m_1", words("gone"), 1.0)
    gone = await archive.last()
    await archive.erase(CHAT, [])
    await archive.keep(OTHER, "m_2", words("new"), 2.0)
    assert await archive.last() > gone


async def test_conversations_come_newest_first_and_a_new_word_brings_one_up(archive: ChatHistory) -> None:
    await archive.keep(CHAT, "m_1", words("first"), 1.0)
    await archive.keep(OTHER, "m_2", words("second"), 2.0)
    assert [it.title for it in await archive.conversations()] == ["second", "first"]
    await archive.answer(CHAT, "key", words("answer"), 3.0)
    assert [it.title for it in await archive.conversations()] == ["first", "second"]


TITLES = {
    "Hello": "Hello",
    "  two\n\n lines\t here ": "two lines here",
    "x" * 60: "x" * 60,
    "x" * 61: "x" * 59 + "…",
    "word " * 30: ("word " * 30)[:59].rstrip() + "…",
    " \n ": "…",
    "": "…",
    "a\x00b": "a b",
    "\x1b[31mred": "[31mred",
}


@pytest.mark.parametrize(("text", "title"), TITLES.items())
async def test_a_conversation_is_called_by_its_first_words_or_as_it_is_renamed(
    archive: ChatHistory, text: str, title: str
) -> None:
    if "\x00" not in text:
        assert (await archive.keep(CHAT, "m_1", words(text), 1.0)).title == title
    await archive.keep(OTHER, "m_2", words("old"), 1.0)
    renamed = await archive.rename(OTHER, text)
    assert renamed is not None
    assert renamed.title == title
    assert (await archive.keep(OTHER, "m_3", words("later words"), 2.0)).title == title


async def test_one_that_begins_with_a_file_is_called_by_it(archive: ChatHistory) -> None:
    file = await archive.put(File(name="plan.pdf", type="application/pdf", data=b"x"), 1.0)
    assert (await archive.keep(CHAT, "m_1", words("", files=(file,)), 1.0)).title == "plan.pdf"


async def test_what_is_not_there_cannot_be_renamed_erased_or_answered(archive: ChatHistory, database_url: str) -> None:
    assert await archive.conversation(CHAT) is None
    assert await archive.rename(CHAT, "x") is None
    assert not await archive.erase(CHAT, [SESSION])
    assert not await archive.answer(CHAT, "key", words("to nobody"), 1.0)
    assert count(database_url, "web_message") == 0


async def test_an_answer_to_an_erased_conversation_brings_nothing_back(archive: ChatHistory, database_url: str) -> None:
    await archive.keep(CHAT, "m_1", words("hello"), 1.0)
    assert await archive.erase(CHAT, [])
    assert not await archive.answer(CHAT, "key", words("too late"), 2.0)
    assert await archive.conversations() == []
    assert count(database_url, "web_message") == 0


async def test_answers_and_an_erasure_at_the_same_moment_leave_nothing_of_the_conversation(
    archive: ChatHistory, database_url: str
) -> None:
    for round_ in range(5):
        await archive.keep(CHAT, "m_1", words("hello"), 1.0)
        answers = [archive.answer(CHAT, f"key{n}", words(f"n{n}"), 2.0) for n in range(8)]
        await asyncio.gather(*answers[:4], archive.erase(CHAT, []), *answers[4:])
        assert count(database_url, "web_message") == 0, round_


async def test_erasing_takes_messages_files_transcripts_and_finished_work_along_and_nothing_of_others(
    store: Store, archive: ChatHistory, database_url: str
) -> None:
    file = File(name="a.txt", type="text/plain", data=b"secret")
    for chat in (CHAT, OTHER):
        mine, sent = [await archive.put(file, 1.0) for _ in range(2)]
        await archive.keep(chat, "m_1", words("hello", files=(mine,)), 1.0)
        await archive.answer(chat, "key", words("hi", files=(sent,)), 2.0)
        for sid in (f"agent:helper:web:default:{chat}", control_session(f"agent:helper:web:default:{chat}")):
            lease = await leased(store, 1, sid=sid)
            for part in await finish(store, lease, f"reply of {sid}"):
                await store.sent(lease, part, "id")
    loose = await archive.put(file, 3.0)

    assert await archive.erase(CHAT, [SESSION, control_session(SESSION)])

    like = f"LIKE '%{CHAT}%'"
    assert count(database_url, "web_conversation", f"id {like}") == 0
    assert count(database_url, "web_message", f"chat {like}") == 0
    assert count(database_url, "file", f"chat {like}") == 0
    for table in ("transcript", "inbox", "outbox"):
        assert count(database_url, table, f"sid {like}") == 0, table
        assert count(database_url, table) == {"transcript": 6, "inbox": 2, "outbox": 2}[table]
    assert texts(await page(archive, OTHER, before=None, limit=9)) == ["hello", "hi"]
    assert count(database_url, "file") == 3
    assert await archive.file(loose.id) is not None


async def test_erasing_leaves_a_message_that_still_waits_and_takes_its_replies_along(
    store: Store, archive: ChatHistory, database_url: str
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


async def test_a_file_that_is_never_sent_is_thrown_away_after_a_day_and_a_used_one_is_kept(
    archive: ChatHistory,
) -> None:
    file = File(name="a.txt", type="text/plain", data=b"x")
    used, sent, unused = [await archive.put(file, 0.0) for _ in range(3)]
    await archive.keep(CHAT, "m_1", words("look", files=(used,)), 1.0)
    await archive.answer(CHAT, "key", words("here", files=(sent,)), 2.0)
    await archive.put(file, DAY)
    assert await archive.file(unused.id) is not None
    await archive.put(file, DAY + 1)
    assert await archive.file(unused.id) is None
    assert [it.id for it in await archive.files([sent.id, unused.id, used.id, "f_unknown"])] == [sent.id, used.id]


async def test_files_are_told_in_the_order_they_are_asked_for_and_as_often(archive: ChatHistory) -> None:
    one, two = [await archive.put(File(name=n, type="text/plain", data=n.encode()), 1.0) for n in ("a", "bb")]
    assert list(await archive.files([two.id, one.id, two.id])) == [two, one, two]
    assert (one.size, two.size) == (1, 2)
    assert await archive.files([]) == []


async def test_it_names_the_newest_message_of_a_session_and_whom_a_conversation_talked_to(
    store: Store, archive: ChatHistory
) -> None:
    assert await archive.newest_turn(SESSION) == 0
    first = await leased(store, 1, sid=SESSION)
    newest = await archive.newest_turn(SESSION)
    await leased(store, 1, sid="another")
    assert await archive.newest_turn(SESSION) == newest > 0
    await finish(store, first)
    assert await archive.newest_turn(SESSION) == newest
    await archive.keep(CHAT, "m_1", words("a", agent="helper"), 1.0)
    await archive.keep(CHAT, "m_2", words("b", agent="gone since"), 2.0)
    await archive.keep(OTHER, "m_1", words("c", agent="third"), 3.0)
    assert sorted(await archive.agents(CHAT)) == ["gone since", "helper"]
