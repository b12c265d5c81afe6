"""Commands are listed where they would do something: in the prompt, in `/help`, on the page and in Telegram's menus."""

import re
from pathlib import Path
from typing import Any

import pytest

from gateway.config.commands import ALIASES, OWNER_ONLY
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import AGENTS, ALICE, BOB, BOB_CHAT, FEISHU, GROUP, running
from tests.stories.at_work import RUNS, prompt, works
from tests.stories.channels.test_telegram import bot
from tests.stories.inbox.test_claims import code_of
from tests.stories.later.test_schedules import ANYTIME, BEGIN, SCHEDULING
from tests.web_page import WEB, opened

OWNED = f'owners: ["feishu:{ALICE}"]'
BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}
GROUPED: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
PAIRING = FEISHU.replace("dmPolicy: open", f"dmPolicy: pairing\n    allowFrom: [{ALICE}]")


def with_tools(*names: str, agents: str = "") -> str:
    return AGENTS.replace("[read, write, edit, ls, exec, message]", f"[{', '.join(names)}]") + agents


SECOND = "    - { id: second, model: anthropic/claude-sonnet-4-6, tools: { allow: [] } }\n"
CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, bool]]] = [
    (
        "no tools",
        {"agents": with_tools()},
        {},
        dict.fromkeys(("tasks", "schedules", "approve", "skill", "agent"), False),
    ),
    ("tasks", {"agents": with_tools("task")}, {}, {"tasks": True, "schedules": False}),
    ("schedules", {"agents": with_tools("schedule")}, {}, {"tasks": False, "schedules": True}),
    ("files", {"agents": with_tools("read")}, {}, {"skill": True, "approve": False}),
    ("commands that ask", {"agents": with_tools("exec")}, {}, {"approve": True, "approvals": True}),
    ("commands that do not", {"agents": with_tools("exec"), "more": RUNS}, {}, {"approve": False, "approvals": False}),
    ("pages, then a message", {"agents": with_tools("web_fetch", "message")}, {}, {"approve": True}),
    ("two agents", {"agents": with_tools("read", agents=SECOND)}, {}, {"agent": True}),
    ("nobody's", {}, {}, {"claim": True, "listen": False}),
    ("nobody's, in a group", {}, GROUPED, {"claim": False}),
    ("owned", {"more": OWNED}, BOBS, {"claim": False, "listen": False, "unlisten": False, "pair": False}),
    ("owned, to its owner", {"more": OWNED}, {}, {"listen": False, "unlisten": False, "pair": False}),
    ("owned, in a group", {"more": OWNED}, GROUPED, {"claim": False, "listen": True, "unlisten": True}),
    ("pairing", {"more": OWNED, "feishu": PAIRING}, {}, {"pair": True}),
]


@pytest.mark.parametrize(("config", "where", "listed"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_command_is_listed_in_prompt_and_help_only_where_useful(
    tmp_path: Path, config: dict[str, Any], where: dict[str, Any], listed: dict[str, bool]
) -> None:
    async with running(tmp_path, script=lambda _: says("hm"), **config) as house:
        await house.say("hello", **where)
        await house.replies(1)
        await house.say("/help", **where)
        await house.say("/help all", **where)
        short, whole = (await house.replies(3))[1:]
        await house.idle()
        section = prompt(house).partition("## Gateway Control\n")[2].partition("\n\n")[0].partition("\n")[2]
        for text in (section, short, whole):
            names = set(re.findall(r"/([a-z]+)", text.partition("`/help all` explains")[0]))
            assert {name: name in names for name in listed} == listed
            assert not names & ALIASES


async def test_command_works_when_typed_though_unlisted(tmp_path: Path) -> None:
    async with running(tmp_path, agents=with_tools()) as house:
        for number, name in enumerate(sorted(ALIASES | {"tasks", "schedules", "agent", "skill"}), start=1):
            await house.say(f"/{name}")
            assert "no such command" not in (await house.replies(number))[-1]
            await house.idle()
        await house.say("/help tasks")
        assert (await house.replies(number + 1))[-1].startswith("- `/tasks` ")


async def test_command_lists_leftovers_of_a_tool_the_agent_lost(tmp_path: Path) -> None:
    clock = Clock(BEGIN)
    plan = {"action": "create", "at": "2027-01-15T09:30", "say": "Call Bob"}
    async with running(tmp_path, agents=SCHEDULING, feishu=ANYTIME, now=clock) as house:
        await works(house, ("schedule", plan))
        emulator = house.feishu
    agents = SCHEDULING.replace("[schedule, read]", "[read]")
    async with running(tmp_path, agents=agents, feishu=ANYTIME, now=clock, emulator=emulator) as house:
        await house.say("/help")
        assert "`/schedules`" in (await house.replies(2))[-1]
        await house.say("/help", sender=BOB, chat=BOB_CHAT)
        assert "`/schedules`" not in (await house.replies(3))[-1]


async def test_web_page_lists_schedules_though_the_agent_lost_the_tool(tmp_path: Path) -> None:
    plan = {"action": "create", "at": "2999-01-15T09:30", "say": "Call Bob"}
    script = [calls(("schedule", plan)), says("noted")]
    for tools, more in (("[schedule, read]", script), ("[read]", [])):
        agents = SCHEDULING.replace("[schedule, read]", tools)
        async with running(tmp_path, agents=agents, feishu=WEB, script=more) as house, opened(house.url) as page:
            if more:
                await page.say("remind me")
                await page.answers(1)
            names = {it["name"] for it in (await page.http.get("/api/chats")).json()["commands"]}
            assert "schedules" in names
            assert "tasks" not in names


async def test_claim_command_is_offered_on_the_page_until_owned(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WEB) as house, opened(house.url) as page:

        async def listed() -> set[str]:
            return {it["name"] for it in (await page.http.get("/api/chats")).json()["commands"]}

        before = await listed()
        assert {"claim", "why"} <= before
        assert not before & (ALIASES | {"listen", "unlisten", "tasks", "schedules", "agent"})
        await house.say(f"/claim {await code_of(house)}")
        await house.replies(1)
        after = await listed()
        assert before - after >= {"claim", "why"}, "the page is no owner any more"
        assert not after & OWNER_ONLY


async def test_claim_command_is_offered_on_telegram_until_owned(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling") as it:

        def listed(scope: str) -> set[str]:
            return {entry["command"] for entry in it.telegram.commands[scope, ""]}

        await it.house.until(lambda: len(it.telegram.commands) == 4)
        assert "claim" in listed("default")
        assert "claim" not in listed("all_group_chats")
        alice = it.telegram.private()
        await it.happens(it.telegram.text_update(f"/claim {await code_of(it.house)}", chat=alice))
        await it.house.until(lambda: "claim" not in listed("default"))
        await it.house.until(lambda: (f"chat {alice}", "") in it.telegram.commands)
        theirs = listed(f"chat {alice}")
        assert "why" in theirs
        assert not theirs & (ALIASES | {"claim", "listen", "unlisten"})
