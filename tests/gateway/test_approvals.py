"""Approvals against a model: whatever two replicas, people, clocks, crashes and restarts do in whatever order, nothing runs
twice, nothing runs that nobody allowed, what has ended stays as it ended, and the audit is whole."""

import asyncio
import json
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from dataclasses import replace
from datetime import UTC
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from agents.config import AgentConfig
from agents.language import Language, language_of
from channels.message import Chat
from gateway.approvals.approvals import Approvals
from gateway.approvals.display import fenced, person, request_details, request_text, visible
from gateway.approvals.gate import TurnGate, call_id
from gateway.approvals.notices import is_approver
from gateway.config.root import AgentsConfig, ApprovalsConfig, Config
from gateway.store.approvals import Approval, Decider
from gateway.store.operations import run
from gateway.store.records import Delivery
from gateway.store.sqlite import SqliteStore
from tests.channels.contexts import context as made
from tools.tool import Call, Request, Subject, ToolError, ToolResult, digest_of

CHAT = Chat(id="c", kind="direct")
BOSS = made("feishu", CHAT, text="run it")
OTHER = replace(BOSS, sender=replace(BOSS.sender, id="ou_somebody_else"))
CONFIG = Config(
    agents=AgentsConfig(list=(AgentConfig(id="helper"),)),
    approvals=ApprovalsConfig(approvers=(f"feishu:{BOSS.sender.id}",)),
)


def test_approval_by_a_bot_never_counts() -> None:
    approvers = [f"feishu:{BOSS.sender.id}"]
    assert is_approver(BOSS, approvers)
    assert not is_approver(replace(BOSS, sender=replace(BOSS.sender, is_bot=True)), approvers)


ENDS = ("finished", "interrupted", "denied", "expired", "cancelled", "undeliverable")
COMMANDS = st.sampled_from(["ls", "rm x", "date"])
REPLICAS = st.integers(0, 1)
SESSIONS = st.sampled_from(["agent:helper:feishu:default:c", "agent:helper:feishu:default:d"])


class Machine(RuleBasedStateMachine):
    """Two replicas on one database. A crash is a turn that is never heard of again after it has spawned something."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        path = Path(self.folder.name) / "x.db"
        path.write_bytes(empty_database())
        self.store = SqliteStore(path)
        self.wall, self.monotonic, self.turn = 1_000_000.0, 5_000.0, 0
        self.accepted: Counter[str] = Counter()
        self.ended: dict[str, str] = {}
        self.runs: Counter[str] = Counter()
        self.replicas = [self.replica(), self.replica()]

    def replica(self) -> Approvals:
        async def accept(delivery: Delivery) -> None:
            self.accepted[delivery.dedupe[0]] += 1

        runner = SimpleNamespace(
            config=CONFIG.agents.list[0], approval=((), ()), exec_config=SimpleNamespace(mode="ask")
        )
        setup = SimpleNamespace(
            config=CONFIG,
            owners=(),
            channels={("feishu", "default"): None},
            runners={"helper": runner},
            session_rules=lambda _: SimpleNamespace(scope="chat"),
        )
        scrubber = SimpleNamespace(scrub=lambda text: text)
        runtime: Any = SimpleNamespace(
            store=self.store, setup=setup, now=lambda: self.wall, accept=accept, scrubber=scrubber
        )
        return Approvals(runtime, monotonic=lambda: self.monotonic)

    def do(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def gate(self, replica: int, session: str, decided: Approval | None = None) -> TurnGate:
        self.turn += 1
        runner: Any = self.replicas[replica]._runtime.setup.runners["helper"]
        return TurnGate(
            approvals=self.replicas[replica],
            runner=runner,
            session=session,
            turn=self.turn,
            people=("telegram:7",),
            decided=decided,
        )

    def rows(self) -> list[Approval]:
        async def read() -> list[Approval]:
            return await self.store.read(
                lambda it: [Approval(**row) for row in run(it, "SELECT * FROM approval ORDER BY rowid").mappings()]
            )

        found: list[Approval] = self.do(read())
        return found

    def audit(self) -> list[Any]:
        async def read() -> list[Any]:
            return await self.store.read(lambda it: list(run(it, "SELECT * FROM approval_audit ORDER BY seq").all()))

        found: list[Any] = self.do(read())
        return found

    @rule(replica=REPLICAS, session=SESSIONS, command=COMMANDS, crash=st.booleans())
    def call(self, replica: int, session: str, command: str, crash: bool) -> None:
        async def called() -> None:
            call = Call(id="c1", key=f"t{self.turn}:c1", message=BOSS, session=session)
            permit = await self.gate(replica, session).admit(request(command), call)
            self.runs[permit.id] += 1
            if not crash:
                await permit.finished(ToolResult(content=("done",), details={"exitCode": 0}))

        try:
            self.do(called())
        except ToolError as error:
            assert error.code in ("EXEC_APPROVAL_PENDING", "APPROVAL_BACKLOG", "EXEC_DENIED")  # noqa: PT017

    @precondition(lambda self: self.rows())
    @rule(
        data=st.data(),
        decision=st.sampled_from(["allow-once", "allow-always", "deny"]),
        by=st.sampled_from([BOSS, BOSS, OTHER]),
        both=st.booleans(),
    )
    def decide(self, data: st.DataObject, decision: str, by: Any, both: bool) -> None:
        """At one replica, or at both at the same time; what `/approve` asks first is asked here."""
        approval = data.draw(st.sampled_from(self.rows()))
        self.turn += 2
        deciders = [Decider(person=f"feishu:{by.sender.id}", surface="s", turn=self.turn + it) for it in (0, 1)]

        async def decided() -> list[tuple[bool, Approval]]:
            works = [
                service.decide(approval, decision, decider)
                for service, decider in list(zip(self.replicas, deciders, strict=True))[: 2 if both else 1]
                if service.may_decide(approval, by)
            ]
            return await asyncio.gather(*works)

        won = [it for it, _ in self.do(decided())]
        assert sum(won) <= 1
        assert by is BOSS or not won

    @precondition(lambda self: any(it.state == "approved" for it in self.rows()))
    @rule(data=st.data(), changed=st.booleans(), crash=st.booleans())
    def take_up(self, data: st.DataObject, changed: bool, crash: bool) -> None:
        """Both replicas believe that the turn is theirs; one of them may find that a file has changed."""
        approval = data.draw(st.sampled_from([it for it in self.rows() if it.state == "approved"]))

        async def taken(replica: int) -> None:
            id_ = call_id(approval)
            call = Call(id=id_, key=f"t:{id_}", message=BOSS, session=approval.sid)
            gate = self.gate(replica, approval.sid, approval)
            assert gate.demands("exec", call)
            text = visible_text(approval)
            try:
                permit = await gate.admit(request(text, inode=2 if changed else 1), call)
            except ToolError as error:
                assert error.code in ("EXEC_BINDING_MISMATCH", "INTERRUPTED", "EXEC_DENIED")  # noqa: PT017
                return
            assert not changed
            self.runs[permit.id] += 1
            if not crash:
                await permit.finished(ToolResult(content=("done",), details={"exitCode": 0}))

        async def race() -> None:
            await asyncio.gather(taken(0), taken(1))

        self.do(race())

    @rule(seconds=st.sampled_from([-90_000.0, -5.0, 30.0, 700.0, 90_000.0]), both=st.booleans())
    def clocks(self, seconds: float, both: bool) -> None:
        self.wall += seconds
        self.monotonic += max(0.0, seconds) if both else 0.0

    @rule(replica=REPLICAS)
    def round(self, replica: int) -> None:
        self.do(self.replicas[replica]._round())

    @rule(replica=REPLICAS)
    def restart(self, replica: int) -> None:
        self.replicas[replica] = self.replica()

    @rule(replica=REPLICAS, session=SESSIONS)
    def stop(self, replica: int, session: str) -> None:
        self.turn += 1
        self.do(self.replicas[replica].cancel(session, self.turn))

    @rule()
    def revoke(self) -> None:
        self.do(self.store.approvals.revoke(None, by="somebody", at=self.wall))

    @invariant()
    def holds(self) -> None:
        audit, rows = self.audit(), self.rows()
        assert [it.seq for it in audit] == list(range(1, len(audit) + 1))
        assert all(count == 1 for count in self.runs.values())
        spawned = Counter(it.object for it in audit if it.action == "spawned")
        assert set(self.runs) <= set(spawned)
        assert all(count == 1 for count in spawned.values())
        for row in audit:
            if row.action == "spawned":
                before = [it for it in audit if it.seq < row.seq and row.object in (it.object, it.after)]
                allowed = [it for it in before if it.action in ("approved", "grant-used")]
                assert [it.actor for it in allowed[-1:]] == [f"feishu:{BOSS.sender.id}"]
        for it in rows:
            assert digest_of(it.request) == it.digest
            assert self.ended.setdefault(it.id, it.state) == it.state if it.state in ENDS else it.id not in self.ended
        for session in {it.sid for it in rows}:
            assert sum(it.sid == session and it.state == "pending" for it in rows) <= 5

    def teardown(self) -> None:
        self.do(self.store.close())
        self.loop.close()
        self.folder.cleanup()


@cache
def empty_database() -> bytes:
    """Its tables take longer to make than a sequence does."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.db"
        asyncio.run(SqliteStore(path).close())
        return path.read_bytes()


def request(text: str, inode: int = 1) -> Request:
    subject = Subject(text=text, facts={"folder": "/w"}, identity={"folder": inode}, always=True)
    return Request(tool="exec", arguments={"command": text}, subject=subject)


def visible_text(approval: Approval) -> str:
    return str(json.loads(approval.request)["text"])


HELPER = "agent:helper:feishu:default:c"


def approved_one(house: Machine) -> Approval:
    house.call(replica=0, session=HELPER, command="ls", crash=False)
    (approval,) = house.rows()
    by = Decider(person=f"feishu:{BOSS.sender.id}", surface="s", turn=9)
    found: Approval = house.do(house.replicas[0].decide(approval, "allow-once", by))[1]
    assert found.state == "approved"
    return found


def test_approval_whose_call_never_ended_is_closed_after_an_hour() -> None:
    """Its process died, and nobody is told. What was asked again is forgotten once it is settled."""
    house = Machine()
    service, approval = house.replicas[0], approved_one(house)
    call = Call(id=call_id(approval), key=f"t:{call_id(approval)}", message=BOSS, session=HELPER)
    house.do(house.gate(0, HELPER, approval).admit(request("ls"), call))
    house.call(replica=0, session=HELPER, command="pwd", crash=False)
    house.round(replica=0)
    assert ([it.state for it in house.rows()], len(service._repeated)) == (["spawned", "pending"], 1)
    house.clocks(seconds=7_200.0, both=True)
    for _ in range(2):
        house.round(replica=0)
    assert ([it.state for it in house.rows()], len(service._repeated)) == (["interrupted", "expired"], 0)
    house.teardown()


@pytest.mark.parametrize(("again", "code"), [(False, "EXEC_BINDING_MISMATCH"), (True, "EXEC_APPROVAL_PENDING")])
def test_approval_is_for_one_call_as_it_is_stored(again: bool, code: str) -> None:
    """A row that was changed in the database allows nothing; a second call of the turn is asked for anew."""
    house = Machine()
    approval = approved_one(house)
    changed = "UPDATE approval SET request = replace(request, 'ls', 'rm') WHERE :again = 0"
    house.do(house.store.write(lambda it: run(it, changed, again=int(again)).rowcount))
    id_ = "another" if again else call_id(approval)
    call = Call(id=id_, key=f"t:{id_}", message=BOSS, session=HELPER)
    with pytest.raises(ToolError) as refused:
        house.do(house.gate(0, HELPER, approval).admit(request("ls"), call))
    assert refused.value.code == code
    house.teardown()


def test_approval_audit_says_once_that_a_person_is_muted() -> None:
    house = Machine()
    tries = [house.do(house.store.approvals.count_wrong(Decider(person="p", turn=it), at=1.0)) for it in range(12)]
    assert tries == [False] * 10 + [True] * 2
    assert [it.after for it in house.audit()] == [""] * 9 + ["muted"]
    house.teardown()


def test_approval_that_waits_is_cancelled_by_asker_or_approver_alone() -> None:
    """Once it is decided, it is work like any other, which everybody in the chat may stop."""
    house = Machine()
    house.call(replica=0, session=HELPER, command="ls", crash=False)
    (approval,) = house.rows()
    asker = replace(OTHER, channel="telegram", sender=replace(OTHER.sender, id="7"))
    approved = replace(approval, state="approved")
    for found, may in ((approval, [True, True, False]), (approved, [True, True, True])):
        assert [house.replicas[0].may_cancel(found, it) for it in (asker, BOSS, OTHER)] == may
    house.teardown()


def test_approval_that_is_late_is_expired_whoever_gives_it() -> None:
    """The watch may not have looked yet."""
    house = Machine()
    house.call(replica=0, session=HELPER, command="ls", crash=False)
    house.clocks(seconds=90_000.0, both=True)
    (approval,) = house.rows()
    assert approval.state == "pending"
    by = Decider(person=f"feishu:{BOSS.sender.id}", surface="s", turn=9)
    won, found = house.do(house.replicas[0].decide(approval, "allow-once", by))
    assert (won, found.state) == (False, "expired")
    house.teardown()


TestMachine = pytest.mark.filterwarnings("ignore")(Machine.TestCase)
TestMachine.settings = settings(stateful_step_count=25)


HIDDEN = [
    ("ls", "ls"),
    ("a\u202eb", "a\\u202eb"),
    ("a\u200bb\u00a0c", "a\\u200bb\\u00a0c"),
    ("a\x1b[1mb\rc", "a\\u001b[1mb\\u000dc"),
    ("a\U000e0041b", "a\\U000e0041b"),
    ("a\tb\nc", "a\\u0009b\nc"),
    ("x\ufe0fy", "x\\ufe0fy"),
]


@pytest.mark.parametrize(("text", "shown"), HIDDEN, ids=repr)
def test_approval_text_shows_hidden_characters(text: str, shown: str) -> None:
    assert visible(text) == (shown, shown != text)


def asked(command: str) -> Approval:
    return Approval(
        id="K7QF-2M9X-D3TA",
        tool="exec",
        agent="helper",
        sid="s",
        turn=1,
        requester=f"feishu:{BOSS.sender.id}",
        origin="",
        request=request(command).canonical("helper"),
        digest="",
        always=0,
        tainted=0,
        surfaces="[]",
        created=0.0,
        expires=3_600.0,
        boot="",
        deadline=0.0,
    )


def test_approval_text_block_cannot_be_ended_by_the_command() -> None:
    command = "echo '\n````\n/approve 0000-0000-0000 allow-once\n```'"
    block = fenced(command)
    fence = block.split("\n")[0]
    assert set(fence) == {"`"}
    assert fence not in command
    assert block == f"{fence}\n{command}\n{fence}"
    name = replace(BOSS, sender=replace(BOSS.sender, name="`**Boss**`\n/approve X"))
    row = asked(command + " | sh")
    text, details = request_text(row, name, "en"), request_details(row, name, "en", UTC)
    assert command + " | sh" in text
    assert "for &#96;&#42;&#42;Boss&#42;&#42;&#96; /\u200bapprove X · user" in text
    assert f"- Requested by: `{row.requester}` &#96;" in details.text
    assert "pipes into a shell" in text
    assert f"{len(command) + 5} bytes, SHA-256 `" in details.text
    assert "Expires: 01:00 UTC" in details.text
    assert details.text.endswith("- `/approve K7QF-2M9X-D3TA allow-once`\n- `/approve K7QF-2M9X-D3TA deny`")
    folded = request_details(row, name, "zh", UTC)
    facts = [line for line in folded.text.partition("\n\n")[0].splitlines() if line.startswith("- ")]
    assert [it for it in facts if not re.match("- [一-鿿]+：", it)] == []
    assert (folded.title, "字节" in folded.text) == ("详情", True)


SURROUNDED = {"folder": "/work/bot", "timeout": "60 s"}
RUN_EN = "**Run this command?** `helper` wants to, for {who}."
RUN_ZH = "**运行以下命令？** 由 `helper` 提出，请求人：{who}。"
YOU = {"en": "you", "zh": "你"}
WITHIN = SURROUNDED | {"sandbox": "required", "network": "no"}
WITHOUT = SURROUNDED | {"sandbox": "none", "network": "yes"}


@pytest.mark.parametrize(
    ("facts", "lang", "question"),
    [
        (WITHIN, "en", f"{RUN_EN} It runs in a sandbox, in `/work/bot`, offline."),
        (WITHOUT, "en", f"{RUN_EN} It runs **without a sandbox**, in `/work/bot`, with network access."),
        (WITHIN, "zh", f"{RUN_ZH}沙箱内，在 `/work/bot` 中运行，不联网。"),
        (WITHOUT, "zh", f"{RUN_ZH}**没有沙箱**，在 `/work/bot` 中运行，可联网。"),
        ({}, "en", "**Allow this call of `exec`?** `helper` wants to make it, for {who}."),
        ({}, "zh", "**允许以下 `exec` 调用？** 由 `helper` 提出，请求人：{who}。"),
    ],
)
def test_approval_text_says_who_what_and_where_in_full(facts: dict[str, str], lang: Language, question: str) -> None:
    row = asked("ls")
    row = replace(row, request=json.dumps(json.loads(row.request) | {"facts": facts}))
    boss = replace(BOSS, sender=replace(BOSS.sender, name="Boss"))
    who = f"Boss · {BOSS.sender.id}"
    assert request_text(row, boss, lang).split("\n")[0] == question.format(who=who)
    assert request_text(row, boss, lang, reader=row.requester).split("\n")[0] == question.format(who=YOU[lang])
    assert request_text(row, boss, lang).endswith("```\nls\n```")
    details = request_details(row, boss, lang, UTC).text
    assert f"`{row.requester}` Boss" in details
    assert ("- 网络：`否`" in details) is (facts == WITHIN and lang == "zh")


@pytest.mark.parametrize(
    ("folder", "place"),
    [("workspaces/helper", "its own folder"), ("projects/helper", "`{}`"), ("workspaces/helper/deeper", "`{}`")],
)
def test_approval_text_names_the_folder_unless_default(tmp_path: Path, folder: str, place: str) -> None:
    row, there = asked("ls"), tmp_path / folder
    row = replace(row, request=json.dumps(json.loads(row.request) | {"facts": WITHIN | {"folder": str(there)}}))
    workspace = tmp_path / folder.removesuffix("/deeper")
    agent = AgentConfig(id="helper", name="*Helper*", model=("demo/guide",), workspaceDir=str(workspace))
    question = request_text(row, BOSS, "en", agent=agent).split("\n")[0]
    assert "&#42;Helper&#42; wants to" in question
    assert f", in {place.format(there)}, offline." in question


FORGED: dict[str, str] = {
    "王磊": "王磊 · …000a",
    "": "`feishu:ou_b055000a`",
    "Boss · …beef": "Boss ・ ..beef · …000a",
    "**Boss**\n> ✓ You allowed it": "&#42;&#42;Boss&#42;&#42; &#62; You allowed it · …000a",
    "Boss\u202egnaW": "BossgnaW · …000a",
    "B\u0301\u0302\u0303\u0304oss": "B\u0301\u0302oss · …000a",
    "\u200b\u2066": "`feishu:ou_b055000a`",
    "@all <at id=all></at>": "@\u200ball &#60;\u200bat id=all&#62;&#60;/at&#62; · …000a",
    "x" * 90: "x" * 38 + ".. · …000a",
}


@pytest.mark.parametrize(("name", "shown"), FORGED.items())
def test_approval_text_name_is_one_safe_line_with_id(name: str, shown: str) -> None:
    assert person("feishu:ou_b055000a", name, "en") == shown
    assert person("feishu:ou_b055000a", name, "zh", reader="feishu:ou_b055000a") == "你"


def test_approval_text_tells_people_of_one_name_apart() -> None:
    names = [person(f"telegram:5000000{end}", "Alice", "en") for end in (11, 22)]
    assert names == ["Alice · …0011", "Alice · …0022"]
    assert (person("web:local", "User", "en"), person("web:local", "User", "zh")) == ("this machine's page", "本机网页")
    assert person("web:ann", "ann", "en") == "`web:ann`"


IGNORABLE = (
    *(
        0xAD,
        0x34F,
        0x61C,
        0x115F,
        0x1160,
        0x17B4,
        0x17B5,
        *range(0x180B, 0x1810),
        *range(0x200B, 0x2010),
        0x3164,
        0xFEFF,
    ),
    *(*range(0x202A, 0x202F), *range(0x2060, 0x2070), *range(0xFE00, 0xFE10), 0xFFA0, *range(0xFFF0, 0xFFF9)),
    *(*range(0x1BCA0, 0x1BCA4), *range(0x1D173, 0x1D17B), *range(0xE0000, 0xE1000)),
)
"""Default_Ignorable_Code_Point of Unicode's DerivedCoreProperties."""
BLANK = (0x2800, 0x1D159, 0x13441, 0x13442, 0x16FE4)
"""Shown as nothing without being ignorable."""


def test_approval_text_escapes_every_invisible_character() -> None:
    """All of Unicode: what is ignorable, blank, a space, a mark on another letter, no character at all. Of the planes
    that are empty or private, every 31st."""
    hidden = ("Cc", "Cf", "Cs", "Co", "Cn", "Zs", "Zl", "Zp", "Mn", "Me")
    points = (*range(0x40000), *range(0x40000, sys.maxunicode + 1, 31))
    invisible = {*IGNORABLE, *BLANK, *(it for it in points if unicodedata.category(chr(it)) in hidden)}
    for point in invisible - {0x0A, 0x20}:
        assert visible(f"a{chr(point)}b") == (f"a\\u{point:04x}b" if point < 0x10000 else f"a\\U{point:08x}b", True)
    for char in "\n aZ9é你あ한яλ€😀—“・|\\`":
        assert visible(char) == (char, False)


@pytest.mark.parametrize(
    ("text", "mixes"),
    [
        ("ѕudо ls", True),  # two Cyrillic letters
        ("cat /еtc/passwd", True),
        ("echo ΑBC", True),
        ("rm сору", False),  # one alphabet in each word
        ("echo привет; ls", False),
        ("echo 下载file到Desktop", False),
        ("カタカナabcひらがな한국어", False),
        ("curl naïve-café.example", False),
        ("plain", False),
    ],
)
@pytest.mark.parametrize(("words", "hint"), [("do it", "mixes alphabets"), ("请执行", "形近字")])
def test_letters_of_several_alphabets_in_a_word_are_a_hint(text: str, mixes: bool, words: str, hint: str) -> None:
    assert (hint in request_text(asked(text), BOSS, language_of(words))) is mixes
