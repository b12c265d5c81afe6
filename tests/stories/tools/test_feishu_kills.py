"""A process that is killed while the tool `feishu` makes an event: the next one goes on, and there is one event."""

import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.feishu.workplace import APP, CALENDAR
from tests.emulators.models.script import calls, says
from tests.running import SECRETS
from tests.stories.process.test_process import Process, platforms, say, started
from tests.stories.tools.test_feishu import AGENTS, NEW_EVENT
from tests.waiting import until

pytestmark = pytest.mark.slow  # it starts processes
AS_APP = "tools: { feishu: { areas: [calendar], as: app, write: allow } }"


@pytest.mark.parametrize("moment", ["before", "after", "stored"])
async def test_feishu_event_is_made_once_over_a_kill(tmp_path: Path, moment: str) -> None:
    """Before the platform has the call, after it has made the event and not answered, and once the result is stored."""
    running: list[Process] = []
    armed = [moment]

    def kill() -> None:
        armed.clear()
        running[-1].process.send_signal(signal.SIGKILL)

    async with platforms(tmp_path, more=AS_APP, agents=AGENTS) as (feishu, anthropic, config):
        work = feishu.workplace
        work.app_scopes.add("calendar:calendar.event:create")
        work.grant(APP, CALENDAR)

        def at(place: str) -> Any:
            def hook(path: str) -> Awaitable[object] | None:
                if armed == [place] and path.endswith("/events"):
                    kill()
                    return running[-1].ended()
                return None

            return hook

        def model(request: dict[str, Any]) -> Any:
            is_done = "tool_result" in str(request["messages"][-1])
            if is_done and armed == ["stored"]:
                kill()
            return says("it is planned") if is_done else calls(NEW_EVENT)

        work.before, work.after = at("before"), at("after")
        anthropic.script = model
        async with started(config, SECRETS) as run:
            running.append(run)
            await say(run, feishu, "plan it")
            await until(lambda: not armed)
            await run.ended()
        async with started(config, SECRETS) as run:
            running.append(run)
            await until(lambda: "it is planned" in [feishu.reads(it) for it in feishu.messages])
        assert [it["summary"] for it in work.events.values()] == ["Plan"]
        assert len([it for it in work.called if it[2].endswith("/events")]) == (2 if moment == "after" else 1)
