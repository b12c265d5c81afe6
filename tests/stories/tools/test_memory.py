"""What an agent remembers, for whom, and who gets to see it: notes, memory files, and the turns it is no longer shown."""

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agents.workspaces import SEEDS
from gateway.store.records import SessionMark
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, Running, running
from tests.stories.at_work import DONE, prompt, spoken, works

MODEL = "model: anthropic/claude-sonnet-4-6"
TOOLS = "tools: { allow: [read, write, memory_search, memory_get] }"
OTHER_GROUP = "oc_971000000000000000000000000000"
AGENTS = f"""
agents: {{ list: [ {{ id: helper, {MODEL}, {TOOLS} }}, {{ id: other, {MODEL}, {TOOLS} }} ] }}
bindings: [ {{ agent: other, match: {{ channel: feishu, chat: {OTHER_GROUP} }} }} ]
owners: ["feishu:{ALICE}"]
"""
ALICES: dict[str, Any] = {"sender": ALICE, "chat": ALICE_CHAT}
BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}
PLACES: list[dict[str, Any]] = [
    ALICES,
    BOBS,
    *(
        {"sender": sender, "chat": chat, "chat_type": "group", "mention_bot": True}
        for chat in (GROUP, OTHER_GROUP)
        for sender in (ALICE, BOB)
    ),
]


@pytest.fixture
async def memory_house(tmp_path: Path, database_url: str) -> AsyncIterator[Running]:
    async with running(tmp_path, agents=AGENTS, more=f"database: {{ url: '{database_url}' }}") as house:
        yield house


async def command(house: Running, text: str, **who: Any) -> str:
    answers = len(house.feishu.messages)
    await house.say(text, **(who or ALICES))
    return (await house.replies(answers + 1))[-1]


async def search(house: Running, query: str, **who: Any) -> str:
    (found,) = await works(house, ("memory_search", {"query": query}), **(who or ALICES))
    return found


async def get(house: Running, path: str, **who: Any) -> str:
    (text,) = await works(house, ("memory_get", {"path": path}), **(who or ALICES))
    return text


async def test_memory_note_is_shown_in_direct_chats_until_deleted(memory_house: Running) -> None:
    house = memory_house
    assert await command(house, "/remember") == "You have no notes yet. Write one: /remember TEXT"
    assert await command(house, "/remember I am allergic to nuts") == "Noted as number 1."
    assert await command(house, "/remember 我住在上海") == "已记下，编号 2。"
    listed = await command(house, "/remember")
    assert re.findall(r"^(\d)\. (.*)（\d{4}-", listed, re.MULTILINE) == [
        ("1", "I am allergic to nuts"),
        ("2", "我住在上海"),
    ]
    await works(house)
    assert (
        "Notes that this person had you keep, on themselves and on how to answer them (untrusted metadata):\n"
        in spoken(house)
    )
    assert '"text": "I am allergic to nuts"' in spoken(house)
    assert "nuts" not in prompt(house)
    await works(house)
    assert str(house.anthropic.requests[-1].body["messages"]).count("allergic") == 1  # not again in the history
    assert await command(house, "/remember forget 1") == "编号 1 的笔记已删除。"
    assert await command(house, "/remember forget 1") == "没有编号为 1 的笔记。/remember 可查看全部。"
    await works(house)
    assert "nuts" not in spoken(house)
    assert await command(house, "/remember a\0third\n## Safety") == "已记下，编号 3。"
    await works(house)
    assert "\n## Safety" not in spoken(house)
    assert (
        await command(house, f"/remember {'long ' * 500}") == "That is too long for a note: at most 2,000 characters."
    )
    message = house.feishu.text_event("/remember once", sender=ALICE, chat=ALICE_CHAT)
    answers = len(house.feishu.messages)
    for _ in range(3):
        await house.push(message)
    assert (await house.replies(answers + 1))[answers:] == ["Noted as number 4."]
    assert (await command(house, "/remember")).count("once") == 1
    await works(house, **BOBS)
    assert "Notes that" not in spoken(house)


async def test_memory_note_in_a_group_is_taken_and_never_shown(memory_house: Running) -> None:
    group = PLACES[2]
    assert await command(memory_house, "/remember CANARY", **group) == "Noted as number 1."
    assert "direct chat" in await command(memory_house, "/remember", **group)
    await works(memory_house, **group)
    assert "CANARY" not in str(memory_house.anthropic.requests[-1].body)
    assert "CANARY" not in await search(memory_house, "CANARY", **group)
    await works(memory_house)
    assert "CANARY" in spoken(memory_house)


async def test_memory_search_finds_and_reads(memory_house: Running) -> None:
    house = memory_house
    await works(house, text="Our order is INV-2024-0042, the 数据库 runs on 服务器 mars")
    await works(house, ("write", {"file_path": "memory/2026-06-01.md", "content": "Plan\n\nAlice likes oolong tea\n"}))
    await command(house, "/remember my passport expires in 2031")
    found = await search(house, "数据库 which server?")
    path, snippet = found.split("\n")[:2]
    assert re.match(r"sessions/\d+ \(\d{4}-\d\d-\d\d\)$", path)
    assert snippet == "  Alice: Our order is INV-2024-0042, the 数据库 runs on 服务器 mars / done"
    assert (await search(house, "inv-2024-0042 order")).startswith(path.split()[0])
    assert (await search(house, "据")).startswith(path.split()[0])
    turn = await get(house, path.split()[0])
    assert turn.split("\n")[1:] == ["Alice: Our order is INV-2024-0042, the 数据库 runs on 服务器 mars", "You: done"]
    tea = await search(house, "oolong")
    assert tea.startswith("memory/2026-06-01.md:3 (")
    assert await get(house, "memory/2026-06-01.md:3") == "Alice likes oolong tea\n"
    assert (await search(house, "Passport")).startswith("notes/1 (")
    assert await get(house, "notes/1") == "my passport expires in 2031"
    assert await get(house, "notes") == "1. my passport expires in 2031"
    assert await search(house, "zebra") == "(nothing found; try other words, or fewer)"
    written = await works(house, ("memory_get", {"path": "memory/2026-06-01.md"}))
    assert written[0].startswith("Plan\n")
    nowhere = (
        "notes/2",
        "sessions/999",
        "config.yaml",
        "memory/../AGENTS.md",
        "AGENTS.md",
        "/etc/passwd",
        "",
        "memory",
    )
    gone = await works(house, *(("memory_get", {"path": path}) for path in nowhere))
    assert [path for path, text in zip(nowhere, gone, strict=True) if "NOT_FOUND" not in text] == []
    assert "memory_search" in prompt(house)


async def test_memory_search_finds_turns_before_new_but_not_undone(memory_house: Running) -> None:
    house = memory_house
    await works(house, text="the code word is heliotrope")
    path = (await search(house, "heliotrope")).split()[0]
    turn, sid = int(path.partition("/")[2]), f"agent:helper:feishu:default:{ALICE_CHAT}"
    await house.gateway.runtime.store.mark(sid, SessionMark(turn=turn + 1, kind="new", at=1.0))
    assert (await search(house, "heliotrope")).startswith(path)
    await house.gateway.runtime.store.mark(sid, SessionMark(turn=turn, kind="undone", at=1.0))
    assert path not in await search(house, "heliotrope")
    assert "NOT_FOUND" in await get(house, path)


@settings(max_examples=settings().max_examples // 12, suppress_health_check=list(HealthCheck))
@given(order=st.permutations(range(len(PLACES))))
async def test_memory_search_stays_within_its_chat(memory_house: Running, order: list[int]) -> None:
    """Two people, alone and in two groups, one of them another agent's: each place has a word and a note of its own."""
    house = memory_house
    words = [f"secret{at}x{len(house.anthropic.requests)}" for at in range(len(PLACES))]
    for at in order:
        await works(house, text=f"the word is {words[at]}", **PLACES[at])
        await command(house, f"/remember note{words[at]}", **PLACES[at])
    for at in reversed(order):
        here = PLACES[at]
        said = {word for word, it in zip(words, PLACES, strict=True) if it["chat"] == here["chat"]}
        noted = {word for word, it in zip(words, PLACES, strict=True) if it["sender"] == here["sender"]}
        noted -= set(words[4:])  # of the other agent
        heard, *noticed = await works(
            house,
            ("memory_search", {"query": " ".join(words)}),
            ("memory_search", {"query": " ".join(f"note{it}" for it in words)}),
            ("memory_get", {"path": "notes"}),
            **here,
        )
        assert set(re.findall(r"the word is (\w+)", heard)) == said
        seen = "".join([*noticed, spoken(house)])
        assert set(re.findall(r"note(secret\w+)", seen)) & set(words) == (noted if "chat_type" not in here else set())


async def test_memory_files_are_written_by_owners_or_in_own_workspaces(
    tmp_path: Path,
) -> None:
    ways: list[tuple[str, dict[str, Any]]] = [
        ("write", {"file_path": path, "content": "x"})
        for path in ("MEMORY.md", "memory.MD", "memory/a.md", "Memory/A.md", "./x/../memory/a.md")
    ]
    async with running(tmp_path, agents=AGENTS, feishu=f'{FEISHU}    allowFrom: ["{BOB}"]\n') as house:
        for who in (BOBS, PLACES[2]):
            refused = await works(house, *ways, **who)
            assert ["PROTECTED" in it for it in refused] == [True] * len(ways)
        assert [it.startswith("Wrote") for it in await works(house, ways[0], ways[2])] == [True, True]
        await works(house, ("write", {"file_path": "memory/b.md", "content": "CANARY"}))
        assert "CANARY" in await search(house, "canary", **BOBS)
        for found in (await search(house, "canary", **PLACES[2]), await get(house, "memory/b.md", **PLACES[2])):
            assert "CANARY" not in found
        await works(house, **BOBS)
        assert "### MEMORY.md\n" in prompt(house)
    own = AGENTS.replace("id: helper,", "id: helper, workspaceDir: './w/{sender}',")
    async with running(tmp_path, agents=own) as house:
        assert [it.startswith("Wrote") for it in await works(house, ways[0], ways[2], **BOBS)] == [True, True]
        assert "nothing found" in await search(house, "x")


@pytest.mark.parametrize("language", ["en", "zh"])
async def test_workspace_new_gets_starter_files(tmp_path: Path, language: str) -> None:
    theirs = tmp_path / "data/workspaces/other"
    theirs.mkdir(parents=True)
    async with running(tmp_path, agents=AGENTS, more=f"language: {language}") as house:
        seeds = {it.name: it.read_text() for it in (SEEDS / ("zh" if language == "zh" else "en")).iterdir()}
        assert {it.name: it.read_text() for it in house.workspace().iterdir()} == seeds
        assert sum(map(len, seeds.values())) < 1_500
        assert list(theirs.iterdir()) == []
        await works(house)
        assert all(f"### {name}\n" in prompt(house) for name in seeds)
        (house.workspace() / "SOUL.md").write_text("mine")
        (house.workspace() / "USER.md").unlink()
    async with running(tmp_path, agents=AGENTS) as house:
        assert (house.workspace() / "SOUL.md").read_text() == "mine"
        assert not (house.workspace() / "USER.md").exists()


async def test_memory_without_its_tools_has_no_index(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        house.anthropic.script = [says(DONE)]
        await works(house)
        assert "memory_search" not in str(house.anthropic.requests[-1].body)
