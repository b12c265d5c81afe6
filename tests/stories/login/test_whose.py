"""Whose login a turn uses: that of the person whose words it serves, never of the chat. Alice is logged in, nobody else."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from channels.login import Tokens
from gateway.later.pending import sealed
from gateway.store.later import Later
from gateway.store.logins import Login, PendingChange
from tests.acting import SCOPE
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, Running, client
from tests.stories.at_work import results
from tests.stories.login.test_login import IN_GROUP, acting, cards, texts
from tests.stories.login.test_refresh import acts
from tests.waiting import until

BEGIN = 1_800_000_000.0
TOKEN = "canary-hook-and-program-91827"
REPORT = f"""
schedules: [ {{ id: report, to: "feishu:{GROUP}", at: "0 9 * * *", task: "Do it." }} ]
hooks: {{ ci: {{ secret: {TOKEN}, verify: token, to: "feishu:{GROUP}", task: "Do it." }} }}
server: {{ api: {{ tokens: {{ ui: {TOKEN} }} }} }}
"""


async def keep_login(house: Running, person: str = ALICE, scopes: Sequence[str] = (SCOPE,)) -> None:
    """Store a finished login of a person."""
    runtime, answer = house.gateway.runtime, house.feishu.logins.issue(person, *scopes)
    tokens = Tokens(
        access=answer["access_token"],
        access_seconds=answer["expires_in"],
        refresh=answer["refresh_token"],
        refresh_seconds=answer["refresh_token_expires_in"],
        scopes=tuple(answer["scope"].split()),
    )
    new = Login(channel="feishu", account="default", person=person, name=house.feishu.users[person])
    login = sealed(house.gateway.logins._seal, new, tokens, runtime.now())
    row = Later(id="L-test", kind="login", due=None, owner=None, place="", state="done", body="{}", since=0)
    await runtime.store.logins.change("L-test", lambda _: PendingChange(row=row, login=login))


def codes(house: Running) -> list[str]:
    """What the calls gave, of the newest request: the codes of errors, and texts."""
    found = results(house.anthropic.requests[-1].body)
    return [str(json.loads(it)["error_code"]) if it.startswith('{"ok"') else it for it in found]


async def test_login_is_of_the_person_whom_the_turn_serves(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        await keep_login(house)
        assert await acts(house, {}, **IN_GROUP) == ["acted as Alice"]
        mine = house.feishu.messages[-1].message_id
        assert await acts(house, {}, sender=BOB, **IN_GROUP) == ["NEEDS_LOGIN"]
        quoting = {"parent_id": mine, "root_id": mine}
        assert await acts(house, {}, sender=BOB, **IN_GROUP, **quoting) == ["NEEDS_LOGIN"]
        assert await acts(house, {}, **IN_GROUP) == ["acted as Alice"]
        shown = house.feishu.shown(house.feishu.direct[BOB])
        assert shown
        assert "Alice" not in "".join(shown)


async def test_login_of_a_turn_of_waiting_messages_is_their_authors(tmp_path: Path) -> None:
    """Bob's message waits while Alice is answered: it is answered by itself, as his."""
    async with acting(tmp_path) as house:
        await keep_login(house)
        house.anthropic.script = [says("first"), *[calls(("act_as", {})), says("as asked")] * 2]
        house.line.hold()
        await house.say("one", **IN_GROUP)
        await house.requested(1)
        await house.say("two", **IN_GROUP)
        await house.say("three", sender=BOB, **IN_GROUP)
        house.line.release()
        await until(lambda: "".join(house.feishu.shown(GROUP)).count("as asked") == 2)
        given = [codes(house)[-2:]]
        assert given == [["acted as Alice", "NEEDS_LOGIN"]]


async def test_login_of_a_button_is_that_of_who_presses_it(tmp_path: Path) -> None:
    agents = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [act_as, message] }
"""
    async with acting(tmp_path, agents=agents) as house:
        await keep_login(house)
        offer = {"action": "buttons", "message": "Read it?", "buttons": ["Yes"]}
        house.anthropic.script = [calls(("message", offer)), says("asked")]
        await house.say("offer it", **IN_GROUP)
        await until(lambda: "asked" in "".join(house.feishu.shown(GROUP)))
        await house.idle()
        card = next(it for it in house.feishu.messages if "Read it?" in house.feishu.reads(it))
        house.anthropic.script = [calls(("act_as", {})), says("pressed")]
        await house.push(house.feishu.press_event(card.message_id, "Yes", sender=BOB))
        await until(lambda: "pressed" in "".join(house.feishu.shown(GROUP)))
        assert codes(house)[-1] == "NEEDS_LOGIN"


async def test_login_of_a_reminder_and_a_task_is_that_of_who_asked(tmp_path: Path) -> None:
    clock = Clock(BEGIN)
    async with acting(tmp_path, now=clock) as house:
        await keep_login(house)
        plan = {"action": "create", "at": "every 1h", "task": "Do it."}
        for who, given in (({}, "acted as Alice"), ({"sender": BOB}, "NEEDS_LOGIN")):
            house.anthropic.script = [calls(("schedule", plan)), says("planned")]
            await house.say("every hour", **IN_GROUP, **who)
            await until(lambda: "planned" in house.feishu.shown(GROUP)[-1:])
            await house.idle()
            house.anthropic.script = [calls(("act_as", {})), says("reported")]
            clock.now += 3_601
            await until(lambda: "reported" in house.feishu.shown(GROUP)[-1])
            await house.idle()
            assert codes(house)[-1] == given
            (row,) = await house.gateway.runtime.store.later.of_owner(f"feishu:default:{who.get('sender', ALICE)}")
            await house.gateway.runtime.store.later.end(row.id, "cancelled")
        order = {"action": "start", "prompt": "Do it.", "wait": True}
        house.anthropic.script = [calls(("task", order)), calls(("act_as", {})), says("result"), says("handed on")]
        await house.say("hand it on", **IN_GROUP)
        await until(lambda: "handed on" in house.feishu.shown(GROUP)[-1])
        requests = [json.dumps(it.body) for it in house.anthropic.requests]
        assert "acted as Alice" in requests[-2]


async def test_login_serves_no_config_schedule_program_or_crowd(tmp_path: Path) -> None:
    clock = Clock(BEGIN)
    async with acting(tmp_path, now=clock, more=REPORT) as house:
        await keep_login(house)
        await house.until(lambda: house.gateway.runtime.store.later.next_due())
        house.anthropic.script = [calls(("act_as", {})), says("reported")]
        clock.now += 3_601
        await until(lambda: "reported" in "".join(house.feishu.shown(GROUP)))
        assert codes(house)[-1] == "NEEDS_PERSON"
        secret = {"authorization": f"Bearer {TOKEN}"}
        async with client(house.url, headers=secret) as http:
            house.anthropic.script = [calls(("act_as", {})), says("hooked")]
            assert (await http.post("/hooks/ci", json={"a": 1})).status_code == 202
            await until(lambda: "hooked" in "".join(house.feishu.shown(GROUP)))
            assert codes(house)[-1] == "NEEDS_PERSON"
            house.anthropic.script = [calls(("act_as", {})), says("called")]
            asked = {"model": "helper", "messages": [{"role": "user", "content": "do it"}], "user": ALICE}
            assert (await http.post("/v1/chat/completions", json=asked)).status_code == 200
            assert codes(house)[-1] == "NEEDS_PERSON"
        assert cards(house) == []


@pytest.mark.parametrize("ends", ["recall", "/stop", "/new"])
async def test_turn_that_was_stopped_does_not_continue_after_the_login(tmp_path: Path, ends: str) -> None:
    async with acting(tmp_path) as house:
        house.anthropic.script = [calls(("act_as", {})), says("once you are logged in"), says("too much")]
        event = house.feishu.text_event("do it", sender=ALICE, chat=ALICE_CHAT)
        await house.push(event)
        await until(lambda: len(cards(house)) == 1)
        await until(lambda: "once you are logged in" in texts(house))
        await house.idle()
        if ends == "recall":
            await house.push(house.feishu.recalled_event(event["event"]["message"]["message_id"]))
        else:
            await house.say(ends)
            await until(lambda: len(house.feishu.messages) == 3)
        await house.idle()
        house.feishu.logins.approve(house.feishu.logins.devices[-1].user_code, ALICE)
        await until(lambda: "✓ logged in as Alice" in cards(house)[0].shown)
        await house.idle()
        assert len(house.anthropic.requests) == 2
