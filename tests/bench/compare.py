"""Compare this gateway with other chat gateways: Telegram by long polling, one emulated model, one machine, one run.

`python -m tests.bench.compare clawgate nanobot hermes-agent astrbot` installs each into `data/compare` from its package
index and measures it with the configuration in `rivals.py`. Telegram and the model are small servers in this process that
accept whatever a bot sends: strictness is not the subject here. Every bot gets the same messages and the same answers:

- start: seconds from the start of the process to its first `getUpdates`;
- rest: resident megabytes of all its processes five seconds later;
- turn: median milliseconds from the delivery of a message to its complete answer, one chat, a model that answers at once;
- crowd: turns per second of 50 chats with 5 messages each, a model that takes 200 ms, and how many answers are missing;
- kills: SIGKILL just after the message was confirmed, while the model answers, and between two tool calls. A kill counts
  if the answer arrives within a minute of the restart.
"""

import argparse
import asyncio
import itertools
import json
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.bench.rivals import BOT_ID, RIVALS, Rival, Surroundings
from tests.loopback import serve_on_loopback

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "data" / "compare"
END = "Have a good day!"
ANSWER = f"Tomorrow it will be sunny in Hangzhou, 18 to 25 degrees, with a light breeze from the east. {END}"
QUESTION = "What is the weather tomorrow?"
START_SECONDS = 120.0
REST_SECONDS = 5.0
ANSWER_SECONDS = 60.0
FIRST_ANSWER_SECONDS = 240.0
CONFIRMED_SECONDS = 0.02
CROWD, CROWD_TURNS, CROWD_LATENCY_SECONDS = 50, 5, 0.2
SERIAL_TURNS = 30
SLOW_MODEL_SECONDS = 3.0
TOOLS = (
    "ls",
    "list_dir",
    "list_files",
    "read_file",
    "read",
    "search_files",
    "glob",
    "terminal",
    "exec",
    "execute_shell",
)

Moment = Literal["just accepted", "while the model answers", "between tool calls"]
MOMENTS: tuple[Moment, ...] = ("just accepted", "while the model answers", "between tool calls")


@dataclass
class World:
    """An emulated Telegram and an emulated OpenAI-compatible model. `answered` has the finished answers by chat."""

    latency_seconds: float = 0.0
    with_tools: bool = False
    answered: dict[int, list[float]] = field(default_factory=dict)
    texts: dict[tuple[int, int], str] = field(default_factory=dict)
    polled: asyncio.Event = field(default_factory=asyncio.Event)
    on_confirmed: Callable[[], None] = lambda: None
    on_model: Callable[[int], None] = lambda results: None
    _queue: list[dict[str, Any]] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _ids: Any = field(default_factory=lambda: itertools.count(1000))

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/bot{token}/{method}", self._telegram, methods=["GET", "POST"]),
                Route("/v1/chat/completions", self._model, methods=["POST"]),
                Route("/v1/models", self._models, methods=["GET"]),
                Route("/{path:path}", self._anything, methods=["GET", "POST"]),
            ]
        )

    def write(self, chat: int, text: str) -> None:
        """Send a private message of person `chat` to the bot."""
        person = {"id": chat, "is_bot": False, "first_name": f"Ann {chat}", "language_code": "en"}
        message = {
            "message_id": next(self._ids),
            "from": person,
            "chat": {"id": chat, "type": "private", "first_name": person["first_name"]},
            "date": int(time.time()),
            "text": text,
        }
        self._queue.append({"update_id": next(self._ids), "message": message})
        self._changed.set()

    async def wait_for_answer(self, chat: int, count: int, seconds: float) -> float | None:
        """Return the moment of the `count`th complete answer in a chat, or None if it does not arrive in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if len(times := self.answered.get(chat, [])) >= count:
                return times[count - 1]
            await asyncio.sleep(0.001)
        return None

    async def _telegram(self, request: Request) -> Response:
        call = dict(request.query_params)
        if request.method == "POST":
            if request.headers.get("content-type", "").startswith("application/json"):
                call |= await request.json()
            else:
                call |= {key: value for key, value in (await request.form()).items() if isinstance(value, str)}
        match request.path_params["method"].lower():
            case "getme":
                result: Any = {"id": BOT_ID, "is_bot": True, "first_name": "Bot", "username": "compared_bot"}
                result |= {"can_join_groups": True, "can_read_all_group_messages": False}
            case "getupdates":
                result = await self._updates(int(call.get("offset") or 0), float(call.get("timeout") or 0))
            case "sendmessage" | "sendmessagedraft" | "sendrichmessage":
                result = self._shown(int(call["chat_id"]), next(self._ids), str(call.get("text", "")))
            case "editmessagetext":
                result = self._shown(int(call["chat_id"]), int(call["message_id"]), str(call.get("text", "")))
            case "getchat":
                result = {"id": int(call["chat_id"]), "type": "private", "accent_color_id": 0, "max_reaction_count": 11}
            case "getwebhookinfo":
                result = {"url": "", "has_custom_certificate": False, "pending_update_count": 0}
            case "getmycommands":
                result = []
            case _:
                result = True
        return JSONResponse({"ok": True, "result": result})

    async def _updates(self, offset: int, timeout: float) -> list[dict[str, Any]]:
        self.polled.set()
        before = len(self._queue)
        self._queue = [update for update in self._queue if update["update_id"] >= offset]
        if len(self._queue) < before:
            self.on_confirmed()
        until = time.monotonic() + timeout
        while not self._queue and (left := until - time.monotonic()) > 0:
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), left)
            except (TimeoutError, asyncio.CancelledError):  # time is up, or this server goes down
                break
        return self._queue[:100]

    def _shown(self, chat: int, message: int, text: str) -> dict[str, Any]:
        was_complete = self.texts.get((chat, message), "").rstrip().endswith(_plain(END))
        self.texts[chat, message] = _plain(text)
        if not was_complete and self.texts[chat, message].rstrip().endswith(_plain(END)):
            self.answered.setdefault(chat, []).append(time.monotonic())
        shown = {"id": chat, "type": "private", "first_name": f"Ann {chat}"}
        return {"message_id": message, "date": int(time.time()), "chat": shown, "text": text or "-"}

    async def _models(self, request: Request) -> Response:
        return JSONResponse(
            {"object": "list", "data": [{"id": "test-model", "object": "model", "context_length": 128_000}]}
        )

    async def _anything(self, request: Request) -> Response:
        return JSONResponse({"error": {"message": "not found"}}, status_code=404)

    async def _model(self, request: Request) -> Response:
        body = await request.json()
        results = _results_of_this_question(body["messages"])
        offered = [tool["function"]["name"] for tool in body.get("tools") or []]
        self.on_model(results)
        if self.latency_seconds:
            await asyncio.sleep(self.latency_seconds)
        delta: dict[str, Any] = {"role": "assistant", "content": ANSWER}
        if self.with_tools and offered and results < 2:
            name = next((name for name in TOOLS if name in offered), offered[0])
            shell = name in ("terminal", "exec", "execute_shell")
            arguments = json.dumps({"command": "true"} if shell else {"path": ".", "file_path": ".", "pattern": "*"})
            call = {"index": 0, "id": f"call_{next(self._ids)}", "type": "function"}
            call |= {"function": {"name": name, "arguments": arguments}}
            delta = {"role": "assistant", "content": None, "tool_calls": [call]}
        finish = "tool_calls" if "tool_calls" in delta else "stop"
        base = {
            "id": f"chatcmpl-{next(self._ids)}",
            "created": int(time.time()),
            "model": body.get("model", "test-model"),
        }
        usage = {"prompt_tokens": 900, "completion_tokens": 30, "total_tokens": 930}
        if not body.get("stream"):
            choice = {"index": 0, "message": delta, "finish_reason": finish}
            return JSONResponse(base | {"object": "chat.completion", "choices": [choice], "usage": usage})
        chunks = [
            base
            | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
            base | {"object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {}, "finish_reason": finish}]},
            base | {"object": "chat.completion.chunk", "choices": [], "usage": usage},
        ]

        async def stream() -> AsyncIterator[bytes]:
            for chunk in chunks:
                yield b"data: " + json.dumps(chunk).encode() + b"\n\n"
            yield b"data: [DONE]\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")


def _plain(text: str) -> str:
    """Strip the escapes and tags with which a bot formats a text for Telegram."""
    return text.replace("\\", "").removesuffix("</p>")


def _results_of_this_question(messages: list[dict[str, Any]]) -> int:
    """Count the tool results after the last question; a bot may add messages of its own after it."""
    after = itertools.takewhile(lambda it: it["role"] != "user" or QUESTION not in json.dumps(it), reversed(messages))
    return sum(message["role"] == "tool" for message in after)


@dataclass
class Bot:
    """One bot's process in a folder of its own, which survives the process."""

    rival: Rival
    folder: Path
    around: Surroundings
    log: Path
    process: asyncio.subprocess.Process | None = None

    async def start(self, world: World) -> float:
        """Start the process and return the seconds until it polls."""
        world.polled.clear()
        began = time.monotonic()
        command, environment = self.rival.command(self.around)
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *command,
                cwd=self.folder,
                env=environment,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        polled, ended = asyncio.ensure_future(world.polled.wait()), asyncio.ensure_future(self.process.wait())
        await asyncio.wait({polled, ended}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        polled.cancel()
        ended.cancel()
        if not world.polled.is_set():
            raise RuntimeError(f"{self.rival.name} did not start: see {self.log}")
        return time.monotonic() - began

    async def kill(self) -> None:
        if self.process is not None and self.process.returncode is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            await self.process.wait()

    def resident_mb(self) -> float:
        """Add up the resident memory of the process and its children."""
        pages = 0
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if os.getpgid(int(folder.name)) == self.process.pid:  # type: ignore[union-attr]
                    pages += int((folder / "statm").read_text().split()[1])
            except OSError:
                continue
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@asynccontextmanager
async def prepared(rival: Rival, name: str) -> AsyncIterator[tuple[Bot, World]]:
    """Yield a stopped bot in an empty folder, and its world."""
    folder = FOLDER / rival.name / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    world = World()
    async with serve_on_loopback(world.app()) as url:
        around = Surroundings(url=url, folder=folder, packages=FOLDER / rival.name / "packages")
        rival.prepare(around)
        bot = Bot(rival, folder, around, folder / "log")
        try:
            yield bot, world
        finally:
            await bot.kill()


async def measure_speed(rival: Rival) -> dict[str, float]:
    async with prepared(rival, "speed") as (bot, world):
        await bot.start(world)  # what a first start writes and compiles is there from now on
        await asyncio.sleep(REST_SECONDS)
        await bot.kill()
        figures = {"start s": await bot.start(world)}
        await asyncio.sleep(REST_SECONDS)
        figures["rest MB"] = bot.resident_mb()
        took = []
        for turn in range(SERIAL_TURNS):
            began = time.monotonic()
            world.write(700_000_001, f"{QUESTION} ({turn})")
            at = await world.wait_for_answer(700_000_001, turn + 1, ANSWER_SECONDS if turn else FIRST_ANSWER_SECONDS)
            if at is None:
                raise TimeoutError(f"{rival.name} gave no answer: see {bot.log}")
            took.append((at - began) * 1000)
            await asyncio.sleep(0.05)
        figures["turn ms"] = statistics.median(took[5:])
        world.latency_seconds = CROWD_LATENCY_SECONDS
        began = time.monotonic()
        counts = await asyncio.gather(*(_converse(world, 700_001_000 + chat) for chat in range(CROWD)))
        last = max(times[-1] for chat, times in world.answered.items() if chat >= 700_001_000)
        figures["crowd turns/s"] = sum(counts) / (last - began)
        figures["crowd missing"] = CROWD * CROWD_TURNS - sum(counts)
        return figures


async def _converse(world: World, chat: int) -> int:
    """Write one message after the other and return how many were answered; a missing answer ends the chat."""
    for turn in range(CROWD_TURNS):
        world.write(chat, f"{QUESTION} ({turn})")
        if await world.wait_for_answer(chat, turn + 1, ANSWER_SECONDS) is None:
            return turn
    return CROWD_TURNS


async def survives(rival: Rival, moment: Moment) -> str:
    """Kill the bot at a moment of its turn, start it again, and say whether the answer arrives."""
    chat = 700_000_002
    async with prepared(rival, moment.replace(" ", "-")) as (bot, world):
        await bot.start(world)
        world.write(chat, "Hello")
        if await world.wait_for_answer(chat, 1, FIRST_ANSWER_SECONDS) is None:
            return "no first answer"
        reached = asyncio.Event()
        if moment == "just accepted":
            world.on_confirmed = reached.set
        elif moment == "while the model answers":
            world.on_model = lambda results: reached.set()
        else:
            world.with_tools = True
            world.on_model = lambda results: reached.set() if results == 1 else None
        world.latency_seconds = 0.3 if moment == "between tool calls" else SLOW_MODEL_SECONDS
        world.write(chat, QUESTION)
        await asyncio.wait_for(reached.wait(), ANSWER_SECONDS)
        await asyncio.sleep(CONFIRMED_SECONDS)
        await bot.kill()
        world.on_confirmed, world.on_model, world.latency_seconds = (lambda: None), (lambda results: None), 0.0
        await bot.start(world)
        answered = await world.wait_for_answer(chat, 2, ANSWER_SECONDS)
        return "answered" if answered is not None else "no answer"


async def compare(rivals: list[Rival], *, speed: bool, kills: bool) -> None:
    """Print what is measured, one JSON object after each step. A SIGTERM ends the gateway that is measured, too."""
    if (task := asyncio.current_task()) is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    for rival in rivals:
        rival.install(FOLDER / rival.name / "packages")
        figures: dict[str, Any] = {"version": rival.version()}
        if speed:
            figures |= await measure_speed(rival)
            sys.stdout.write(json.dumps({rival.name: figures}) + "\n")
        for moment in MOMENTS if kills else ():
            figures[f"kill -9 {moment}"] = await survives(rival, moment)
            sys.stdout.write(json.dumps({rival.name: figures}) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.compare", description=__doc__)
    parser.add_argument("names", nargs="+", choices=sorted(RIVALS))
    parser.add_argument("--only", choices=("speed", "kills"), help="measure only this")
    arguments = parser.parse_args()
    rivals = [RIVALS[name] for name in arguments.names]
    asyncio.run(compare(rivals, speed=arguments.only != "kills", kills=arguments.only != "speed"))


if __name__ == "__main__":
    main()
