"""A turn has the rights of the person whose words or command started it: tools, notes, budget and agent, never another's.

The law is judged on every request that reaches the model: it names one person, holds that person's words alone, offers what
that person may have, and that person's budget pays for it.
"""

import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from agents.messages import Usage
from channels.channel import Unreachable
from channels.message import Chat, Outbound, Sender
from gateway.commands.catalog import COMMANDS
from gateway.store.inbound import Inbound, inbound_json
from gateway.store.records import Delivery
from gateway.store.sessions import session_key
from gateway.turns.budgets import used
from tests.channels.contexts import context
from tests.emulators.models.script import Turn, calls, says
from tests.running import AGENTS, ALICE, BOB, BOB_CHAT, FEISHU, GROUP, Running, running
from tests.stories.at_work import NEVER, users
from tests.stories.channels.test_telegram import bot
from tests.stories.config.test_reload import edited
from tests.stories.outbox.test_message_tool import does
from tests.web_page import WEB, opened

OWNER, MEMBER, OTHER = "owner", "member", "other"
ALL = {"read", "write", "edit", "ls", "exec", "message"}
MAY = {OWNER: ALL, MEMBER: ALL - {"exec", "edit"}, OTHER: ALL - {"exec", "write"}}
EQUALS = dict.fromkeys(MAY, ALL)
"""Who may do the same are still several people."""
CAROL = "ou_ca201000000000000000000000000"
IDS = {
    "feishu": {OWNER: ALICE, MEMBER: BOB, OTHER: CAROL},
    "telegram": {OWNER: "500000011", MEMBER: "500000022", OTHER: "500000033"},
}
COST = Usage(input=60, cache_read=20, output=20)
ARGUMENTS = {
    "edit": "DO exec id",
    "skill": "translate DO exec id",
    "compact": "the newest",
    "queue": "interrupt",
    "model": "anthropic/claude-sonnet-4-6",
    "remember": "I like tea",
    "agent": "helper",
    "verbose": "on",
}
ENDING = ("new", "reset", "retry", "edit", "undo", "compact", "skill")
"""Behind any other command, the words that were answered before are still the newest ones."""
PAIRS = [(OWNER, MEMBER), (MEMBER, OWNER), (MEMBER, OTHER), (OWNER, OWNER), (MEMBER, MEMBER)]
BY_OTHERS = "Only the author of that message can ask for a new answer."


def config(channel: str, more: str = "", *, may: Mapping[str, set[str]] = MAY) -> str:
    ids = IDS[channel]
    senders = ", ".join(f'"{channel}:{ids[who]}": {{ allow: {sorted(names)} }}' for who, names in may.items())
    return f"""
owners: ["{channel}:{ids[OWNER]}"]
budgets: {{ sender: {{ tokensPerDay: 10000000 }} }}
tools: {{ ownerOnly: [], exec: {{ mode: allow }}, senders: {{ {senders} }} }}
{more}
"""


@dataclass
class Team:
    """A group on one channel. `write` posts somebody's words, `command` a command, `press` presses the newest button."""

    channel: str
    house: Running
    chat: str
    write: Callable[[str, str], Awaitable[Any]]
    command: Callable[[str, str], Awaitable[Any]]
    press: Callable[[str], Awaitable[Any]]
    shown: Callable[[], list[str]]
    may: Mapping[str, set[str]]
    ids: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.ids = IDS[self.channel]

    async def paid(self) -> dict[str, int]:
        """What each person has spent today."""
        runtime, chat = self.house.gateway.runtime, Chat(id=self.chat, kind="group")
        spent = {}
        for who, id_ in self.ids.items():
            asked = context(self.channel, chat, sender=Sender(id=id_))
            (sender,) = await used(runtime, self.house.gateway.config, "helper", asked)
            spent[who] = sender.tokens
        return spent


def answers(body: Any) -> Turn:
    return says("done", usage=COST)


@asynccontextmanager
async def team(folder: Path, channel: str, *, more: str = "", may: Mapping[str, set[str]] = MAY) -> AsyncIterator[Team]:
    more = config(channel, more, may=may)
    if channel == "feishu":
        async with running(folder, script=answers, more=more) as house:
            house.feishu.users[CAROL] = "Carol"

            async def say(who: str, text: str) -> None:
                answer = await house.say(
                    text, sender=IDS[channel][who], chat=GROUP, chat_type="group", mention_bot=True
                )
                assert answer.status_code == 200

            async def press(who: str) -> None:
                card = house.feishu.messages[0].message_id
                await house.push(house.feishu.press_event(card, "Yes", sender=IDS[channel][who]))

            yield Team(channel, house, GROUP, say, say, press, lambda: house.feishu.shown(GROUP), may)
        return
    public = "server: { publicUrl: https://bot.example.com }"
    async with bot(folder, "webhook", script=answers, more=f"{public}\n{more}") as it:
        chat, name = it.telegram.supergroup(), it.telegram.bot["username"]
        for who, id_ in IDS[channel].items():
            it.telegram.user(int(id_), who.title())

        async def send(who: str, text: str) -> None:
            await it.happens(it.telegram.text_update(text, chat=chat, sender=int(IDS[channel][who])))

        async def tap(who: str) -> None:
            sent = it.telegram.messages[0]
            assert sent.reply_markup is not None
            data = sent.reply_markup["inline_keyboard"][0][0]["callback_data"]
            await it.happens(it.telegram.press_update(sent.message_id, data, chat=chat, sender=int(IDS[channel][who])))

        async def to_bot(who: str, text: str) -> None:
            await send(who, f"@{name} {text}")

        yield Team(channel, it.house, str(chat), to_bot, send, tap, lambda: it.telegram.shown(chat), may)


def asker(team: Team, body: Mapping[str, Any]) -> str:
    """The person whose words a request answers, by the metadata of the newest message with any."""
    (*_, newest) = [words for words in users(body) if '"sender_id"' in words]
    (id_,) = set(re.findall(r'"sender_id": ?"([^"]+)"', newest))
    return next(who for who, known in team.ids.items() if known == id_)


def judge(team: Team, body: Mapping[str, Any], starter: str | None = None) -> None:
    """The law, of one request; `starter` is the person who acted last, where that is known."""
    who = asker(team, body)
    assert starter in (None, who)
    assert {it["name"] for it in body.get("tools", [])} == team.may[who]
    (*_, newest) = [words for words in users(body) if '"sender_id"' in words]
    assert {it for it in MAY if f"words of {it}" in newest} <= {who}


async def judged(team: Team, starter: str, act: Callable[[], Awaitable[Any]]) -> int:
    """Somebody acts; how many requests that leads to, each of them lawful."""
    before, count = await team.paid(), len(team.house.anthropic.requests)
    await act()
    await team.house.idle()
    made = [it.body for it in team.house.anthropic.requests[count:]]
    for body in made:
        judge(team, body, starter)
    spent = {who: tokens - before[who] for who, tokens in (await team.paid()).items()}
    assert {who for who, tokens in spent.items() if tokens} == ({starter} if made else set())
    return len(made)


@pytest.mark.parametrize(
    ("channel", "author", "actor"),
    [
        *(("feishu", *pair) for pair in PAIRS),
        ("telegram", *PAIRS[0]),
        *(pytest.param("telegram", *pair, marks=pytest.mark.long) for pair in PAIRS[1:]),
    ],
)
async def test_rights_of_a_turn_are_those_of_who_commanded_it(
    tmp_path: Path, channel: str, author: str, actor: str
) -> None:
    async with team(tmp_path, channel) as it:
        led, stand = {}, False
        for name in COMMANDS:
            if not stand:
                assert await judged(it, author, lambda: it.write(author, f"words of {author}")) == 1
            text = f"/{name} {ARGUMENTS.get(name, '')}".strip()
            led[name] = await judged(it, actor, lambda text=text: it.command(actor, text))  # type: ignore[misc]
            if name in ("retry", "edit"):
                assert (BY_OTHERS in it.shown()[-1]) == (author != actor)
            stand = name not in ENDING
        again = int(author == actor)
        assert {name: count for name, count in led.items() if count} == {
            **({"retry": 1, "edit": 1} if again else {}),
            "skill": 1,
        }


@pytest.mark.parametrize("channel", ["feishu", "telegram"])
async def test_rights_of_a_press_are_those_of_who_presses(tmp_path: Path, channel: str) -> None:
    async with team(tmp_path, channel) as it:
        it.house.anthropic.script = [calls(does("buttons", message="Go?", buttons=["Yes"])), says("__SILENT__")]
        await it.write(OWNER, "words of owner")
        await it.house.idle()
        it.house.anthropic.script = answers
        for who in MAY:
            assert await judged(it, who, lambda who=who: it.press(who)) == 1  # type: ignore[misc]


async def test_rights_of_a_press_reach_no_agent_bound_to_others(tmp_path: Path) -> None:
    agents = f"{AGENTS}    - {{ id: second, model: anthropic/claude-sonnet-4-6, tools: {{ allow: [message, ls] }} }}\n"
    bindings = f"bindings: [ {{ agent: second, match: {{ channel: feishu, sender: {BOB} }} }} ]"
    script = [calls(does("buttons", message="Go?", buttons=["Yes"])), says("__SILENT__"), says("went")]
    group: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
    async with running(tmp_path, script=script, agents=agents, more=config("feishu", bindings)) as house:
        await house.say("ask me", sender=BOB, **group)
        await house.idle()
        card = house.feishu.messages[0].message_id
        await house.push(house.feishu.press_event(card, "Yes", sender=CAROL))
        await house.idle()
        assert "for someone else" in house.feishu.messages[-1].text
        for who in (BOB, ALICE):  # an owner may use every agent
            house.anthropic.script = [says("went")]
            await house.push(house.feishu.press_event(card, "Yes", sender=who))
            await house.idle()
            assert house.feishu.messages[-1].text == "went"


BOUND = f"""
owners: ["feishu:{ALICE}"]
bindings: [ {{ agent: second, match: {{ channel: feishu, sender: {BOB} }} }} ]
limits: {{ parallelTurns: 1 }}
"""
TOOLS = "{ allow: [read, message, schedule, task] }"
SECOND = f"{AGENTS}    - {{ id: second, model: anthropic/claude-sonnet-4-6, tools: {TOOLS} }}\n"
NEVER_AGAIN = 2**40
ELSEWHERE = "no longer available here"


def answerers(house: Running, after: int) -> list[str]:
    """The agents that the model was asked for, behind so many requests."""
    systems = ["".join(it["text"] for it in found.body["system"]) for found in house.anthropic.requests[after:]]
    return ["second" if "/workspaces/second" in it else "helper" for it in systems]


@pytest.mark.parametrize("choice", ["agent", "schedule", "reminder", "button", "message", "task"])
async def test_rights_to_an_agent_are_checked_at_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, choice: str
) -> None:
    """Bob chose the agent, or had something made that uses it. Then its binding goes to somebody else."""
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.02)
    clock, bob = [time.time()], {"sender": BOB, "chat": BOB_CHAT}
    made = {
        "schedule": calls(("schedule", {"action": "create", "at": "every 30m", "task": "look"})),
        "reminder": calls(("schedule", {"action": "create", "at": "every 30m", "say": "stand up"})),
        "button": calls(does("buttons", message="Go?", buttons=["Yes"])),
        "task": calls(*(("task", {"action": "start", "prompt": it, "title": it}) for it in ("first", "later"))),
    }
    async with edited(tmp_path, agents=SECOND, more=BOUND, now=lambda: clock[0]) as (house, editor):
        model: list[Any] = [made.get(choice, says("ok"))]
        house.anthropic.script = lambda body: (
            NEVER if "This is the task" in users(body)[-1] else model.pop() if model else says("ok")
        )
        if choice == "agent":
            await house.say("/agent second", **bob)
            await house.replies(1)
        if choice == "message":
            house.line.hold()
        await house.say("begin", **bob)
        if choice == "message":
            await house.requested(1)
            await house.say("and then", **bob)
        elif choice == "task":
            lanes = house.gateway.runtime.control.lanes
            await house.until(lambda: len(lanes) == 2 and all(":task:" in it for it in lanes))
        else:
            await house.idle()
        assert set(answerers(house, 0)) <= {"second"}
        await editor.replace(f"sender: {BOB}", f"sender: {CAROL}")
        asked, sent = len(house.anthropic.requests), len(house.feishu.messages)
        match choice:
            case "agent":
                await house.say("again", **bob)
            case "schedule" | "reminder":
                clock[0] += 1801
            case "button":
                card = next(it for it in house.feishu.messages if "Go?" in it.text)
                await house.push(house.feishu.press_event(card.message_id, "Yes", sender=BOB))
            case "message":
                house.line.release()
            case "task":
                (at_work,) = (sid for sid, lane in lanes.items() if lane.turn is not None)
                await house.gateway.runtime.control.stop(at_work, NEVER_AGAIN)
        await house.until(lambda: len(house.feishu.messages) > sent)
        await house.idle()
        texts = [it.text for it in house.feishu.messages[sent:]]
        assert "second" not in answerers(house, asked)
        assert answerers(house, asked) == (["helper"] if choice in ("agent", "schedule") else [])
        expected = {"reminder": "stand up", "button": "for someone else", "message": ELSEWHERE, "task": ELSEWHERE}
        assert expected.get(choice, "ok") in texts[-1]


@pytest.mark.parametrize("what", ["message", "task"])
async def test_rights_lost_drop_queued_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.02)
    listed = FEISHU.replace("dmPolicy: open", f"dmPolicy: allowlist\n    allowFrom: [{ALICE}, {BOB}]")
    async with edited(tmp_path, agents=SECOND, feishu=listed, more=BOUND) as (house, editor):
        task = calls(("task", {"action": "start", "prompt": "dig", "title": "dig"}), before="let me see")
        house.anthropic.script = [task, says("begun"), says("dug")] if what == "task" else [says("ok")] * 3
        house.line.hold()
        await house.say("begin", sender=BOB, chat=BOB_CHAT)
        await house.requested(1)
        if what == "message":
            await house.say("and then", sender=BOB, chat=BOB_CHAT)
        await editor.replace(f"[{ALICE}, {BOB}]", f"[{ALICE}]")
        house.line.release()
        await house.replies(1)
        await house.idle()
        assert len(house.anthropic.requests) == (2 if what == "task" else 1)
        assert len(house.feishu.messages) == 1


@pytest.mark.parametrize("command", ["/export", "/remember I like tea", "/status"])
async def test_rights_lost_disable_a_queued_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """The command waits behind a reply that cannot be delivered. Meanwhile its sender is removed from the list."""
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.02)
    listed = FEISHU.replace("dmPolicy: open", f"dmPolicy: allowlist\n    allowFrom: [{ALICE}, {BOB}]")
    async with edited(tmp_path, agents=SECOND, feishu=listed, more=BOUND) as (house, editor):
        held: list[Outbound] = []

        async def refuse(part: Outbound, key: str) -> str:
            held.append(part)
            raise Unreachable("the platform answers 503", maybe_arrived=False)

        channel = house.gateway.runtime.setup.channels["feishu", "default"]
        channel.send = refuse  # type: ignore[method-assign]
        await house.say("/help", sender=BOB, chat=BOB_CHAT)
        await house.until(lambda: held)
        await house.say(command, sender=BOB, chat=BOB_CHAT)
        await editor.replace(f"[{ALICE}, {BOB}]", f"[{ALICE}]")
        await house.replies(1)
        await house.idle()
        assert len(house.feishu.messages) == 1
        assert await house.gateway.runtime.store.memory.notes(f"feishu:default:{BOB}", "second") == []


async def many_write_while_one_is_answered(it: Team) -> None:
    wait = calls(("ls", {}), before="let me see", usage=COST)
    it.house.anthropic.script = [wait, *(answers(None) for _ in range(9))]
    it.house.line.hold()
    await it.write(OWNER, "words of owner")
    await it.house.requested(1)
    for who in (MEMBER, OTHER, OTHER, MEMBER, OWNER, OWNER):
        await it.write(who, f"words of {who}")
    it.house.line.release()
    await it.house.idle()


TEAMS = [
    pytest.param("feishu", MAY, id="feishu, each has other tools"),
    pytest.param("telegram", EQUALS, id="telegram, all have the same"),
    pytest.param("feishu", EQUALS, id="feishu, all have the same", marks=pytest.mark.long),
    pytest.param("telegram", MAY, id="telegram, each has other tools", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("channel", "may"), TEAMS)
@pytest.mark.parametrize(
    ("mode", "order"),
    [
        ("collect", [OWNER, MEMBER, OTHER, MEMBER, OWNER]),
        ("steer", [OWNER, MEMBER, OTHER, MEMBER, OWNER]),
        ("interrupt", [OWNER, MEMBER, OTHER, MEMBER, OWNER]),
        ("followup", [OWNER, MEMBER, OTHER, OTHER, MEMBER, OWNER, OWNER]),
    ],
)
async def test_rights_collected_messages_stay_per_person(
    tmp_path: Path, channel: str, mode: str, order: list[str], may: Mapping[str, set[str]]
) -> None:
    async with team(tmp_path, channel, more=f"queue: {{ mode: {mode} }}", may=may) as it:
        await many_write_while_one_is_answered(it)
        bodies = [received.body for received in it.house.anthropic.requests]
        for body in bodies:
            judge(it, body)
        assert [asker(it, body) for body in bodies[1:]] == order
        assert it.shown().count("done") == len(order)
        paid = await it.paid()
        assert paid == {who: 100 * [asker(it, body) for body in bodies].count(who) for who in MAY}


@pytest.mark.parametrize("mode", ["steer", "interrupt"])
async def test_rights_to_steer_a_turn_are_its_senders(tmp_path: Path, mode: str) -> None:
    async with team(tmp_path, "feishu", more=f"queue: {{ mode: {mode} }}") as it:
        it.house.anthropic.script = [calls(("ls", {}), before="let me see", usage=COST), answers(None), answers(None)]
        it.house.line.hold()
        await it.write(MEMBER, "words of member, first")
        await it.house.requested(1)
        await it.write(MEMBER, "words of member, second")
        it.house.line.release()
        await it.house.idle()
        assert it.shown() == ["done"]
        assert "second" in str(it.house.anthropic.requests[1].body)


async def test_approval_request_names_every_author_it_serves(tmp_path: Path) -> None:
    """Also of a message that an earlier version stored: that one answered several people in one turn."""
    asks = f'approvals: {{ surfaces: ["feishu:{GROUP}"], approvers: ["feishu:{ALICE}"] }}'
    more = f"{asks}\nbudgets: {{ sender: {{ tokensPerDay: 10000000 }} }}"
    run = ("exec", {"command": "echo ran"})

    def named(house: Running) -> list[set[str]]:
        requests = [it.text for it in house.feishu.messages if "Requested by: " in it.text]
        lines = [next(line for line in text.splitlines() if "Requested by: " in line) for text in requests]
        return [{who for who in (ALICE, BOB, CAROL) if who in line} for line in lines]

    async with running(tmp_path, more=more) as house:
        group: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
        house.line.hold()
        house.anthropic.script = [says("first"), calls(run), says("waits"), calls(run), says("waits")]
        await house.say("begin", sender=ALICE, **group)
        await house.requested(1)
        await house.say("words of Bob", sender=BOB, **group)
        await house.say("words of Carol", sender=CAROL, **group)
        house.line.release()
        await house.until(lambda: len(named(house)) == 2)
        await house.idle()
        assert named(house) == [{BOB}, {CAROL}]  # the same command, asked for by each
        house.anthropic.script = [calls(run), says("waits")]
        both = [
            context("feishu", Chat(id=GROUP, kind="group"), message_id=f"om_{who}", sender=Sender(id=who))
            for who in (BOB, CAROL)
        ]
        inbound = Inbound(agent="helper", context=both[-1], together=tuple(both), replays=1)
        session = session_key("helper", both[-1], "chat")
        body = inbound_json.dump_json(inbound).decode()
        old = Delivery(sid=session, dedupe=("old",), body=body, at=house.gateway.runtime.now())
        await house.gateway.runtime.accept(old)
        await house.until(lambda: len(named(house)) == 3)
        assert named(house)[-1] == {BOB, CAROL}


async def test_rights_on_the_page_cover_only_ones_own_conversation(tmp_path: Path) -> None:
    people = {"ann": "a" * 40, "bob": "b" * 40}
    server = (
        f"server: {{ host: 0.0.0.0, adminToken: {'o' * 40}, users: {{ ann: {people['ann']}, bob: {people['bob']} }} }}"
    )
    more = f'{server}\nowners: ["web:ann"]\ntools: {{ exec: {{ mode: allow }} }}'
    async with (
        running(tmp_path, script=answers, feishu=WEB, more=more) as house,
        opened(house.url, authorization=f"Bearer {people['ann']}") as ann,
        opened(house.url, authorization=f"Bearer {people['bob']}") as bob,
    ):
        await ann.say("words of ann")
        await ann.answers(1)
        await house.idle()
        for name in COMMANDS:
            answer = await bob.say(f"/{name} {ARGUMENTS.get(name, '')}".strip())
            assert answer.status_code == 404
        await house.idle()
        assert len(house.anthropic.requests) == 1
        await ann.say("/retry")
        await bob.say("words of bob", chat="c_of_bob_000000000")
        await house.requested(3)
        rights = [{tool["name"] for tool in it.body["tools"]} for it in house.anthropic.requests[1:]]
        assert sorted(map(len, rights)) == [len(ALL) - 1, len(ALL)]
