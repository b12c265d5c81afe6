"""How long a recall, an erasure and a deleted web conversation hold the only writer of a large SQLite file.

    python -m tests.bench.erasing 100000

makes a database of so many indexed messages over chats of fifty, and says for each how long its longest transaction took.
"""

import asyncio
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from sqlalchemy import Connection, text

from agents.messages import Text, UserMessage, message_json
from channels.message import Chat, MessageContext, Sender
from gateway.store import erasure, memory
from gateway.store.erasure import portions_of
from gateway.store.inbound import Inbound, inbound_json
from gateway.store.sqlite import SqliteStore
from tools.memory import terms

PER_CHAT = 50
INBOX = """
INSERT INTO inbox (id, dedupe, sid, body, at, status, attempts, sender, person)
VALUES (:id, :dedupe, :sid, :body, 0, 2, 0, :sender, :person)
"""
TRANSCRIPT = "INSERT INTO transcript (sid, seq, turn, kind, content) VALUES (:sid, :seq, :turn, :kind, :content)"
SPOKEN = """
INSERT INTO spoken (sid, seq, place, turn, message, person, name, direct, how, parts)
VALUES (:sid, :seq, 0, :turn, :message, :person, 'A', 0, 'said', 1)
"""
WORD = "INSERT INTO word (scope, term, turn) VALUES (:scope, :term, :turn)"
WORDS = [f"w{number:05}" for number in range(30_000)]


def fill(connection: Connection, count: int, chance: Random) -> None:
    for start in range(0, count, 5_000):
        inbox, transcript, spoken, word = [], [], [], []
        for n in range(start + 1, min(start + 5_000, count) + 1):
            chat, person = f"oc_{n // PER_CHAT}", f"ou_{n // PER_CHAT % 1_000}"
            sid, said = f"agent:a:feishu:d:{chat}", " ".join(chance.choices(WORDS, k=60))
            context = MessageContext(
                channel="feishu",
                account="d",
                chat=Chat(id=chat, kind="group"),
                message_id=f"om_{n}",
                sender=Sender(id=person),
                text=said,
                sent_at=datetime.fromtimestamp(0, tz=UTC),
            )
            body = inbound_json.dump_json(Inbound(agent="a", context=context)).decode()
            who = {"sender": f"feishu:d:{person}", "person": f"feishu:{person}"}
            inbox.append({"id": n, "dedupe": f"feishu:d:om_{n}", "sid": sid, "body": body, **who})
            row = message_json.dump_json(UserMessage(content=(Text(text=f"[message_id: om_{n}]\nA: {said}"),))).decode()
            for seq, (kind, content) in enumerate((("user", row), ("assistant", row), ("final", "{}"))):
                transcript.append({"sid": sid, "seq": 3 * n + seq, "turn": n, "kind": kind, "content": content})
            spoken.append({"sid": sid, "seq": 3 * n, "turn": n, "message": f"om_{n}", "person": who["person"]})
            word += [{"scope": memory._scope(sid), "term": it, "turn": n} for it in terms(said)]
        for statement, rows in ((INBOX, inbox), (TRANSCRIPT, transcript), (SPOKEN, spoken), (WORD, word)):
            connection.execute(text(statement), rows)
    connection.execute(text("INSERT INTO session (id, epoch, pending) SELECT DISTINCT sid, 1, 0 FROM inbox"))


async def main(count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder, "x.db"))
        await store.write(lambda connection: fill(connection, count, Random(1)))
        sys.stdout.write(f"{count:,} messages, {Path(folder, 'x.db').stat().st_size >> 20} MiB\n")

        async def timed(what: str, *operations: Any) -> None:
            longest = 0.0
            for operation in operations:
                began = time.perf_counter()
                await operation()
                longest = max(longest, time.perf_counter() - began)
            sys.stdout.write(f"{what}: {len(operations)} transactions, the longest {longest * 1000:.1f} ms\n")

        def recall(n: int) -> Any:
            return lambda: store.changes.recall(f"feishu:d:om_{n}", f"feishu:d:oc_{n // PER_CHAT}", f"om_{n}", 1.0)

        await timed("recall", *(recall(chance) for chance in Random(2).sample(range(1, count), 20)))
        began = time.perf_counter()
        portions = await store.read(lambda connection: portions_of(connection, "feishu", "ou_7"))
        sys.stdout.write(f"collecting a person's, beside the writer: {(time.perf_counter() - began) * 1000:.1f} ms\n")

        def write(operation: Any) -> Any:
            return lambda: store.write(operation)

        steps = [write(lambda connection: erasure.claim(connection, portions, served=False))]
        for portion in portions:
            numbers = sorted(portion.numbers)
            for at in range(0, len(numbers), erasure.TURNS_AT_ONCE):
                some = numbers[at : at + erasure.TURNS_AT_ONCE]
                steps.append(write(lambda it, some=some, portion=portion: erasure.forget_turns(it, portion, some)))
            steps.append(write(lambda it, portion=portion: erasure.forget_session(it, portion)))
        steps.append(write(lambda connection: erasure.forget_person(connection, "feishu", "ou_7")))
        await timed("erasing a person", *steps)
        await store.close()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
