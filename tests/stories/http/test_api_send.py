"""`POST /v1/send`: a program has a message sent, if its token says that it may."""

import base64
from pathlib import Path
from typing import Any

import httpx

from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import GROUP, Running, client, running
from tests.stories.channels.test_telegram import bot

MAY, MAY_NOT = "canary-api-token-91827", "canary-other-token-91827"
API = f"server: {{ api: {{ tokens: {{ ci: {{ token: {MAY}, send: true }}, ui: {MAY_NOT} }} }} }}\n"
TO = f"feishu:{GROUP}"


async def send(house: Running, body: Any, *, token: str = MAY, **headers: str) -> httpx.Response:
    headers = {"authorization": f"Bearer {token}", **{it.replace("_", "-"): value for it, value in headers.items()}}
    async with client(house.url) as http:
        return await http.post("/v1/send", json=body, headers=headers)


async def test_send_api_delivers_message_and_file_and_returns_ids(tmp_path: Path, database_url: str) -> None:
    file = {"name": "../report.txt", "data": base64.b64encode(b"all green").decode()}
    async with running(tmp_path, more=f'{API}database: {{ url: "{database_url}" }}') as house:
        answer = await send(house, {"to": TO, "text": "**done**", "files": [file]})
        ids = [it.message_id for it in house.feishu.messages]
        assert (answer.status_code, answer.json()["state"], answer.json()["message_ids"]) == (200, "sent", ids)
        assert [it.msg_type for it in house.feishu.messages] == ["post", "file"]
        assert house.anthropic.requests == []


async def test_send_api_is_idempotent_by_key(tmp_path: Path) -> None:
    async with running(tmp_path, more=API) as house:
        body = {"to": TO, "text": "once"}
        first = await send(house, body, idempotency_key="order-1")
        again = await send(house, body, idempotency_key="order-1")
        assert (first.status_code, first.json()) == (200, again.json())
        await send(house, body, idempotency_key="order-2")
        assert len(house.feishu.messages) == 2


async def test_send_api_errors_have_the_usual_shape(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    stranger = telegram.private(started=False)
    async with bot(tmp_path, "polling", emulator=telegram, more=API) as it:
        right = {"to": TO, "text": "x"}
        for body, token, status, code in (
            (right, MAY_NOT, 403, "may_not_send"),
            (right, "canary-wrong-token-91827", 401, "invalid_api_key"),
            (right | {"reply_to": "om_1"}, MAY, 400, None),
            (right | {"to": "slack:C1"}, MAY, 400, "unknown_place"),
            (right | {"to": 7}, MAY, 400, None),
            ({"to": TO, "text": " "}, MAY, 400, None),
            (right | {"files": [{"name": "a", "data": "?"}]}, MAY, 400, None),
            (right | {"files": [{"name": "a", "data": ""}]}, MAY, 400, None),
            (right | {"files": [{"name": "a", "data": "YQ=="}] * 11}, MAY, 400, None),
            (right | {"to": f"telegram:{stranger}"}, MAY, 502, "not_delivered"),
        ):
            answer = await send(it.house, body, token=token)
            assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
            assert answer.json()["error"]["message"]
        assert it.house.feishu.messages == []
        assert telegram.messages == []
