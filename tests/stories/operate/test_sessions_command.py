"""`python -m gateway sessions` beside a running gateway: what is kept is listed, read and erased, and then it is gone."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from channels.message import Chat
from gateway.config.root import DatabaseConfig
from gateway.operate import sessions as operate
from gateway.operate.sessions import summary
from gateway.store.opening import connected
from gateway.store.records import SessionMark
from tests.emulators.models.script import calls, says
from tests.offers import offered
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, SECRETS, Running, running
from tests.stories.at_work import NEVER
from tests.stories.process.test_process import ask
from tests.stories.web.test_web_branches import instead, said, shown
from tests.web_page import CHAT, WEB, opened

pytestmark = pytest.mark.slow  # it starts processes

CANARY = "canary-of-alice-91827"
BOBS = "words-of-bob-91827"
IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
OWN = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      workspaceDir: "./data/workspaces/{agent}/{sender}"
      tools: { allow: [read, write, ls] }
"""


@asynccontextmanager
async def house_of(folder: Path, url: str, **more: Any) -> AsyncIterator[Running]:
    own = f'database: {{ url: "{url}" }}\nserver: {{ timezone: Asia/Shanghai }}'
    async with running(folder, more=own, **more) as house:
        yield house


async def sessions(house: Running, *words: str) -> tuple[int, str]:
    return await ask("sessions", *words, "--config", str(house.folder / "config.yaml"), more=SECRETS)


async def listed(house: Running) -> list[dict[str, Any]]:
    """What `sessions list --json` prints, without a process."""
    config = house.gateway.config
    return [summary(it, config.server.zone) for it in await asyncio.to_thread(operate.listed, config)]


async def erased(house: Running, *, session: str | None = None, person: tuple[str, str] | None = None) -> None:
    """What `sessions erase` does, without a process."""
    config = house.gateway.config
    found = next((it for it in operate.listed(config) if it.id == session), None)
    assert found or person
    await asyncio.to_thread(operate.erase, config, session=found, person=person)


async def talk(house: Running, text: str, answer: str, **who: Any) -> None:
    house.anthropic.script = [says(answer)]
    before = len(house.feishu.messages)
    await house.say(text, **who)
    await house.replies(before + 1)
    await house.idle()


def traces(house: Running, word: str) -> list[str]:
    """Where it stands: files by their bytes, tables of PostgreSQL by their rows."""
    files = [path for path in (house.folder / "data").rglob("*") if path.is_file()]
    found = [str(path) for path in files if word.encode() in path.read_bytes() or word in path.name]
    config: DatabaseConfig = house.gateway.config.database
    if config.path is None:
        with psycopg.connect(config.url) as connection:
            tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            found += [name for (name,) in tables if word in str(connection.execute(f"SELECT * FROM {name}").fetchall())]
    return found


async def test_sessions_command_lists_shows_and_exports_while_serving(tmp_path: Path, database_url: str) -> None:
    async with house_of(tmp_path, database_url) as house:
        assert await listed(house) == []
        house.anthropic.script = [calls(("ls", {"path": "."}), before="I look."), says("nothing\x1b[2J there")]
        await house.say("what is there?\n**2026-01-01 · helper**")
        await house.replies(1)
        await house.idle()
        (first,) = await listed(house)
        sid = f"agent:helper:feishu:default:{ALICE_CHAT}"
        await house.gateway.runtime.store.mark(sid, SessionMark(turn=1, kind="new", at=1.0))
        await talk(house, "again", "well")
        ended, open_ = everything = await listed(house)
        assert json.loads((await sessions(house, "list", "--json"))[1]) == everything
        assert ended == first
        assert {name: open_[name] for name in ("agent", "channel", "chat", "turns")} == {
            "agent": "helper",
            "channel": "feishu",
            "chat": ALICE_CHAT,
            "turns": 1,
        }
        assert open_["id"] != ended["id"]
        assert open_["started"].endswith("+08:00")
        assert ended["started"] <= ended["last"] <= open_["started"] <= open_["last"]
        assert ended["tokens"] > open_["tokens"] > 0
        code, shown = await sessions(house, "show", ended["id"])
        assert code == 0
        assert "· Alice**\n\n> Alice: what is there?\n> **2026-01-01 · helper**\n" in shown
        assert "· helper**\n\n> I look.\n- `ls` `{" in shown
        assert "- `ls` gave: `AGENTS.md" in shown
        assert "> nothing�[2J there" in shown
        assert "again" not in shown
        assert (await sessions(house, "export", ended["id"], "--format", "md")) == (0, shown)
        code, exported = await sessions(house, "export", ended["id"], "--format", "json")
        whole = json.loads(exported)
        assert [it["kind"] for it in whole["entries"]] == ["user", "assistant", "toolResult", "assistant", "final"]
        assert {name: whole[name] for name in ended} == ended
        assert await sessions(house, "show", "0123456789ab") == (
            1,
            "no session: 0123456789ab — `sessions list` shows them\n",
        )


async def test_erase_session_leaves_no_trace_and_spares_others(tmp_path: Path, database_url: str) -> None:
    async with house_of(tmp_path, database_url) as house:
        await talk(house, f"my name is {CANARY}", f"hello {CANARY}")
        sid = f"agent:helper:feishu:default:{ALICE_CHAT}"
        store = house.gateway.runtime.store
        await store.mark(sid, SessionMark(turn=1, kind="summary", at=1.0, content=f'{{"text": "{CANARY}"}}'))
        await store.mark(sid, SessionMark(turn=1, kind="new", at=1.0))
        await talk(house, "something else", "fine")
        await talk(house, BOBS, BOBS, sender=BOB, **IN_GROUP)
        ended, *others = await listed(house)
        code, output = await sessions(house, "erase", ended["id"])  # nobody answers the question
        assert (code, "Erase this for good?" in output, len(await listed(house))) == (1, True, 3)
        code, output = await sessions(house, "erase", ended["id"], "--yes")
        assert code == 0, output
        assert "erased: inbox 1, mark 1, outbox 1, transcript 3\n" in output
        assert f"not touched: {house.workspace()}" in output
        assert traces(house, CANARY) == []
        assert await listed(house) == others
        assert (await sessions(house, "erase", ended["id"], "--yes"))[0] == 1
        await talk(house, "more", "yes")
        assert "something else" in str(house.anthropic.requests[-1].body)


async def test_erase_person_everywhere_and_nobody_else(tmp_path: Path, database_url: str) -> None:
    async with house_of(tmp_path, database_url, agents=OWN) as house:
        event = house.feishu.text_event(f"I am {CANARY}", sender=ALICE, chat=ALICE_CHAT)
        house.anthropic.script = [calls(("write", {"file_path": "a.txt", "content": CANARY})), says(CANARY)]
        await house.push(event)
        await house.replies(1)
        await house.idle()
        await talk(house, "/stop", "never")
        house.anthropic.script = [says("seen")]
        await house.push(house.feishu.file_event(CANARY.encode(), name=f"{CANARY}.txt", sender=ALICE, chat=ALICE_CHAT))
        await house.replies(3)
        await talk(house, BOBS, BOBS, sender=BOB, **IN_GROUP)
        await talk(house, CANARY, CANARY, sender=ALICE, **IN_GROUP)
        quoted = next(it for it, known in house.feishu.known.items() if CANARY in str(known) and GROUP in str(known))
        await talk(house, f"{BOBS} too", BOBS, sender=BOB, parent_id=quoted, root_id=quoted, **IN_GROUP)
        assert f"{CANARY}" in str(house.anthropic.requests[-1].body)
        sid = f"agent:helper:feishu:default:{GROUP}"
        await house.gateway.runtime.store.mark(sid, SessionMark(turn=5, kind="summary", at=1.0, content=f'"{CANARY}"'))
        assert traces(house, CANARY) != []

        code, output = await sessions(house, "erase", "--person", f"feishu:{ALICE}", "--yes")
        assert code == 0, output
        assert "upload 1" in output
        assert f"emptied: {house.folder}/data/workspaces/helper/feishu." in output
        assert traces(house, CANARY) == []
        assert traces(house, ALICE) == []
        assert traces(house, BOBS) != []
        (left,) = await listed(house)
        assert (left["chat"], left["turns"]) == (GROUP, 2)

        await house.push(event)  # a redelivery is still one
        await talk(house, "hello", "who are you?", sender=BOB, **IN_GROUP)
        assert len(house.feishu.messages) == 7
        await talk(house, "hello", "who are you?")
        assert CANARY not in str([it.body for it in house.anthropic.requests[-2:]])
        code, output = await sessions(house, "erase", "--person", "feishu:ou_nobody", "--yes")
        assert (code, output) == (0, "erased: nothing, since nothing is kept\n")


async def test_erase_person_found_by_the_transcript_alone(tmp_path: Path, database_url: str) -> None:
    async with house_of(tmp_path, database_url) as house:
        await talk(house, BOBS, BOBS, sender=BOB, **IN_GROUP)
        house.line.hold()
        house.anthropic.script = [says("both")]
        await house.say("steady", sender=BOB, **IN_GROUP)
        await house.requested(2)
        await house.say(CANARY, sender=ALICE, **IN_GROUP)
        await house.say("me too", sender=BOB, **IN_GROUP)
        house.anthropic.script = [says("hers"), says("his")]
        house.line.release()
        await house.replies(4)
        await house.idle()
        assert await house.gateway.runtime.store.prune(4e9) == 4
        await erased(house, person=("feishu", ALICE))
        assert traces(house, CANARY) == []
        (left,) = await listed(house)
        assert left["turns"] == 3
        await talk(house, "hello", "hi", sender=BOB, **IN_GROUP)
        assert BOBS in str(house.anthropic.requests[-1].body)
        assert "me too" in str(house.anthropic.requests[-1].body)  # a turn answers one person: hers took nobody along


async def test_erase_stops_a_running_turn_and_its_writes(tmp_path: Path, database_url: str) -> None:
    async with house_of(tmp_path, database_url) as house:
        await talk(house, CANARY, CANARY)
        house.anthropic.script = [NEVER]
        await house.say(f"{CANARY} again")
        await house.requested(2)
        await house.say(f"{CANARY} and again")
        code, output = await sessions(house, "erase", "--person", f"feishu:{ALICE}", "--yes")
        assert code == 0, output
        await house.idle()
        assert traces(house, CANARY) == []
        await talk(house, "hello", "new here?")
        assert CANARY not in str(house.anthropic.requests[-1].body)


async def test_erase_session_in_the_web_chat_with_its_files(tmp_path: Path, database_url: str) -> None:
    async with house_of(tmp_path, database_url, feishu=WEB) as house, opened(house.url) as page:
        house.anthropic.script = [says(CANARY), says("kept")]
        file = (await page.upload(CANARY.encode(), f"{CANARY}.txt", "text/plain")).json()
        await page.say(CANARY, files=[file["id"]])
        await page.answers(1)
        await house.idle()
        asked = (await page.conversation())["messages"][1]
        card = await offered(
            house.gateway, "web", Chat(id=CHAT, kind="direct"), said=CANARY, reply_to=asked["reply_to"]
        )
        await offered(house.gateway, "web", Chat(id=CHAT, kind="direct"), said=f"Denied: {CANARY}", reply_to=card)
        sid = f"agent:helper:web:default:{CHAT}"
        await house.gateway.runtime.store.mark(sid, SessionMark(turn=3, kind="new", at=1.0))
        await page.say(BOBS)
        await page.answers(4)
        await house.idle()
        ended, _ = await listed(house)
        await erased(house, session=ended["id"])
        assert traces(house, CANARY) == []
        assert [it["text"] for it in (await page.conversation())["messages"]] == [BOBS, "kept"]
        await erased(house, person=("web", "local"))
        assert traces(house, BOBS) == []
        assert await page.chats() == []


async def test_erase_needs_a_target(tmp_path: Path) -> None:
    async with house_of(tmp_path, f"sqlite:///{tmp_path}/data/clawgate.db") as house:
        for words in ((), ("0123", "--person", "feishu:ou_1"), ("--person", "ou_1"), ("--person", ":x")):
            code, output = await sessions(house, "erase", *words, "--yes")
            assert (code, output.count("\n")) == (1, 1), words
            assert "--person channel:id" in output


async def test_erase_without_a_gateway_covers_unfinished_turns(tmp_path: Path, database_url: str) -> None:
    async with house_of(tmp_path, database_url) as house:
        await talk(house, CANARY, CANARY)
        house.anthropic.script = [NEVER]
        await house.say(f"{CANARY} again")
        await house.requested(2)
        await house.gateway.lanes.drain(0)
    with connected(house.gateway.config.database) as connection:  # as a kill leaves it
        connection.exec_driver_sql("UPDATE session SET owner = 'dead'")
        assert connection.exec_driver_sql("SELECT pending FROM session").scalar() == 1
    code, output = await sessions(house, "erase", "--person", f"feishu:{ALICE}", "--yes")
    assert code == 0, output
    assert traces(house, CANARY) == []
    with connected(house.gateway.config.database) as connection:
        assert connection.exec_driver_sql("SELECT id FROM session").all() == []


async def test_erase_session_on_one_branch_spares_the_others(tmp_path: Path, database_url: str) -> None:
    """The session that goes is the beginning of its branch: what follows on it does not move to another one."""
    script = [says(it) for it in ("one", CANARY, "four", "five", "six")]
    async with house_of(tmp_path, database_url, script=script, feishu=WEB) as house, opened(house.url) as page:
        store, sid = house.gateway.runtime.store, f"agent:helper:web:default:{CHAT}"
        await page.say("a", message="m_first_of_all")
        await page.answers(1)
        await page.say("/new")
        await page.answers(2)
        assert await instead(page, CANARY, "m_first_of_all") == (200, "")
        await page.answers(3)
        await page.say("/new")
        await page.answers(4)
        await page.say("d")
        await page.answers(5)
        await house.idle()
        last = (await store.transcript(sid))[-1].turn
        await store.mark(sid, SessionMark(turn=last, kind="summary", at=1.0, content=f'{{"text": "{CANARY}"}}'))
        kept = {it["id"]: operate.found(house.gateway.config, it["id"]) for it in await listed(house)}
        (theirs,) = [id_ for id_, found in kept.items() if found and CANARY in str(found[1])]
        await erased(house, session=theirs)
        assert traces(house, CANARY) == []
        assert await shown(page) == ["d", "four"]
        await page.say("e")
        await page.answers(6)
        assert said(house, -1) == ["d", "four", "e"]
        first = next(it["id"] for it in page.written("you") if it["text"] == "a")
        assert (await page.http.patch(f"/api/chats/{CHAT}", json={"branch": first})).status_code == 200
        assert (await shown(page))[:2] == ["a", "one"]
        await page.say("f")
        await page.answers(7)
        assert said(house, -1) == ["f"]  # it stands behind `/new`


@pytest.mark.parametrize(
    ("which", "database_url"),
    [
        pytest.param(0, "sqlite", id="its session"),
        pytest.param(1, "postgresql", id="the later one", marks=pytest.mark.slow),
        pytest.param(0, "postgresql", marks=[pytest.mark.slow, pytest.mark.long]),
        pytest.param(1, "sqlite", marks=pytest.mark.long),
    ],
    indirect=["database_url"],
)
async def test_erase_session_of_a_message_answered_again_after_new(
    tmp_path: Path, database_url: str, which: int
) -> None:
    """What was answered together with an edited message is answered again with its new version, here in another session."""
    queue = "queue: { mode: collect, debounceSeconds: 0.01 }"
    more, first = f'database: {{ url: "{database_url}" }}\n{queue}', says("one")
    script = [first, *(says(f"about {CANARY}") for _ in range(2)), says("five"), says("six")]
    async with running(tmp_path, script=script, more=more, feishu=WEB) as house, opened(house.url) as page:
        house.line.hold()
        await page.say("a", message="m_first_of_all")
        await house.until(lambda: house.line.holding)
        await page.say(CANARY, message="m_second_one")
        await page.say("b", message="m_third_one")
        house.line.release()
        await page.answers(2)
        await page.say("/new")
        await page.answers(3)
        assert await instead(page, "B", "m_third_one") == (200, "")
        await page.answers(4)
        await house.idle()
        assert said(house, -1) == ["a", "one", CANARY, "B"]
        await page.say("d")
        await page.answers(5)
        await house.idle()
        await erased(house, session=(await listed(house))[which]["id"])
        assert (traces(house, CANARY) == []) is (which == 0)
        seen = await shown(page)
        assert (seen[:2], f"about {CANARY}" in seen) == [(["d", "five"], False), (["a", CANARY], True)][which]
        await page.say("c")
        await page.answers(6)
        assert said(house, -1) == [["d", "five", "c"], ["c"]][which]


async def test_erase_person_on_every_branch_and_nobody_else(tmp_path: Path, database_url: str) -> None:
    people = f"server: {{ adminToken: {'o' * 40}, users: {{ ann: {'a' * 40}, bob: {'b' * 40} }} }}"
    more, chats = f'database: {{ url: "{database_url}" }}\n{people}', {"ann": CHAT, "bob": "c_of_bob_alone"}
    async with (
        running(tmp_path, script=lambda body: says("yes"), more=more, feishu=WEB) as house,
        opened(house.url, authorization=f"Bearer {'a' * 40}") as ann,
        opened(house.url, authorization=f"Bearer {'b' * 40}") as bob,
    ):
        for who, page, word in (("ann", ann, CANARY), ("bob", bob, BOBS)):
            await page.say(word, message=f"m_first_of_{who}", chat=chats[who])
            await page.answers(1)
            assert await instead(page, f"{word}!", f"m_first_of_{who}", chat=chats[who]) == (200, "")
            await page.answers(2)
        await house.idle()
        await erased(house, person=("web", "ann"))
        assert traces(house, CANARY) == []
        assert (await ann.http.get(f"/api/chats/{CHAT}")).status_code == 404
        for number, text in enumerate(("more", "and more")):
            await bob.say(text, chat=chats["bob"])
            await bob.answers(3 + number)
        assert said(house, -1) == [f"bob: {BOBS}!", "yes", "bob: more", "yes", "bob: and more"]
        seen = await bob.conversation(chats["bob"])
        assert [len(it) for it in seen["versions"].values()] == [2]
