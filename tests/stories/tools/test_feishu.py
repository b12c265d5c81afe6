"""The tool `feishu`: each person acts as themselves, and approves alone what is done in their name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.feishu.workplace import CALENDAR, DOC, SHEET
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, Running, feishu_emulator, running
from tests.stories.at_work import results

AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [feishu, read] }
"""
SCOPES = (
    *("docx:document:readonly", "sheets:spreadsheet:read", "sheets:spreadsheet:write_only", "task:task:read"),
    *("task:task:write", "calendar:calendar:read", "calendar:calendar.event:create", "offline_access"),
)
AREAS = "tools: {{ feishu: {{ areas: [docs, sheets, calendar, tasks, contacts], write: {write} }} }}"
LOGS_IN = f"{FEISHU}    login: {{ scopes: {json.dumps(SCOPES[:-1])} }}\n"
IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
READ_DOC = ("feishu", {"method": "GET", "path": f"/open-apis/docx/v1/documents/{DOC}/raw_content"})
NEW_TASK = (
    "feishu",
    # in an order that is not the stored one's
    {"method": "POST", "path": "task/v2/tasks", "body": {"summary": "Buy lamps", "description": "Three."}},
)
NEW_EVENT = (
    "feishu",
    {
        "method": "POST",
        "path": f"calendar/v4/calendars/{CALENDAR}/events",
        "body": {"summary": "Plan", "start_time": {"timestamp": "1"}, "end_time": {"timestamp": "2"}},
    },
)


def working(tmp_path: Path, *, write: str = "ask", more: str = "", **others: Any) -> Any:
    emulator = feishu_emulator()
    emulator.logins.interval = 0.05
    emulator.logins.scopes = {*SCOPES}
    emulator.users |= {ALICE: "Ann", BOB: "Bob"}
    emulator.workplace.grant(ALICE, DOC, SHEET, CALENDAR)
    lines = "\n".join((AREAS.format(write=write), more))
    settings: dict[str, Any] = {"agents": AGENTS, "feishu": LOGS_IN, "more": lines, "emulator": emulator}
    return running(tmp_path, **(settings | others))


async def log_in(house: Running, person: str, chat: str) -> None:
    before = len(house.feishu.logins.devices)
    await house.say("/login", sender=person, chat=chat)
    await house.until(lambda: len(house.feishu.logins.devices) > before)
    house.feishu.logins.approve(house.feishu.logins.devices[-1].user_code, person)
    await house.until(lambda: any(it.person == person for it in house.feishu.logins.pairs))
    await house.until(lambda: any("✓" in house.feishu.reads(it) for it in house.feishu.messages))
    await house.idle()


async def asks(house: Running, *script: Any, **who: Any) -> str:
    """Somebody writes, the agent calls and says "done"; the result of its last call."""
    house.anthropic.script = [*script, says("it is done")]
    before = len(house.feishu.messages)
    await house.say("do it", **who)
    await house.until(lambda: any("it is done" in house.feishu.reads(it) for it in house.feishu.messages[before:]))
    await house.idle()
    return results(house.anthropic.requests[-1].body)[-1]


async def waiting(house: Running) -> Any:
    found = await house.gateway.approvals._store.approvals.open_requests()
    return next(it for it in found if it.state == "pending")


def code(result: str) -> str:
    return str(json.loads(result)["error_code"])


async def test_feishu_reads_with_the_rights_of_the_one_who_asks(tmp_path: Path) -> None:
    async with working(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        await log_in(house, BOB, BOB_CHAT)
        found = await asks(house, calls(READ_DOC), sender=ALICE, **IN_GROUP)
        assert "Buy three lamps" in found
        assert "<<<EXTERNAL_CONTENT" in found
        refused = await asks(house, calls(READ_DOC), sender=BOB, **IN_GROUP)
        assert code(refused) == "NO_ACCESS"
        assert [who for who, _, path in house.feishu.workplace.called if "docx" in path] == [ALICE]
        everything = json.dumps([it.body for it in house.anthropic.requests])
        assert not any(it.access in everything or it.refresh in everything for it in house.feishu.logins.pairs)


async def test_feishu_change_waits_for_the_person_who_acts_alone(tmp_path: Path) -> None:
    """The request of a group is shown in her direct chat. An owner and an approver may not decide it."""
    more = f'owners: ["feishu:{BOB}"]\napprovals: {{ approvers: ["feishu:{BOB}"] }}'
    async with working(tmp_path, more=more) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        refused = await asks(house, calls(NEW_TASK), sender=ALICE, **IN_GROUP)
        assert code(refused) == "EXEC_APPROVAL_PENDING"
        request = await waiting(house)
        await house.until(lambda: any(request.id in it.text for it in house.feishu.messages))
        (shown,) = [it for it in house.feishu.messages if request.id in it.text and "Buy lamps" in it.text]
        assert shown.chat_id == house.feishu.direct.get(ALICE, ALICE_CHAT)
        assert "POST /open-apis/task/v2/tasks" in shown.text
        await house.say(f"/approve {request.id} allow-once", sender=BOB, chat=BOB_CHAT)
        await house.until(lambda: any("no pending request" in it for it in house.feishu.shown(BOB_CHAT)))
        assert not house.feishu.workplace.tasks
        house.anthropic.script = [says("the task is there")]
        await house.say(f"/approve {request.id} allow-once", sender=ALICE, chat=ALICE_CHAT)
        await house.until(lambda: any("the task is there" in it for it in house.feishu.shown(GROUP)))
        await house.idle()
        assert [it["creator"] for it in house.feishu.workplace.tasks.values()] == [ALICE]


async def test_feishu_change_that_the_person_denies_does_not_run(tmp_path: Path) -> None:
    async with working(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        await asks(house, calls(NEW_TASK))
        request = await waiting(house)
        house.anthropic.script = [says("as you like")]
        await house.say(f"/approve {request.id} deny")
        await house.until(lambda: any("as you like" in it for it in house.feishu.shown(ALICE_CHAT)))
        assert not house.feishu.workplace.tasks


async def test_feishu_asks_for_the_login_before_the_approval(tmp_path: Path) -> None:
    async with working(tmp_path) as house:
        assert code(await asks(house, calls(NEW_TASK))) == "NEEDS_LOGIN"
        assert len(house.feishu.logins.devices) == 1
        assert not re.findall("/approve", "".join(house.feishu.shown(ALICE_CHAT)))


async def test_feishu_token_that_is_refused_is_refreshed_once(tmp_path: Path) -> None:
    async with working(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        pair = house.feishu.logins.pairs[-1]
        for ends in (True, False):
            pair = house.feishu.logins.pairs[-1]
            if ends:
                pair.access_ends = 0.0
            assert "three lamps" in await asks(house, calls(READ_DOC))
        assert [it for it in house.feishu.logins.asked if it == "refresh_token"] == ["refresh_token"]


async def test_feishu_missing_permissions_become_a_login_or_a_link(tmp_path: Path) -> None:
    async with working(tmp_path, write="allow") as house:
        await log_in(house, ALICE, ALICE_CHAT)
        house.feishu.logins.pairs[-1].scopes = ("offline_access",)  # revoked at the platform
        before = len(house.feishu.logins.devices)
        assert code(await asks(house, calls(READ_DOC))) == "NEEDS_LOGIN"
        assert len(house.feishu.logins.devices) == before + 1
        assert "docx:document:readonly" in house.feishu.logins.devices[-1].scopes
        house.feishu.logins.scopes -= {"docx:document:readonly"}
        refused = await asks(house, calls(READ_DOC))
        assert code(refused) == "APP_LACKS_SCOPE"
        assert "docx:document:readonly" in refused


async def test_feishu_calls_as_the_app_where_the_config_says_so(tmp_path: Path) -> None:
    more = "tools: { feishu: { areas: [docs], as: app } }"
    async with working(tmp_path, write="ask", more="") as house:
        assert house.gateway.runtime.setup.config.tools.feishu.acts_as == "person"
    async with running(tmp_path, agents=AGENTS, feishu=LOGS_IN, more=more) as house:
        assert code(await asks(house, calls(READ_DOC))) == "APP_LACKS_SCOPE"
        house.feishu.workplace.app_scopes.add("docx:document:readonly")
        assert code(await asks(house, calls(READ_DOC))) == "NO_ACCESS"
        house.feishu.workplace.grant("app", DOC)
        assert "three lamps" in await asks(house, calls(READ_DOC))


async def test_feishu_follows_no_redirect_and_says_when_it_may_have_happened(tmp_path: Path) -> None:
    async with working(tmp_path, write="allow") as house:
        await log_in(house, ALICE, ALICE_CHAT)
        house.feishu.workplace.answer_next("task/v2/tasks", status=302, location=f"{house.url}/stolen")
        refused = await asks(house, calls(NEW_TASK))
        assert code(refused) == "UNAVAILABLE"
        assert not house.feishu.workplace.tasks


@pytest.mark.parametrize("call", [NEW_TASK, NEW_EVENT], ids=["task", "event"])
async def test_feishu_repeats_a_keyed_call_under_one_key(tmp_path: Path, call: Any) -> None:
    async with working(tmp_path, write="allow") as house:
        await log_in(house, ALICE, ALICE_CHAT)
        await asks(house, calls(call))
        work = house.feishu.workplace
        assert (len(work.tasks) + len(work.events), len(work._keys)) == (1, 1)


async def test_feishu_is_offered_only_with_an_area(tmp_path: Path) -> None:
    async with running(tmp_path, agents=AGENTS, script=[says("hello")]) as house:
        await house.say("hi")
        await house.replies(1)
        assert [it["name"] for it in house.anthropic.requests[0].body["tools"]] == ["read"]
