"""What happens by itself has limits: behind a slow turn, in a full chat, for a chat that is gone, under a wrong clock."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gateway.operate import schedules
from gateway.program import OperatorError
from gateway.store.later import Later
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, GROUP, Running, running
from tests.stories.at_work import results, works
from tests.stories.config.test_reload import edited
from tests.stories.inbox.test_hooks import SECRET, call, signed
from tests.stories.later.test_schedules import ANYTIME, ASKED, BEGIN, SCHEDULING, STANDUP, on, texts

IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
OFTEN = f'{{ id: report, to: "feishu:{GROUP}", at: "every 5m", task: "Write the report." }}'
STEP_SECONDS = 300


async def rows(house: Running) -> dict[str, Later]:
    return {it.id: it for it in await house.gateway.runtime.store.later.every()}


async def later(house: Running, clock: Clock, seconds: float = STEP_SECONDS) -> None:
    """The clock goes on, and the watch has seen it: nothing is due any more."""
    clock.now += seconds
    house.gateway.wake()
    await house.until(lambda: _seen(house, clock))


async def _seen(house: Running, clock: Clock) -> bool:
    due = await house.gateway.runtime.store.later.next_due()
    return due is None or due > clock.now


async def begun(house: Running) -> None:
    """The config's schedules are stored."""
    await house.until(lambda: house.gateway.runtime.store.later.next_due())


def asking(plans: list[dict[str, Any]]) -> Callable[[dict[str, Any]], Any]:
    """A model that makes these plans once it is asked to, and else has little to say."""

    def model(body: dict[str, Any]) -> Any:
        newest = str(body["messages"][-1])
        if "tool_result" in newest:
            return says("planned")
        return calls(*(("schedule", {"action": "create"} | it) for it in plans)) if "plan" in newest else says("hm")

    return model


async def waiting(house: Running, session: str = f"agent:helper:feishu:default:{GROUP}") -> int:
    return await house.gateway.runtime.store.later.own_waiting(session)


async def test_schedule_skips_and_counts_while_its_last_run_waits(tmp_path: Path, database_url: str) -> None:
    clock = Clock(BEGIN)
    config: dict[str, Any] = {"feishu": ANYTIME, "more": on(database_url, f"schedules: [ {OFTEN} ]")}
    async with running(tmp_path, script=lambda _: says("The report."), now=clock, **config) as house:
        await begun(house)
        house.line.hold()
        for _ in range(5):
            await later(house, clock)
        row = (await rows(house))["report"]
        assert (row.runs, row.skips, row.skipped) == (1, 4, clock.now)
        assert await waiting(house) == 1
        with pytest.raises(OperatorError, match="report has not ended its last run yet"):
            schedules.run(house.gateway.config, "report")
        house.line.release()
        assert await house.replies(1) == ["The report."]
        await house.idle()
        await later(house, clock)
        assert await house.replies(2) == ["The report."] * 2
        await house.idle()
        assert len(house.anthropic.requests) == 2
        assert (await rows(house))["report"].runs == 2


async def test_schedule_skip_survives_a_restart_while_its_last_run_waits(tmp_path: Path, database_url: str) -> None:
    clock = Clock(BEGIN)
    more = on(database_url, f"limits: {{ graceSeconds: 0.1 }}\nschedules: [ {OFTEN} ]")
    config: dict[str, Any] = {"feishu": ANYTIME, "more": more, "script": lambda _: says("The report.")}
    async with running(tmp_path, now=clock, **config) as house:
        await begun(house)
        house.line.hold()
        await later(house, clock)
        await house.until(lambda: house.line.holding)
    async with running(tmp_path, now=clock, emulator=house.feishu, **config) as house:
        house.line.hold()
        await later(house, clock)
        assert (await rows(house))["report"].skips == 1
        house.line.release()
        assert await house.replies(1) == ["The report."]
        await house.idle()
        assert texts(house) == ["The report."]


async def test_schedule_paused_by_hand_stays_paused_when_it_is_run(tmp_path: Path) -> None:
    async with running(tmp_path, more=STANDUP) as house:
        await begun(house)
        schedules.pause(house.gateway.config, "standup")
        schedules.run(house.gateway.config, "standup")
        house.gateway.wake()
        assert await house.replies(1) == ["Stand-up!"]
        await house.idle()
        row = (await rows(house))["standup"]
        assert (row.state, row.due, row.runs) == ("paused", None, 1)


async def test_schedule_begun_at_shutdown_is_left_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(BEGIN)
    async with running(tmp_path, more=STANDUP, now=clock) as house:
        await begun(house)
        store, control = house.gateway.runtime.store, house.gateway.runtime.control
        advance = store.later.advance

        async def interrupted(*given: Any, **named: Any) -> Any:
            taken = await advance(*given, **named)
            control.drain()  # the signal comes between the commit and the lane
            return taken

        monkeypatch.setattr(store.later, "advance", interrupted)
        clock.now += 3_600
        house.gateway.wake()
        await house.until(lambda: control.draining)
        await house.until(lambda: _no_lease(house))
    async with running(tmp_path, more=STANDUP, now=clock, emulator=house.feishu) as house:
        assert await house.replies(1) == ["Stand-up!"]


async def _no_lease(house: Running) -> bool:
    [row] = (await rows(house)).values()
    return row.runs == 1 and not await house.gateway.runtime.store.leased()


async def test_schedule_text_goes_beside_a_turn_that_runs(tmp_path: Path, database_url: str) -> None:
    clock = Clock(BEGIN)
    plans = [{"at": "every 5m", "say": "Stretch!"}, {"at": "every 5m", "task": "Look around."}]
    config: dict[str, Any] = {"agents": SCHEDULING, "feishu": ANYTIME, "more": on(database_url)}
    async with running(tmp_path, script=asking(plans), now=clock, **config) as house:
        await house.say("plan")
        await house.replies(1)
        await house.idle()
        house.line.hold()
        await house.say("think long")
        await house.until(lambda: house.line.holding)
        await later(house, clock)
        assert (await house.replies(2))[1] == "Stretch!"
        assert len(house.anthropic.requests) == 3
        house.line.release()
        assert await house.replies(4) == ["planned", "Stretch!", "hm", "hm"]
        await house.idle()
        assert len(house.anthropic.requests) == 4


async def test_schedules_of_members_leave_the_group_open_to_people(tmp_path: Path, database_url: str) -> None:
    clock = Clock(BEGIN)
    plans = [{"at": "every 5m", "task": f"work {number}"} for number in range(8)]
    more = on(
        database_url,
        f'owners: ["feishu:{ALICE}"]',
        f"schedules: [ {OFTEN} ]",
        "limits: { pendingPerSession: 3, pendingPerSender: 4, pendingOrigins: 6 }",
    )
    config: dict[str, Any] = {"agents": SCHEDULING, "feishu": ANYTIME, "more": more}
    async with running(tmp_path, script=asking(plans), now=clock, **config) as house:
        await house.say("plan", sender=BOB, **IN_GROUP)
        await house.replies(1)
        await house.idle()
        assert all("Scheduled" in it for it in results(house.anthropic.requests[-1].body)[-8:])
        house.line.hold()
        for _ in range(3):
            await later(house, clock)
        assert await waiting(house) == 6  # of nine that are due again and again
        found = await rows(house)
        assert sum(it.runs for it in found.values()) == 6
        assert sum(it.skips for it in found.values()) == 3 * len(found) - 6
        for sender, text in ((ALICE, "I am the owner"), (BOB, "and I a member")):
            await house.say(text, sender=sender, **IN_GROUP)
        for number, sender in enumerate((BOB, ALICE)):
            await house.say("/schedules", sender=sender, **IN_GROUP)
            listed = (await house.replies(2 + number))[-1]
            assert len(re.findall(r"`R-\w{5}`", listed)) == 8
            assert ("report" in listed) == (sender == ALICE)
            assert listed.startswith(
                "The reminders and schedules of this group" if sender == ALICE else "Your reminders and schedules"
            )
        assert not any("waiting already" in it for it in texts(house))
        house.line.release()
        await house.until(lambda: len(texts(house)) == 3 + 6 + 2)
        await house.idle()
        assert not any("waiting already" in it for it in texts(house))


async def test_schedules_command_of_an_owner_cancels_the_groups(tmp_path: Path) -> None:
    more = f'owners: ["feishu:{ALICE}"]\nschedules: [ {OFTEN} ]'
    async with running(tmp_path, script=asking([{"at": "every 1h", "say": "Hey `you`!"}]), **ASKED, more=more) as house:
        await house.say("plan", sender=BOB, **IN_GROUP)
        await house.replies(1)
        await house.idle()
        [id_] = [it for it in await rows(house) if it != "report"]
        before = len(texts(house))
        asked = [
            (f"/schedules cancel {id_}", ALICE, {}, f"You have no {id_} here"),
            (f"/schedules cancel {id_}", ALICE, IN_GROUP | {"chat": "oc_other"}, f"This group has no {id_}"),
            ("/schedules cancel report", ALICE, IN_GROUP, "report comes from the config"),
            ("/schedules cancel report", BOB, IN_GROUP, "You have no REPORT here"),
            (f"/schedules cancel {id_.lower()}", ALICE, IN_GROUP, f"{id_} is cancelled."),
            (f"/schedules cancel {id_}", ALICE, IN_GROUP, f"{id_} is cancelled."),
            ("/schedules", BOB, IN_GROUP, "You have no reminders here"),
        ]
        for number, (text, sender, where, answer) in enumerate(asked, before + 1):
            await house.say(text, sender=sender, **where)
            assert answer in (await house.replies(number))[-1], text
        assert {name: it.state for name, it in (await rows(house)).items()} == {id_: "cancelled", "report": "active"}


async def test_hook_event_waits_for_room_in_its_chat(tmp_path: Path, database_url: str) -> None:
    hook = f'hooks: {{ ci: {{ secret: "{SECRET}", verify: hmac, to: "feishu:{GROUP}", task: "Look at it." }} }}'
    more = on(database_url, hook, "limits: { pendingOrigins: 2 }")
    async with running(tmp_path, script=lambda _: says("Looked."), more=more) as house:
        house.line.hold()
        bodies = [f'{{"build": {number}}}'.encode() for number in range(4)]
        codes = [(await call(house, body, signed(body))).status_code for body in bodies]
        assert codes == [202, 202, 429, 429]
        refused = await call(house, bodies[3], signed(bodies[3]))
        assert refused.headers["retry-after"]
        assert "limits.pendingOrigins" in refused.text
        house.line.release()
        await house.replies(2)
        await house.idle()
        assert (await call(house, bodies[3], signed(bodies[3]))).status_code == 202
        await house.replies(3)
        await house.idle()
        assert texts(house) == ["Looked."] * 3


OUT_OF_REACH = 230002  # the bot is not in the chat
TO_BOB = f'{{ id: to-bob, to: "feishu:{BOB}", at: "every 5m", say: "Hello, Bob." }}'


def out_of_reach(house: Running, chat: str, *, times: int = 99) -> None:
    to = f'"receive_id":"{chat}"'
    house.feishu.fail_next("/im/v1/messages", status=400, code=OUT_OF_REACH, says=to, times=times)


async def paused(house: Running, *ids: str) -> None:
    """Wait until these schedules are paused because their chat is gone."""

    async def are() -> bool:
        found = await rows(house)
        return all((found[it].state, found[it].why, found[it].due) == ("paused", "gone", None) for it in ids)

    await house.until(are)
    await house.idle()


@pytest.mark.parametrize("how", ["say", "task"])
async def test_schedule_of_a_person_is_paused_when_its_chat_is_gone(
    tmp_path: Path, database_url: str, how: str
) -> None:
    clock = Clock(BEGIN)
    plans = [{"at": "every 1h", how: "The news."}, {"at": "every 2h", "task": "And the rest."}]
    more = on(database_url, f'owners: ["feishu:{ALICE}"]')
    config: dict[str, Any] = {"agents": SCHEDULING, "feishu": ANYTIME, "more": more, "script": asking(plans)}
    async with running(tmp_path, now=clock, **config) as house:
        await house.say("hello")
        await house.say("plan", sender=BOB, chat=BOB_CHAT)
        await house.replies(2)
        await house.idle()
        asked = len(house.anthropic.requests)
        out_of_reach(house, BOB_CHAT)
        await later(house, clock, 3_600)
        both = [*await rows(house)]
        await paused(house, *both)
        for _ in range(3):
            await later(house, clock, 7_200)
        await house.idle()
        assert len(house.anthropic.requests) - asked == (how == "task")
        [told] = texts(house)[2:]
        assert f"I cannot reach `feishu:default:{BOB_CHAT}` any more" in told
        assert all(it in told for it in both)
        assert house.feishu.messages[2].chat_id == ALICE_CHAT
        listed = schedules.listed(house.gateway.config)
        assert {(it["state"], it["why"]) for it in listed} == {("paused", "gone")}
        assert "paused (its chat is out of reach)" in schedules.line(listed[0])


async def test_schedule_of_the_config_is_paused_while_its_chat_is_gone(tmp_path: Path) -> None:
    clock = Clock(BEGIN)
    more = f'owners: ["feishu:{ALICE}"]\nschedules: [ {OFTEN}, {TO_BOB} ]'
    async with edited(tmp_path, feishu=ANYTIME, more=more, script=lambda _: says("Report."), now=clock) as (
        house,
        editor,
    ):
        await house.say("hello")
        await house.replies(1)
        await begun(house)
        out_of_reach(house, GROUP)
        out_of_reach(house, BOB)
        await later(house, clock)
        await paused(house, "report", "to-bob")
        assert await house.replies(3)
        asked = len(house.anthropic.requests)
        await editor.replace("Write the report.", "Write it.")  # an edit of its text does not bring the chat back
        for _ in range(3):
            await later(house, clock)
        await paused(house, "report", "to-bob")
        assert len(house.anthropic.requests) == asked
        await editor.replace(f'to: "feishu:{GROUP}"', f'to: "feishu:{ALICE_CHAT}"')
        await house.until(lambda: house.gateway.runtime.store.later.next_due())
        await later(house, clock)
        assert (await house.replies(4))[3] == "Report."
        await paused(house, "to-bob")
        assert len(texts(house)) == 4


async def test_hook_refuses_events_when_its_chat_is_gone(tmp_path: Path, database_url: str) -> None:
    clock = Clock(BEGIN)
    hook = f'hooks: {{ ci: {{ secret: "{SECRET}", verify: hmac, to: "feishu:{GROUP}", task: "Look at it." }} }}'
    config = {"feishu": ANYTIME, "more": on(database_url, f'owners: ["feishu:{ALICE}"]', hook)}

    async def event(house: Running, number: int) -> int:
        body = f'{{"build": {number}}}'.encode()
        return (await call(house, body, signed(body, at=clock.now))).status_code

    async with edited(tmp_path, script=lambda _: says("Looked."), now=clock, **config) as (house, editor):
        await house.say("hello")
        await house.replies(1)
        out_of_reach(house, GROUP, times=1)
        assert await event(house, 1) == 202
        told = (await house.replies(2))[1]
        assert f"I cannot reach `feishu:default:{GROUP}`" in told
        assert "The hook `ci` refuses events" in told
        await house.idle()
        assert [await event(house, number) for number in (2, 3)] == [409, 409]
        clock.now += 86_401  # perhaps it is back
        assert await event(house, 4) == 202
        assert (await house.replies(3))[2] == "Looked."
        out_of_reach(house, GROUP, times=1)
        assert await event(house, 5) == 202
        await house.until(lambda: house.gateway.runtime.choices.rests("ci", f"feishu:{GROUP}", clock.now))
        assert await event(house, 6) == 409
        await editor.replace(f'to: "feishu:{GROUP}"', 'to: "feishu:oc_another"')
        assert await event(house, 7) == 202


async def test_schedule_keeps_running_when_a_reply_finds_the_chat_gone(tmp_path: Path) -> None:
    """Only what happens by itself is judged: the person who has just written will write again."""
    clock = Clock(BEGIN)
    plans = [{"at": "every 1h", "say": "Stretch!"}]
    async with running(tmp_path, script=asking(plans), **ASKED, now=clock) as house:
        await house.say("plan")
        await house.replies(1)
        await house.idle()
        house.feishu.fail_next("/im/v1/messages", status=400, code=OUT_OF_REACH)
        await house.say("hello")
        await house.idle()
        await later(house, clock, 3_600)
        assert (await house.replies(2))[1] == "Stretch!"


async def test_schedule_paused_by_hand_stays_paused_over_a_reload_and_a_restart(
    tmp_path: Path, database_url: str
) -> None:
    clock, more = Clock(BEGIN), on(database_url, f"schedules: [ {OFTEN}, {TO_BOB} ]")

    def states(house: Running) -> dict[str, tuple[str, str | None]]:
        return {it["id"]: (it["state"], it["why"]) for it in schedules.listed(house.gateway.config)}

    by_hand = {"report": ("paused", "hand"), "to-bob": ("active", None)}
    async with edited(tmp_path, more=more, feishu=ANYTIME, now=clock) as (house, editor):
        await begun(house)
        schedules.pause(house.gateway.config, "report")
        await editor.replace("Write the report.", "Write it.")  # what it does
        assert states(house) == by_hand
        await editor.replace("Hello, Bob.", "Good morning, Bob.")  # another schedule
        assert states(house) == by_hand
    async with edited(tmp_path, more=more, feishu=ANYTIME, now=clock) as (house, editor):
        await house.until(lambda: states(house) == by_hand)
        await later(house, clock, 3_600)
        assert states(house) == by_hand
        report = OFTEN.replace("report,", "report, enabled: false,")
        await editor.replace(OFTEN, report)  # off and on again in the config lets it go on
        await house.until(lambda: states(house)["report"] == ("paused", "config"))
        await editor.replace(report, OFTEN)
        await house.until(lambda: states(house)["report"] == ("active", None))
        schedules.pause(house.gateway.config, "report")
        assert schedules.pause(house.gateway.config, "report")["state"] == "active"
        await house.idle()


@pytest.mark.parametrize(("missed", "state"), [("once", "active"), ("skip", "done")])
async def test_schedule_resumed_after_its_only_time_is_late_or_over(tmp_path: Path, missed: str, state: str) -> None:
    single = f'{{ id: single, to: "feishu:{GROUP}", at: "2027-01-15T09:00", missed: {missed}, say: "Now!" }}'
    clock = Clock(BEGIN)
    async with running(tmp_path, more=f"schedules: [ {single} ]", feishu=ANYTIME, now=clock) as house:
        await begun(house)
        row = (await rows(house))["single"]
        past = replace(row, body=row.body.replace("2027-01-15", "2020-01-15"))  # the operator's clock is the real one
        await house.gateway.runtime.store.later.configure([past], lambda _, new: replace(new, due=None, state="paused"))
        after = schedules.pause(house.gateway.config, "single")
        assert (after["state"], bool(after["due"])) == (state, state == "active")
        house.gateway.wake()
        if state == "active":
            assert "This was due Wed 2020-01-15 09:00" in (await house.replies(1))[0]
        await house.idle()
        assert (await rows(house))["single"].state == "done"


UNREADABLE = Later(
    id="R-NEWER",
    kind="schedule",
    due=None,
    owner=f"feishu:default:{ALICE}",
    place=f"feishu:default:{ALICE_CHAT}",
    state="paused",
    body='{"at": 1}',
    since=BEGIN,
)


async def test_schedule_that_cannot_be_read_leaves_the_lists_whole(tmp_path: Path, database_url: str) -> None:
    more = on(database_url, STANDUP)
    script = asking([{"at": "every 1h", "say": "Up!"}])
    async with running(tmp_path, script=script, agents=SCHEDULING, more=more) as house:
        await house.say("plan")
        await house.replies(1)
        await house.idle()
        store = house.gateway.runtime.store.later
        no_zone = '{"agent": "helper", "at": "0 9 * * *", "timezone": "No/Where"}'
        unreadable = {"R-NEWER": UNREADABLE.body, "R-ZONE1": no_zone}
        for id_, body in unreadable.items():
            await store.expect(replace(UNREADABLE, id=id_, body=body))
        config = house.gateway.config
        listed = schedules.listed(config)
        assert {*unreadable, "standup"} < {it["id"] for it in listed}
        assert any(
            schedules.line(it).startswith("R-NEWER  paused") and "cannot read it" in schedules.line(it) for it in listed
        )
        await house.say("/schedules")
        shown = (await house.replies(2))[1]
        assert all(it in shown for it in ("Up!", "`R-NEWER` this version of the gateway cannot read it", "`R-ZONE1`"))
        with pytest.raises(OperatorError, match="cannot read it; update it, or cancel"):
            schedules.pause(config, "R-NEWER")
        assert schedules.run(config, "R-NEWER")["id"] == "R-NEWER"
        assert schedules.cancel(config, "R-NEWER")["state"] == "cancelled"
        await house.say("/schedules cancel R-ZONE1")
        assert (await house.replies(3))[2] == "R-ZONE1 is cancelled."


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Shanghai"])
async def test_schedule_at_the_end_or_the_beginning_of_time_is_refused(tmp_path: Path, zone: str) -> None:
    plans = [
        ("schedule", {"action": "create", "at": at, "say": "x"}) for at in ("9999-12-31T23:59", "0001-01-01T00:00")
    ]
    async with running(tmp_path, **ASKED, more=f"server: {{ timezone: {zone} }}", now=Clock(BEGIN)) as house:
        answers = await works(house, *plans)
        assert ["INVALID_ARGUMENT" in it and "too far away" in it for it in answers] == [True, True]


YEARS = 4 * 365 * 86_400.0
EVERY_HOUR = f'{{ id: hourly, to: "feishu:{GROUP}", at: "every 1h", say: "Time!" }}'
DAILY = f'{{ id: daily, to: "feishu:{GROUP}", at: "0 9 * * *", say: "Stand-up!" }}'
SKIPPED = f'{{ id: skipped, to: "feishu:{GROUP}", at: "30 9 * * *", missed: skip, say: "Later." }}'


@pytest.mark.parametrize("how", ["running", "restarted", "made ahead"])
async def test_schedule_follows_a_clock_that_jumps_ahead_and_back(tmp_path: Path, database_url: str, how: str) -> None:
    clock = Clock(BEGIN + YEARS if how == "made ahead" else BEGIN)
    more = on(database_url, f"schedules: [ {EVERY_HOUR}, {DAILY}, {SKIPPED} ]")
    begin: dict[str, Any] = {"feishu": ANYTIME, "more": more, "now": clock}
    expected = {"hourly": BEGIN + 3_600, "daily": BEGIN + 3_600, "skipped": BEGIN + 5_400}

    async def are_due(house: Running) -> bool:
        return {id_: it.due for id_, it in (await rows(house)).items()} == expected

    async with running(tmp_path, **begin) as house:
        await begun(house)
        if how != "made ahead":
            assert await are_due(house)
            await later(house, clock, YEARS)
            await house.idle()
        ahead = len(texts(house))
        if how == "running":
            clock.now = BEGIN
            house.gateway.wake()
            await house.until(lambda: are_due(house))
    clock.now = BEGIN
    async with running(tmp_path, emulator=house.feishu, **begin) as house:
        await house.until(lambda: are_due(house))
        await later(house, clock, 3_601)
        await house.idle()
        again = ["Stand-up!", "Time!"] if how == "made ahead" else []  # else these times have had their messages
        assert sorted(texts(house)[ahead:]) == again
        await later(house, clock, 1_799)  # one that is to be skipped if it is missed
        await later(house, clock, 1_801)
        await house.until(lambda: len(texts(house)) >= ahead + len(again) + 2)
        await house.idle()
        assert sorted(texts(house)[ahead + len(again) :]) == ["Later.", "Time!"]
        found = await rows(house)
        assert found["skipped"].runs == 1
        assert found["daily"].due == BEGIN + 86_400 + 3_600


async def test_command_end_is_looked_at_after_a_clock_that_was_ahead(tmp_path: Path, database_url: str) -> None:
    clock, more = Clock(BEGIN), on(database_url)
    async with running(tmp_path, more=more, now=clock) as house:
        looked_at_ahead = replace(UNREADABLE, id="P-1", kind="process", state="active", due=BEGIN + YEARS)
        await house.gateway.runtime.store.later.expect(looked_at_ahead)
    async with running(tmp_path, more=more, now=clock, emulator=house.feishu) as house:
        await house.until(lambda: _looks_by(house, BEGIN + 15))
        await later(house, clock, 16)
        assert (await rows(house))["P-1"].state == "cancelled"  # it cannot be read, and has been


async def _looks_by(house: Running, due: float) -> bool:
    found = (await rows(house))["P-1"].due
    return found is not None and found <= due


async def test_schedule_is_not_run_again_when_the_clock_is_set_back_a_little(tmp_path: Path, database_url: str) -> None:
    clock, more = Clock(BEGIN), on(database_url, f"schedules: [ {EVERY_HOUR}, {DAILY} ]")
    async with running(tmp_path, more=more, feishu=ANYTIME, now=clock) as house:
        await begun(house)
        for _ in range(3):
            await later(house, clock, 3_601)
            clock.now -= 3_601
            house.gateway.wake()
            await house.until(lambda: _seen(house, clock))
        await later(house, clock, 3_601)
        await house.idle()
        assert sorted(texts(house)) == ["Stand-up!", "Time!"]
        assert {id_: it.runs for id_, it in (await rows(house)).items()} == {"hourly": 1, "daily": 1}
