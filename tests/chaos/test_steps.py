"""Killed in the middle of a summary, and of a /stop: what a person reads and what is counted stay the same."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import Any

import httpx
import pytest
from sqlalchemy import NullPool, create_engine, text

from tests.chaos.emulated import OnFeishu
from tests.chaos.platform import miscounted
from tests.chaos.replica import Replica
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.dialogue import summary_names
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, SECRETS, client
from tests.stories.at_work import NEVER, results, users
from tests.waiting import until

SMALL = "contextWindow: 12000\n      maxTokens: 1000\n      compaction: { keepTurns: 2 }"
FILLER = "and then this happened, and that, and the other thing " * 30
NOTICE = "I have summarised the older part"


class House:
    """One gateway on a real database, which is started again whenever it is found dead."""

    def __init__(self, folder: Path, database: str, urls: tuple[str, str], chat: OnFeishu) -> None:
        feishu, model = urls
        self.chat = chat
        self.replica = Replica(0, folder, chat=chat, chat_url=feishu, model_url=model, database=database, agent=SMALL)
        config = self.replica.config.read_text().replace(f"{feishu}/0", feishu).replace(f"{model}/0", model)
        self.replica.config.write_text(config)

        self._revives = True

    async def alive(self) -> None:
        if self.replica.dead and self._revives:
            await self.replica.ended()
            await self.replica.start()

    @contextmanager
    def left_dead(self) -> Iterator[None]:
        """Nobody starts it again for the length of a `with`."""
        self._revives = False
        yield
        self._revives = True

    async def write(self, words: str) -> None:
        event = self.chat.emulator.text_event(words, sender=ALICE, chat=ALICE_CHAT)

        async def taken() -> bool:
            await self.alive()
            try:
                async with client() as http:
                    return await self.chat.deliver(http, self.replica.url, event)
            except httpx.TransportError:
                return False

        await until(taken)

    async def read(self, wanted: Callable[[list[str]], bool]) -> list[str]:
        async def found() -> bool:
            await self.alive()
            return wanted([it.text for it in self.chat.emulator.messages])

        await until(found)
        return [it.text for it in self.chat.emulator.messages]

    async def said(self, words: str) -> str:
        count = len(self.chat.emulator.messages)
        await self.write(words)
        return (await self.read(lambda texts: len(texts) > count))[-1]


def on(database: str) -> Callable[..., list[tuple[str, int]]]:
    return lambda *numbers: [(database, number) for number in numbers]


SQLITE, POSTGRESQL = on("sqlite"), on("postgresql")


@asynccontextmanager
async def house(folder: Path, database: str, script: Callable[[dict[str, Any]], Reply]) -> AsyncIterator[House]:
    chat, anthropic = OnFeishu(), AnthropicEmulator(script, api_key=SECRETS["ANTHROPIC_API_KEY"])
    async with serve_on_loopback(chat.app) as feishu, serve_on_loopback(anthropic.app) as model:
        opened = House(folder, database, (feishu, model), chat)
        try:
            await opened.replica.start()
            yield opened
        finally:
            await opened.replica.close()


def bills(database: str) -> list[dict[str, Any]]:
    engine = create_engine(database.replace("postgresql://", "postgresql+psycopg://", 1), poolclass=NullPool)
    with engine.begin() as connection:
        rows = connection.execute(text("SELECT content FROM transcript WHERE kind = 'final' ORDER BY turn")).scalars()
        return [json.loads(row) for row in rows]


@pytest.mark.parametrize(("database_url", "requests"), [*SQLITE(0, 1, 2), *POSTGRESQL(1)], indirect=["database_url"])
async def test_compaction_is_billed_once_wherever_the_process_dies(
    requests: int, tmp_path: Path, database_url: str
) -> None:
    """It dies at the request for the summary; when that is marked and counted nowhere; and when a step has counted it."""
    left: list[int] = []
    killed: list[bool] = []

    def script(body: dict[str, Any]) -> Reply:
        if (names := summary_names(body)) is not None and not left:
            left.append(requests)
        if left and not killed:
            if not left[0]:
                killed.append(True)
                opened.replica.signal(SIGKILL)
            left[0] -= 1
        if names is not None:
            return says("\n".join(("## Decisions", "-", "## Exact identifiers", *names)))
        return (
            says("heard")
            if results(body)[-1:] and "tool_result" in json.dumps(body["messages"][-1])
            else calls(("ls", {"path": "."}))
        )

    async with house(tmp_path, database_url, script) as opened:
        number = 0
        while not any(NOTICE in it.text for it in opened.chat.emulator.messages):
            assert number < 30
            await opened.said(f"turn {number}: {FILLER}")
            number += 1
        replies = [it.text for it in opened.chat.emulator.messages]
        assert killed
        assert len(replies) == number
        assert sum(NOTICE in it for it in replies) == 1
        assert [it["requests"] for it in bills(database_url)] == [2] * (number - 1) + [3]
        assert miscounted(database_url) == []


@pytest.mark.parametrize(("database_url", "moment"), [*SQLITE(1, 2, 3, 4), *POSTGRESQL(2)], indirect=["database_url"])
async def test_a_stop_that_runs_twice_stops_and_drops_once_and_says_the_same(
    moment: int, tmp_path: Path, database_url: str
) -> None:
    def script(body: dict[str, Any]) -> Reply:
        words = users(body)[-1].rpartition(": ")[2]
        asked.append(words)
        return NEVER if "slow" in words else says("heard")

    asked: list[str] = []
    async with house(tmp_path, database_url, script) as opened:
        await opened.write("slow one")
        await until(lambda: asked)
        await opened.write("and another")
        await opened.replica.arm(f"K20:{moment}")
        reply = await opened.said("/stop")
        assert reply.startswith("Stopped.\n\n1 waiting message was dropped:\n- “and another”")
        assert await opened.said("next") == "heard"
        assert len(opened.chat.emulator.messages) == 2
        assert len(opened.replica.restarts) == 2
        assert not any("and another" in words for words in asked)
        assert [it["outcome"] for it in bills(database_url)].count("stopped") == 2
