"""People who write to a bot: one after the other, or all at once, each waiting for the reply to the last message.

A message goes over a connection that is kept: the sender costs the machine as little as it can. A turn lasts from the
webhook's POST to the arrival of its reply, which the web chat's page reads from its stream.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import orjson

from tests.bench.peers import Peers
from tests.bench.sides import Prepared, Side
from tests.bench.subject import Subject, address

REPLY_SECONDS = 30.0
SETTLE_SECONDS = 0.1
"""After a scenario: what a bot still writes down behind its last reply belongs to its processor time."""


@dataclass(slots=True)
class Measured:
    """What became of a scenario. Times are milliseconds."""

    turns: list[float] = field(default_factory=list)
    acks: list[float] = field(default_factory=list)
    cpu_ms: float = 0.0
    peers_cpu_ms: float = 0.0
    seconds: float = 0.0
    lost: int = 0
    doubled: int = 0

    def add(self, other: "Measured") -> None:
        self.turns += other.turns
        self.acks += other.acks
        self.cpu_ms += other.cpu_ms
        self.peers_cpu_ms += other.peers_cpu_ms
        self.seconds += other.seconds
        self.lost += other.lost
        self.doubled += other.doubled

    @property
    def cpu_ms_per_turn(self) -> float:
        return self.cpu_ms / len(self.turns)

    @property
    def peers_cpu_ms_per_turn(self) -> float:
        return self.peers_cpu_ms / len(self.turns)

    @property
    def turns_per_second(self) -> float:
        return len(self.turns) / self.seconds


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least this share of them does not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -int(-len(ordered) * share // 1) - 1)]


async def prepare(side: Side, peers: Peers, *, chats: int, messages: int) -> list[list[Prepared]]:
    """So many messages for each of new chats, known to the platform from here on."""
    prepared: list[list[Prepared]] = []
    for chat in [side.chat() for _ in range(chats)]:
        first = len(prepared) * messages + 1
        texts = [f"What will the weather be like tomorrow? This is question {first + at}." for at in range(messages)]
        prepared.append([side.message(chat, text) for text in texts])
    await peers.know(message.fact for of_chat in prepared for message in of_chat)
    return prepared


class Line:
    """One connection to a bot's webhook, opened anew where the bot has closed it: a turn may outlast its keep-alive."""

    def __init__(self, subject: Subject, peers: Peers) -> None:
        self._subject = subject
        self._peers = peers
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def turn(self, message: Prepared, measured: Measured) -> None:
        """Send it, read the acknowledgement, wait for the reply. Raises RuntimeError where it is not taken."""
        reply = self._peers.expect(message.key)
        if is_new := self._open is None or self._open[0].at_eof():
            self._open = await self._opened()
        began = time.monotonic()
        try:
            reader, head = await self._sent(message)
        except (ConnectionResetError, asyncio.IncompleteReadError):
            if is_new:
                raise
            # The bot gave up an idle connection in the same moment, so it has not read the request.
            self._open = await self._opened()
            began = time.monotonic()
            reader, head = await self._sent(message)
        length = next((line[15:] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b"0")
        await reader.readexactly(int(length))
        measured.acks.append((time.monotonic() - began) * 1000)
        if head.split(b" ", 2)[1] != b"200":
            raise RuntimeError(f"the webhook answered {head!r}")
        try:
            async with asyncio.timeout(REPLY_SECONDS):
                measured.turns.append((await reply - began) * 1000)
        except TimeoutError:
            measured.lost += 1

    async def _opened(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        self.close()
        return await asyncio.open_connection(*address(self._subject.url))

    async def _sent(self, message: Prepared) -> tuple[asyncio.StreamReader, bytes]:
        assert self._open is not None
        reader, writer = self._open
        writer.write(message.request)
        return reader, await reader.readuntil(b"\r\n\r\n")

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()


@asynccontextmanager
async def line(subject: Subject, peers: Peers) -> AsyncIterator[Line]:
    opened = Line(subject, peers)
    try:
        yield opened
    finally:
        opened.close()


@asynccontextmanager
async def watched(subject: Subject, peers: Peers) -> AsyncIterator[Measured]:
    """Add up what a scenario costs, and look afterwards whether every message had its one reply."""
    measured = Measured()
    reading = asyncio.create_task(_page(subject, peers)) if subject.side.name == "web" else None
    await asyncio.sleep(0.2 if reading else 0)
    cpu, peers_cpu, began = subject.cpu_seconds(), (await peers.count())["cpu_seconds"], time.monotonic()
    yield measured
    measured.seconds = time.monotonic() - began
    await asyncio.sleep(SETTLE_SECONDS)
    if reading and not reading.cancel():
        reading.result()
    counted = await peers.count()
    if not measured.turns:
        raise RuntimeError(f"{subject.name} replied to nothing:\n{''.join(subject.output)}")
    if counted["refused"]:
        raise RuntimeError(f"the model refused requests: {counted['refused'][:3]}")
    measured.cpu_ms = (subject.cpu_seconds() - cpu) * 1000
    measured.peers_cpu_ms = (counted["cpu_seconds"] - peers_cpu) * 1000
    measured.doubled = sum(count for count in peers.surplus.values() if count > 0)
    await peers.clear()


async def _page(subject: Subject, peers: Peers) -> None:
    """One page, which sees the replies of every chat, and comes back where it was let go."""
    while True:
        reader, writer = await asyncio.open_connection(*address(subject.url), limit=1 << 24)
        try:
            head = (
                f"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\nx-clawgate: 1\r\nlast-event-id: {subject.seen}\r\n\r\n"
            )
            writer.write(head.encode())
            while line := await reader.readline():
                if line.startswith(b"id: "):
                    subject.seen = int(line[4:])
                if line.startswith(b'data: {"id"') and b'"reply_to":"' in line:
                    peers.arrived(orjson.loads(line[6:])["reply_to"], time.monotonic())
        finally:
            writer.close()


async def serial(subject: Subject, peers: Peers, *, chats: int, turns: int) -> Measured:
    """One turn at a time, the next one sent when the reply is there, going round the chats `turns` times."""
    prepared = await prepare(subject.side, peers, chats=chats, messages=turns)
    async with line(subject, peers) as connection, watched(subject, peers) as measured:
        for number in range(turns):
            for messages in prepared:
                await connection.turn(messages[number], measured)
    return measured


async def crowd(subject: Subject, peers: Peers, *, chats: int, turns: int) -> Measured:
    """All chats at the same time, each with its own connection and `turns` messages."""
    prepared = await prepare(subject.side, peers, chats=chats, messages=turns)

    async def person(messages: Sequence[Prepared]) -> None:
        async with line(subject, peers) as connection:
            for message in messages:
                await connection.turn(message, measured)

    async with watched(subject, peers) as measured:
        await asyncio.gather(*(person(messages) for messages in prepared))
    return measured
