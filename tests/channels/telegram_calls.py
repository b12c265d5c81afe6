"""Calling the emulated Bot API as a bot does, for the tests of it."""

from typing import Any

import httpx

from tests.emulators.telegram.emulator import TelegramEmulator

ALICE = 500000011
TEAM = -1002000000041
FORUM = -1002000000051


class Clock:
    """A time that a test sets."""

    def __init__(self) -> None:
        self.seconds = 1_790_000_000.0

    def __call__(self) -> float:
        return self.seconds


def emulator(**settings: Any) -> TelegramEmulator:
    """A bot that Alice has written to and that is in three groups."""
    emulator = TelegramEmulator(**{"now": Clock()} | settings)
    emulator.private(ALICE, "Alice", username="alice_fixture")
    emulator.supergroup(TEAM, "Team chat", username="team_chat")
    emulator.supergroup(FORUM, "Forum", forum=True)
    emulator.group()
    return emulator


async def ask(telegram: TelegramEmulator, path: str, **how: Any) -> httpx.Response:
    transport = httpx.ASGITransport(telegram.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://telegram") as client:
        return await client.post(path, **how)


async def call(telegram: TelegramEmulator, method: str, /, **parameters: Any) -> Any:
    """The result of a call that goes well."""
    answer = await ask(telegram, f"/bot{telegram.token}/{method}", json=parameters)
    assert answer.status_code == 200, answer.text
    assert answer.json()["ok"] is True
    return answer.json()["result"]


async def refused(telegram: TelegramEmulator, method: str, /, **parameters: Any) -> Any:
    """The body of a call that does not; its status says the same, and nothing was sent."""
    before = len(telegram.messages), len(telegram.edits)
    answer = await ask(telegram, f"/bot{telegram.token}/{method}", json=parameters)
    body = answer.json()
    assert body["ok"] is False
    assert body["error_code"] == answer.status_code
    assert (len(telegram.messages), len(telegram.edits)) == before
    return body


async def refusal(telegram: TelegramEmulator, method: str, /, **parameters: Any) -> str:
    """The words of a refused call, where our channel reads them."""
    return str((await refused(telegram, method, **parameters))["description"])


def sample(**more: Any) -> dict[str, Any]:
    return {"chat_id": ALICE, "text": "hi", **more}


def keyboard(*buttons: object) -> dict[str, Any]:
    return {"inline_keyboard": [list(buttons)]}
