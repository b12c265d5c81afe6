"""An edit of the config, of whichever key, while something is under way: nothing is lost and nothing comes twice, and only
what the edit concerns is renewed."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from structlog.testing import capture_logs

from gateway.app.gateway import Gateway
from gateway.app.setup import FIXED, loaded_over
from gateway.config.load import load
from gateway.config.root import Config
from gateway.state.runtime import ConfigState
from tests.case import case
from tests.empty_database import open_store
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.held import Held
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, APP_ID, SECRETS, client, feishu_emulator, started
from tests.running import push as push_to_feishu
from tests.waiting import PATIENCE_SECONDS, until
from tests.web_page import CHAT, Page, opened

LONG = "first words " + "and more " * 30 + "the end"
SECRET = "a-long-random-word_0123456789"
BOTS = ("feishu webhook", "feishu websocket", "telegram webhook", "telegram polling")
STAGES = ("running", "sending", "postponed", "growing")
MATRIX = [(way, stage) for way in BOTS for stage in STAGES] + [("web", "running"), ("web", "growing")]
"""What the web chat sends is a write to our own database."""
FEW = [*zip(BOTS, STAGES, strict=True), *MATRIX[-2:]]
"""Each way and each stage once, for what is tried with every key of the config."""

Document = dict[str, Any]
WEB = ("web", "default")
AGENT: Document = {"id": "helper", "model": "anthropic/claude-sonnet-4-6", "tools": {"allow": ["read", "ls"]}}
UNASKED: Document = {"tools": {"allow": ["read", "ls", "exec"], "exec": {"mode": "allow", "sandbox": "off"}}}
NEIGHBOUR: Document = {"appId": "cli_b", "appSecret": "secret-of-b", "mode": "webhook", "encryptKey": "key-of-b"}

TOP_LEVEL: dict[str, tuple[Any, set[tuple[str, str]]]] = {
    "logging": ({"content": True}, set()),
    "models": ({"anthropic/claude-sonnet-4-6": {"window": 100_000}}, set()),
    "owners": ([f"feishu:{ALICE}"], set()),
    "notifyOwners": (False, set()),
    "commands": ({"usage": "owner", "undo": "off"}, set()),
    "language": ("zh", set()),
    "currency": ("EUR", set()),
    "approvals": ({"expirySeconds": 300}, set()),
    "tools": ({"deny": ["write"]}, set()),
    "skills": ({"directories": ["more"]}, set()),
    "queue": ({"mode": "followup"}, set()),
    "retry": ({"maxSeconds": 20}, set()),
    "speech": ({"model": "openai/tts-1", "mode": "mirror"}, set()),
    "retention": ({"days": 365}, set()),
    "handover": ({"to": f"feishu:{ALICE_CHAT}", "hours": 2}, set()),
    "transcription": ({"baseUrl": "http://127.0.0.1:9/v1", "model": "whisper-1"}, set()),
    "limits": ({"rounds": 50}, set()),
    "budgets": ({"sender": {"tokensPerDay": 10_000_000}}, set()),
    "rates": ({"sender": "1000/1m"}, set()),
    "console": ({"keepDays": 3}, set()),
    "watch": ({"every": "6h", "model": True}, set()),
}
"""Of each key a value to set it to, and the channels that are made of it."""
BENEATH: dict[str, tuple[Callable[[Document], object], set[tuple[str, str]]]] = {
    "a web user": (lambda it: it["server"].update(users={"ann": "a-token-for-ann-47114711"}), {WEB}),
    "the admin token": (lambda it: it["server"].update(adminToken="a-token-of-the-operator"), {WEB}),
    "publicUrl": (lambda it: it["server"].update(publicUrl="https://bot.example.com"), {WEB}),
    "a server limit": (lambda it: it["server"].update(maxBodyBytes=500_000), set()),
    "another agent": (lambda it: it["agents"]["list"].append(AGENT | {"id": "writer"}), set()),
    "an agent's prompt": (lambda it: it["agents"]["list"][0].update(systemPrompt="Rhyme."), set()),
    "a binding": (
        lambda it: (
            it["agents"]["list"].append(AGENT | {"id": "writer"}),
            it.update(bindings=[{"agent": "writer", "match": {"channel": "feishu", "chat": "oc_1"}}]),
        ),
        set(),
    ),
    "a provider's key": (lambda it: it["providers"]["anthropic"].update(timeoutSeconds=77), set()),
    "a neighbour": (lambda it: it["channels"]["feishu"].update(accounts={"b": NEIGHBOUR}), set()),
}
ACCOUNT: dict[str, Any] = {
    "dmPolicy": "allowlist",
    "groupPolicy": "open",
    "requireMention": False,
    "topicMention": False,
    "mentionPatterns": ["bot"],
    "tools": {"deny": ["write"]},
    "introduction": "Hello there.",
    "history": 5,
    "timeoutSeconds": 20.0,
    "sendsPerSecond": 40.0,
    "quotes": "off",
    "queue": {"mode": "followup"},
}
"""Of each key of an account another value."""
KEYS: dict[str, dict[str, Any]] = {
    "feishu": {
        **ACCOUNT,
        "allowFrom": [ALICE],
        "groupAllowFrom": ["oc_1"],
        "groupSenders": ["ou_1"],
        "botsFrom": ["ou_2"],
        "chats": {"oc_1": {"streaming": "off"}},
        "streaming": "progress",
        "encryptKey": "another-key",
        "verificationToken": "another-token",
        "mode": "auto",
        "verification": "token",
        "timestampWindowSeconds": 3_000,
        "reaction": "Typing",
        "rendering": "post",
        "login": {"scopes": ["docx:document:readonly"]},
        "resendAmbiguous": False,
    },
    "telegram": {
        **ACCOUNT,
        "allowFrom": ["4711"],
        "groupAllowFrom": ["-4711"],
        "groupSenders": ["4711"],
        "botsFrom": ["4712"],
        "chats": {"-4711": {"streaming": "off"}},
        "streaming": "progress",
        "mode": "polling",
        "webhookSecret": "another-random-word_0123456789",
        "linkPreviews": True,
        "drafts": True,
        "resendAmbiguous": True,
    },
    "web": {"queue": {"mode": "followup"}, "tools": {"deny": ["write"]}, "versions": 5},
}
ANOTHER_BOT = {"appId", "appSecret", "baseUrl", "botToken", "apiRoot"}
"""These make it another bot, elsewhere. `enabled` and `accounts` have tests of their own."""


def edits(way: str) -> list[tuple[str, Callable[[Document], object], set[tuple[str, str]]]]:
    """Each with its name and the channels that it renews."""
    found = [(key, top_level(key, value), renewed) for key, (value, renewed) in TOP_LEVEL.items()]
    found += [(name, edit, renewed) for name, (edit, renewed) in BENEATH.items()]
    # With a public address the page is closed without a token, whoever commands.
    found.append(
        (
            "an agent that commands unasked",
            lambda it: it["agents"]["list"][0].update(UNASKED),
            {WEB} if way == "web" else set(),
        )
    )
    for kind, keys in KEYS.items():
        for key, value in keys.items():
            other = "webhook" if (way, key) == ("telegram polling", "mode") and kind == "telegram" else value
            found.append((f"{kind}.{key}", setting(kind, key, other), {(kind, "default")}))
    return found


def top_level(key: str, value: Any) -> Callable[[Document], object]:
    return lambda it: it.update({key: value})


def setting(kind: str, key: str, value: Any) -> Callable[[Document], object]:
    return lambda it: it["channels"][kind].update({key: value})


@dataclass
class House:
    """A gateway with all three channels, each of which a test can hold up."""

    folder: Path
    gateway: Gateway
    url: str
    feishu: FeishuEmulator
    telegram: TelegramEmulator
    anthropic: AnthropicEmulator
    line: Line
    held: Held
    way: str
    text: Document
    alice: int = 0
    page: Page | None = None
    asked: int = 0
    """How often Alice has asked."""

    async def say(self, words: str) -> None:
        match self.way:
            case "feishu webhook":
                event = self.feishu.text_event(words, sender=ALICE, chat=ALICE_CHAT)
                assert (await push_to_feishu(self.feishu, self.url, event)).status_code == 200
            case "feishu websocket":
                await self.feishu.socket.connected()
                await self.feishu.socket.push(self.feishu.text_event(words, sender=ALICE, chat=ALICE_CHAT))
            case "telegram webhook":
                update = self.telegram.text_update(words, chat=self.alice, sender=self.alice)
                self.telegram.learn(update)
                url = f"{self.url}/webhooks/telegram/default"
                assert (await self.telegram.deliver_once(url, update, secret=SECRET)).status_code == 200
            case "telegram polling":
                await self.telegram.push(self.telegram.text_update(words, chat=self.alice, sender=self.alice))
            case _:
                assert self.page is not None
                assert (await self.page.say(words)).status_code == 200

    async def shown(self) -> list[str]:
        """All that stands in Alice's chat."""
        if self.way.startswith("feishu"):
            return self.feishu.shown(ALICE_CHAT)
        if self.way.startswith("telegram"):
            return self.telegram.shown(self.alice)
        assert self.page is not None
        answer = await self.page.http.get(f"/api/chats/{CHAT}")
        return [it["text"] for it in answer.json()["messages"] if it["author"] == "agent"]

    async def apply(self, edit: Callable[[Document], object]) -> set[tuple[str, str]]:
        """Put an edited config in force; the channels that were renewed by it."""
        document = deepcopy(self.text)
        edit(document)
        file = self.folder / "config.yaml"
        file.write_text(json.dumps(document), encoding="utf-8")
        loaded = load(file, SECRETS)
        before = dict(self.gateway.runtime.setup.channels)
        config = loaded_over(loaded.config, self.gateway.config)
        await self.gateway.apply(config, loaded.environment, ConfigState(version="edited"))
        async with client(self.url) as http:  # what would be closed too early is closed a few requests later
            for _ in range(5):
                assert (await http.get("/healthz")).status_code == 200
        after = self.gateway.runtime.setup.channels
        return {key for key in before.keys() & after.keys() if before[key] is not after[key]}

    async def idle(self) -> None:
        await until(lambda: not self.gateway.runtime.control.lanes)


@asynccontextmanager
async def house(
    folder: Path, way: str, *, streaming: str = "off", script: Any = (), **more: Any
) -> AsyncIterator[House]:
    feishu, telegram = feishu_emulator(), TelegramEmulator()
    anthropic = AnthropicEmulator(script or (lambda _: says(LONG)), api_key=SECRETS["ANTHROPIC_API_KEY"])
    line, held = Line(anthropic.app), Held()
    async with (
        serve_on_loopback(held.before(feishu.app)) as feishu_url,
        serve_on_loopback(held.before(telegram.app)) as telegram_url,
        serve_on_loopback(line) as anthropic_url,
    ):
        text: Document = {
            "logging": {"level": "warning"},
            "server": {} if way == "web" else {"publicUrl": "https://claw.example.com"},
            "providers": {"anthropic": {"apiKey": "${ANTHROPIC_API_KEY}", "baseUrl": anthropic_url}},
            "agents": {"list": [AGENT]},
            "channels": {
                "feishu": {
                    "baseUrl": feishu_url,
                    "appId": APP_ID,
                    "appSecret": "${FEISHU_APP_SECRET}",
                    "encryptKey": "${FEISHU_ENCRYPT_KEY}",
                    "verificationToken": "${FEISHU_VERIFICATION_TOKEN}",
                    "mode": "websocket" if way == "feishu websocket" else "webhook",
                    "timeoutSeconds": PATIENCE_SECONDS,  # a send is held as long as all the edits take
                    "dmPolicy": "open",
                    "reaction": "",
                    "streaming": streaming,
                },
                "telegram": {
                    "botToken": telegram.token,
                    "apiRoot": telegram_url,
                    "mode": "polling" if way == "telegram polling" else "webhook",
                    "timeoutSeconds": PATIENCE_SECONDS,
                    "webhookSecret": SECRET,
                    "dmPolicy": "open",
                    "streaming": streaming,
                },
                "web": {},
            },
            **more,
        }
        (folder / "more").mkdir(exist_ok=True)
        file = folder / "config.yaml"
        file.write_text(json.dumps(text), encoding="utf-8")
        config = load(file, SECRETS).config
        gateway = Gateway(config, SECRETS, store=open_store(config.database))
        await started(gateway)
        try:
            async with serve_on_loopback(gateway.app, http=gateway.connections.protocol) as url:
                made = House(folder, gateway, url, feishu, telegram, anthropic, line, held, way, text)
                made.alice = telegram.private()
                if way == "web":
                    async with opened(url) as made.page:
                        yield made
                        await gateway.drain()
                else:
                    await until(lambda: bool(telegram.commands))
                    yield made
                    await gateway.drain()
        finally:
            line.release()
            held.release()
            await gateway.lanes.drain(0)
            await gateway.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.gateway.RETIRE_SECONDS", 0.001)
    monkeypatch.setattr("gateway.outbox.outbox.AWAY_SECONDS", 0.01)
    monkeypatch.setattr("gateway.turns.watch.OPEN_SECONDS", 0.01)
    monkeypatch.setattr("channels.telegram.channel.EDIT_SECONDS", 0.02)


async def reach(it: House, stage: str) -> None:
    """Let Alice ask, and wait until the answer is that far."""
    it.asked += 1
    match stage:
        case "running":
            it.line.hold()
            await it.say("tell me")
            await until(lambda: it.line.holding)
        case "sending":
            it.held.hold("/sendMessage", "/reply")
            await it.say("tell me")
            await until(lambda: it.held.holding)
        case "postponed":
            seconds = {"x-ogw-ratelimit-reset": "2"}
            it.feishu.fail_next("/reply", code=99991400, status=429, headers=seconds)
            it.telegram.fail_next(
                "sendMessage", status=429, description="Too Many Requests", parameters={"retry_after": 2}
            )
            with capture_logs() as logs:
                await it.say("tell me")
                await until(lambda: any(line["event"] == "part_postponed" for line in logs))
        case "growing":
            it.line.hold(after_pieces=2)
            before = drafts(it)
            await it.say("tell me")
            await until(lambda: drafts(it) > before)


def drafts(it: House) -> int:
    """How many states of an answer in the chat begin with its first words."""
    if it.page is not None:
        return sum("first words" in text for text in it.page.drafts())
    cards = [state for card in it.feishu.cardkit.cards.values() for state in card.states]
    return sum("first words" in text for text in [*cards, *(sent.text for sent in it.telegram.messages)])


async def restreamed(it: House, stage: str) -> None:
    """An answer that is to grow is shown while it does."""
    if stage == "growing" and it.page is None:
        it.text["channels"][it.way.split()[0]]["streaming"] = "partial"
        await it.apply(lambda text: None)


async def ends_well(it: House) -> None:
    it.line.release()
    it.held.release()
    await it.idle()
    assert await it.shown() == [LONG] * it.asked
    assert it.held.lost == 0
    assert len(it.anthropic.requests) == it.asked


def test_config_edits_cover_every_key() -> None:
    named = {(field.alias or name) for name, field in Config.model_fields.items()}
    elsewhere = {"server", "agents", "bindings", "providers", "channels"}
    elsewhere |= {"schedules", "hooks", "mcp"}  # their stories edit them
    assert named == {*TOP_LEVEL, *elsewhere, *(key for key in FIXED if "." not in key)}
    kinds = {name: load_type(name) for name in KEYS}
    for name, fields in kinds.items():
        assert fields - ANOTHER_BOT - {"enabled", "accounts"} == KEYS[name].keys()


def load_type(name: str) -> set[str]:
    from gateway.config.channels import ChannelsConfig

    (section,) = (it for it in get_args(ChannelsConfig.model_fields[name].annotation) if it is not type(None))
    return {field.alias or key for key, field in section.model_fields.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "stage", "share"),
    [
        *((*it, slice(number, None, len(FEW))) for number, it in enumerate(FEW)),
        *(pytest.param(*it, slice(None), marks=pytest.mark.long) for it in MATRIX),
    ],
)
async def test_config_edit_of_any_key_loses_nothing_of_an_answer(
    tmp_path: Path, way: str, stage: str, share: slice
) -> None:
    """Many edits in a row, while one answer is on its way: here and there each key, and `make test-all` all everywhere."""
    async with house(tmp_path, way, streaming="partial" if stage == "growing" else "off") as it:
        await reach(it, stage)
        left: set[tuple[str, str]] = set()
        for name, edit, renewed in [*edits(way)[share], ("none", lambda text: None, set())]:
            assert await it.apply(edit) == left | renewed, name
            left = renewed
        await ends_well(it)


@pytest.mark.parametrize("way", BOTS)
async def test_config_edit_removing_an_account_briefly_keeps_its_queue(tmp_path: Path, way: str) -> None:
    async with house(tmp_path, way) as it:
        for stage in ("waiting", *STAGES):
            with case(way, stage):
                await restreamed(it, stage)
                await goes_and_comes_back(it, stage)


async def goes_and_comes_back(it: House, stage: str) -> None:
    """`waiting`: nobody has begun to answer."""
    kind = it.way.split()[0]
    with capture_logs() as logs:
        if stage == "waiting":
            it.asked += 1
            it.gateway.lanes.resize(it.gateway.config.limits.parallel_turns, 0)
            await it.say("tell me")
            await until(lambda: any(line["event"] == "message_accepted" for line in logs))
        else:
            await reach(it, stage)
        await it.apply(lambda text: text["channels"].pop(kind))
        it.line.release()
        it.held.release()
        if stage == "waiting":
            it.gateway.lanes.resize(0, it.gateway.config.limits.parallel_turns)
            await until(lambda: not any(lane.awaiting_slot for lane in it.gateway.runtime.control.lanes.values()))
        elif stage == "sending":
            await it.idle()
        else:
            await until(lambda: any(line["event"] == "part_waits_for_its_account" for line in logs))
        answered = it.asked if stage == "sending" else it.asked - 1
        assert (await it.shown()).count(LONG) == answered
        await it.apply(lambda text: text["channels"][kind].update(queue={"mode": "followup"}))
        await ends_well(it)


@pytest.mark.parametrize("way", ["feishu websocket", "telegram webhook"])
async def test_config_edit_removing_an_account_leaves_dead_letters(tmp_path: Path, way: str) -> None:
    async with house(tmp_path, way) as it:
        with capture_logs() as logs:
            await reach(it, "postponed")
            await it.apply(
                lambda text: (text["channels"].pop(way.split()[0]), text.update(limits={"deliverySeconds": 1}))
            )
            await it.idle()
        (given_up,) = [line for line in logs if line["event"] == "part_given_up"]
        assert "no longer configured" in given_up["reason"]
        assert b'clawgate_dead_letters_total{kind="part"} 1.0' in it.gateway.runtime.metrics.render()


@pytest.mark.parametrize("way", [*BOTS, "web"])
async def test_config_edits_in_a_row_close_no_channel_in_use(tmp_path: Path, way: str) -> None:
    """The first leaves the account as it is, the second takes it away, and the third brings it back."""
    kind = way.split()[0]
    async with house(tmp_path, way) as it:
        for stage in [stage for one, stage in MATRIX if one == way and stage in ("sending", "growing")]:
            with case(way, stage), capture_logs() as logs:
                await restreamed(it, stage)
                await reach(it, stage)
                await it.apply(lambda text: text.update(limits={"rounds": 50}))
                await it.apply(lambda text: text["channels"].pop(kind))
                await it.apply(lambda text: text["channels"][kind].update(queue={"mode": "followup"}))
                await ends_well(it)
            assert [line for line in logs if line["event"] == "draft_failed"] == [], stage
            await until(lambda: not it.gateway._retiring)


async def test_config_edit_of_the_web_chat_keeps_showing_a_turn(tmp_path: Path) -> None:
    script = [calls(("ls", {})), says(LONG)]
    async with house(tmp_path, "web", script=script) as it:
        assert it.page is not None
        it.line.hold(after_pieces=2)
        await it.say("look")
        await until(lambda: it.line.holding)
        for edit in (
            setting("web", "queue", {"mode": "followup"}),
            lambda text: text["channels"].pop("web"),
            lambda text: None,
        ):
            await it.apply(edit)
        async with opened(it.url) as page:
            await page.until(lambda: any("first words" in text for text in page.drafts()))
            assert [tool["name"] for turn in page.named("turn") for tool in turn["tools"]] == ["ls"]
            it.line.release()
            assert await page.answers(1) == [LONG]
        (answer,) = [it for it in (await it.page.conversation())["messages"] if it["author"] == "agent"]
        assert [tool["name"] for tool in answer["tools"]] == ["ls"]


async def test_config_edit_then_stop_keeps_the_text_of_the_turn(tmp_path: Path) -> None:
    async with house(tmp_path, "web") as it:
        await reach(it, "growing")
        await it.apply(setting("web", "queue", {"mode": "followup"}))
        await it.say("/stop")
        await it.idle()
        await until(lambda: shows_stopped(it))


async def shows_stopped(it: House) -> bool:
    return any("first words" in text for text in await it.shown())


async def test_config_edit_removing_a_user_closes_their_stream(tmp_path: Path) -> None:
    async with house(tmp_path, "web") as it:
        assert it.page is not None
        assert it.page._reading is not None
        await it.apply(lambda text: text["server"].update(adminToken="a-token-of-the-operator"))
        await until(it.page._reading.done)
        assert (await it.page.http.get("/api/events")).status_code == 401


DEPENDS: dict[str, list[tuple[Document, bool]]] = {
    "telegram polling": [
        ({"commands": {"usage": "off"}}, True),
        ({"server": {"publicUrl": "https://bot.example.com"}}, False),
    ],
    "telegram webhook": [({"server": {"publicUrl": "https://bot.example.com"}}, True)],
    "feishu websocket": [
        ({"commands": {"usage": "off"}}, False),
        ({"server": {"publicUrl": "https://bot.example.com"}}, False),
    ],
}
"""Edits, and whether the connection begins anew for them."""


@pytest.mark.parametrize("way", DEPENDS)
async def test_config_edit_reconnects_only_what_depends_on_it(tmp_path: Path, way: str) -> None:
    async with house(tmp_path, way) as it:
        channel = it.gateway.runtime.setup.channels[way.split()[0], "default"]
        for edit, again in DEPENDS[way]:
            _, tasks = it.gateway._links._begun[channel]
            it.text.update(edit)
            assert await it.apply(lambda text: None) <= {WEB}
            assert (it.gateway._links._begun[channel][1] is not tasks) is again, edit
        if way == "telegram webhook":
            await until(lambda: it.telegram.webhook.url.startswith("https://bot.example.com/"))
        elif way == "telegram polling":
            await until(lambda: "usage" not in {command["command"] for command in it.telegram.commands["default", ""]})
