"""However much somebody writes, and in however many chats: what waits of it is bounded, and others are answered."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine, text

from tests.emulators.models.script import says
from tests.emulators.models.server import Reply
from tests.running import ALICE, BOB, BOB_CHAT, GROUP, Running, client, running
from tests.stories.at_work import NEVER

CAPS = "limits: {{ pendingPerSession: 5, pendingPerSender: 12, graceSeconds: 0.1 }}\ndatabase: {{ url: '{url}' }}"


def hangs_on_the_flood(body: dict[str, Any]) -> Reply:
    return NEVER if "xyzzy" in json.dumps(body["messages"]) else says("here")


def stored(house: Running) -> dict[int, tuple[int, int]]:
    """How many messages the inbox holds, and how many characters of them, by status."""
    engine = create_engine(house.gateway.config.database.url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        rows = connection.execute(text("SELECT status, count(*), sum(length(body)) FROM inbox GROUP BY status")).all()
    engine.dispose()
    return {status: (count, characters) for status, count, characters in rows}


async def flood(house: Running, count: int, topics: int) -> list[dict[str, Any]]:
    """Messages of one sender, ten at a time; 0 topics: in the group itself."""
    events = [
        house.feishu.text_event(
            f"xyzzy {number}", sender=ALICE, chat=GROUP, chat_type="group", mention_bot=True, **_topic(number, topics)
        )
        for number in range(count)
    ]
    async with client() as http:

        async def push(event: dict[str, Any]) -> None:
            """Until it is taken, as the platform does: a busy machine's database may be late."""
            headers, body = house.feishu.encode(event)
            url = f"{house.url}/webhooks/feishu/default"
            while (await http.post(url, content=body, headers=headers)).status_code != 200:
                await asyncio.sleep(0.1)

        for first in range(0, count, 10):
            await asyncio.gather(*map(push, events[first : first + 10]))
    return events


def _topic(number: int, topics: int) -> dict[str, str]:
    return {"thread_id": f"omt_{number % topics}"} if topics else {}


@pytest.mark.parametrize("topics", [0, 3, 60])
async def test_inbox_limit_per_sender_bounds_a_flood_and_spares_others(
    tmp_path: Path, database_url: str, topics: int
) -> None:
    async with running(tmp_path, script=hangs_on_the_flood, more=CAPS.format(url=database_url)) as house:
        events = await flood(house, 60, topics)
        (waiting, _), (refused, characters) = stored(house)[0], stored(house)[3]
        most = 5 if topics == 0 else 12 + house.gateway.config.database.connections
        assert waiting <= most + 1  # and the note that says so
        assert sum(count for count, _ in stored(house).values()) == len(events)
        assert refused > len(events) // 2  # the rest waits, was joined to the turn, or is a chat's note
        assert characters == 0
        await house.say("hello", sender=BOB, chat=BOB_CHAT)
        await house.until(lambda: any(message.text == "here" for message in house.feishu.messages))
        await house.until(lambda: any("waiting already" in message.text for message in house.feishu.messages))
        before = stored(house)
        assert (await house.push(events[-1])).status_code == 200
        assert sum(count for count, _ in stored(house).values()) == sum(count for count, _ in before.values())
        await house.say("/stop", mention_bot=True, chat=GROUP, chat_type="group", **_topic(0, topics))
        await house.until(lambda: any(message.text.startswith("Stopped.") for message in house.feishu.messages))
