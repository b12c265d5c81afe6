"""`python -m gateway doctor` against emulators and databases with each fault that it looks for."""

import json
import os
import re
import time
from collections.abc import Callable
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from channels.bilingual import Finding
from gateway.config.load import Loaded, load
from gateway.operate.doctor import FREE_BYTES_LOW, examine
from gateway.program import VERSION
from gateway.store.migrate import DatabaseUnusable
from gateway.store.opening import connected, health
from tests.chaos.replica import free_port
from tests.empty_database import open_store
from tests.emulators.feishu.emulator import SCOPES, FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.server import ModelEmulator
from tests.emulators.telegram.delivery import Webhook
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import FEISHU, SECRETS, config_text, feishu_emulator, running
from tests.stories.process.test_process import ask
from tests.waiting import PATIENCE_SECONDS
from tools.sandbox.sandbox import Sandbox

PUBLIC = "https://bot.example.com"
LISTENING = FEISHU.replace("mode: webhook", "mode: websocket")
WEBSOCKET = {"subscription_type": "websocket", "subscribed_events": ["im.message.receive_v1"]}
TO_US = WEBSOCKET | {"subscription_type": "webhook", "request_url": f"{PUBLIC}/webhooks/feishu/default"}
ELSEWHERE = TO_US | {"request_url": "https://old.example.com/hook/secret-path"}


def troubles(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(it.check, it.status, it.message) for it in findings if it.status != "ok"]


async def examined(folder: Path, text: str, only: str | tuple[str, ...], **more: Any) -> list[Finding]:
    file = folder / "config.yaml"
    file.write_text(text, encoding="utf-8")
    return await examine(load(file, SECRETS), wanted=lambda probe: probe.startswith(only), **more)


def without(*scopes: str) -> Callable[[FeishuEmulator], None]:
    return lambda it: it.scopes.difference_update(scopes)


def sets(name: str, value: Any) -> Callable[[Any], None]:
    return lambda it: setattr(it, name, value)


def fails(path: str, code: int) -> Callable[[FeishuEmulator], None]:
    return lambda it: it.fail_next(path, times=9, code=code)


FEISHU_FAULTS = [
    (FEISHU, lambda it: None, "", "", ""),
    (FEISHU, sets("app_secret", "another"), "credentials", "error", "10014"),
    (FEISHU, sets("bot_status", 0), "credentials", "error", "not active (status 0)"),
    *((FEISHU, without(it), "scopes", "error", f"{it} is not granted") for it in SCOPES[:4]),
    *((FEISHU, without(it), "scopes", "warning", f"{it} is not granted") for it in SCOPES[4:]),
    (f"{FEISHU}    requireMention: false", lambda it: None, "scopes", "error", "im:message.group_msg is not granted"),
    (FEISHU, fails("/scopes", 99991400), "scopes", "warning", "slow down"),
    (LISTENING, lambda it: setattr(it.socket, "refusal", 403), "connection", "error", "long connection"),
    (LISTENING, sets("subscription", TO_US), "events", "error", "sends events to a server"),
    (LISTENING, sets("subscription", WEBSOCKET), "", "", ""),
    (FEISHU, sets("subscription", WEBSOCKET), "events", "error", "through a long connection"),
    (FEISHU, sets("subscription", TO_US), "", "", ""),
    (FEISHU, sets("subscription", ELSEWHERE), "events", "error", "another address, at old.example.com"),
    (FEISHU, sets("subscription", TO_US | {"subscribed_events": []}), "events", "error", "is not subscribed"),
]  # fmt: skip


@pytest.mark.parametrize(("section", "fault", "check", "status", "says"), FEISHU_FAULTS)
async def test_doctor_finds_each_fault_of_a_feishu_app(
    tmp_path: Path, section: str, fault: Callable[[FeishuEmulator], None], check: str, status: str, says: str
) -> None:
    feishu = feishu_emulator()
    feishu.bot_name = "Helper\x1b[2J"
    fault(feishu)
    async with serve_on_loopback(feishu.app) as url:
        more = f"server: {{ publicUrl: {PUBLIC} }}"
        text = config_text(feishu_url=url, anthropic_url="http://127.0.0.1:1", feishu=section, more=more)
        findings = await examined(tmp_path, text, "feishu")
    assert not any("\x1b" in it.message for it in findings)
    found = [it for it in findings if it.status != "ok"]
    if not check:
        assert found == []
        return
    (one,) = found
    assert (one.check, one.status) == (f"feishu default {check}", status)
    assert says in one.message
    assert one.fix
    assert "secret-path" not in one.message + one.fix
    assert feishu.messages == []


TELEGRAM = """
agents: {{ list: [{{ id: helper, model: demo/guide }}] }}
server: {{ publicUrl: "{public}" }}
channels:
  telegram:
    botToken: "{token}"
    apiRoot: "{url}"
    webhookSecret: a-secret-of-our-own
    mode: {mode}
    groupPolicy: {groups}
"""
OURS = f"{PUBLIC}/webhooks/telegram/default"
STRANGE = "https://old.example.com/bot7000000001:AAsecret"
SEES = "can_read_all_group_messages"
TELEGRAM_FAULTS: list[tuple[str, str, Callable[[TelegramEmulator], None], list[tuple[str, str, str]]]] = [
    ("polling", "disabled", lambda it: None, []),
    ("polling", "open", lambda it: None, [("privacy", "warning", "privacy mode is on")]),
    ("polling", "open", lambda it: it.bot.update({SEES: True}), []),
    ("polling", "open", lambda it: it.bot.update({SEES: True, "can_join_groups": False}),
        [("groups", "warning", "nobody can add the bot")]),
    ("polling", "disabled", sets("token", "7000000001:AAAnotherAnotherAnotherAnotherAnot1"),
        [("credentials", "error", "(401)")]),
    ("polling", "disabled", sets("webhook", Webhook(url=STRANGE)), [("updates", "error", "at old.example.com")]),
    ("webhook", "disabled", lambda it: None, [("updates", "warning", "no webhook is set yet")]),
    ("webhook", "disabled", sets("webhook", Webhook(url=STRANGE)), [("updates", "error", "not here")]),
    ("webhook", "disabled", sets("webhook", Webhook(url=OURS)), []),
    ("webhook", "disabled",
        sets("webhook", Webhook(url=OURS, last_error_date=int(time.time()), last_error_message="Connection refused")),
        [("updates", "warning", "Connection refused")]),
    ("webhook", "disabled", sets("webhook", Webhook(url=OURS, last_error_date=1, last_error_message="Long ago")), []),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "groups", "fault", "expected"), TELEGRAM_FAULTS)
async def test_doctor_finds_each_fault_of_a_telegram_bot(
    tmp_path: Path,
    mode: str,
    groups: str,
    fault: Callable[[TelegramEmulator], None],
    expected: list[tuple[str, str, str]],
) -> None:
    telegram = TelegramEmulator()
    token = telegram.token
    fault(telegram)
    async with serve_on_loopback(telegram.app) as url:
        text = TELEGRAM.format(public=PUBLIC, token=token, url=url, mode=mode, groups=groups)
        findings = await examined(tmp_path, text, "telegram")
    found = [it for it in findings if it.status != "ok"]
    assert [(it.check, it.status) for it in found] == [(f"telegram default {check}", how) for check, how, _ in expected]
    assert all(says in it.message and it.fix for it, (_, _, says) in zip(found, expected, strict=True))
    assert "AAsecret" not in repr(findings)
    assert {it.method for it in telegram.requests} <= {"getMe", "getWebhookInfo"}


async def test_doctor_explains_refused_credentials_in_both_languages(tmp_path: Path) -> None:
    feishu, telegram = feishu_emulator(), TelegramEmulator()
    given, feishu.app_secret, telegram.token = (
        telegram.token,
        "another",
        "7000000001:AAAnotherAnotherAnotherAnotherAnot1",
    )
    async with serve_on_loopback(feishu.app) as url:
        text = config_text(feishu_url=url, anthropic_url="http://127.0.0.1:1", feishu=FEISHU)
        findings = await examined(tmp_path, text, "feishu")
    async with serve_on_loopback(telegram.app) as url:
        text = TELEGRAM.format(public=PUBLIC, token=given, url=url, mode="polling", groups="disabled")
        findings += await examined(tmp_path, text, "telegram")
    found = [it for it in findings if it.check.endswith("credentials")]
    assert [it.message.zh for it in found] == [
        "App ID 或 App Secret 不正确（10014）",
        "机器人令牌不正确或已被撤销（401）",
    ]
    assert all(it.fix and f"channels.{it.check.split()[0]}." in it.fix and it.fix.zh != it.fix for it in found)


WIRES: list[tuple[str, type[ModelEmulator], str, str]] = [
    ("anthropic", AnthropicEmulator, "", "claude-sonnet-4-6"),
    ("openai", ResponsesEmulator, "/v1", "gpt-5.5"),
    ("deepseek", ChatEmulator, "/v1", "deepseek-chat"),
    ("google", GeminiEmulator, "", "gemini-3-flash"),
    ("mistral", MistralEmulator, "", "mistral-large-latest"),
]


@pytest.mark.parametrize(("name", "emulator", "path", "model"), WIRES, ids=[it[0] for it in WIRES])
async def test_doctor_tries_keys_on_every_wire_without_a_model_call(
    tmp_path: Path, name: str, emulator: type[ModelEmulator], path: str, model: str
) -> None:
    vendor = emulator(api_key="canary-right-key-91827")
    vendor.models = [model.replace("-latest", "-2512"), "another"]
    async with serve_on_loopback(vendor.app) as url:
        text = f"""
providers: {{ {name}: {{ baseUrl: "{url}{path}", apiKey: "canary-right-key-91827", apiKeys: ["canary-wrong-key-91827"] }} }}
agents: {{ list: [{{ id: a, model: [{name}/{model}, {name}/anothr] }}] }}
"""
        findings = await examined(tmp_path, text, "provider")
    assert vendor.requests == []
    assert len(vendor.listed) == 2
    assert "canary" not in repr(findings)
    right, wrong, unknown = findings
    assert (right.check, right.status, right.message) == (f"provider {name} key 1", "ok", "the key is right; 2 models")
    assert (wrong.check, wrong.status) == (f"provider {name} key 2", "error")
    assert (unknown.check, unknown.status) == (f"model {name}/anothr", "warning")
    assert unknown.fix == f"did you mean {name}/another?"
    assert wrong.fix == f"set providers.{name}.apiKey"


async def test_doctor_tries_the_transcription_server(tmp_path: Path) -> None:
    vendor = ChatEmulator(api_key="canary-right-key-91827")
    vendor.models = ["whisper-1"]
    async with serve_on_loopback(vendor.app) as url:
        for key, model, expected in (
            ("canary-right-key-91827", "whisper-1", []),
            ("canary-wrong-key-91827", "whisper-1", [("provider transcription", "error", "set transcription.apiKey")]),
            (
                "canary-right-key-91827",
                "whisper",
                [("model transcription/whisper", "warning", "did you mean transcription/whisper-1?")],
            ),
        ):
            text = f'transcription: {{ baseUrl: "{url}/v1", apiKey: {key}, model: {model} }}\n'
            findings = await examined(
                tmp_path, f"{text}agents: {{ list: [{{ id: a, model: demo/guide }}] }}", "transcr"
            )
            assert [(it.check, it.status, it.fix) for it in findings if it.status != "ok"] == expected
    assert vendor.requests == []


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (429, "{}", ("warning", "busy")),
        (503, "{}", ("warning", "busy")),
        (402, "{}", ("error", "no credit")),
        (404, "<html>", ("warning", "cannot be read")),
        (200, "<html>", ("warning", "no list of models")),
        (200, '{"data": 7}', ("warning", "no list of models")),
        (200, '{"data": [7, {"id": 7}, {}]}', ("ok", "0 models")),
        (200, "[" * 100_000, ("warning", "no list of models")),
    ],
)
async def test_doctor_takes_a_bad_model_list_for_no_wrong_key(
    tmp_path: Path, status: int, body: str, expected: tuple[str, str]
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body.encode()})

    async with serve_on_loopback(app) as url:
        text = f"""
providers: {{ anthropic: {{ baseUrl: "{url}", apiKey: "canary-right-key-91827" }} }}
agents: {{ list: [{{ id: a, model: anthropic/claude-sonnet-4-6 }}] }}
"""
        (finding,) = await examined(tmp_path, text, "provider")
    assert (finding.status, expected[1] in finding.message) == (expected[0], True), finding


NOWHERE = """
agents: { list: [{ id: helper, model: [demo/guide, anthropic/claude-sonnet-4-6], workspaceDir: WORKSPACE }] }
providers: { anthropic: { apiKey: "canary-right-key-91827", baseUrl: "http://127.0.0.1:1" } }
server: { port: PORT }
"""


async def test_doctor_finds_what_the_machine_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = NOWHERE.replace("PORT", str(free_port()))  # a gateway of this machine may hold 8080
    text = nowhere.replace("WORKSPACE", str(tmp_path / "w"))
    while_prices_are_new = datetime.fromisoformat("2026-03-01T12:00+00:00").timestamp()
    assert troubles(await examined(tmp_path, text, "", now=lambda: while_prices_are_new)) == [
        (
            "config",
            "warning",
            f"{tmp_path}/config.yaml:3:27: providers.anthropic.apiKey: a secret in a file that others can read",
        ),
        ("provider anthropic", "error", "cannot be reached (ConnectError)"),
    ]
    tmp_path.chmod(0o777)
    (_, open_) = [it for it in await examined(tmp_path, text, "config") if it.status == "warning"]
    assert (open_.message, open_.fix) == (
        f"{tmp_path}: others on this machine can write it, and so decide what runs here",
        "chmod go-w it",
    )
    tmp_path.chmod(0o700)
    for free, status in ((FREE_BYTES_LOW - 1, "warning"), (1, "error")):
        full = await examined(tmp_path, text, "disk", free=lambda path, free=free: free)
        assert {(it.status, it.fix.partition(":")[0]) for it in full} == {(status, "make room")}
    (tmp_path / "file").touch()
    found = await examined(tmp_path, nowhere.replace("WORKSPACE", str(tmp_path / "file" / "w")), "workspaces")
    (closed,) = [it for it in found if it.status == "error"]
    assert f"helper: {tmp_path}/file/w cannot be written" in closed.message
    runs = "{ id: helper, model: demo/guide, tools: { allow: [exec] } }"
    for agent, status in ((runs, "error"), ("{ id: helper, model: demo/guide }", "ok")):
        monkeypatch.setattr("gateway.operate.doctor.Sandbox", partial(Sandbox, kinds=()))
        (none,) = await examined(tmp_path, f"agents: {{ list: [{agent}] }}", "sandbox")
        assert (none.status, none.message.partition(" ")[0]) == (status, "none")
        monkeypatch.undo()
        (stands,) = await examined(tmp_path, f"agents: {{ list: [{agent}] }}", "sandbox")
        assert stands.status == "ok"
    monkeypatch.setattr("gateway.operate.doctor.Sandbox", partial(Sandbox, kinds=["Landlock and seccomp"]))
    network = f"tools: {{ exec: {{ network: true }} }}\nagents: {{ list: [{runs}] }}"
    (closed,) = await examined(tmp_path, network, "sandbox")
    assert (closed.status, "helper" in closed.message) == ("error", True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only a root gateway's commands are somebody else's")
async def test_doctor_finds_what_commands_under_root_cannot_read(tmp_path: Path) -> None:
    config = config_text(feishu_url="http://127.0.0.1:9", anthropic_url="http://127.0.0.1:9")
    file = tmp_path / "config.yaml"
    file.write_text(config, encoding="utf-8")
    workspace = Path(load(file, SECRETS).config.agents.list[0].workspace_dir)
    (workspace / ".git").mkdir(parents=True)
    (workspace / "open.txt").write_text("x")
    assert troubles(await examined(tmp_path, config, "workspaces")) == []
    (workspace / ".git").chmod(0o700)
    (workspace / "notes.txt").write_text("x")
    (workspace / "notes.txt").chmod(0o600)
    (found,) = [it for it in await examined(tmp_path, config, "workspaces") if it.status == "warning"]
    assert found.message.endswith(f"which cannot read in {workspace}: .git, notes.txt")
    assert f"chown -R 65534:65534 {workspace}" in found.fix
    assert workspace.stat().st_uid == 0  # nothing is changed by looking


@pytest.mark.parametrize(("off", "status"), [(0, "ok"), (40, "warning"), (-40, "warning"), (400, "error")])
async def test_doctor_finds_a_wrong_clock(tmp_path: Path, off: float, status: str) -> None:
    async with serve_on_loopback(feishu_emulator().app) as url:
        text = config_text(feishu_url=url, anthropic_url="http://127.0.0.1:1")
        (found,) = await examined(tmp_path, text, "clock", now=lambda: time.time() + off)
    assert (found.status, bool(found.fix)) == (status, status != "ok")


async def test_doctor_probe_timeout_hides_no_other(tmp_path: Path) -> None:
    async def silent(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        await receive()

    hangs = {"feishu default", "provider anthropic", "clock"}
    async with serve_on_loopback(silent) as url:
        text = config_text(feishu_url=url, anthropic_url=url)
        found = await examined(tmp_path, text, ("system", *hangs), seconds=0.1)
    assert {it.check for it in found if it.message.startswith("no answer within")} == hangs
    assert {it.check for it in found if it.status == "ok"} >= {"system"}


async def test_doctor_probe_error_hides_no_other(tmp_path: Path) -> None:
    text = config_text(feishu_url="http://127.0.0.1:1", anthropic_url="http://127.0.0.1:1")
    chosen = ("disk", "database", "sandbox")
    found = await examined(tmp_path, text, chosen, seconds=PATIENCE_SECONDS, free=lambda path: 1 // 0)
    by_check = {it.check: it for it in found}
    assert by_check["disk"].message == "could not be tried (ZeroDivisionError)"
    assert by_check["database"].status == by_check["sandbox"].status == "ok"


def config_on(folder: Path, url: str) -> Loaded:
    file = folder / "config.yaml"
    file.write_text(
        f'agents: {{ list: [{{ id: a, model: demo/guide }}] }}\ndatabase: {{ url: "{url}" }}', encoding="utf-8"
    )
    return load(file, {})


async def test_doctor_database_sound_other_version_or_unreachable(tmp_path: Path, database_url: str) -> None:
    database = config_on(tmp_path, database_url).config.database
    store = open_store(database)
    try:
        assert health(database).startswith(f"{database.shown}: writable")
        with connected(database) as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '0016'"))
        assert "to be migrated from 0016 to" in health(database)
        with connected(database) as connection:
            connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        for _ in range(2):  # it stays as it is
            with pytest.raises(DatabaseUnusable, match=r"revision 9999.*newer Clawgate"):
                health(database)
    finally:
        await store.close()


async def test_doctor_database_damaged_missing_locked_or_foreign(tmp_path: Path) -> None:
    loaded = config_on(tmp_path, "sqlite:///./data/clawgate.db")
    file = Path(loaded.config.database.path or "")
    assert "at the first start" in health(loaded.config.database)
    assert not file.exists()
    await open_store(loaded.config.database).close()
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + bytes(4096 * 3) + whole[4096 * 4 :])
    (damaged,) = await examine(loaded, wanted=lambda probe: probe == "database")
    assert (damaged.status, damaged.fix != "") == ("error", True), damaged
    file.write_bytes(b"no database " * 1000)
    (none,) = await examine(loaded, wanted=lambda probe: probe == "database")
    assert (none.status, "not a database" in none.message) == ("error", True), none
    nowhere = config_on(tmp_path, "postgresql://nobody:canary-password-91827@127.0.0.1:1/none")
    (away,) = await examine(nowhere, wanted=lambda probe: probe == "database")
    assert (away.status, "canary" in repr(away)) == ("error", False)


@pytest.mark.slow
async def test_doctor_and_check_print_lines_and_json(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        house.anthropic.models = ["claude-sonnet-4-6"]
        file = str(tmp_path / "config.yaml")
        code, output = await ask("doctor", "--json", "--config", file, more=SECRETS)
        found = json.loads(output)
        assert [set(it) for it in found] == [{"check", "status", "message", "fix"}] * len(found)
        assert (code, [it for it in found if it["status"] == "error"]) == (0, [])
        assert all(it["fix"] for it in found if it["status"] != "ok")
        assert {"config", "system", "database", "sandbox", "clock", "provider anthropic"} <= {
            it["check"] for it in found
        }
        assert "dmPolicy: open" in output
        assert "canary" not in output
        house.anthropic.api_key = "another"
        for arguments in (["doctor"], ["check", "--online"]):
            code, output = await ask(*arguments, "--config", file, more=SECRETS)
            assert code == 1
            fix = "set ANTHROPIC_API_KEY in the environment"
            assert re.search(f"^error +provider anthropic: the vendor refuses the key .* — {fix}$", output, re.M), (
                output
            )
        code, output = await ask("check", "--json", "--config", file, more=SECRETS)
        assert code == 0
        assert {it["status"] for it in json.loads(output)} == {"ok", "warning"}
        await house.say("hello")
        assert len(await house.replies(1)) == 1


@pytest.mark.slow
async def test_doctor_reports_an_unusable_config(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("agents: { list: [{ id: a, nmae: b }] }", encoding="utf-8")
    for command in (["doctor", "--json"], ["check", "--json"], ["check", "--online", "--json"]):
        code, output = await ask(*command, "--config", str(file))
        (problem,) = json.loads(output)
        assert (code, problem["status"], problem["fix"]) == (1, "error", 'did you mean "name"?')
        assert problem["message"].endswith("nmae: unknown key")
    assert await ask("--version") == (0, f"{VERSION}\n")


@pytest.mark.parametrize(
    ("day", "more", "warned"),
    [
        ("2026-08-10", "", False),
        ("2026-08-20", "", True),  # the shipped prices are of 2026-02-17
        ("2026-08-20", "models: { claude-sonnet-4-6: { prices: { input: 3, asOf: '2020-01-01' } } }", False),
        ("2026-08-20", "currency: CNY", False),
    ],
)
async def test_doctor_warns_of_prices_older_than_180_days(tmp_path: Path, day: str, more: str, warned: bool) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"agents: {{ list: [{{ id: a, model: anthropic/claude-sonnet-4-6 }}] }}\n{more}", encoding="utf-8")
    loaded, now = load(file, SECRETS), datetime.fromisoformat(f"{day}T12:00+00:00").timestamp()
    found = await examine(loaded, now=lambda: now, wanted=lambda probe: probe == "prices")
    named = [(it.status, "anthropic/claude-sonnet-4-6 (2026-02-17)" in it.message) for it in found]
    assert named == [("warning", True)] * warned
