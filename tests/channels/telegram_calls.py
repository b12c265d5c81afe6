"""Calling the emulated Bot API as a bot does, for the tests of it."""

from typing import Any

import httpx

from tests.channels.contexts import Clock
from tests.emulators.telegram.emulator import TelegramEmulator

ALICE, BOB = 500000011, 5000000022
TEAM, FORUM, SMALL = -1002000000041, -1002000000051, -4000000031
BEGAN = 1_790_000_000


def emulator(**settings: Any) -> TelegramEmulator:
    """A bot that Alice and Bob have written to and that is in three groups."""
    emulator = TelegramEmulator(**{"now": Clock(BEGAN)} | settings)
    emulator.private(ALICE, "Alice", username="alice_fixture")
    emulator.private(BOB, "Boris 🦊")
    emulator.supergroup(TEAM, "Team chat", username="team_chat")
    emulator.supergroup(FORUM, "Forum", forum=True)
    emulator.group(SMALL)
    return emulator


async def ask(telegram: TelegramEmulator, path: str, *, verb: str = "POST", **how: Any) -> httpx.Response:
    transport = httpx.ASGITransport(telegram.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://telegram") as client:
        return await client.request(verb, path.format(token=telegram.token), **how)


async def call(telegram: TelegramEmulator, method: str, /, **parameters: Any) -> Any:
    """The result of a call that goes well."""
    answer = await ask(telegram, f"/bot{{token}}/{method}", json=parameters)
    assert (answer.status_code, answer.json()["ok"]) == (200, True), answer.text
    return answer.json()["result"]


async def refusal(telegram: TelegramEmulator, method: str, /, **parameters: Any) -> str:
    """The words of a refused call; its status says the same, and nothing was sent."""
    before = len(telegram.messages), len(telegram.edits)
    answer = await ask(telegram, f"/bot{{token}}/{method}", json=parameters)
    assert (answer.json()["ok"], answer.json()["error_code"]) == (False, answer.status_code)
    assert (len(telegram.messages), len(telegram.edits)) == before
    return str(answer.json()["description"])


def sample(**more: Any) -> dict[str, Any]:
    return {"chat_id": ALICE, "text": "hi", **more}


def keyboard(*buttons: object) -> dict[str, Any]:
    return {"inline_keyboard": [list(buttons)]}
