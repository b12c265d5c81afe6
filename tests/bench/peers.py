"""Both neighbours of a bot, the Feishu and Anthropic emulators, in a process of their own: their work is not the bot's.

They are the strict emulators of the tests; checking a request costs them 0.06 ms (0.3 ms with fifty turns of history),
which is little enough to time through. Every reply that arrives is told on stdout with the moment of its arrival, on
the clock that all processes of one machine share. Commands come on stdin, one JSON object a line; its end is the end.
"""

import asyncio
import secrets
import sys
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import orjson
import uvloop
from starlette.types import Receive, Scope, Send

from tests.emulators.feishu.events import Known
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import Turn, calls, says
from tests.loopback import serve_on_loopback
from tests.running import ALICE, SECRETS, feishu_emulator

ROOT = Path(__file__).resolve().parents[2]
LINE_BYTES_MAX = 1 << 26
START_SECONDS = 30.0
ANSWER = "Tomorrow it will be sunny in Hangzhou, 18 to 25 degrees, with a light breeze from the east. Have a good day!"
TOOLS: tuple[tuple[str, dict[str, Any]], ...] = (("ls", {}), ("read", {"file_path": "notes.txt"}), ("ls", {}))

Scenario = Literal["plain", "tools"]


class Stage:
    """The process's side: what the two emulators do, and what is told of it."""

    def __init__(self) -> None:
        self._feishu = feishu_emulator()
        self._anthropic = AnthropicEmulator(self._answer, api_key=SECRETS["ANTHROPIC_API_KEY"])
        self._latency_seconds = 0.0
        self._scenario: Scenario = "plain"
        self._arrived: dict[str, float] = {}
        self._told = 0

    async def serve(self) -> None:
        """Until stdin ends."""
        reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

        async def platform(scope: Scope, receive: Receive, send: Send) -> None:
            await self._platform(scope, receive, send)

        async def model(scope: Scope, receive: Receive, send: Send) -> None:
            await self._model(scope, receive, send)

        # uvicorn takes a bound method for an application of the old interface, hence the functions
        async with serve_on_loopback(platform) as feishu, serve_on_loopback(model) as anthropic:
            _tell({"feishu": feishu, "anthropic": anthropic})
            while line := await reader.readline():
                _tell({"answer": self._obey(orjson.loads(line))})

    def _obey(self, command: dict[str, Any]) -> dict[str, Any]:
        match command:
            case {"do": "set", "latency_ms": float(latency), "scenario": "plain" | "tools" as scenario}:
                self._latency_seconds, self._scenario = latency / 1000, scenario
            case {"do": "know", "messages": list(messages)}:
                for message_id, chat in messages:
                    known = Known(chat_id=chat, sender=ALICE, msg_type="text", content="{}")
                    self._feishu.known[message_id] = known
                    self._feishu.chats.setdefault(chat, "")
            case {"do": "clear"}:
                self._feishu.requests.clear()
                self._feishu.messages.clear()
                self._feishu.known.clear()
                self._anthropic.requests.clear()
                self._arrived.clear()
                self._told = 0
            case {"do": "count"}:
                return {
                    "asked": len(self._anthropic.requests),
                    "refused": [str(asked.refusal) for asked in self._anthropic.requests if asked.refusal is not None],
                    "cpu_seconds": time.process_time(),
                }
            case _:
                raise ValueError(f"unknown command {command}")
        return {}

    async def _model(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._latency_seconds:
            await asyncio.sleep(self._latency_seconds)
        await self._anthropic.app(scope, receive, send)

    async def _platform(self, scope: Scope, receive: Receive, send: Send) -> None:
        now, path = time.monotonic(), scope["path"]
        if path.endswith("/reply"):
            self._arrived.setdefault(path.split("/")[-2], now)
        await self._feishu.app(scope, receive, send)
        new, self._told = self._feishu.messages[self._told :], len(self._feishu.messages)
        for message in new:
            reply_to = message.reply_to or ""
            _tell({"reply_to": reply_to, "at": self._arrived.get(reply_to, now)})

    def _answer(self, body: dict[str, Any]) -> Turn:
        if self._scenario == "plain":
            return says(ANSWER)
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


def _tell(news: dict[str, Any]) -> None:
    sys.stdout.buffer.write(orjson.dumps(news) + b"\n")
    sys.stdout.buffer.flush()


@dataclass
class Peers:
    """The bench's side: commands, and the replies as they arrive."""

    feishu: str
    anthropic: str
    _process: asyncio.subprocess.Process
    _answers: asyncio.Queue[dict[str, Any]] = field(default_factory=asyncio.Queue)
    _awaited: dict[str, asyncio.Future[float]] = field(default_factory=dict)
    replies: dict[str, int] = field(default_factory=dict)
    """How often each message has been replied to, since `clear`."""

    def expect(self, message_id: str) -> asyncio.Future[float]:
        """The moment at which the reply to this message arrives at Feishu, in seconds of `time.monotonic`."""
        future = self._awaited[message_id] = asyncio.get_running_loop().create_future()
        return future

    async def set(self, *, latency_ms: float = 0.0, scenario: Scenario = "plain") -> None:
        await self._ask({"do": "set", "latency_ms": float(latency_ms), "scenario": scenario})

    async def know(self, messages: Iterable[tuple[str, str]]) -> None:
        """These messages, as id and chat, exist on the platform from here on."""
        await self._ask({"do": "know", "messages": list(messages)})

    async def clear(self) -> None:
        """Forget everything so far, so that the emulators stay as light as they were."""
        await self._ask({"do": "clear"})
        self.replies.clear()
        self._awaited.clear()

    async def count(self) -> dict[str, Any]:
        """`asked`, `refused` and `cpu_seconds`."""
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
            reply_to = news["reply_to"]
            self.replies[reply_to] = self.replies.get(reply_to, 0) + 1
            future = self._awaited.pop(reply_to, None)
            if future is not None and not future.done():
                future.set_result(news["at"])


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
    running = Peers(where["feishu"], where["anthropic"], process)
    listening = asyncio.create_task(running.listen())
    try:
        yield running
    finally:
        process.stdin.close()
        await process.wait()
        await listening


def new_id(prefix: str) -> str:
    return f"{prefix}_{secrets.token_hex(16)}"


if __name__ == "__main__":
    uvloop.run(Stage().serve())
