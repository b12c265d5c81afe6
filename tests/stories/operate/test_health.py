"""A channel that is dead is said to be: at `/readyz`, in the log, in the metrics and on the operator's page."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, FEISHU, SECRETS, Running, client, feishu_emulator, push, running
from tests.stories.config.test_reload import edited
from tests.stories.store.test_replicas import two
from tests.web_page import WEB, opened

TOKEN = "canary-admin-token-9182736455"
ADMIN = f"server: {{ adminToken: {TOKEN} }}"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
LISTENING = FEISHU.replace("mode: webhook", "mode: websocket")
ANOTHER = "7000000001:AAAnotherAnotherAnotherAnotherAnot1"
SECRET = "a-long-random-word_0123456789"


@pytest.fixture(autouse=True)
def tries_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.health.LOOK_SECONDS", 0.02)
    monkeypatch.setattr("gateway.inbox.links.IDENTITY_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("channels.telegram.connection.CONFLICT_SECONDS_MAX", 0.02)
    monkeypatch.setattr("channels.feishu.connection.Rhythm.wait", lambda self, failures: 0.02)
    monkeypatch.setattr("channels.telegram.timing.Timing.backoff", lambda self, failures, most=0.0: 0.02)


async def channel(house: Running, name: str = "feishu:default", **headers: str) -> dict[str, Any]:
    """The state of a channel as the operator reads it; a bad one leaves the gateway ready."""
    async with client(house.url, headers=headers or OPERATOR) as http:
        answer = await http.get("/readyz")
    assert answer.json()["failing"].keys() <= {"database"}  # which a busy disk makes late
    return dict(answer.json()["channels"][name])


async def becomes(house: Running, state: str, name: str = "feishu:default") -> dict[str, Any]:
    async def is_so() -> bool:
        return bool((await channel(house, name))["state"] == state)

    await house.until(is_so)
    return await channel(house, name)


async def told(house: Running, logs: list[Any], name: str) -> dict[str, Any]:
    """The one bad channel, once log, metrics and page agree; what the page reads of it."""
    kind, account = name.split(":")
    await house.until(lambda: house.counted(f'clawgate_channel_up{{account="{account}",channel="{kind}"}} 0.0'))
    state = await channel(house, name)

    def lines() -> list[Any]:
        return [it for it in logs if it["event"] == "channel_state" and it["state"] == state["state"]]

    await house.until(lines)
    (line,) = lines()
    assert (line["channel"], line["account"], line["fix"]) == (kind, account, state["fix"])
    async with opened(house.url, authorization=f"Bearer {TOKEN}") as page:
        await page.until(lambda: page.named("fault"))
        (shown,) = page.named("fault")[-1]["channels"]
    assert (shown["name"], shown["state"], shown["fix"]["en"]) == (name, state["state"], state["fix"])
    assert all(shown[it][language] for it in ("reason", "fix") for language in ("en", "zh"))
    assert not [secret for secret in SECRETS.values() if secret in repr((state, shown, logs))]
    return dict(shown)


@dataclass(frozen=True)
class Fault:
    """`injure` is done to the emulated Feishu before the start, `mend` is what its operator does then."""

    section: str
    injure: Callable[[FeishuEmulator], None]
    mend: Callable[[FeishuEmulator], None]
    state: str
    reason: str
    fix: str
    deliveries: int = 0


def sets(name: str, value: Any) -> Callable[[FeishuEmulator], None]:
    return lambda it: setattr(it, name, value)


def closes(code: int) -> Callable[[FeishuEmulator], None]:
    return lambda it: setattr(it.socket, "refusal", code)


def wrong(name: str, section: str, reason: str, fix: str, deliveries: int = 0) -> Fault:
    right = SECRETS[f"FEISHU_{name.upper()}"]
    return Fault(section, sets(name, "another"), sets(name, right), "refused", reason, fix, deliveries)


KEYLESS = FEISHU.replace("    encryptKey: ${FEISHU_ENCRYPT_KEY}\n", "    verification: token\n")
FAULTS = {
    "a wrong secret": wrong("app_secret", FEISHU, "10014", "channels.feishu.appSecret"),
    "a wrong secret on a long connection": wrong("app_secret", LISTENING, "the secret is wrong", "appSecret"),
    "a wrong key": wrong("encrypt_key", FEISHU, "signature wrong", "is channels.feishu.encryptKey the one in the", 5),
    "a wrong token": wrong("verification_token", FEISHU, "token wrong", "is channels.feishu.verificationToken the", 5),
    "a key that the config lacks": Fault(
        KEYLESS, sets("encrypt_key", "another"), sets("encrypt_key", ""), "refused", "no key is set", "encryptKey", 5
    ),
    "a key that the console lacks": Fault(
        FEISHU, sets("encrypt_key", ""), sets("encrypt_key", SECRETS["FEISHU_ENCRYPT_KEY"]), "refused",
        "not encrypted", "is an Encrypt Key set in the console?", 5,
    ),
    "another app": Fault(
        FEISHU, sets("app_id", "cli_another"), sets("app_id", "cli_test000000000001"), "refused", "", "appId"
    ),
    "no long connections": Fault(LISTENING, closes(403), closes(0), "refused", "使用长连接接收事件", "console"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS.values(), ids=[*FAULTS])
async def test_health_feishu_refusal_names_the_key_until_fixed(tmp_path: Path, fault: Fault) -> None:
    feishu = feishu_emulator()
    fault.injure(feishu)
    script = [says("here")] * 2
    with capture_logs() as logs:
        section = f"{fault.section}  web: {{}}\n"
        async with running(tmp_path, emulator=feishu, feishu=section, more=ADMIN, script=script) as house:
            for number in range(fault.deliveries):
                assert number == 0 or (await channel(house))["state"] == "ok"  # one alone may be anybody's
                assert (await house.say("hello")).status_code in (400, 401)
            state = await becomes(house, fault.state)
            assert fault.reason in state["reason"]
            assert fault.fix in state["fix"]
            if fault.deliveries:
                refused = [line for line in logs if line["event"] == "webhook_rejected"]
                assert [line["fix"] for line in refused] == [state["fix"]] * fault.deliveries
            await told(house, logs, "feishu:default")
            fault.mend(feishu)
            if fault.deliveries:
                assert (await house.say("hello again")).status_code == 200
            healed = await becomes(house, "ok")
            assert (healed["reason"], healed["fix"]) == ("", "")
            await house.until(lambda: house.counted('clawgate_channel_up{account="default",channel="feishu"} 1.0'))
            async with opened(house.url, authorization=f"Bearer {TOKEN}") as page:
                assert page.named("fault") == []


async def test_health_ignores_few_refused_deliveries(tmp_path: Path) -> None:
    async with running(tmp_path, more=ADMIN, script=lambda _: says("here")) as house:
        await becomes(house, "ok")
        stranger = feishu_emulator()
        stranger.encrypt_key = "another"
        for _ in range(3):
            for _ in range(4):
                await push(stranger, house.url, stranger.text_event("let me in", sender=ALICE, chat=ALICE_CHAT))
            assert (await house.say("hello")).status_code == 200
        assert (await channel(house))["state"] == "ok"


async def test_health_names_an_account_by_its_key(tmp_path: Path) -> None:
    account = f"appId: {feishu_emulator().app_id}2, appSecret: another-secret-of-ours, mode: websocket"
    section = f"{FEISHU}    accounts: {{ ops: {{ {account}, baseUrl: BASE }} }}\n"
    feishu = feishu_emulator()
    async with (
        serve_on_loopback(feishu.app) as url,
        running(tmp_path, feishu=section.replace("BASE", url), more=ADMIN) as house,
    ):
        state = await becomes(house, "refused", "feishu:ops")
        assert "channels.feishu.accounts.ops.appSecret" in state["fix"]
        assert (await becomes(house, "ok"))["state"] == "ok"


async def test_health_feishu_unreachable_on_webhook_and_long_connection(tmp_path: Path) -> None:
    account = 'appSecret: s, encryptKey: k, baseUrl: "http://127.0.0.1:1"'
    ops, sales = (f"{{ appId: cli_{mode}, mode: {mode}, {account} }}" for mode in ("webhook", "websocket"))
    async with running(
        tmp_path, feishu=f"{FEISHU}    accounts: {{ ops: {ops}, sales: {sales} }}\n", more=ADMIN
    ) as house:
        for name in ("feishu:ops", "feishu:sales"):
            state = await becomes(house, "unreachable", name)
            assert "Feishu cannot be reached" in state["reason"]
            assert f"is channels.feishu.accounts.{name.partition(':')[2]}.baseUrl right" in state["fix"]
        assert (await becomes(house, "ok"))["reason"] == ""


@asynccontextmanager
async def bot(
    folder: Path, telegram: TelegramEmulator, *, url: str = "", mode: str = "polling", more: str = ADMIN
) -> AsyncIterator[Running]:
    """A gateway with a Telegram bot and the page."""
    right = TelegramEmulator().token
    async with serve_on_loopback(telegram.app) as there:
        section = f"""{WEB}
  telegram:
    botToken: "{right}"
    apiRoot: "{url or there}"
    timeoutSeconds: 2
    mode: {mode}
    webhookSecret: {SECRET}
"""
        async with running(folder, feishu=section, more=more) as house:
            yield house


async def test_health_telegram_token_revoked_until_replaced(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    right, telegram.token = telegram.token, ANOTHER
    with capture_logs() as logs:
        async with bot(tmp_path, telegram) as house:
            state = await becomes(house, "refused", "telegram:default")
            assert "@BotFather" in state["reason"]
            assert "channels.telegram.botToken" in state["fix"]
            await told(house, logs, "telegram:default")
            telegram.token = right
            await becomes(house, "ok", "telegram:default")
            telegram.token = ANOTHER  # while it serves
            await telegram.push(telegram.text_update("hello", chat=telegram.private()))  # ends the poll
            await becomes(house, "refused", "telegram:default")
    assert right not in repr(logs)


async def test_health_telegram_unreachable_until_back(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with bot(tmp_path, TelegramEmulator(), url="http://127.0.0.1:1") as house:
            state = await becomes(house, "unreachable", "telegram:default")
            assert "cannot be reached" in state["reason"]
            assert "is there a proxy?" in state["fix"]
            await told(house, logs, "telegram:default")


@pytest.mark.parametrize(
    ("description", "reason", "fix"),
    [
        ("Conflict: terminated by other getUpdates request", "another process polls", "a bot of its own"),
        ("Conflict: can't use getUpdates method while webhook is active", "a webhook is set", "mode: webhook"),
    ],
)
async def test_health_telegram_rival_poller_until_gone(tmp_path: Path, description: str, reason: str, fix: str) -> None:
    telegram = TelegramEmulator()
    telegram.fail_next("getUpdates", times=2, status=409, description=description)
    with capture_logs() as logs:
        async with bot(tmp_path, telegram) as house:
            await becomes(house, "ok", "telegram:default")  # a restart overlaps with the last poll
            telegram.fail_next("getUpdates", times=10**6, status=409, description=description)
            await telegram.push(telegram.text_update("hello", chat=telegram.private()))
            state = await becomes(house, "conflict", "telegram:default")
            assert reason in state["reason"]
            assert fix in state["fix"]
            await told(house, logs, "telegram:default")
            telegram._failures.clear()
            await telegram.push(telegram.text_update("again", chat=telegram.private()))
            await becomes(house, "ok", "telegram:default")


async def test_health_wrong_webhook_secret_names_its_key(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    more = f"server: {{ adminToken: {TOKEN}, publicUrl: https://bot.example.com }}"
    with capture_logs() as logs:
        async with bot(tmp_path, telegram, mode="webhook", more=more) as house:
            await becomes(house, "ok", "telegram:default")
            url, update = (
                f"{house.url}/webhooks/telegram/default",
                telegram.text_update("hello", chat=telegram.private()),
            )
            for _ in range(5):
                assert (await telegram.deliver_once(url, update, secret="another")).status_code == 401
            state = await becomes(house, "refused", "telegram:default")
            assert "is channels.telegram.webhookSecret the one" in state["fix"]
            await told(house, logs, "telegram:default")
            assert (await telegram.deliver_once(url, update, secret=SECRET)).status_code == 200
            await becomes(house, "ok", "telegram:default")


async def test_health_webhook_without_a_url_is_dead(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with bot(tmp_path, TelegramEmulator(), mode="webhook") as house:
            state = await becomes(house, "silent", "telegram:default")
            assert "set server.publicUrl" in state["fix"]
            await told(house, logs, "telegram:default")


async def test_health_reason_is_for_the_operator_only(tmp_path: Path) -> None:
    feishu = feishu_emulator()
    feishu.app_secret = "another"
    async with running(tmp_path, emulator=feishu, more=ADMIN) as house:
        await becomes(house, "refused")
        for headers in ({"authorization": "Bearer wrong"}, {"authorization": "Proof 0"}, {"host": "anything.example"}):
            state = await channel(house, **headers)
            assert (state["state"], state["reason"], state["fix"]) == ("refused", "", "")
            async with client(house.url, headers=headers) as http:
                answer = (await http.get("/readyz")).json()
            assert {"version", "queue", "failingModels"} & answer.keys() == set()


async def test_health_survives_a_config_edit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.05)
    wrong_key = FEISHU.replace("${FEISHU_ENCRYPT_KEY}", "not-the-key-of-the-console")
    async with edited(tmp_path, feishu=wrong_key, more=ADMIN, script=[says("here")]) as (house, editor):
        for _ in range(5):
            await house.say("hello")
        before = await becomes(house, "refused")
        await editor.replace("claude-sonnet-4-6", "claude-haiku-4-5")
        assert await channel(house) == before
        await editor.replace("not-the-key-of-the-console", "${FEISHU_ENCRYPT_KEY}")
        after = await becomes(house, "ok")
        assert after["since"] >= before["since"]
        assert (await house.say("hello")).status_code == 200
        await house.replies(1)


@pytest.mark.slow
async def test_health_is_per_replica(tmp_path: Path, postgres_url: str) -> None:
    """A balancer that sends forged deliveries to one of them must not take the other one's word away."""
    async with two(tmp_path, postgres_url, lambda _: says("here"), more=ADMIN) as (one, other):
        stranger = feishu_emulator()
        stranger.encrypt_key = "another"
        await becomes(other, "ok")
        for _ in range(5):
            await push(stranger, one.url, stranger.text_event("let me in", sender=ALICE, chat=ALICE_CHAT))
        assert "encryptKey" in (await becomes(one, "refused"))["fix"]
        assert (await channel(other))["state"] == "ok"
        await one.say("hello")
        await becomes(one, "ok")
