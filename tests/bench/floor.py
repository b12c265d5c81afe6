"""The bare bot: webhook → model → reply and nothing else, as a fast script would do it, on aiohttp at both ends.

No history, no durability, no retries, no check of who is calling: what a gateway costs is measured against it, in the
same run and between the same peers. It answers the webhook at once and works in a background task; asked for tools, it
answers every call with "ok", so that it makes as many model requests as the gateway does. With `--sdk` it asks the model
through the vendor's SDK, streaming, as most bots do.
"""

import argparse
import asyncio
import os
import socket
import sys
from collections.abc import Coroutine
from typing import Any

import aiohttp
import orjson
import uvloop
from aiohttp import web

from channels.feishu.signature import decrypt, encrypted_part
from tests.emulators.telegram.chats import TOKEN

MODEL = "claude-sonnet-4-6"
SYSTEM = "You are a helpful assistant."
ANY: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = [{"name": name, "description": name, "input_schema": ANY} for name in ("read", "ls")]


class Floor:
    """One bot. `platform` and `anthropic` are the addresses of its peers."""

    def __init__(self, *, platform: str, anthropic: str, sdk: bool) -> None:
        self._platform = platform
        self._anthropic = anthropic
        self._client = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        self._sdk = self._open_sdk() if sdk else None
        self._token: asyncio.Task[str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._page: web.StreamResponse | None = None

    def app(self) -> web.Application:
        app = web.Application()
        sides = {"feishu": self._feishu, "telegram": self._telegram, "web": self._web}
        app.add_routes([web.post(f"/webhooks/{name}/default", handler) for name, handler in sides.items()])
        app.add_routes([web.get("/readyz", self._ready), web.get("/api/events", self._events)])
        return app

    def _open_sdk(self) -> Any:
        import anthropic

        return anthropic.AsyncAnthropic(
            api_key=os.environ["ANTHROPIC_API_KEY"],
            base_url=self._anthropic,
            http_client=anthropic.DefaultAioHttpClient(trust_env=False),
        )

    def _begin(self, turn: Coroutine[Any, Any, None]) -> web.Response:
        task = asyncio.create_task(turn)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return web.Response(body=b"{}", content_type="application/json")

    async def _feishu(self, request: web.Request) -> web.Response:
        event = decrypt(encrypted_part(await request.read()), os.environ["FEISHU_ENCRYPT_KEY"])
        return self._begin(self._feishu_turn(event["event"]["message"]))

    async def _telegram(self, request: web.Request) -> web.Response:
        return self._begin(self._telegram_turn(orjson.loads(await request.read())["message"]))

    async def _web(self, request: web.Request) -> web.Response:
        return self._begin(self._web_turn(orjson.loads(await request.read())))

    async def _events(self, request: web.Request) -> web.StreamResponse:
        page = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await page.prepare(request)
        self._page = page
        await asyncio.Event().wait()
        return page

    async def _ready(self, request: web.Request) -> web.Response:
        return web.Response(body=b"{}", content_type="application/json")

    async def _feishu_turn(self, message: dict[str, Any]) -> None:
        answer = await self._answer(orjson.loads(message["content"])["text"])
        if self._token is None:
            self._token = asyncio.create_task(self._fetch_token())
        content = orjson.dumps({"text": answer}).decode()
        await self._post(
            f"{self._platform}/open-apis/im/v1/messages/{message['message_id']}/reply",
            {"msg_type": "text", "content": content},
            {"authorization": f"Bearer {await self._token}"},
        )

    async def _telegram_turn(self, message: dict[str, Any]) -> None:
        answer = await self._answer(message["text"])
        body = {"chat_id": message["chat"]["id"], "text": answer}
        await self._post(f"{self._platform}/bot{TOKEN}/sendMessage", body, {})

    async def _web_turn(self, message: dict[str, Any]) -> None:
        view = {"id": 1, "reply_to": message["id"], "text": await self._answer(message["text"])}
        if self._page is not None:
            await self._page.write(b"event: message\ndata: " + orjson.dumps(view) + b"\n\n")

    async def _answer(self, text: str) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        while True:
            body = {"model": MODEL, "max_tokens": 1024, "system": SYSTEM, "messages": messages, "tools": TOOLS}
            content = await self._complete(body)
            calls = [block["id"] for block in content if block["type"] == "tool_use"]
            if not calls:
                return "".join(block["text"] for block in content)
            results = [{"type": "tool_result", "tool_use_id": call, "content": "ok"} for call in calls]
            messages += [{"role": "assistant", "content": content}, {"role": "user", "content": results}]

    async def _complete(self, body: dict[str, Any]) -> list[dict[str, Any]]:
        if self._sdk is not None:
            async with self._sdk.messages.stream(**body) as stream:
                message = await stream.get_final_message()
            return [block.model_dump(exclude_none=True) for block in message.content]
        headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
        answer = await self._post(f"{self._anthropic}/v1/messages", body, headers)
        return list(answer["content"])

    async def _fetch_token(self) -> str:
        body = {"app_id": os.environ["FEISHU_APP_ID"], "app_secret": os.environ["FEISHU_APP_SECRET"]}
        answer = await self._post(f"{self._platform}/open-apis/auth/v3/tenant_access_token/internal", body, {})
        return str(answer["tenant_access_token"])

    async def _post(self, url: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        headers = {"content-type": "application/json", **headers}
        async with self._client.post(url, data=orjson.dumps(body), headers=headers) as response:
            response.raise_for_status()
            return dict(orjson.loads(await response.read()))


async def serve(options: argparse.Namespace) -> None:
    listener = socket.create_server(("127.0.0.1", options.port), backlog=2048)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sys.stderr.write(f"the floor listens on http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stderr.flush()
    floor = Floor(platform=options.platform, anthropic=options.anthropic, sdk=options.sdk)
    runner = web.AppRunner(floor.app(), access_log=None, handle_signals=True)
    await runner.setup()
    await web.SockSite(runner, listener).start()
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floor", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--platform", required=True, metavar="URL")
    parser.add_argument("--anthropic", required=True, metavar="URL")
    parser.add_argument("--sdk", action="store_true")
    uvloop.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
