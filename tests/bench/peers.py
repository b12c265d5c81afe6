"""The neighbours of a bot, the platforms' and Anthropic's emulators, in a process of their own: their work is not the bot's.

They are the strict emulators of the tests; checking a request costs them 0.06 ms (0.3 ms with fifty turns of history),
which is little enough to time through. Every reply that arrives is told on stdout with the moment of its arrival, on
the clock that all processes of one machine share. Commands come on stdin, one JSON object a line; its end is the end.
"""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

import orjson
import uvloop
from starlette.types import Receive, Scope, Send

from tests.emulators.feishu.events import Known
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import Turn, calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, SECRETS, feishu_emulator

ROOT = Path(__file__).resolve().parents[2]
LINE_BYTES_MAX = 1 << 26
START_SECONDS = 30.0
ANSWER = "Tomorrow it will be sunny in Hangzhou, 18 to 25 degrees, with a light breeze from the east. Have a good day!"
END = "Have a good day!"
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (("ls", {}), ("read", {"file_path": "notes.txt"}), ("ls", {}))

SLOW = "\n".join(f"{number}. {ANSWER}" for number in range(1, 10))
SLOW_PIECE_BYTES = 600
SLOW_PAUSE_SECONDS = 0.1

Scenario = Literal["plain", "tools", "slow"]


class Stage:
    """The process's side: what the emulators do, and what is told of it."""

    def __init__(self) -> None:
        self._feishu = feishu_emulator()
        self._telegram = TelegramEmulator()
        self._anthropic = AnthropicEmulator(self._answer, api_key=SECRETS["ANTHROPIC_API_KEY"])
        self._latency_seconds = 0.0
        self._scenario: Scenario = "plain"
        self._arrived: dict[str, float] = {}
        self._reported = 0
        self._growing: dict[str, Callable[[], str]] = {}
        """Of what is shown and not whole yet: the key, and what it says now."""

    async def serve(self) -> None:
        """Until stdin ends."""
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

        # uvicorn takes a bound method for an application of the old interface, hence the functions
        async def feishu(scope: Scope, receive: Receive, send: Send) -> None:
            await self._feishu_reply(scope, receive, send)

        async def telegram(scope: Scope, receive: Receive, send: Send) -> None:
            await self._telegram_reply(scope, receive, send)

        async def model(scope: Scope, receive: Receive, send: Send) -> None:
            await self._model(scope, receive, send)

        apps = {"feishu": feishu, "telegram": telegram, "anthropic": model}
        async with AsyncExitStack() as stack:
            _report({name: await stack.enter_async_context(serve_on_loopback(app)) for name, app in apps.items()})
            while line := await reader.readline():
                _report({"answer": self._obey(orjson.loads(line))})

    def _obey(self, command: dict[str, Any]) -> dict[str, Any]:
        match command:
            case {"do": "set", "latency_ms": float(latency), "scenario": "plain" | "tools" | "slow" as scenario}:
                self._latency_seconds, self._scenario = latency / 1000, scenario
            case {"do": "know", "messages": list(messages)}:
                for fact in messages:
                    self._learn(fact)
            case {"do": "clear"}:
                self._feishu.requests.clear()
                self._feishu.messages.clear()
                self._feishu.known.clear()
                self._anthropic.requests.clear()
                self._telegram.requests.clear()
                self._telegram.messages.clear()
                self._telegram.known.clear()
                self._arrived.clear()
                self._growing.clear()
                self._reported = 0
            case {"do": "count"}:
                return {
                    "refused": [str(it.refusal) for it in self._anthropic.requests if it.refusal is not None],
                    "cpu_seconds": time.process_time(),
                }
            case _:
                raise ValueError(f"unknown command {command}")
        return {}

    async def _model(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._latency_seconds:
            await asyncio.sleep(self._latency_seconds)
        await self._anthropic.app(scope, receive, send)

    def _learn(self, fact: Any) -> None:
        match fact:
            case [message_id, chat]:
                known = Known(chat_id=chat, sender=ALICE, msg_type="text", content="{}")
                self._feishu.known[message_id] = known
                self._feishu.chats.setdefault(chat, "")
            case {"message": {"chat": {"id": chat}}}:
                self._telegram.private(chat)
                self._telegram.learn(fact)

    async def _feishu_reply(self, scope: Scope, receive: Receive, send: Send) -> None:
        now, path = time.monotonic(), scope["path"]
        if path.endswith("/reply"):
            self._arrived.setdefault(path.split("/")[-2], now)
        await self._feishu.app(scope, receive, send)
        new, self._reported = self._feishu.messages[self._reported :], len(self._feishu.messages)
        self._tell(((it.reply_to or it.chat_id, partial(self._feishu.reads, it)) for it in new), now)

    async def _telegram_reply(self, scope: Scope, receive: Receive, send: Send) -> None:
        now = time.monotonic()
        await self._telegram.app(scope, receive, send)
        new, self._reported = self._telegram.messages[self._reported :], len(self._telegram.messages)
        self._tell(((str(it.chat_id), partial(self._telegram_reads, it.chat_id, it.message_id)) for it in new), now)

    def _telegram_reads(self, chat: int, message: int) -> str:
        return str(self._telegram.known.get((chat, message), {}).get("text", ""))

    def _tell(self, new: Iterable[tuple[str, Callable[[], str]]], now: float) -> None:
        """A reply arrives when all of it is there."""
        growing = [*self._growing.items(), *new]
        self._growing = {}
        for key, shown in growing:
            if shown().endswith(END):
                _report({"key": key, "at": self._arrived.get(key, now) if self._scenario != "slow" else now})
            else:
                self._growing[key] = shown

    def _answer(self, body: dict[str, Any]) -> Turn:
        if self._scenario == "plain":
            return says(ANSWER)
        if self._scenario == "slow":
            return says(SLOW, chunk_bytes=SLOW_PIECE_BYTES, pause_seconds=SLOW_PAUSE_SECONDS)
        done = _rounds(body["messages"])
        return calls(TOOLS[done]) if done < len(TOOLS) else says(ANSWER)


def _rounds(messages: list[dict[str, Any]]) -> int:
    """How many tool results stand behind the last text of the user."""
    done = 0
    for message in reversed(messages):
        content = message["content"]
        if message["role"] == "user":
            if isinstance(content, str) or any(block["type"] == "text" for block in content):
                break
            done += 1
    return done


def _report(news: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(news) + b"\n")
    sys.stdout.buffer.flush()


@dataclass
class Peers:
    """The bench's side: commands, and the replies as they arrive."""

    urls: dict[str, str]
    """Where `feishu`, `telegram` and `anthropic` are."""
    _process: asyncio.subprocess.Process
    _answers: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    _awaited: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    surplus: Counter[str] = field(default_factory=Counter)
    """By key, how many more replies than messages there were, since `clear`."""

    def expect(self, key: str) -> asyncio.Future[float]:
        """The moment at which the reply arrives, in seconds of `time.monotonic`."""
        self.surplus[key] -= 1
        future = self._awaited[key] = asyncio.get_running_loop().create_future()
        return future

    def arrived(self, key: str, at: float) -> None:
        self.surplus[key] += 1
        future = self._awaited.pop(key, None)
        if future is not None and not future.done():
            future.set_result(at)

    async def set(self, *, latency_ms: float = 0.0, scenario: Scenario = "plain") -> None:
        await self._ask({"do": "set", "latency_ms": float(latency_ms), "scenario": scenario})

    async def know(self, facts: Iterable[Any]) -> None:
        """These messages exist on the platform from here on."""
        await self._ask({"do": "know", "messages": list(facts)})

    async def clear(self) -> None:
        """Forget everything so far, so that the emulators stay as light as they were."""
        await self._ask({"do": "clear"})
        self.surplus.clear()
        self._awaited.clear()

    async def count(self) -> dict[str, Any]:
        """`refused` and `cpu_seconds`."""
        return await self._ask({"do": "count"})

    async def _ask(self, command: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(orjson.dumps(command) + b"\n")
        async with asyncio.timeout(START_SECONDS):
            return await self._answers.get()

    async def listen(self) -> None:
        assert self._process.stdout is not None
        while line := await self._process.stdout.readline():
            news = orjson.loads(line)
            if "answer" in news:
                self._answers.put_nowait(news["answer"])
                continue
            self.arrived(news["key"], news["at"])


@asynccontextmanager
async def peers() -> AsyncIterator[Peers]:
    """The process, for the length of a `with`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.peers",
        cwd=ROOT,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LINE_BYTES_MAX,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    async with asyncio.timeout(START_SECONDS):
        where = orjson.loads(await process.stdout.readline())
    running = Peers(where, process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        process.stdin.close()
        await process.wait()
        await listening


if __name__ == "__main__":
    uvloop.run(Stage().serve())
