"""A config that is edited while people write: what is valid holds at once, what is not changes nothing."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx import Response
from structlog.testing import capture_logs

from gateway.app.serve import Reload
from gateway.config.load import load
from tests.emulators.models.script import Turn, calls, says
from tests.running import ALICE_CHAT, BOB, BOB_CHAT, SECRETS, Running, client, push, running
from tests.stories.process.test_process import platforms, started
from tests.stories.store.test_replicas import two
from tests.web_page import WEB, opened

LOOK_SECONDS = 0.02


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", LOOK_SECONDS)


class Editor:
    """Edits the config file of a running gateway, as a person would."""

    def __init__(self, house: Running) -> None:
        self.house = house
        self.file = house.folder / "config.yaml"
        self.text = self.file.read_text(encoding="utf-8")

    async def ready(self) -> bool:
        """Not for a moment after a pause of a busy machine, which is no fault of the edit."""
        return (await self._readyz()).status_code == 200

    async def state(self) -> dict[str, Any]:
        state: dict[str, Any] = (await self._readyz()).json()["config"]
        return state | {"error": self.house.gateway.runtime.config_state.error}  # whose words are the operator's

    async def _readyz(self) -> Response:
        async with client(self.house.url) as http:
            return await http.get("/readyz")

    async def write(self, text: str) -> dict[str, Any]:
        """Until the gateway has taken note of it."""
        runtime = self.house.gateway.runtime
        before = runtime.config_state
        self.file.write_text(text, encoding="utf-8")
        await self.house.until(lambda: runtime.config_state != before)
        await self.house.until(self.ready)
        return await self.state()

    async def replace(self, old: str, new: str) -> dict[str, Any]:
        assert old in self.text
        self.text = self.text.replace(old, new)
        return await self.write(self.text)


@asynccontextmanager
async def edited(folder: Path, **config: Any) -> AsyncIterator[tuple[Running, Editor]]:
    async with running(folder, **config) as house:
        file = folder / "config.yaml"
        reload = Reload(house.gateway, file, SECRETS, load(file, SECRETS), applied=lambda config: None)
        house.gateway.spawn(reload.run())
        yield house, Editor(house)


async def test_reload_sees_an_edit_made_during_the_start(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        file = tmp_path / "config.yaml"
        reload = Reload(house.gateway, file, SECRETS, load(file, SECRETS), applied=lambda config: None)
        file.write_text(file.read_text().replace("dmPolicy: open", "dmPolicyy: open"))
        house.gateway.spawn(reload.run())
        await house.until(lambda: "dmPolicyy" in (house.gateway.runtime.config_state.error or ""))


def prompts(house: Running) -> list[str]:
    return ["".join(block["text"] for block in received.body["system"]) for received in house.anthropic.requests]


async def test_reload_holds_from_the_next_turn_and_keys_at_once(
    tmp_path: Path,
) -> None:
    key = tmp_path / "key"
    key.write_text("first-key-4711\n")
    key.chmod(0o600)
    script = [calls(("ls", {})), says("one"), says("two")]
    async with edited(tmp_path, script=script) as (house, editor):
        house.anthropic.api_key = "first-key-4711"
        await editor.replace("${ANTHROPIC_API_KEY}", "${file:key}")
        prompt = tmp_path / ".env"
        house.line.hold()
        await house.say("first")
        await house.requested(1)
        key.write_text("second-key-4711\n")
        prompt.write_text("PROMPT=Rhyme.\n", encoding="utf-8")
        other = "model: anthropic/claude-haiku-4-5\n      systemPrompt: ${PROMPT}"
        await editor.replace("model: anthropic/claude-sonnet-4-6", other)
        house.anthropic.api_key = "second-key-4711"
        house.line.release()
        assert await house.replies(1) == ["one"]
        await house.say("second")
        assert await house.replies(2) == ["one", "two"]
        assert [received.refusal for received in house.anthropic.requests] == [None] * 3
        assert [received.body["model"] for received in house.anthropic.requests] == [
            "claude-sonnet-4-6",
            "claude-sonnet-4-6",
            "claude-haiku-4-5",
        ]
        assert ["Rhyme." in prompt for prompt in prompts(house)] == [False, False, True]


async def test_reload_of_a_broken_config_changes_nothing_and_says_where(tmp_path: Path) -> None:
    async with edited(tmp_path, script=[says("still here")]) as (house, editor):
        version = (await editor.state())["version"]
        with capture_logs() as logs:
            state = await editor.write(editor.text.replace("dmPolicy: open", "dmPolicyy: open"))
        assert state["version"] == version
        assert state["error"].startswith(f"{editor.file}:")
        assert "dmPolicyy" in state["error"]
        assert [line["log_level"] for line in logs if line["event"] == "config_refused"] == ["error"]
        assert house.counted("clawgate_config_refused 1.0")
        await house.say("hello?")
        assert await house.replies(1) == ["still here"]
        with capture_logs() as logs:
            assert await editor.write(editor.text) == {"version": version, "error": None, "restart": []}
        assert [line["changed"] for line in logs if line["event"] == "config_reloaded"] == [[]]
        assert house.counted("clawgate_config_refused 0.0")


async def test_reload_waits_for_a_file_still_being_written(tmp_path: Path) -> None:
    async with edited(tmp_path) as (_, editor):
        ends = (
            asyncio.get_running_loop().time() + 20 * LOOK_SECONDS
        )  # as many looks; between any two of them it has grown
        half = 0
        with capture_logs() as logs:
            while asyncio.get_running_loop().time() < ends:
                half += 1
                editor.file.write_text("x" * half, encoding="utf-8")
                await asyncio.sleep(0)
            await editor.write(editor.text.replace("dmPolicy: open", "dmPolicy: pairing"))
        assert [line["event"] for line in logs if line["event"].startswith("config_")] == ["config_reloaded"]


@pytest.mark.parametrize("host", ["0.0.0.0", "127.0.0.1"])
async def test_reload_refuses_a_short_token_while_open_to_the_network(tmp_path: Path, host: str) -> None:
    """Whatever address the edit names: it goes on listening where it does."""
    long, short = "x" * 32, "sixteen-or-more-91827"
    more = f"server: {{ host: 0.0.0.0, adminToken: {long} }}"
    async with edited(tmp_path, more=more, feishu=WEB) as (house, editor):
        state = await editor.replace(f"host: 0.0.0.0, adminToken: {long}", f"host: {host}, adminToken: {short}")
        assert "server.adminToken: too short for a server that is open to the network (0.0.0.0)" in state["error"]
        async with client(house.url) as http:
            for token, status in ((long, 200), (short, 401)):
                answer = await http.get("/api/chats", headers={"authorization": f"Bearer {token}"})
                assert answer.status_code == status


async def test_reload_that_fails_changes_nothing_and_the_next_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(*_: object, **__: object) -> None:
        raise RuntimeError("not for everybody's eyes")

    async with edited(tmp_path, script=[says("one"), says("two")]) as (house, editor):
        version = (await editor.state())["version"]
        with monkeypatch.context() as broken, capture_logs() as logs:
            broken.setattr("gateway.app.gateway.build_setup", build)
            state = await editor.replace("id: helper", "id: helper\n      name: Robin")
        assert state["version"] == version
        assert "could not be put in force (RuntimeError)" in state["error"]
        assert "everybody" not in json.dumps(state)
        assert [it["event"] for it in logs if it["log_level"] == "error"] == ["config_not_applied"]
        await house.say("does it serve?")
        assert await house.replies(1) == ["one"]
        state = await editor.replace("name: Robin", "name: Kim")
        assert (state["error"], state["version"] == version) == (None, False)
        await house.say("and now?")
        assert await house.replies(2) == ["one", "two"]
        assert "Kim" in prompts(house)[-1]


async def test_reload_at_two_replicas_reaches_the_same_version(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, lambda body: says("ok"), "queue: { mode: followup }") as houses:
        file = tmp_path / "config.yaml"
        for house in houses:
            reload = Reload(house.gateway, file, SECRETS, load(file, SECRETS), applied=lambda config: None)
            house.gateway.spawn(reload.run())
        editors, writing = [Editor(house) for house in houses], True

        async def write() -> int:
            sent = 0
            while writing:
                sent += 1
                answer = await houses[sent % 2].say(f"message {sent}", chat=f"oc_{sent % 7:032d}")
                assert answer.status_code == 200
            return sent

        def versions() -> set[str]:
            return {house.gateway.runtime.config_state.version for house in houses}

        people, seen = asyncio.create_task(write()), versions()
        assert len(seen) == 1
        for number in range(4):
            (before,) = versions()
            file.write_text(f"{editors[0].text}\nlimits: {{ rounds: {20 + number} }}\n", encoding="utf-8")

            def agreed(before: str = before) -> bool:
                return len(now := versions()) == 1 and before not in now

            await houses[0].until(agreed)
            seen |= versions()
        assert {(await editor.state())["version"] for editor in editors} == versions()
        writing = False
        sent = await people
        for house in houses:
            await house.replies(sent)
            await house.idle()
        assert len(seen) == 5
        assert len({it.reply_to for it in houses[0].feishu.messages}) == len(houses[0].feishu.messages) == sent


async def test_reload_adds_and_removes_channels_and_revokes_secrets(tmp_path: Path) -> None:
    async with edited(tmp_path, script=lambda body: says("yes")) as (house, editor):
        await house.say("before")
        await house.replies(1)
        async with client(house.url) as http:
            assert (await http.get("/")).status_code == 404
            await editor.replace("channels:\n", "channels:\n  web: {}\n")
            assert (await http.get("/")).status_code == 200
            broken = await editor.write(editor.text.replace("dmPolicy: open", "dmPolicyy: open"))
            async with http.stream("GET", "/api/events") as stream:
                events = stream.aiter_lines()
                said = [await anext(events) for _ in range(6)]
            assert "event: fault" in said
            assert "dmPolicyy: unknown key" in "".join(said)
            assert "dmPolicyy: unknown key" in broken["error"]
            await editor.write(editor.text)
        await editor.replace("${FEISHU_VERIFICATION_TOKEN}", "another-token-entirely")
        refused = await push(house.feishu, house.url, house.feishu.text_event("old token", sender=BOB, chat=BOB_CHAT))
        assert 400 <= refused.status_code < 500
        await editor.replace("another-token-entirely", "${FEISHU_VERIFICATION_TOKEN}")
        assert (await house.say("after")).status_code == 200
        assert await house.replies(2) == ["yes", "yes"]


async def test_reload_adds_an_agent_a_binding_and_a_limit_immediately(tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Turn:
        return says("I am the writer" if "You are Writer" in str(body["system"]) else "I am the helper")

    async with edited(tmp_path, script=script) as (house, editor):
        await house.say("who?")
        assert await house.replies(1) == ["I am the helper"]
        writer = "agents:\n  list:\n    - { id: writer, name: Writer, model: anthropic/claude-sonnet-4-6 }"
        bound = f"bindings: [{{ agent: writer, match: {{ channel: feishu, chat: {ALICE_CHAT} }} }}]\n"
        await editor.replace("agents:\n  list:", f"limits: {{ parallelTurns: 2 }}\n{bound}{writer}")
        assert house.gateway.lanes.free_slots == 2
        await house.say("who?")
        assert (await house.replies(2))[1] == "I am the writer"
        await editor.replace("parallelTurns: 2", "parallelTurns: 9")
        assert house.gateway.lanes.free_slots == 9
        await house.say("who?")
        assert (await house.replies(3))[2] == "I am the writer"


@pytest.mark.slow
async def test_reload_twelve_times_under_traffic_loses_nothing(tmp_path: Path) -> None:
    async with edited(tmp_path, script=lambda body: says("ok"), more="queue: { mode: followup }") as (house, editor):
        writing = True

        async def write() -> int:
            sent = 0
            while writing:
                sent += 1
                answer = await house.say(f"message {sent}", chat=f"oc_{sent % 7:032d}")
                assert answer.status_code == 200
            return sent

        people = asyncio.create_task(write())
        for number in range(12):
            await editor.write(f"{editor.text}\nlimits: {{ rounds: {'none' if number % 2 else 20 + number} }}\n")
        writing = False
        sent = await people
        await house.replies(sent)
        await house.idle()
        assert len(house.feishu.messages) == sent
        answered = [message.reply_to for message in house.feishu.messages]
        assert len(set(answered)) == sent


@pytest.mark.slow
async def test_reload_by_sighup_names_what_needs_a_restart(tmp_path: Path) -> None:
    async with platforms(tmp_path) as (_, _, config), started(config) as run:
        config.write_text(
            config.read_text(encoding="utf-8") + "\nserver: { port: 4711, adminToken: a-token-of-the-operator }\n"
        )
        run.process.send_signal(signal.SIGHUP)
        await run.wrote("config_reloaded")
        async with client(run.url) as http:
            assert (await http.get("/readyz")).json()["config"]["restart"] == ["server.port"]
            token = {"authorization": "Bearer a-token-of-the-operator"}
            assert (await http.get("/metrics", headers=token)).status_code == 200
        assert any("config_wants_restart" in line and "server.port" in line for line in run.output)
        assert not any("a-token-of-the-operator" in line for line in run.output)


async def test_reload_error_is_shown_to_the_operator_only(tmp_path: Path) -> None:
    """`/readyz` answers anybody under any name: no path, no key, no value of the file stands there."""
    token = "canary-admin-token-9182736455"
    async with edited(tmp_path, more=f"server: {{ adminToken: {token} }}") as (house, editor):
        await editor.replace("dmPolicy: open", "dmPolicyy: open")
        async with client(house.url, headers={"host": "anything.example"}) as http:
            for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {token}"}):
                answer = await http.get("/readyz", headers=headers)
                assert (answer.status_code, answer.json()["config"]["error"]) == (200, True)
                assert not [it for it in (str(tmp_path), "config.yaml", "dmPolicy") if it in answer.text]
            told = (await http.get("/readyz", headers={"authorization": f"Bearer {token}"})).json()["config"]["error"]
            assert str(editor.file) in told
            assert "dmPolicyy" in told


async def test_reload_removing_a_user_ends_streams_and_session(tmp_path: Path) -> None:
    ann, new = "canary-ann-token-9182736455", "canary-new-token-9182736455"
    server = f"server: {{ adminToken: canary-admin-token-9182736455, users: {{ ann: {ann}, bob: {new}-b }} }}"
    async with (
        edited(tmp_path, feishu=WEB, more=server) as (house, editor),
        client(house.url, headers={"x-clawgate": "1"}) as http,
        opened(house.url, authorization=f"Bearer {ann}") as page,
    ):
        session = await http.post("/api/session", json={"token": ann})
        cookie = {"cookie": session.headers["set-cookie"].partition(";")[0]}
        http.cookies.clear()
        assert (await http.get("/api/session", headers=cookie)).json() == {"person": "ann"}
        await editor.replace(ann, new)
        assert (await http.get("/api/chats", headers=cookie)).status_code == 401
        assert (await http.get("/api/chats", headers={"authorization": f"Bearer {ann}"})).status_code == 401
        assert (await http.get("/api/chats", headers={"authorization": f"Bearer {new}"})).status_code == 200
        await page.until(lambda: page._reading is not None and page._reading.done())
