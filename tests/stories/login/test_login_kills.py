"""A process that is killed while a person logs in, or while their tokens are refreshed: the next one goes on."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.acting import folder
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import calls, says
from tests.running import ALICE, SECRETS, push
from tests.stories.at_work import results
from tests.stories.login.test_login import AGENTS
from tests.stories.process.test_process import Process, platforms, say, started
from tests.waiting import until

pytestmark = pytest.mark.slow  # it starts processes
OTHER_CHAT = "oc_7e500000000000000000000000000000"


@dataclass
class Victim:
    """The running process, which `kill` ends in the middle of a request, once."""

    feishu: FeishuEmulator
    anthropic: AnthropicEmulator
    config: Path
    run: Process | None = None
    kills: dict[str, str] = field(default_factory=dict)
    """At which request, by what is asked: `before` or `after` it is done."""
    killed: int = 0

    def texts(self) -> list[str]:
        return [self.feishu.reads(it) for it in self.feishu.messages]

    def kill(self) -> None:
        assert self.run is not None
        self.run.process.send_signal(signal.SIGKILL)
        self.killed += 1

    def at(self, moment: str) -> Any:
        async def hook(name: str) -> bool:
            if moment == "after" and name == "refresh_token" and (armed := self.kills.pop("arm", None)):
                self.kills[armed] = "before"  # the first question with the new token
                return False
            if self.kills.get(name) != moment:
                return False
            del self.kills[name]
            self.kill()
            return True

        return hook

    def model(self, request: dict[str, Any]) -> Any:
        """Call the tool, and say whether it could."""
        found = results(request)
        is_fresh = "tool_result" not in str(request["messages"][-1])
        if is_fresh and found and "model" in self.kills:
            del self.kills["model"]
            self.kill()
        return calls(("act_as", {})) if is_fresh else says("done" if "acted as" in found[-1] else "waiting for you")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        async with started(self.config, SECRETS) as self.run:
            yield

    async def approved(self, count: int = 1) -> None:
        """The person approves the newest login, once there are so many."""
        await until(lambda: len(self.feishu.logins.devices) == count)
        self.feishu.logins.approve(self.feishu.logins.devices[-1].user_code, ALICE)

    async def dead(self) -> None:
        await until(lambda: self.killed)
        assert self.run is not None
        await self.run.ended()


@asynccontextmanager
async def victim(tmp_path: Path, more: str = "") -> AsyncIterator[Victim]:
    lines = f"{folder(tmp_path)}\n{more}"
    async with platforms(tmp_path, more=lines, agents=AGENTS) as (feishu, anthropic, config):
        found = Victim(feishu, anthropic, config)
        feishu.logins.interval = 0.2
        feishu.logins.before, feishu.logins.after = found.at("before"), found.at("after")
        anthropic.script = found.model
        yield found


@pytest.mark.parametrize(
    ("asked", "moment", "devices"),
    [("device_code", "before", 1), ("device_code", "after", 2), ("user_info", "before", 1), ("model", "", 1)],
    ids=["polled", "issued", "known", "stored"],
)
async def test_login_survives_a_kill_and_the_turn_continues_once(
    tmp_path: Path, asked: str, moment: str, devices: int
) -> None:
    """An answer that died with its process is lost: the next one shows another card by itself."""
    async with victim(tmp_path) as it:
        async with it.running():
            assert it.run is not None
            await say(it.run, it.feishu, "do it")
            await until(lambda: "waiting for you" in it.texts())
            it.kills[asked] = moment
            await it.approved()
            await it.dead()
        async with it.running():
            if devices > 1:
                await it.approved(devices)
            await until(lambda: "done" in it.texts())
            await until(lambda: any("✓ logged in as Alice" in text for text in it.texts()))
        assert it.texts().count("done") == 1
        assert len(it.feishu.logins.devices) == devices


@pytest.mark.parametrize(
    ("asked", "moment", "devices"),
    [("refresh_token", "before", 1), ("refresh_token", "after", 2), ("user_info", "before", 1)],
    ids=["unsent", "answered", "stored"],
)
async def test_refresh_survives_a_kill(tmp_path: Path, asked: str, moment: str, devices: int) -> None:
    """Only an answer that was never stored loses the login: the person is asked to log in, and the turn continues."""
    async with victim(tmp_path) as it:
        async with it.running():
            assert it.run is not None
            await say(it.run, it.feishu, "do it")
            await it.approved()
            await until(lambda: "done" in it.texts())
            it.feishu.logins.pairs[-1].access_ends = 0
            it.kills |= {"arm": asked} if asked == "user_info" else {asked: moment}
            await say(it.run, it.feishu, "again")
            await it.dead()
        async with it.running():
            if devices > 1:
                await it.approved(devices)
            await until(lambda: it.texts().count("done") == 2)
        assert len(it.feishu.logins.devices) == devices
        live = [pair for pair in it.feishu.logins.pairs if pair.login not in it.feishu.logins._ended and not pair.used]
        assert len(live) == 1


@pytest.mark.parametrize(
    ("asked", "moment", "devices"),
    [("refresh_token", "before", 1), ("refresh_token", "after", 2), ("user_info", "before", 1)],
    ids=["unsent", "answered", "stored"],
)
async def test_refresh_survives_the_kill_of_one_of_two_replicas(
    tmp_path: Path, postgres_url: str, asked: str, moment: str, devices: int
) -> None:
    """Both need the token at once. The one that refreshes it is killed, and the other answers both turns with one refresh
    of its own at most; no login is lost that was stored."""
    async with victim(tmp_path, f'database: {{ url: "{postgres_url}" }}') as it:
        logins = it.feishu.logins
        async with started(it.config, SECRETS) as other, it.running():
            assert it.run is not None
            await say(it.run, it.feishu, "do it")
            await it.approved()
            await until(lambda: "done" in it.texts())
            logins.pairs[-1].access_ends = 0
            refreshes = logins.asked.count("refresh_token")
            it.kills |= {"arm": asked} if asked == "user_info" else {asked: moment}
            killed = logins.before, logins.after

            async def joined(hook: Any, name: str) -> bool:
                """Have the other replica need the token, too, before the kill."""
                is_due = name in it.kills and it.kills[name] == ("before" if hook is killed[0] else "after")
                if is_due:
                    before = len(it.anthropic.requests)
                    event = it.feishu.text_event("here, too", sender=ALICE, chat=OTHER_CHAT, chat_type="p2p")
                    assert (await push(it.feishu, other.url, event)).status_code == 200
                    await until(lambda: len(it.anthropic.requests) > before)
                return bool(await hook(name))

            logins.before = partial(joined, killed[0])
            logins.after = partial(joined, killed[1])
            await say(it.run, it.feishu, "again")
            await it.dead()
            if devices > 1:
                await it.approved(devices)
            await until(lambda: it.texts().count("done") == 3)
        assert len(logins.devices) == devices
        assert logins.asked.count("refresh_token") - refreshes == (1 if asked == "user_info" else 2)
        live = [pair for pair in logins.pairs if pair.login not in logins._ended and not pair.used]
        assert len(live) == 1
