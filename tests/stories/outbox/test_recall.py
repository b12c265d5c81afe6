"""A message that is taken back is gone: from requests, answers, summaries, notes, the index, exports and every table,
however it was answered; and nobody else's message is lost by it.

A random walk says it of all together: several people or one, every queue mode, a tool that runs, answers that stand still,
summaries and notes, restarts, and two replicas. Each message has a word of its own, which the emulated model puts into
whatever it makes of the message.
"""

import asyncio
import random
import re
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from channels.marks import ANSWER_GONE
from gateway.turns.turns import Finish
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.dialogue import summary_names
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, Running, feishu_emulator, running
from tests.stories.at_work import text_of, works
from tests.stories.store.test_replicas import two
from tests.waiting import PATIENCE_SECONDS

IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
CAROL = "ou_ca401000000000000000000000000000"
HEADINGS = ("## Decisions", "## Open tasks", "## Constraints", "## Pending asks", "## Exact identifiers")
FILLER = "and then this happened, and that, and the other thing " * 12
WORD = re.compile(r"canary[a-z]+")
SAID = re.compile(r"\[message_id: [^\]]*\]\n[^\n:]*: (canary[a-z]+)")
TOOL = "until [ -e go ]; do touch begun; sleep 0.02; done; rm -f begun; echo {}"
AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [exec, memory_search] }
      compaction: { keepTurns: 1, saveNotes: true }
"""
STEPS = ("say", "say", "say with tool", "recall", "recall", "hold", "release", "go", "compact", "retry", "restart")


def word(number: int) -> str:
    return "canary" + "".join(chr(ord("a") + int(it)) for it in f"{number:03}")


def model(body: dict[str, Any]) -> Reply:
    """Says again what it is told: of a turn the newest words, of a history to be summed up or noted all of them."""
    everything = list(dict.fromkeys(WORD.findall(str(body["messages"]))))
    if summary_names(body) is not None:
        return says("\n".join((*HEADINGS, *everything)))
    if any(it["name"] == "save_note" for it in body.get("tools", ())):
        last = body["messages"][-1]
        noted = any(isinstance(it, dict) and it["type"] == "tool_result" for it in last["content"])
        return says("noted") if noted else calls(("save_note", {"text": " ".join(everything) or "nothing"}))
    spoken = [n for n, it in enumerate(body["messages"]) if it["role"] == "user" and text_of(it)]
    running = [
        n for n in spoken if "Conversation info" in text_of(body["messages"][n])
    ]  # of earlier turns it is left out
    turn = body["messages"][running[0] if running else spoken[-1] :]
    texts = "\n".join(text_of(it) for it in turn if it["role"] == "user")
    texts = texts.partition("Conversation info")[2] if running else texts  # what stands before it is of a stopped turn
    told = " ".join(dict.fromkeys(SAID.findall(texts)))
    if "with a tool" in texts and len(turn) == 1:
        return calls(("exec", {"command": TOOL.format(told)}), before=f"I run {told}")
    return says(f"answered {told}")


@dataclass
class Walk:
    """The people, what they have said, and what they took back: each word with the requests and messages before that."""

    chance: random.Random
    mode: str
    people: list[str]
    place: dict[str, Any]
    houses: list[Running] = field(default_factory=list)
    said: dict[str, str] = field(default_factory=dict)
    gone: dict[str, tuple[int, int]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    steps: list[str] = field(default_factory=list)

    @property
    def house(self) -> Running:
        return self.chance.choice(self.houses)

    @property
    def first(self) -> Running:
        return self.houses[0]

    def asked(self) -> list[str]:
        return [*self.requests, *(str(it.body["messages"]) for it in self.first.anthropic.requests)]

    def shown(self) -> list[str]:
        return self.first.feishu.shown(self.place["chat"])

    async def quiet(self) -> None:
        """Wait until nothing goes on by itself: no turn, or one that stands still."""
        begun = self.first.workspace() / "begun"
        begun.unlink(missing_ok=True)  # whatever still runs makes it again
        lanes = [it.gateway.runtime.control.lanes for it in self.houses]
        await self.first.until(lambda: not any(lanes) or self.first.line.holding or begun.exists())

    async def push(self, event: dict[str, Any]) -> None:
        """As the platform does: again, to whichever replica, where a busy machine was too slow to say 200."""
        for _ in range(5):
            if (await self.house.push(event)).status_code == 200:
                return
        raise AssertionError("never taken")

    async def take(self, step: str) -> None:
        go, who = self.first.workspace() / "go", self.chance.choice(self.people)
        self.steps.append(step)
        if step.startswith("say"):
            name = word(len(self.said))
            self.said[name] = f"om_{len(self.said):03}"
            text = f"{name} {'with a tool' if step == 'say with tool' else ''} {FILLER}"
            event = self.first.feishu.text_event(text, message_id=self.said[name], sender=who, **self.place)
            await self.push(event)
        elif step == "recall" and (left := [it for it in self.said if it not in self.gone]):
            name = self.chance.choice(left)
            for _ in range(self.chance.randint(1, 2)):
                await self.push(self.first.feishu.recalled_event(self.said[name]))
            self.gone[name] = len(self.asked()), len(self.shown())
            self.steps[-1] += f" {name}"
        elif step in ("hold", "release"):
            self.first.line.release()
            if step == "hold":
                await self.quiet()
                self.first.line.hold(after_pieces=self.chance.randint(0, 1))
        elif step == "go":
            go.parent.mkdir(parents=True, exist_ok=True)
            go.touch()
            await self.quiet()
            go.unlink()
        elif step in ("compact", "retry"):
            await self.first.say(f"/{step}", sender=who, **self.place)
        await self.quiet()

    async def end(self) -> None:
        """Everything goes on to its end, and one more message is answered."""
        (self.first.workspace() / "go").touch()
        self.first.line.release()
        for house in self.houses:
            await house.idle()
        await self.first.say(f"{word(999)} and now?", sender=self.people[0], **self.place)
        for house in self.houses * 2:
            await house.idle()

    def judge(self, rows: dict[str, str]) -> None:
        story = "\n".join(self.steps)
        asked, shown = self.asked(), self.shown()
        for name, (requests, messages) in self.gone.items():
            assert not any(name in it for it in asked[requests:]), f"{name} in a later request:\n{story}"
            assert not any(name in it for it in shown[messages:]), f"{name} in a later answer:\n{story}"
            left = {
                table: text[max(0, at - 300) : at + 100] for table, text in rows.items() if (at := text.find(name)) >= 0
            }
            assert left == {}, f"{name} in the database:\n{story}"
        for name in self.said:
            if name not in self.gone:
                assert name in asked[-1], f"{name} was forgotten:\n{story}"
                if self.mode != "interrupt":
                    assert any(name in it for it in shown), f"{name} was not answered:\n{story}"
        assert word(999) in shown[-1], story


def tables(house: Running) -> dict[str, str]:
    config = house.gateway.config.database
    if config.path is None:
        with psycopg.connect(config.url) as connection:
            names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
            return {it: str(connection.execute(f"SELECT * FROM {it}").fetchall()) for (it,) in names}
    with closing(sqlite3.connect(config.path)) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        return {it: str(database.execute(f"SELECT * FROM {it}").fetchall()) for (it,) in names}


def walk_of(seed: int, mode: str, place: str) -> Walk:
    where = {"chat": GROUP, "chat_type": "group", "mention_bot": True} if place == "group" else {"chat": ALICE_CHAT}
    return Walk(
        random.Random(f"{seed} {mode} {place}"), mode, [ALICE, BOB, CAROL] if place == "group" else [ALICE], where
    )


@asynccontextmanager
async def started(folder: Path, mode: str, emulator: FeishuEmulator) -> AsyncIterator[Running]:
    more = f"queue: {{ mode: {mode}, debounceSeconds: 0.01 }}\ntools: {{ exec: {{ mode: allow }} }}"
    async with running(folder, script=model, emulator=emulator, agents=AGENTS, more=more) as house:
        house.workspace().mkdir(parents=True, exist_ok=True)
        yield house


async def walks(folder: Path, walk: Walk, count: int) -> None:
    emulator = feishu_emulator()
    async with AsyncExitStack() as open_now:
        walk.houses = [await open_now.enter_async_context(started(folder, walk.mode, emulator))]
        for step in walk.chance.choices(STEPS, k=count):
            await walk.take(step)
            if step == "restart":
                await walk.first.gateway.lanes.drain(0)
                walk.requests = walk.asked()
                await open_now.aclose()
                walk.houses = [await open_now.enter_async_context(started(folder, walk.mode, emulator))]
                await walk.quiet()
        await walk.end()
        walk.judge(tables(walk.first))


@pytest.mark.parametrize("place", ["group", "direct"])
@pytest.mark.parametrize("mode", ["collect", "followup", "steer", "interrupt"])
async def test_recall_at_any_moment_leaves_nothing(tmp_path: Path, mode: str, place: str) -> None:
    await walks(tmp_path, walk_of(0, mode, place), 14)


FEW = {("collect", "group"), ("followup", "direct"), ("steer", "group"), ("interrupt", "direct")}
LONGER = [
    pytest.param(mode, place, seed, marks=() if (mode, place) in FEW and seed == 1 else pytest.mark.long)
    for mode in ("collect", "followup", "steer", "interrupt")
    for place in ("group", "direct")
    for seed in range(1, 9)
]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "place", "seed"), LONGER)
async def test_recall_at_any_moment_in_long_walks(tmp_path: Path, mode: str, place: str, seed: int) -> None:
    await walks(tmp_path, walk_of(seed, mode, place), 24)


@pytest.mark.parametrize("seed", range(4))
async def test_recall_at_any_moment_on_two_replicas(tmp_path: Path, postgres_url: str, seed: int) -> None:
    walk = walk_of(seed, ("collect", "followup", "steer", "interrupt")[seed], "group")
    more = f"queue: {{ mode: {walk.mode}, debounceSeconds: 0.01 }}\ntools: {{ exec: {{ mode: allow }} }}"
    async with two(tmp_path, postgres_url, model, more, agents=AGENTS) as houses:
        walk.houses = houses
        walk.first.workspace().mkdir(parents=True, exist_ok=True)
        for step in walk.chance.choices([it for it in STEPS if it != "restart"], k=18):
            await walk.take(step)
        await walk.end()
        walk.judge(tables(walk.first))


async def test_recall_while_its_turn_is_being_stopped_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn is being stopped for a newer message, and has looked for recalls already."""
    async with started(tmp_path, "interrupt", feishu_emulator()) as house, asyncio.timeout(PATIENCE_SECONDS):
        finish = Finish.all

        async def later(*args: Any, **more: Any) -> Any:
            await house.push(house.feishu.recalled_event("om_x"))
            return await finish(*args, **more)

        await house.say(f"{word(0)} with a tool {FILLER}", message_id="om_x")
        await house.until((house.workspace() / "begun").exists)
        monkeypatch.setattr(Finish, "all", later)
        await house.say(f"{word(1)} {FILLER}")
        await house.idle()
        assert [word(0) in str(it.body["messages"]) for it in house.anthropic.requests] == [True, False]
        assert [table for table, text in tables(house).items() if word(0) in text] == []


async def test_recall_removes_from_search_and_export(tmp_path: Path) -> None:
    agents = AGENTS.replace("memory_search", "memory_search, memory_get")
    async with running(tmp_path, agents=agents, script=lambda body: says("noted SWORDFISH")) as house:
        await house.say("the word is SWORDFISH", message_id="om_x")
        await house.replies(1)
        await house.idle()
        (found,) = await works(house, ("memory_search", {"query": "SWORDFISH"}))
        assert "SWORDFISH" in found
        await house.push(house.feishu.recalled_event("om_x"))
        (found,) = await works(house, ("memory_search", {"query": "SWORDFISH"}))
        assert "nothing found" in found
        assert "SWORDFISH" not in tables(house)["transcript"].replace('{"query": "SWORDFISH"}', "")[:2000]


async def test_recall_of_an_unreadable_row_works(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("ok")]) as house:
        await house.say("a secret", message_id="om_x")
        await house.replies(1)
        await house.idle()
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db")) as database, database:
            database.execute("UPDATE transcript SET content = 'a secret that is no JSON' WHERE kind = 'user'")
        assert (await house.push(house.feishu.recalled_event("om_x"))).status_code == 200
        assert [table for table, text in tables(house).items() if "a secret" in text] == []


async def test_recall_twice_ends_the_turn_made_for_the_others(tmp_path: Path, database_url: str) -> None:
    """Alice's, Bob's and Carol's messages are one running turn; first hers is taken back, and then his."""
    script = [says("first"), says("never whole " * 50), says("with Bobs SWORDFISH " * 30), says("for Carol")]
    async with running(tmp_path, script=script, more=f'database: {{ url: "{database_url}" }}') as house:
        house.line.hold()
        await house.say("begin", sender=ALICE, **IN_GROUP)
        await house.until(lambda: house.line.holding)
        for name, text, sender in (("om_a", "words", ALICE), ("om_b", "SWORDFISH", BOB), ("om_c", "Carols", CAROL)):
            await house.say(text, sender=sender, message_id=name, **IN_GROUP)
        house.line.release()
        house.line.hold(after_pieces=2)
        for count, name in ((2, "om_a"), (3, "om_b")):
            await house.requested(count)
            await house.until(lambda: house.line.holding)
            await house.push(house.feishu.recalled_event(name))
        house.line.release()
        await house.until(lambda: "for Carol" in house.feishu.shown(GROUP))
        await house.idle()
        assert house.feishu.shown(GROUP) == ["first", "for Carol"]
        assert [table for table, text in tables(house).items() if "SWORDFISH" in text] == []


async def test_recall_spares_others_in_an_ended_turn(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("first"), says("about SWORDFISH"), says("last")]) as house:
        house.line.hold()
        await house.say("begin", sender=ALICE, **IN_GROUP)
        await house.until(lambda: house.line.holding)
        await house.say("SWORDFISH", sender=ALICE, message_id="om_a", **IN_GROUP)
        await house.say("of Bob", sender=ALICE, message_id="om_b", **IN_GROUP)
        house.line.release()
        await house.replies(2)
        await house.idle()
        await house.push(house.feishu.recalled_event("om_a"))
        await house.say("and now?", sender=BOB, **IN_GROUP)
        await house.replies(3)
        await house.idle()
        asked = str(house.anthropic.requests[-1].body["messages"])
        assert ("SWORDFISH" in asked, "of Bob" in asked, ANSWER_GONE in asked) == (False, True, True)


async def test_recall_empties_quotes_of_the_message(tmp_path: Path) -> None:
    """Whether it quotes before or after, and whether or not the bot was spoken to."""
    async with running(tmp_path, script=[says("zero"), says("next"), says("last")]) as house:
        house.line.hold()
        await house.say("begin", **IN_GROUP)
        await house.until(lambda: house.line.holding)
        beside = IN_GROUP | {"mention_bot": False}
        await house.say("the secret is SWORDFISH", message_id="om_s", sender=BOB, **beside)
        await house.say("what do you say to that?", parent_id="om_s", root_id="om_s", **IN_GROUP)
        await house.push(house.feishu.recalled_event("om_s"))
        house.line.release()
        await house.replies(2)
        await house.idle()
        await house.say("and to that?", parent_id="om_s", root_id="om_s", **IN_GROUP)
        await house.replies(3)
        await house.idle()
        assert not any("SWORDFISH" in str(it.body) for it in house.anthropic.requests)


async def test_recall_removes_a_quote_and_keeps_the_quoting_turn(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("one"), says("two")]) as house:
        await house.say("the secret is SWORDFISH", message_id="om_s", sender=BOB, **(IN_GROUP | {"mention_bot": False}))
        await house.say("what do you say to that?", parent_id="om_s", root_id="om_s", **IN_GROUP)
        await house.replies(1)
        await house.idle()
        assert "SWORDFISH" in str(house.anthropic.requests[-1].body)
        assert (await house.push(house.feishu.recalled_event("om_s"))).status_code == 200
        assert [table for table, text in tables(house).items() if "SWORDFISH" in text] == []
        await house.say("and now?", **IN_GROUP)
        assert await house.replies(2) == ["one", "two"]
        history = str(house.anthropic.requests[-1].body["messages"])
        assert ("what do you say" in history, "'one'" in history) == (True, True), "the quoting turn stays"
