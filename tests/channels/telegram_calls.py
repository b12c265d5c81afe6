"""Calling the emulated Bot API as a bot does, for the tests of it."""

from typing import Any

import httpx

from tests.channels.contexts import Clock
from tests.emulators.telegram.emulator import TelegramEmulator

ALICE, BOB = 500000011, 5000000022
TEAM, FORUM, SMALL = -1002000000041, -1002000000051, -4000000031


def emulator() -> TelegramEmulator:
    """A bot that Alice and Bob have written to and that is in three groups."""
    emulator = TelegramEmulator(now=Clock(1_790_000_000))
    emulator.private(ALICE, "Alice", username="alice_fixture")
    emulator.private(BOB, "Boris 🦊")
    emulator.supergroup(TEAM, "Team chat", username="team_chat")
    emulator.supergroup(FORUM, "Forum", forum=True)
    emulator.group(SMALL)
    return emulator


async def ask(telegram: TelegramEmulator, path: str, **parameters: Any) -> httpx.Response:
    transport = httpx.ASGITransport(telegram.app)
    async with httpx.AsyncClient(transport=transport, base_url="http://telegram") as client:
        return await client.post(path.format(token=telegram.token), json=parameters)


async def call(telegram: TelegramEmulator, method: str, /, **parameters: Any) -> Any:
    """The result of a call that goes well."""
    answer = await ask(telegram, f"/bot{{token}}/{method}", **parameters)
    assert (answer.status_code, answer.json()["ok"]) == (200, True), answer.text
    return answer.json()["result"]
