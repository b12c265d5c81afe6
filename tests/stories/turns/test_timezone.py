"""Times as people and models read them: in `server.timezone`, else in the machine's own zone, and with its name."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from channels.moment import clock
from gateway.config.load import load
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, SECRETS, running
from tests.stories.at_work import results, spoken
from tests.stories.operate.test_sessions_command import listed
from tests.stories.process.test_process import ask
from tests.stories.turns.test_sessions import IN_GROUP, Clock

MOMENTS = [
    ("UTC", "2026-06-15T14:31:02+00:00", "Mon 2026-06-15 14:31 UTC"),
    ("Asia/Shanghai", "2026-11-23T08:59:02+00:00", "Mon 2026-11-23 16:59 CST"),
    ("Asia/Shanghai", "2026-11-23T16:10:02+00:00", "Tue 2026-11-24 00:10 CST"),
    ("America/New_York", "2026-03-08T06:58:02+00:00", "Sun 2026-03-08 01:58 EST"),
    ("America/New_York", "2026-03-08T07:00:02+00:00", "Sun 2026-03-08 03:00 EDT"),
    ("America/New_York", "2026-11-01T05:30:02+00:00", "Sun 2026-11-01 01:30 EDT"),
    ("America/New_York", "2026-11-01T06:30:02+00:00", "Sun 2026-11-01 01:30 EST"),
    ("Australia/Lord_Howe", "2026-10-03T15:29:02+00:00", "Sun 2026-10-04 01:59 UTC+1030"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:02+00:00", "Sun 2026-10-04 02:30 UTC+11"),
    ("America/St_Johns", "2026-07-01T00:00:02+00:00", "Tue 2026-06-30 21:30 NDT"),
]
"""Zones with and without daylight saving time, on both sides of its changes and of midnight."""
LATER = {
    "2026-03-08T06:58:02+00:00": "EDT",
    "2026-11-01T05:30:02+00:00": "EST",
    "2026-10-03T15:29:02+00:00": "UTC+11",
}
"""The zone's name at the next midnight, if the clocks change before it."""
WAYS = ("configured", "of the machine")
EVERY = [(*it, way) for it in MOMENTS for way in WAYS]
Put = Callable[[str, str], str]
TOKYO = "server: { timezone: Asia/Tokyo }"
AGENT = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [memory_search, memory_get, exec] }
"""


def few(*which: int) -> pytest.MarkDecorator:
    """Every moment in either way: of each eight of these pairs `make test` has the ones that are named."""
    rows = [pytest.param(*it, marks=() if at % 8 in which else pytest.mark.long) for at, it in enumerate(EVERY)]
    return pytest.mark.parametrize(("zone", "moment", "shown", "way"), rows)


@pytest.fixture
def put_into(monkeypatch: pytest.MonkeyPatch) -> Iterator[Put]:
    """Puts the gateway into a zone, by its config or by its machine; gives what the config says of it."""

    def put(zone: str, way: str) -> str:
        monkeypatch.setenv("TZ", "Pacific/Kiritimati" if way == "configured" else zone)
        time.tzset()
        return f"server: {{ timezone: {zone} }}" if way == "configured" else ""

    yield put
    monkeypatch.undo()
    time.tzset()


@few(0, 5)
async def test_timezone_of_every_time_a_model_reads(
    tmp_path: Path, put_into: Put, zone: str, moment: str, shown: str, way: str
) -> None:
    now, day = Clock(moment), shown.split()[1]
    feishu = f"{FEISHU}\n    history: 20\n"
    async with now.running(tmp_path, feishu=feishu, agents=AGENT, more=put_into(zone, way)) as house:
        now.put(moment)
        await house.say("/remember the meeting is on Friday")
        await house.say("lunch?", sender=BOB, chat=GROUP, chat_type="group")
        await house.idle()
        house.anthropic.script = [says("noon")]
        await house.say("when?", **IN_GROUP)
        await house.requested(1)
        await house.idle()
        assert set(re.findall('"timestamp": "([^"]*)"', spoken(house))) == {shown}
        assert spoken(house).count('"timestamp"') == 2  # the message, and what was said before
        house.anthropic.script = [
            says("on Friday"),
            calls(("memory_search", {"query": "meeting"})),
            calls(("memory_get", {"path": "sessions/3"})),
            says("done"),
        ]
        for text in ("when is the meeting?", "look it up"):
            await house.say(text)
            await house.idle()
        assert f'"date": "{day}"' in spoken(house)
        found, read = results(house.anthropic.requests[-1].body)
        assert set(re.findall(r"\((\d{4}-\d\d-\d\d)\)", found)) == {day}
        assert read.startswith(f"{shown}\n")


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.long)])
async def test_timezone_of_a_shared_appointment_after_an_edit(tmp_path: Path, put_into: Put, share: int) -> None:
    async with running(tmp_path, more=TOKYO, script=lambda _: says("yes")) as house:
        file, gateway = house.folder / "config.yaml", house.gateway
        text = file.read_text()
        in_tokyo = ("Asia/Tokyo", "2026-06-15T14:31:02+00:00", "Mon 2026-06-15 23:31 JST", "configured")
        for number, (zone, moment, shown, way) in enumerate([in_tokyo, *EVERY[::share]]):
            file.write_text(text.replace(TOKYO, put_into(zone, way)))
            if number:
                await gateway.apply(load(file, SECRETS).config, SECRETS, gateway.runtime.config_state)
            begin, id_ = datetime.fromisoformat(moment).timestamp() * 1000, f"om_plan{number}"
            plan = json.dumps({"summary": "Plan", "start_time": f"{begin:.0f}"})
            event = house.feishu.message_event("calendar", plan, sender=ALICE, chat=ALICE_CHAT, message_id=id_)
            for pushed in (event, house.feishu.text_event("?", sender=ALICE, chat=ALICE_CHAT, parent_id=id_)):
                await house.push(pushed)
                await house.idle()
                assert f"[calendar event: Plan, from {shown}]" in spoken(house), (zone, way)


@few(2, 7)
async def test_timezone_of_every_time_people_read(
    tmp_path: Path, put_into: Put, zone: str, moment: str, shown: str, way: str
) -> None:
    now, (_, day, hour, name) = Clock(moment), shown.split()
    feishu = FEISHU.replace("dmPolicy: open", "dmPolicy: pairing\n    timestampWindowSeconds: null")
    budget = "budgets: { sender: { tokensPerDay: 1 } }"
    more = f'{put_into(zone, way)}\nowners: ["feishu:{ALICE}"]\n{budget}'
    async with now.running(tmp_path, feishu=feishu, agents=AGENT, more=more) as house:
        now.put(moment)
        await house.say("hello", sender=BOB, chat=BOB_CHAT)
        await house.idle()
        house.anthropic.script = [calls(("exec", {"command": "date"})), says("it waits")]
        for text in ("/remember a note", "/remember", "/pair", "run it", "hello", "/export"):
            await house.say(text)
            await house.idle()
        shown_here = "\n".join(house.feishu.shown(ALICE_CHAT))
        assert f"1. a note ({day})" in shown_here
        assert f" {hour} {name} `/pair feishu:{BOB}`" in shown_here
        assert (
            f"- Expires: {clock(datetime.fromisoformat(moment) + timedelta(minutes=10), ZoneInfo(zone))}\n"
            in shown_here
        )
        assert set(re.findall(r"resets at (\S+ \S+?)[;.]", shown_here)) == {"00:00 " + LATER.get(moment, name)}
        (exported,) = house.feishu.resources.values()
        assert f"## {shown}\n".encode() in exported.data
        (session,) = await listed(house)
        assert datetime.fromisoformat(session["started"]) - datetime.fromisoformat(moment) < timedelta(minutes=1)
        config = str(house.folder / "config.yaml")
        environment = SECRETS | {"TZ": os.environ["TZ"]}
        code, session_shown = await ask("sessions", "show", session["id"], "--config", config, more=environment)
        assert code == 0
        assert f"- started: {shown}\n- last: {shown}\n" in session_shown
        assert f"\n**{shown} · Alice**\n" in session_shown
