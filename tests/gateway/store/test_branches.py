"""The branches of a conversation, on both databases: what is shown, and what a turn reads."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from agents.messages import Text, UserMessage, message_json
from channels.message import Chat, MessageContext, Origin, Sender
from channels.web.archive import VERSIONS_MAX, Kept, MessageBody
from gateway.store.branches import gaps_of
from gateway.store.inbound import Inbound, inbound_of
from gateway.store.records import Delivery, Entry, Lease, SessionMark, Spoken, Summary
from gateway.store.store import Store
from tests.gateway.store.chats import LARGE, opened, page

CHAT = "c_one_one"
SID = f"agent:helper:web:default:{CHAT}"


class Talk:
    """One person's conversation, as the page, the lane and the agent would lead it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._lease: Lease | None = None

    async def keep(self, text: str, *, instead: str | None = None, versions_max: int = VERSIONS_MAX) -> str:
        body = MessageBody(text=text, agent="helper", instead=instead)
        kept = await self.store.archive.keep(CHAT, f"m_{text}", body, 1.0, versions_max=versions_max)
        return ("begins" if kept.begins else "goes on") if isinstance(kept, Kept) else kept

    async def accept(self, text: str, *, again: str = "", origin: Origin | None = None) -> int:
        inbound = Inbound(agent="helper", context=replace(context(text), origin=origin))
        inbound = replace(inbound, context=replace(inbound.context, message_id="")) if origin else inbound
        delivery = Delivery.of(inbound, sid=SID, names=[f"{CHAT}:m_{text}{again}"], at=1.0)
        accepted = await self.store.accept(delivery, pending_max=50, sender_max=200, claim=True)
        self._lease = accepted.lease or self._lease
        assert accepted.turn is not None
        return accepted.turn

    async def say(self, text: str, *, instead: str | None = None, together: Sequence[str] = ()) -> list[str]:
        """The words that the turn of this message reads before it is answered."""
        await self.keep(text, instead=instead)
        return await self.answer(await self.accept(text), text, *together)

    async def answer(self, turn: int, *texts: str) -> list[str]:
        last = texts[0]
        await self.store.branches.leave_out(SID, turn, context(last))
        assert self._lease is not None
        work = (await self.store.load(self._lease, history_turns=50, waiting_max=20)).work
        assert work is not None
        read = [words(it) for it in work.history if it.kind == "user"]
        waiting = next(it for it in work.waiting if it.turn == turn)
        said = [it.text for it in inbound_of(waiting.body).contexts]
        people = [*texts[1:], *said]
        user = Entry(turn=turn, kind="user", content=user_of(" + ".join(people)), spoken=[*map(spoken, people)])
        final = Entry(turn=turn, kind="final", content="{}")
        joined = [it.turn for it in work.waiting if it.turn < turn]
        await self.store.append(self._lease, [user], joined)
        await self.store.finish(self._lease, [final], [], at=1.0)
        await self.store.archive.answer(
            CHAT, f"k_{last}", MessageBody(text=f"to {last}", agent="helper", reply_to=f"m_{last}"), 2.0
        )
        return [*read, " + ".join(people)]

    async def finish(self, turn: int) -> None:
        assert self._lease is not None
        await self.store.finish(self._lease, [Entry(turn=turn, kind="final", content="{}")], [], at=1.0)

    async def due(self, text: str) -> list[str]:
        """The words that a schedule's turn reads before its text is sent."""
        origin = Origin(kind="schedule", id="R-1", run=text)
        turn = await self.accept(text, origin=origin)
        due = replace(context(text), message_id="", origin=origin)
        assert await self.store.branches.leave_out(SID, turn, due) is True
        assert await self.store.branches.leave_out(SID, turn, due) is False
        assert self._lease is not None
        work = (await self.store.load(self._lease, history_turns=50, waiting_max=20)).work
        assert work is not None
        reply_to = inbound_of(work.waiting[0].body).context.message_id
        spoken_by = Spoken(message="", person="web:local", direct=True, parts=1)
        user = Entry(turn=turn, kind="user", content=user_of(text), spoken=[spoken_by])
        await self.store.append(self._lease, [user])
        await self.finish(turn)
        body = MessageBody(text=text, agent="helper", reply_to=reply_to)
        await self.store.archive.answer(CHAT, f"k_{text}", body, 2.0)
        return [words(it) for it in work.history if it.kind == "user"]

    async def shown(self) -> list[str]:
        return [it.words.text for it in (await page(self.store.archive, CHAT, before=None, limit=50))]

    async def turn(self, text: str) -> bool:
        """Turns to the branch with the message or answer of this text."""
        everything = await self.store.archive.since(0, limit=99, bytes_max=LARGE)
        rows = await self.store.archive.messages([it.number for it in everything])
        return await self.store.branches.turn(CHAT, next(it.number for it in rows if it.words.text == text))


def context(text: str) -> MessageContext:
    return MessageContext(
        channel="web",
        account="default",
        chat=Chat(id=CHAT, kind="direct"),
        message_id=f"m_{text}",
        sender=Sender(id="local", name="User"),
        text=text,
        sent_at=datetime(2026, 11, 27, tzinfo=UTC),
        branch="goes on",
    )


def user_of(text: str) -> str:
    return message_json.dump_json(UserMessage(content=(Text(text=text),))).decode()


def words(entry: Entry) -> str:
    message = message_json.validate_json(entry.content)
    assert isinstance(message, UserMessage)
    (part,) = message.content
    assert isinstance(part, Text)
    return part.text


def spoken(text: str) -> Spoken:
    return Spoken(message=f"m_{text}", person="web:local", direct=True, parts=1)


@pytest.fixture
async def talk(database_url: str) -> AsyncIterator[Talk]:
    async with opened(database_url) as store:
        yield Talk(store)


@pytest.mark.parametrize(
    ("forks", "tip", "gaps"),
    [
        ({}, 9, [(9, 2**62)]),
        ({4: 0}, 5, [(5, 2**62), (0, 4)]),
        ({4: 0}, 3, [(3, 2**62)]),
        ({4: 1, 6: 3, 8: 5}, 9, [(9, 2**62), (5, 8), (1, 4)]),
        ({4: 1, 6: 3, 8: 5}, 7, [(7, 2**62), (3, 6)]),
    ],
)
def test_branch_is_what_lies_between_no_gap(forks: dict[int, int], tip: int, gaps: list[tuple[int, int]]) -> None:
    assert gaps_of(forks, tip) == gaps


async def test_branch_decides_what_a_turn_reads(talk: Talk) -> None:
    for text in "abc":
        await talk.say(text)
    assert await talk.say("B", instead="m_b") == ["a", "B"]
    assert await talk.say("d") == ["a", "B", "d"]
    assert await talk.shown() == ["a", "to a", "B", "to B", "d", "to d"]
    assert await talk.turn("to c")
    assert await talk.shown() == ["a", "to a", "b", "to b", "c", "to c"]
    assert await talk.keep("e") == "begins"
    assert await talk.answer(await talk.accept("e"), "e") == ["a", "b", "c", "e"]
    assert await talk.say("f") == ["a", "b", "c", "e", "f"]
    assert await talk.say("A", instead="m_a") == ["A"]
    assert await talk.shown() == ["A", "to A"]
    assert await talk.say("BB", instead="m_B") == ["a", "BB"]
    found = await talk.store.branches.versions(CHAT)
    assert {key: len(numbers) for key, numbers in found.items()} == {"m_a": 2, "m_BB": 3}


async def test_branch_of_a_late_answer_is_its_own(talk: Talk) -> None:
    await talk.keep("a")
    first = await talk.accept("a")
    await talk.keep("A", instead="m_a")
    await talk.answer(first, "a")
    assert await talk.shown() == ["A"]
    assert await talk.answer(await talk.accept("A"), "A") == ["A"]
    assert await talk.shown() == ["A", "to A"]
    assert await talk.turn("a")
    assert await talk.shown() == ["a", "to a"]


async def test_turn_of_an_older_message_is_on_the_branch_of_that_message(talk: Talk) -> None:
    """A repeated answer or a report: it has a newer number than what another branch has."""
    for text in ("root", "a"):
        await talk.say(text)
    await talk.say("A", instead="m_a")
    assert await talk.answer(await talk.accept("a", again=" again"), "a") == ["root", "a", "a"]
    assert await talk.say("B") == ["root", "A", "B"]
    assert await talk.turn("a")
    assert await talk.say("b") == ["root", "a", "a", "b"]
    assert await talk.turn("B")
    assert await talk.say("C") == ["root", "A", "B", "C"]


async def test_schedule_text_is_on_the_branch_that_is_shown_when_it_is_due(talk: Talk) -> None:
    for text in ("root", "a"):
        await talk.say(text)
    await talk.say("A", instead="m_a")
    assert await talk.due("on A") == ["root", "A"]
    assert await talk.turn("a")
    assert await talk.due("on a") == ["root", "a"]
    assert await talk.shown() == ["root", "to root", "a", "to a", "on a"]
    assert await talk.say("b") == ["root", "a", "on a", "b"]
    assert await talk.turn("A")
    assert await talk.shown() == ["root", "to root", "A", "to A", "on A"]
    assert await talk.say("B") == ["root", "A", "on A", "B"]


async def test_branch_keeps_unprompted_text_in_place(talk: Talk) -> None:
    for text in ("root", "a"):
        await talk.say(text)
    await talk.store.archive.answer(CHAT, "k_due", MessageBody(text="due", agent="helper"), 2.0)
    await talk.say("A", instead="m_a")
    assert await talk.shown() == ["root", "to root", "A", "to A"]
    assert await talk.turn("a")
    assert await talk.shown() == ["root", "to root", "a", "to a", "due"]


async def test_new_begins_on_the_branch_where_it_was_said(talk: Talk) -> None:
    for text in ("root", "a"):
        await talk.say(text)
    await talk.say("A", instead="m_a")
    assert await talk.turn("a")
    assert await talk.keep("/new") == "begins"
    command = await talk.accept("/new")
    await talk.store.branches.leave_out(SID, command, context("/new"))
    await talk.finish(command)
    await talk.store.mark(SID, SessionMark(turn=command, kind="new", content='{"message": "m_/new"}', at=1.0))
    assert await talk.say("b") == ["b"]
    assert await talk.turn("A")
    assert await talk.say("B") == ["root", "A", "B"]
    assert await talk.turn("b")
    assert await talk.say("c") == ["b", "c"]


async def test_branch_edit_answers_collected_messages_again(talk: Talk) -> None:
    await talk.keep("a")
    await talk.accept("a")
    await talk.say("b", together=["a"])
    assert await talk.say("B", instead="m_b") == ["a + B"]
    assert await talk.say("c") == ["a + B", "c"]
    assert await talk.say("A", instead="m_a") == ["A"]


async def test_branch_ignores_summaries_and_new_of_others(talk: Talk) -> None:
    for text in "abcd":
        await talk.say(text)
    turns = [it.turn for it in await talk.store.transcript(SID) if it.kind == "final"]
    summary = Summary(text="a, b and c", by=turns[3], turns=3)
    await talk.store.mark(SID, summary.mark(turns[2], 1.0))
    await talk.store.mark(SID, Summary(text="a alone", by=turns[3], turns=1).mark(turns[0], 1.0))
    assert await talk.say("e") == ["d", "e"]
    assert await talk.say("B", instead="m_b") == ["B"]  # behind the summary of `a`
    held = await talk.store.conversation(SID, before=10**6, history_turns=50, waiting_max=9)
    assert held.summary.text == "a alone"
    await talk.store.mark(SID, SessionMark(turn=turns[3] + 2, kind="new", at=1.0))
    assert await talk.turn("e")
    assert await talk.say("f") == ["d", "e", "f"]


async def test_branch_redelivered_message_is_idempotent(talk: Talk) -> None:
    await talk.say("a")
    for _ in range(2):
        assert await talk.keep("A", instead="m_a") == "begins"
    assert await talk.keep("AA", instead="m_a", versions_max=2) == "too many"
    assert await talk.keep("A", instead="m_a", versions_max=2) == "begins"
    assert await talk.keep("x", instead="m_nothing") == "gone"
    assert await talk.shown() == ["A"]
    assert {key: len(it) for key, it in (await talk.store.branches.versions(CHAT)).items()} == {"m_A": 2}
