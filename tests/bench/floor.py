"""The floor bot: webhook → model → reply and nothing else, as a bare script would do it.

No history, no durability, no retries, no check of who is calling: what a gateway costs is measured against it, in the
same run and between the same peers. It answers the webhook at once and works in a background task; asked for tools, it
answers every call with "ok", so that it makes as many model requests as the gateway does.
"""

import argparse
import asyncio
import os
import socket
import sys
from typing import Any

import httpx
import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

from channels.feishu.signature import decrypt, encrypted_part

MODEL = "claude-sonnet-4-6"
SYSTEM = "You are a helpful assistant."
ANY: dict[str, Any] = {"type": "object", "properties": {}}
TOOLS = [{"name": name, "description": name, "input_schema": ANY} for name in ("read", "ls")]


class Floor:
    """One bot. `app` is what a server serves."""

    def __init__(self, *, feishu: str, anthropic: str) -> None:
        self._anthropic = anthropic
        self._feishu = feishu
        self._client = httpx.AsyncClient(
            trust_env=False, timeout=60.0, limits=httpx.Limits(max_connections=1000, max_keepalive_connections=100)
        )
        self._token: asyncio.Task[str] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
        self.app.add_api_route("/webhooks/feishu/default", self._webhook, methods=["POST"])
        self.app.add_api_route("/readyz", self._ready, methods=["GET"])

    async def _webhook(self, request: Request) -> Response:
        event = decrypt(encrypted_part(await request.body()), os.environ["FEISHU_ENCRYPT_KEY"])
        task = asyncio.create_task(self._turn(event["event"]["message"]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return Response(b"{}", media_type="application/json")

    async def _ready(self) -> Response:
        return Response(b"{}", media_type="application/json")

    async def _turn(self, message: dict[str, Any]) -> None:
        answer = await self._ask(orjson.loads(message["content"])["text"])
        if self._token is None:
            self._token = asyncio.create_task(self._fetch_token())
        content = orjson.dumps({"text": answer}).decode()
        await self._post(
            f"{self._feishu}/open-apis/im/v1/messages/{message['message_id']}/reply",
            {"msg_type": "text", "content": content},
            {"authorization": f"Bearer {await self._token}"},
        )

    async def _ask(self, text: str) -> str:
        messages: list[dict[str, Any]] = [{"role": "user", "content": text}]
        headers = {"x-api-key": os.environ["ANTHROPIC_API_KEY"], "anthropic-version": "2023-06-01"}
        while True:
            body = {"model": MODEL, "max_tokens": 1024, "system": SYSTEM, "messages": messages, "tools": TOOLS}
            answer = await self._post(f"{self._anthropic}/v1/messages", body, headers)
            calls = [block["id"] for block in answer["content"] if block["type"] == "tool_use"]
            if not calls:
                return "".join(block["text"] for block in answer["content"])
            results = [{"type": "tool_result", "tool_use_id": call, "content": "ok"} for call in calls]
            messages += [{"role": "assistant", "content": answer["content"]}, {"role": "user", "content": results}]

    async def _fetch_token(self) -> str:
        body = {"app_id": os.environ["FEISHU_APP_ID"], "app_secret": os.environ["FEISHU_APP_SECRET"]}
        answer = await self._post(f"{self._feishu}/open-apis/auth/v3/tenant_access_token/internal", body, {})
        return str(answer["tenant_access_token"])

    async def _post(self, url: str, body: dict[str, Any], headers: dict[str, str]) -> dict[str, Any]:
        told = {"content-type": "application/json", **headers}
        response = await self._client.post(url, content=orjson.dumps(body), headers=told)
        response.raise_for_status()
        return dict(orjson.loads(response.content))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.floor", description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--feishu", required=True, metavar="URL")
    parser.add_argument("--anthropic", required=True, metavar="URL")
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", options.port), backlog=2048)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sys.stderr.write(f"the floor listens on http://127.0.0.1:{listener.getsockname()[1]}\n")
    sys.stderr.flush()
    floor = Floor(feishu=options.feishu, anthropic=options.anthropic)
    config = uvicorn.Config(floor.app, log_config=None, access_log=False, lifespan="off", ws="none")
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main()
