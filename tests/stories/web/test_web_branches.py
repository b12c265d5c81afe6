"""Branches of a conversation over HTTP: whose they are, what a crash leaves of one, and what deleting does."""

import random
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from channels.message import Chat, MessageContext, Origin, Sender
from channels.web.archive import MessageBody
from gateway.approvals.notices import message_json as context_json
from gateway.store.inbound import SAY, Inbound
from gateway.store.tasks import Task
from gateway.turns.batch import origin_delivery
from tests.emulators.models.script import Fault, Turn, calls, says
from tests.running import AGENTS, FEISHU, Running, running
from tests.stories.web.test_web_erase import SECRET, erase, rows_with
from tests.web_page import CHAT, WEB, Page, new_id, opened

SERVER = f"server: {{ host: 0.0.0.0, adminToken: {'o' * 40}, users: {{ ann: {'a' * 40}, bob: {'b' * 40} }} }}"


async def instead(page: Page, text: str, of: str, *, message: str = "", chat: str = CHAT) -> tuple[int, str]:
    posted = {"id": message or new_id(), "chat": chat, "agent": "helper", "text": text, "instead": of}
    answer = await page.http.post("/webhooks/web/default", json=posted)
    return answer.status_code, "" if answer.status_code == 200 else answer.json()["code"]


async def shown(page: Page) -> list[str]:
    return [it["text"] for it in (await page.conversation())["messages"]]


def said(house: Running, request: int) -> list[str]:
    """The words in a request to the model, without what the gateway puts before them."""
    messages = house.anthropic.requests[request].body["messages"]
    parts = [it["content"] if isinstance(it["content"], list) else [{"text": it["content"]}] for it in messages]
    return [part["text"].rpartition("\n")[2].removeprefix("User: ") for it in parts for part in it if "text" in part]


async def test_branch_cut_off_by_a_crash_is_answered_once(house: Running, page: Page) -> None:
    """The archive has the message and the inbox has not; the page sends it again until it hears of it."""
    house.anthropic.script = [says("one"), says("other one")]
    assert (await page.say("a", message="m_first_of_all")).status_code == 200
    await page.answers(1)
    body = MessageBody(text="A", agent="helper", instead="m_first_of_all")
    await house.gateway.runtime.store.archive.keep(CHAT, "m_second_one", body, 1.0)
    for _ in range(3):
        assert await instead(page, "A", "m_first_of_all", message="m_second_one") == (200, "")
    await page.answers(2)
    await house.idle()
    seen = await page.conversation()
    assert [it["text"] for it in seen["messages"]] == ["A", "other one"]
    assert [len(it) for it in seen["versions"].values()] == [2]
    assert len(house.anthropic.requests) == 2
    assert "one" not in [part["text"] for it in house.anthropic.requests[1].body["messages"] for part in it["content"]]


async def test_branch_failure_stays_there_and_can_be_retried(house: Running, page: Page) -> None:
    house.anthropic.script = [says("one"), Fault(status=401), says("other one")]
    await page.say("a", message="m_first_of_all")
    await page.answers(1)
    assert await instead(page, "A", "m_first_of_all", message="m_second_one") == (200, "")
    failed = (await page.answers(2))[1]
    seen = await page.conversation()
    assert [it["text"] for it in seen["messages"]] == ["A", failed]
    assert seen["messages"][1]["turn"]["failed"] is True
    assert await instead(page, "A", "m_second_one") == (200, "")
    await page.answers(3)
    assert await shown(page) == ["A", "other one"]
    assert said(house, -1) == ["A"]
    (numbers,) = (await page.conversation())["versions"].values()
    for number, words in zip(numbers, (["a", "one"], ["A", failed], ["A", "other one"]), strict=True):
        assert (await page.http.patch(f"/api/chats/{CHAT}", json={"branch": number})).status_code == 200
        assert await shown(page) == words


async def test_branch_belongs_to_its_person(tmp_path: Path) -> None:
    async with (
        running(tmp_path, script=[says("one"), says("two")], more=SERVER, feishu=WEB) as house,
        opened(house.url, authorization=f"Bearer {'a' * 40}") as ann,
        opened(house.url, authorization=f"Bearer {'b' * 40}") as bob,
    ):
        await ann.say("a", message="m_first_of_all")
        await ann.answers(1)
        assert await instead(bob, "x", "m_first_of_all") == (404, "refused")
        number = (await ann.conversation())["messages"][0]["id"]
        assert (await bob.http.patch(f"/api/chats/{CHAT}", json={"branch": number})).status_code == 404
        assert await shown(ann) == ["a", "one"]
        assert await instead(ann, "A", "m_first_of_all") == (200, "")
        await ann.answers(2)
        assert (await bob.http.patch(f"/api/chats/{CHAT}", json={"branch": number})).status_code == 404
        assert await shown(ann) == ["A", "two"]
        for wrong, status in ((number + 1000, 404), (number, 200)):
            assert (await ann.http.patch(f"/api/chats/{CHAT}", json={"branch": wrong})).status_code == status
        assert await shown(ann) == ["a", "one"]


async def test_branch_versions_have_a_limit(tmp_path: Path) -> None:
    few = f"{FEISHU}  web: {{ versions: 2 }}\n"
    async with (
        running(tmp_path, script=[says("one"), says("two")], feishu=few) as house,
        opened(house.url) as page,
    ):
        await page.say("a", message="m_first_of_all")
        assert await instead(page, "A", "m_of_nobody") == (404, "no-such-message")
        assert await instead(page, "A", "m_first_of_all") == (200, "")
        assert await instead(page, "AA", "m_first_of_all") == (409, "too-many-versions")
        await page.answers(2)
        assert await shown(page) == ["A", "two"]


async def test_branch_is_deleted_with_its_conversation(house: Running, page: Page) -> None:
    house.anthropic.script = [says(SECRET), says(f"{SECRET}!"), says("plain")]
    await page.say(SECRET, message="m_first_of_all")
    await page.answers(1)
    for text, count in ((f"{SECRET}?", 2), ("harmless", 3)):
        assert await instead(page, text, "m_first_of_all") == (200, "")
        await page.answers(count)
    await house.idle()
    assert await shown(page) == ["harmless", "plain"]
    found = (await page.http.get(f"/api/search?words={SECRET}")).json()["chats"]
    assert len(found[0]["hits"]) == 3
    await erase(page)
    assert rows_with(house.folder, SECRET) == []
    assert rows_with(house.folder, CHAT) == []


@pytest.mark.parametrize(
    ("mode", "asked"), [("collect", [["a", "one", "b"], ["A"]]), ("steer", [["a", "So", "b"], ["A"]])]
)
async def test_branch_edit_joins_no_running_turn(tmp_path: Path, mode: str, asked: list[list[str]]) -> None:
    first = says("one") if mode == "collect" else calls(("ls", {"path": "."}), before="So")
    more = f"queue: {{ mode: {mode}, debounceSeconds: 0.01 }}"
    async with (
        running(tmp_path, script=[first, says("two"), says("other one")], more=more, feishu=WEB) as house,
        opened(house.url) as page,
    ):
        house.line.hold()
        await page.say("a", message="m_first_of_all")
        await house.until(lambda: house.line.holding)
        await page.say("b", message="m_second_one")
        assert await instead(page, "A", "m_first_of_all") == (200, "")
        house.line.release()
        await page.answers(2 if mode == "steer" else 3)
        await house.idle()
        assert [said(house, it) for it in (1, 2)] == asked
        assert await shown(page) == ["A", "other one"]


SID = f"agent:helper:web:default:{CHAT}"


def echo(body: Mapping[str, Any]) -> Turn:
    """Answer with the last word of the newest message."""
    return says(f"re {words_in(body['messages'][-1:])[-1]}")


def words_in(texts: Iterable[object]) -> list[str]:
    return re.findall(r"\bw\d+\b", str([*texts]).replace("\\n", " "))


@dataclass
class Exchange:
    """A turn, and the person's message that it follows. `words`: what a later request holds of it."""

    words: set[str]
    of: str
    kind: str = "said"
    undone: bool = False


@dataclass
class Talk:
    """A person at the page who says, edits, switches and commands, while tasks report and schedules come due. It knows what
    each branch should hold."""

    house: Running
    page: Page
    before: dict[str, str] = field(default_factory=dict)
    """People's messages, in order, each with the one that it follows."""
    texts: dict[str, str] = field(default_factory=dict)
    turns: list[Exchange] = field(default_factory=list)
    tip: str = ""
    written: int = 0
    """What the bot has sent."""
    number: int = 0

    @property
    def path(self) -> list[str]:
        return self.path_to(self.tip)

    def path_to(self, key: str) -> list[str]:
        path = list[str]()
        while key:
            path, key = [key, *path], self.before[key]
        return path

    @property
    def branch(self) -> list[Exchange]:
        return [it for it in self.turns if it.of in self.path]

    @property
    def history(self) -> list[Exchange]:
        """The turns of the branch that a request holds."""
        branch = self.branch
        begin = max((n for n, it in enumerate(branch, 1) if it.kind == "new"), default=0)
        return [it for it in branch[begin:] if not it.undone]

    def word(self) -> str:
        self.number += 1
        return f"w{self.number}"

    async def step(self, what: str, chance: random.Random) -> None:
        last = self.history[-1] if self.history else None
        if not self.before or (what in ("/retry", "/edit") and (last is None or last.kind != "said")):
            what = "say"
        of, word = chance.choice([*self.before, ""]), self.word()
        match what:
            case "say":
                await self.say(word, asks=True)
            case "edit" if of:
                await self.say(word, other_than=of, asks=True)
            case "switch" if of:
                await self.switch(of)
            case "/retry" if last:
                await self.say("/retry", asks=True, again=last, word=max(last.words, key=lambda it: int(it[1:])))
            case "/edit" if last:
                await self.say(f"/edit {word}", asks=True, again=last, word=word)
            case "/undo":
                await self.say("/undo", undoes=last)
            case "/new":
                await self.say("/new", begins=True)
            case "report":
                asked = chance.choice([it for it in self.turns if it.kind == "said"])
                await self.report(asked, word)
            case "schedule" | "asked":
                await self.schedule(word, asks=what == "asked")
        await self.check()

    async def say(
        self,
        text: str,
        *,
        other_than: str = "",
        asks: bool = False,
        again: Exchange | None = None,
        undoes: Exchange | None = None,
        begins: bool = False,
        word: str = "",
    ) -> None:
        key = new_id()
        self.before[key] = self.before[other_than] if other_than else self.tip
        self.tip, self.texts[key] = key, text
        held, requests = self.history, len(self.house.anthropic.requests)
        if other_than:
            assert await instead(self.page, text, other_than, message=key) == (200, "")
        else:
            assert (await self.page.say(text, message=key)).status_code == 200
        if undoes:
            undoes.undone = True
        if begins:
            self.turns.append(Exchange(words=set(), of=key, kind="new"))
        if again:
            again.undone = True
            held = [it for it in held if it is not again]
        await self.sent()
        if asks:
            word = word or text
            self.asked(requests, held, word)
            self.turns.append(Exchange(words={word}, of=again.of if again else key))

    async def switch(self, of: str) -> None:
        messages = await self.house.gateway.runtime.store.archive.messages([*range(1, 2_000)])
        number = next(it.number for it in messages if it.key == of)
        assert (await self.page.http.patch(f"/api/chats/{CHAT}", json={"branch": number})).status_code == 200
        ends = (it for it in reversed(self.before) if it not in self.before.values())
        self.tip = next(it for it in ends if of in self.path_to(it))

    async def report(self, asked: Exchange, word: str) -> None:
        """A task that was asked for in a message reports its end."""
        runtime = self.house.gateway.runtime
        task = Task(
            id=f"task{word}",
            parent=SID,
            sid=f"{SID}:task:{word}",
            chat=f"web:default:{CHAT}",
            person="web:local",
            agent="helper",
            title=word,
            turn=0,
            origin=context_json.dump_json(context(asked.of)).decode(),
            started=0.0,
        )
        await runtime.store.tasks.begin(word, [task], 99)
        (ended,) = await runtime.store.tasks.stop([task.id], 0, 1.0)
        await runtime.accept(self.house.gateway.tasks.report_of(ended))
        self.turns.append(Exchange(words={word}, of=asked.of, kind="report"))
        await self.sent()

    async def schedule(self, word: str, *, asks: bool) -> None:
        runtime, requests = self.house.gateway.runtime, len(self.house.anthropic.requests)
        due = replace(context(""), text=word, origin=Origin(kind="schedule", id="R-1", run=word))
        inbound = Inbound(agent="helper", context=due, command=None if asks else SAY)
        await runtime.accept(origin_delivery(runtime, inbound, f"later:{word}"))
        held = self.history
        self.turns.append(Exchange(words={word}, of=self.tip, kind="schedule"))
        await self.sent()
        if asks:
            self.asked(requests, held, word)

    async def sent(self) -> None:
        """Wait for the reply."""
        self.written += 1
        store = self.house.gateway.runtime.store

        async def replied() -> bool:
            rows = await store.archive.messages([*range(1, 2_000)])
            return sum(it.author == "agent" for it in rows) >= self.written

        await self.house.until(replied)
        await self.house.idle()

    def asked(self, requests: int, held: list[Exchange], word: str) -> None:
        """The model was asked once, with the branch and the new word."""
        (request,) = self.house.anthropic.requests[requests:]
        assert {*words_in(request.body["messages"])} == {it for turn in held for it in turn.words} | {word}

    async def check(self) -> None:
        """The page shows the same branch."""
        messages = (await self.page.conversation())["messages"]
        assert [it["text"] for it in messages if it["author"] == "you"] == [self.texts[it] for it in self.path]
        answers = {*words_in(it["text"] for it in messages if it["author"] == "agent")}
        assert answers >= {it for turn in self.branch if not turn.undone for it in turn.words}
        beside = {it for turn in self.turns if turn not in self.branch for it in turn.words}
        assert answers.isdisjoint(beside - {it for turn in self.branch for it in turn.words})


def context(message: str) -> MessageContext:
    return MessageContext(
        channel="web",
        account="default",
        chat=Chat(id=CHAT, kind="direct"),
        message_id=message,
        sender=Sender(id="local", name="User"),
        text="",
        sent_at=datetime(2026, 11, 27, tzinfo=UTC),
        language="en",
    )


STEPS = (
    ["say"] * 3 + ["edit"] * 3 + ["switch"] * 3 + ["/retry", "/edit", "/undo", "/new", "report", "schedule", "asked"]
)
SEEDS = [0, 1, *(pytest.param(it, marks=pytest.mark.long) for it in range(2, 8))]


@pytest.mark.parametrize("seed", SEEDS)
async def test_branch_that_the_page_shows_is_what_the_model_reads(tmp_path: Path, seed: int) -> None:
    """Whatever is said, edited, commanded, reported or due, and whichever branch is shown meanwhile."""
    chance = random.Random(seed)
    async with running(tmp_path, script=echo, feishu=WEB) as house, opened(house.url) as page:
        talk = Talk(house, page)
        for _ in range(20):
            await talk.step(chance.choice(STEPS), chance)


async def test_edit_on_the_page_leaves_earlier_tasks_running(tmp_path: Path) -> None:
    def model(body: dict[str, Any]) -> Turn:
        if "This is the task" in str(body["messages"]):
            return says("late", pause_seconds=60.0)
        asks = str(body["messages"][-1]["content"])
        return calls(("task", {"action": "start", "prompt": "work"})) if "do it" in asks else says("ok")

    async with (
        running(tmp_path, agents=AGENTS.replace("exec,", "exec, task,"), feishu=WEB, script=model) as house,
        opened(house.url) as page,
    ):
        for number, text in enumerate(("do it first", "do it second"), start=1):
            await page.say(text, message=f"m_number_{number}")
            await page.answers(number)
        await house.until(lambda: len(house.anthropic.requests) == 6)
        assert await instead(page, "leave it", "m_number_2") == (200, "")
        await page.answers(3)
        tasks = await house.gateway.runtime.store.tasks.of(SID)
        assert [it.state for it in tasks] == ["running", "running"]
        await page.say("/stop")
        await page.answers(4)
        tasks = await house.gateway.runtime.store.tasks.of(SID)
        assert [it.state for it in tasks] == ["stopped", "stopped"]
