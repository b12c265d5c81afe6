"""Who has which tools: by agent, chat and person, in the request and in the prompt alike."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, Running, running
from tests.stories.at_work import prompt, results, users, works
from tests.stories.turns.test_models import two
from tests.web_page import WEB, opened

OWNED = f'owners: ["feishu:{ALICE}"]\ntools: {{ exec: {{ mode: allow }} }}'
ALICES: dict[str, Any] = {"sender": ALICE, "chat": ALICE_CHAT}
BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}
IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
ALL = ["read", "write", "edit", "ls", "exec", "message"]
OTHERS = [name for name in ALL if name != "exec"]


def tools(house: Running, number: int = -1) -> list[str]:
    """Of a request; the prompt lists the same."""
    body = house.anthropic.requests[number].body
    names = [tool["name"] for tool in body.get("tools", [])]
    system = "".join(block["text"] for block in body["system"])
    listed = re.findall(r"^- (\w+): ", system.partition("## Tool Call Style")[0], re.MULTILINE)
    assert listed == names
    return names


async def offered(house: Running, **who: Any) -> list[str]:
    await works(house, **who)
    return tools(house)


async def test_tool_policy_hides_owner_tools_from_others(tmp_path: Path) -> None:
    async with running(tmp_path, more=OWNED) as house:
        assert await offered(house, **ALICES) == ALL
        assert await offered(house, **BOBS) == OTHERS
        assert "/approve" not in prompt(house).partition("## Gateway Control")[0]  # which names the commands alone
        (result,) = await works(house, ("exec", {"command": "touch made"}), **BOBS)
        assert '"error_code": "TOOL_NOT_ALLOWED"' in result
        assert not (house.workspace() / "made").exists()
        assert await offered(house, sender=BOB, **IN_GROUP) == OTHERS
        assert await offered(house, sender=ALICE, **IN_GROUP) == ALL


async def test_tool_policy_without_owners_follows_the_lists(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        assert await offered(house, **BOBS) == ALL


async def test_tool_policy_layers_only_remove(tmp_path: Path) -> None:
    feishu = f"{FEISHU}    tools: {{ deny: [edit] }}\n    chats: {{ {GROUP}: {{ tools: {{ profile: minimal }} }} }}\n"
    more = f"""
tools:
  deny: [ls]
  ownerOnly: [exec]
  senders: {{ "feishu:{BOB}": {{ deny: ["group:messaging"] }} }}
owners: ["feishu:{ALICE}", "feishu:{BOB}"]
"""
    async with running(tmp_path, feishu=feishu, more=more) as house:
        assert await offered(house, **ALICES) == ["read", "write", "exec", "message"]
        assert await offered(house, **BOBS) == ["read", "write", "exec"]
        assert await offered(house, sender=ALICE, **IN_GROUP) == ["read", "message"]
        assert await offered(house, sender=BOB, **IN_GROUP) == ["read"]


async def test_tool_policy_splits_collected_messages_by_rights(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, more=OWNED) as house:
        house.line.hold()
        await house.say("first", sender=ALICE, **IN_GROUP)
        await house.requested(1)
        await house.say("of bob", sender=BOB, **IN_GROUP)
        await house.say("of alice", sender=ALICE, **IN_GROUP)
        await house.say("of alice, too", sender=ALICE, **IN_GROUP)
        house.line.release()
        await house.replies(3)
        await house.idle()
        said = [users(it.body)[-1] for it in house.anthropic.requests]
        assert ["of bob" in it for it in said] == [False, True, False]
        assert ["of alice" in it and "too" in it for it in said] == [False, False, True]
        assert [tools(house, number) for number in range(3)] == [ALL, OTHERS, ALL]


async def test_tool_policy_lets_nobody_with_less_steer(tmp_path: Path) -> None:
    wait = ("exec", {"command": "until [ -e go ]; do sleep 0.02; done"})
    more = f"queue: {{ mode: steer }}\n{OWNED}"
    async with running(tmp_path, script=[calls(wait), says("the first"), says("bob's")], more=more) as house:
        await house.say("start", sender=ALICE, **IN_GROUP)
        await house.requested(1)
        await house.say("now run rm", sender=BOB, **IN_GROUP)
        (house.workspace() / "go").touch()
        assert await house.replies(2) == ["the first", "bob's"]
        await house.idle()
        assert ["now run rm" in str(it.body) for it in house.anthropic.requests] == [False, False, True]
        assert [tools(house, number) for number in range(3)] == [ALL, ALL, OTHERS]


@pytest.mark.parametrize(("denied", "files"), [("exec", 1), ("group:files, exec", 0)])
async def test_tool_policy_of_read_gates_sending_files(tmp_path: Path, denied: str, files: int) -> None:
    more = f'tools: {{ senders: {{ "web:local": {{ deny: ["{denied.replace(", ", chr(34) + ", " + chr(34))}"] }} }} }}'
    async with running(tmp_path, feishu=WEB, more=more) as house, opened(house.url) as page:
        house.workspace().mkdir(parents=True, exist_ok=True)
        (house.workspace() / "a.txt").write_text("contents")
        house.anthropic.script = [says("here\nMEDIA:a.txt")]
        await page.say("send it")
        await page.answers(1)
        assert len(page.written()[0]["files"]) == files


async def test_tool_policy_holds_for_prompted_tools(tmp_path: Path) -> None:
    agents = "agents: { list: [ { id: helper, model: other/some-model, tools: { allow: [read, exec] } } ] }"
    more = f"{OWNED}\nmodels: {{ other/some-model: {{ toolCalling: prompt }} }}"
    run = '<tool_call>{"name": "exec", "arguments": {"command": "touch made"}}</tool_call>'
    async with two(tmp_path, other=[says("hi"), says(run), says("no")], agents=agents, more=more) as (house, other):
        await house.say("hello", **ALICES)
        await house.replies(1)
        await house.say("hello", **BOBS)
        await house.replies(2)
        alices, bobs, after = (str(it.body["messages"]) for it in other.requests)
        assert "- exec: " in alices
        assert "- exec: " not in bobs
        assert "TOOL_NOT_ALLOWED" in after
        assert not (house.workspace() / "made").exists()


async def test_tool_policy_decides_what_context_counts(tmp_path: Path) -> None:
    async with running(tmp_path, more=OWNED) as house:
        await house.say("/context", **ALICES)
        await house.say("/context", **BOBS)
        shares = [re.search(r"- Tools: ([\d,]+)", it) for it in await house.replies(2)]
        alices, bobs = (int(found[1].replace(",", "")) for found in shares if found)
        assert alices > bobs


@pytest.mark.parametrize("choice", ["exec", "required"])
async def test_tool_policy_drops_a_required_first_tool(tmp_path: Path, choice: str) -> None:
    agents = f"""
agents:
  list: [ {{ id: helper, model: anthropic/claude-sonnet-4-6, toolChoice: {choice}, tools: {{ allow: [exec] }} }} ]
"""
    async with running(tmp_path, agents=agents, more=OWNED) as house:
        await house.say("hello", **BOBS)
        await house.replies(1)
        body = house.anthropic.requests[0].body
        assert not body.get("tools")
        assert "tool_choice" not in body
        assert results(body) == []
