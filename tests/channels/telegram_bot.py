"""A bot of the samples, and a strict enough Telegram for it on loopback: it records what it is asked and answers as told."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson

from channels.telegram.channel import TelegramChannel
from channels.telegram.config import TelegramAccount
from channels.telegram.content import Me
from channels.telegram.timing import Timing
from tests.channels.contexts import Kept
from tests.channels.telegram_samples import BOT_ID, BOT_TOKEN, BOT_USERNAME, WEBHOOK_SECRET
from tests.loopback import serve_on_loopback

Body: TypeAlias = dict[str, Any]
SILENCE = object()
"""No answer, for as long as the client waits for one."""
ME = {"id": BOT_ID, "is_bot": True, "first_name": "Helper Bot", "username": BOT_USERNAME}


def bot(*, timing: Timing | None = None, known: bool = True, **settings: Any) -> TelegramChannel:
    """Open to everybody, and by webhook unless it is said otherwise. `known`: it has learnt its name."""
    config = {
        "botToken": BOT_TOKEN,
        "mode": "webhook",
        "webhookSecret": WEBHOOK_SECRET,
        "dmPolicy": "open",
        "groupPolicy": "open",
    }
    channel = TelegramChannel(TelegramAccount.model_validate(config | settings), "default", Kept(), timing=timing)
    if known:
        channel._me = Me(id=BOT_ID, username=BOT_USERNAME)
    return channel


def refusal(code: int, description: str, **parameters: Any) -> Body:
    answer: Body = {"ok": False, "error_code": code, "description": description}
    return answer | {"parameters": parameters} if parameters else answer


@dataclass(slots=True)
class Telegram:
    """`answers` holds what each method answers next: a result, a refusal, (status, bytes), SILENCE, or a
    function of the body that gives one of these or awaits it.

    What nothing is laid out for gets a plausible answer."""

    calls: list[tuple[str, Body]] = field(default_factory=list)
    answers: dict[str, list[Any]] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    ports: list[tuple[str, int]] = field(default_factory=list)
    """By which connection a method was called: its client's port."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def of(self, method: str) -> list[Body]:
        return [body for called, body in self.calls if called == method]

    @property
    def sent(self) -> list[Body]:
        return self.of("sendMessage")

    async def until(self, done: Callable[[], object]) -> None:
        """Return when a call has made it true."""
        async with asyncio.timeout(20):
            while not done():
                self.changed.clear()
                await self.changed.wait()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        raw = b""
        while (message := await receive())["type"] == "http.request":
            raw += message.get("body", b"")
            if not message.get("more_body"):
                break
        root, _, method = scope["path"].rpartition("/")
        self.paths.append(scope["path"])
        self.ports.append((method, scope["client"][1]))
        body = orjson.loads(raw)
        self.calls.append((method, body))
        self.changed.set()
        known = root == f"/bot{BOT_TOKEN}"
        answer = await self._answer(method, body) if known else refusal(401, "Unauthorized: invalid token specified")
        if answer is SILENCE:
            while (await receive())["type"] != "http.disconnect":
                pass
            return
        status, content = _encoded(answer)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": content})

    async def _answer(self, method: str, body: Body) -> Any:
        if laid_out := self.answers.get(method):
            answer = laid_out.pop(0)
            if callable(answer):
                answer = answer(body)
            return await answer if asyncio.iscoroutine(answer) else answer
        defaults = {"getMe": ME, "getUpdates": [], "sendMessage": {"message_id": 900 + len(self.calls)}}
        defaults["getWebhookInfo"] = {"url": ""}
        return defaults.get(method, True)


def _encoded(answer: Any) -> tuple[int, bytes]:
    match answer:
        case (int() as status, bytes() as raw):
            return status, raw
        case {"ok": False, "error_code": int() as status}:
            return status, orjson.dumps(answer)
        case _:
            return 200, orjson.dumps({"ok": True, "result": answer})


@asynccontextmanager
async def connected(
    *, timing: Timing | None = None, known: bool = True, **settings: Any
) -> AsyncIterator[tuple[Telegram, TelegramChannel]]:
    telegram = Telegram()
    async with serve_on_loopback(telegram) as url:
        channel = bot(timing=timing, known=known, **{"apiRoot": url} | settings)
        try:
            yield telegram, channel
        finally:
            await channel.close()
