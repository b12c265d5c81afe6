"""Whose documents a turn reads, by the tool `feishu` and by Feishu's MCP server, whichever way it came in.

Alice and Bob are logged in. The document is hers: what serves him finds no access, and what serves nobody has no login.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import ALICE, BOB, GROUP, Running, client
from tests.stories.at_work import results
from tests.stories.login.test_login import ANYTIME, IN_GROUP
from tests.stories.login.test_whose import BEGIN, REPORT, TOKEN, keep_login
from tests.stories.tools.test_feishu import READ_DOC
from tests.stories.tools.test_feishu_documents import FETCH, NEEDED, documents, server
from tests.waiting import until
from tests.web_page import CHAT, new_id, opened

pytestmark = pytest.mark.slow
AREAS = "tools: { taint: [], feishu: { areas: [docs] } }"
AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [feishu, schedule, task, message, "mcp:docs"] }
"""
BOTH = calls(READ_DOC, FETCH)
MINE, OTHERS, NOBODYS = ["read"] * 2, ["NO_ACCESS"] * 2, ["NEEDS_PERSON"] * 2


@asynccontextmanager
async def group(tmp_path: Path, clock: Clock, more: str = "") -> AsyncIterator[Running]:
    lines = "\n".join((server(), AREAS, more))
    async with documents(tmp_path, lines, agents=AGENTS, now=clock, feishu=f"{ANYTIME}  web: {{}}\n") as house:
        for person in (ALICE, BOB):
            await keep_login(house, person, NEEDED)
        yield house
        read = {who for who, tool in house.feishu.documents.called if tool == "fetch-doc"}
        read |= {who for who, _, path in house.feishu.workplace.called if "docx" in path}
        assert read <= {ALICE}


def outcomes(house: Running, request: int = -1) -> list[str]:
    """What the two calls of the last turn gave."""
    found = results(house.anthropic.requests[request].body)[-2:]
    return ["read" if "three lamps" in it else str(json.loads(it)["error_code"]) for it in found]


async def said(house: Running, words: str) -> None:
    await until(lambda: any(words in it for it in house.feishu.shown(GROUP)))
    await house.idle()


async def messaged(house: Running, clock: Clock, who: str, end: str) -> None:
    house.anthropic.script = [BOTH, says(end)]
    await house.say("read it", sender=who, **IN_GROUP)


async def quoted(house: Running, clock: Clock, who: str, end: str) -> None:
    """The answer to Alice is quoted."""
    house.anthropic.script = [BOTH, says("hers")]
    await house.say("read it", sender=ALICE, **IN_GROUP)
    await said(house, "hers")
    mine = house.feishu.messages[-1].message_id
    house.anthropic.script = [BOTH, says(end)]
    await house.say("and for me", sender=who, parent_id=mine, root_id=mine, **IN_GROUP)


async def pressed(house: Running, clock: Clock, who: str, end: str) -> None:
    """Alice has the button shown."""
    offer = {"action": "buttons", "message": f"Read it, {end}?", "buttons": ["Yes"]}
    house.anthropic.script = [calls(("message", offer)), says(f"offered, {end}")]
    await house.say("offer it", sender=ALICE, **IN_GROUP)
    await said(house, f"offered, {end}")
    card = next(it for it in house.feishu.messages if f"Read it, {end}?" in house.feishu.reads(it))
    house.anthropic.script = [BOTH, says(end)]
    await house.push(house.feishu.press_event(card.message_id, "Yes", sender=who))


async def scheduled(house: Running, clock: Clock, who: str, end: str) -> None:
    plan = {"action": "create", "at": "every 1h", "task": "Read it."}
    house.anthropic.script = [calls(("schedule", plan)), says(f"planned, {end}")]
    await house.say("every hour", sender=who, **IN_GROUP)
    await said(house, f"planned, {end}")
    house.anthropic.script = [BOTH, says(end)]
    clock.now += 3_601
    await until(lambda: end in house.feishu.shown(GROUP))
    await house.idle()
    (row,) = await house.gateway.runtime.store.later.of_owner(f"feishu:default:{who}")
    await house.gateway.runtime.store.later.end(row.id, "cancelled")


async def handed_on(house: Running, clock: Clock, who: str, end: str) -> None:
    order = {"action": "start", "prompt": "Read it.", "wait": True}
    house.anthropic.script = [calls(("task", order)), BOTH, says("result"), says(end)]
    await house.say("hand it on", sender=who, **IN_GROUP)


async def collected(house: Running, clock: Clock, who: str, end: str) -> None:
    """Messages of both wait while Alice is answered."""
    other = {ALICE: BOB, BOB: ALICE}[who]
    house.anthropic.script = [says("first"), BOTH, says(f"not {end[:-1]}"), BOTH, says(end)]
    house.line.hold()
    before = len(house.anthropic.requests)
    await house.say("one", sender=ALICE, **IN_GROUP)
    await house.requested(before + 1)
    await house.say("two", sender=other, **IN_GROUP)
    await house.say("three", sender=who, **IN_GROUP)
    house.line.release()


WAYS = {it.__name__: it for it in (messaged, quoted, pressed, scheduled, handed_on, collected)}


@pytest.mark.parametrize("way", WAYS)
async def test_documents_are_hers_whichever_way_a_turn_came_in(tmp_path: Path, way: str) -> None:
    clock = Clock(BEGIN)
    async with group(tmp_path, clock) as house:
        for end, who, found in (("one.", ALICE, MINE), ("two.", BOB, OTHERS), ("three.", ALICE, MINE)):
            await WAYS[way](house, clock, who, end)
            await until(lambda end=end: end in house.feishu.shown(GROUP))  # type: ignore[misc]
            await house.idle()
            assert outcomes(house, -2 if way == "handed_on" else -1) == found


async def test_documents_of_a_turn_of_nobody_are_not_read(tmp_path: Path) -> None:
    """A schedule of the config, a hook, a program, and an edit on the page, whose user is no person of Feishu."""
    clock = Clock(BEGIN)
    more = REPORT.replace("server: {", f"server: {{ adminToken: {TOKEN},")
    async with group(tmp_path, clock, more) as house:
        await house.until(lambda: house.gateway.runtime.store.later.next_due())
        house.anthropic.script = [BOTH, says("reported")]
        clock.now += 3_601
        await said(house, "reported")
        assert outcomes(house) == NOBODYS
        async with client(house.url, headers={"authorization": f"Bearer {TOKEN}"}) as http:
            house.anthropic.script = [BOTH, says("hooked")]
            assert (await http.post("/hooks/ci", json={"a": 1})).status_code == 202
            await said(house, "hooked")
            assert outcomes(house) == NOBODYS
            house.anthropic.script = [BOTH, says("called")]
            asked = {"model": "helper", "messages": [{"role": "user", "content": "read it"}], "user": ALICE}
            assert (await http.post("/v1/chat/completions", json=asked)).status_code == 200
            assert outcomes(house) == NOBODYS
        async with opened(house.url, authorization=f"Bearer {TOKEN}") as page:
            house.anthropic.script = [says("hello"), BOTH, says("edited")]
            assert (await page.say("hi", message="m_first_of_all")).status_code == 200
            await page.answers(1)
            edit: dict[str, Any] = {"id": new_id(), "chat": CHAT, "agent": "helper", "text": "read it"}
            answer = await page.http.post("/webhooks/web/default", json=edit | {"instead": "m_first_of_all"})
            assert answer.status_code == 200
            await page.answers(2)
            await house.idle()
            assert outcomes(house) == NOBODYS
