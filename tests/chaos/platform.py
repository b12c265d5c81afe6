"""Chat platform and model in the harness's own process: they answer, they keep the ledger, and they see who asks.

Each request comes under a path that begins with the replica's number. A trap strikes when the n-th request of its kind
is there, in the middle of its answer, or done and not answered yet.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from dataclasses import replace
from itertools import count
from typing import Any

from sqlalchemy import Connection, NullPool, Row, create_engine, text
from sqlalchemy.exc import OperationalError
from starlette.requests import ClientDisconnect, Request
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.types import Message as Sent

from agents.messages import AssistantMessage, message_json
from channels.message import Outbound
from gateway.config.root import DatabaseConfig
from gateway.outbox.outbox import payload_json
from gateway.store.dead_letters import dead_letters
from gateway.store.inbound import inbound_of
from gateway.store.records import Summary
from gateway.store.statements import OutboxStatus
from tests.chaos.emulated import Emulated
from tests.chaos.ledger import QUESTION, Doubt, Ledger, Message, Shown, Wish, request, shown
from tests.chaos.model import Model
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.loopback import serve_on_loopback
from tests.running import SECRETS

serials = (f"S{number:06d}" for number in count(1))
"""One row of numbers for the whole run, so that campaigns may share a database."""

ANSWERS = """
SELECT t.content, i.body FROM transcript t JOIN inbox i ON i.id = t.turn WHERE t.kind = 'assistant'
"""
UNSEEN = f"""state = 'pending' AND EXISTS (
    SELECT 1 FROM inbox i JOIN outbox o ON o.turn = i.id
    WHERE i.dedupe LIKE '%' || approval.id || '_ask_%' AND o.status = {OutboxStatus.FAILED:d}
)"""
"""The question was given up in doubt, so nobody need have seen it: it ends by its expiry, long after a campaign."""
TASK = b"This is the task "
"""Stands in the requests of a task, and in no other."""

DOUBTFUL = text(
    f"SELECT id, payload, status, ambiguous FROM outbox WHERE ambiguous > 0 AND status <> {OutboxStatus.QUEUED:d}"
)
"""Of a part that still waits it is not known: one that no attempt was begun for gets its doubt cleared."""


class Platform:
    """`ledger` is up to date whenever `read` has been called."""

    def __init__(self, chat: Emulated, model: Model) -> None:
        self.chat = chat
        self.ledger = Ledger(repeats=chat.repeats, recognises=chat.recognises)
        self.replies: defaultdict[str, list[Shown]] = defaultdict(list)
        """What was shown, by serial."""
        self.open: dict[str, Message] = {}
        """What is not known to be answered, by serial."""
        self.questions: dict[str, tuple[str, str]] = {}
        """What nobody has decided yet: the chat and the id that was shown there, by the command's serial."""
        self.trap: Callable[[str, int], bool] | None = None
        """Called with a point that is reached and the number of the replica; whether that one is killed now."""
        self._anthropic = AnthropicEmulator(model, api_key=SECRETS["ANTHROPIC_API_KEY"])
        self._serials: dict[tuple[str, str], str] = {}
        """By chat and message id."""

    @asynccontextmanager
    async def served(self) -> AsyncIterator[tuple[str, str]]:
        """The base URLs of platform and model, without the replica."""
        async with serve_on_loopback(_door(self._chat)) as chat, serve_on_loopback(_door(self._model)) as model:
            yield chat, model

    async def _chat(self, replica: int, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        points = self.chat.points(scope, body)
        if (part := shown(body.decode(), chat="", serial="", kills=0)).take:
            self.ledger.sends.add(part.key)
        given, held = [{"type": "http.request", "body": body}], []

        async def again() -> Sent:
            return given.pop() if given else await receive()

        async def hold(message: Sent) -> None:
            held.append(message)

        if points is None:
            await self.chat.app(scope, again, send)
            return
        before, behind = points
        if not self.springs(before, replica):
            await self.chat.app(scope, again, hold)
            if held[0].get("status") != 200 and before != "K25" and not self._is_repetition(held[-1]):
                self.ledger.refused.append(f"{self.chat.name}: {held[-1].get('body', b'')!r}")
            if not self.springs(behind, replica):
                for message in held:
                    await send(message)
                return
        while (await receive())["type"] != "http.disconnect":
            pass

    def _is_repetition(self, answer: Sent) -> bool:
        """The end of a card that a process had sent before it died: by its uuid the platform knows that it has it."""
        return self.ledger.kills > 0 and b'"code":200770' in answer.get("body", b"")

    async def _model(self, replica: int, scope: Scope, receive: Receive, send: Send) -> None:
        body = await Request(scope, receive).body()
        of_task, given = TASK in body, [{"type": "http.request", "body": body}]

        def springs(point: str) -> None:
            self.springs(point, replica)
            if of_task:
                self.springs("K28", replica)

        async def again() -> Sent:
            return given.pop() if given else await receive()

        async def watched(message: Sent) -> None:
            await send(message)
            if message["type"] == "http.response.body":
                springs("K6")

        springs("K5")
        await self._anthropic.app(scope, again, watched)

    def springs(self, point: str, replica: int) -> bool:
        return self.trap is not None and self.trap(point, replica)

    def write(self, wish: Wish, chat: str, more: str = "") -> Message:
        """A user's message exists from here on."""
        serial = next(serials)
        message_id, event = self.chat.write(f"{wish}{more}" if wish.startswith("/") else f"{serial} {wish}", chat)
        message = Message(serial=serial, chat=chat, wish=wish, event=event, kills_before=self.ledger.kills)
        self._serials[chat, message_id] = serial
        self.ledger.messages[serial] = self.open[serial] = message
        if wish == "task":
            self._expect(serial, f"T{serial[1:]}", "handed")
        return message

    def expect(self, wish: Wish, chat: str, *, acked: int | None = None) -> Message:
        """A message that no person writes; it is answered all the same."""
        message = Message(serial=next(serials), chat=chat, wish=wish, acked=acked, kills_before=self.ledger.kills)
        self.ledger.messages[message.serial] = self.open[message.serial] = message
        return message

    def read(self) -> Ledger:
        """Bring the ledger up to date: what was shown, what the model was asked."""
        for seen in self.chat.seen():
            reply = self._shown(*seen)
            self.ledger.shown.append(reply)
            self.replies[reply.serial].append(reply)
            self.ledger.first_seen.setdefault(reply.serial, time.time())
            if question := QUESTION.search(seen[2]):
                self.questions[f"S{question[1]}"] = seen[0], question[2]
                self._expect(f"S{question[1]}", f"A{question[1]}", "decided")
        for received in self._anthropic.requests:
            refusal = f"model: {received.refusal.status} {received.refusal.message}" if received.refusal else ""
            self.ledger.requests.append(request(received.body, refusal))
            for serial in self.ledger.requests[-1].asked:
                self._expect(serial, f"A{serial[1:]}", "decided")
        self._anthropic.requests.clear()
        return self.ledger

    def _expect(self, serial: str, more: str, wish: Wish) -> None:
        """More than an answer comes of a message, some time: a decision, or the result of a task."""
        if more not in self.ledger.messages:
            message = replace(self.ledger.messages[serial], serial=more, wish=wish, acked=-1)
            self.ledger.messages[more] = self.open[more] = message

    async def read_books(self, database: str) -> None:
        """What the gateway says of sends that may have arrived. A given-up one will not come any more."""
        found = await asyncio.to_thread(doubts, database, self._shown)
        self.ledger.doubts |= {doubt.part.key: doubt for doubt in found}

    def _shown(self, chat: str, reply_to: str, words: str) -> Shown:
        return shown(words, chat=chat, serial=self._serials.get((chat, reply_to), ""), kills=self.ledger.kills)


def _door(app: Callable[[int, Scope, Receive, Send], Awaitable[None]]) -> ASGIApp:
    """Takes the replica's number off the path. Whoever sent the request may die meanwhile."""

    async def door(scope: Scope, receive: Receive, send: Send) -> None:
        _, replica, path = scope["path"].split("/", 2)
        with suppress(ClientDisconnect):
            await app(int(replica), {**scope, "path": f"/{path}", "raw_path": f"/{path}".encode()}, receive, send)

    return door


def _connected(url: str) -> AbstractContextManager[Connection]:
    return create_engine(url.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool).begin()


def doubts(url: str, shown: Callable[[str, str, str], Shown]) -> list[Doubt]:
    """Every part in doubt so far, read by `shown` from its chat, the message it replies to and its text. None where
    there is no database yet.

    Telegram recognises no repetition, so there a lost or doubled part is excused, but only by the gateway's own books: a
    part that was given up must be among the dead letters, and no part can be in doubt more often than processes died."""
    rows: Sequence[Row[Any]] = []
    with suppress(OperationalError), _connected(url) as connection:
        rows = connection.execute(DOUBTFUL).all()
    reported = {it.number for it in dead_letters(DatabaseConfig(url=url)) if it.ambiguous} if rows else set()
    return [
        Doubt(
            part=shown(part.target.chat, part.target.reply_to or "", _whole(part)),
            times=row.ambiguous,
            given_up=row.status == OutboxStatus.FAILED,
            reported=row.id in reported,
        )
        for row in rows
        for part in (payload_json.validate_json(row.payload).part,)
        if part.replaces is None  # what takes the place of a message is in no doubt
    ]


def _whole(part: Outbound) -> str:
    """The text with what is folded beneath it: the lines by which the harness knows a question stand there."""
    return f"{part.text}\n{part.folded.text}" if part.folded else part.text


def unsent(url: str) -> int:
    """Messages, parts and outcomes of approvals that somebody has yet to get."""
    open_ones = f"approval WHERE announced = 0 AND NOT ({UNSEEN})"
    counts = ("inbox WHERE status = 0", "outbox WHERE status = 0", open_ones)
    with _connected(url) as connection:
        return sum(connection.execute(text(f"SELECT count(*) FROM {it}")).scalar_one() for it in counts)


def unsettled(url: str) -> list[str]:
    """What was asked and has no end, or one that nobody was sent."""
    states = "announced = 0 OR state IN ('pending', 'approved', 'spawned')"
    open_ones = text(f"SELECT id, state FROM approval WHERE ({states}) AND NOT ({UNSEEN})")
    with _connected(url) as connection:
        return [f"{row.id} is {row.state}" for row in connection.execute(open_ones)]


def miscounted(url: str) -> list[str]:
    """No request of a campaign fails at a price, so the answers in the journal took all that was spent, with those that
    stand at summaries. No person pays for what the operator has done."""
    with _connected(url) as connection:
        rows = connection.execute(text(ANSWERS)).all()
        usages = [
            (answer.usage, bool(inbound_of(row.body).context.sender.id))
            for row in rows
            if isinstance(answer := message_json.validate_json(row.content), AssistantMessage)
        ]
        made = connection.execute(text("SELECT content FROM mark WHERE kind = 'summary'")).scalars()
        usages += [(answer.usage, True) for row in made for answer in Summary.read(row).answers]
        payer = "CASE WHEN scope LIKE 'agent:%' THEN 'agent' ELSE 'sender' END"
        sums = connection.execute(text(f"SELECT {payer} AS payer, sum(tokens) AS tokens FROM usage GROUP BY 1")).all()
    took = [(it.input + it.cache_read + it.cache_write + it.output, by_person) for it, by_person in usages]
    spent = {"agent": sum(it for it, _ in took), "sender": sum(it for it, by_person in took if by_person)}
    counted = dict.fromkeys(spent, 0) | {it.payer: int(it.tokens) for it in sums}
    return [f"{payer} has {counted[payer]} tokens of {it}" for payer, it in spent.items() if counted[payer] != it]
