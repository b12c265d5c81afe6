"""`status`, `doctor` beside a serving gateway, the start's block and the owners: each says the same of a dead channel."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.channels.contexts import Clock
from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, FEISHU, SECRETS, WITHOUT_EXEC, Running, feishu_emulator, running
from tests.stories.operate.test_health import ANOTHER, becomes, bot
from tests.stories.process.test_process import ask, platforms, started
from tests.web_page import WEB

pytestmark = pytest.mark.slow  # it starts processes

TOKEN = "canary-admin-token-9182736455"
SERVER = f"server: {{ adminToken: {TOKEN} }}"
CHECKS = ["gateway", "config", "database", "channels", "model", "queue"]


@pytest.fixture(autouse=True)
def tries_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.health.LOOK_SECONDS", 0.02)
    monkeypatch.setattr("gateway.inbox.links.IDENTITY_RETRY_SECONDS", 0.05)
    monkeypatch.setattr("channels.telegram.timing.Timing.backoff", lambda self, failures, most=0.0: 0.02)


def beside(house: Running, text: str = "") -> Path:
    """The config as its operator has it, with the address at which the gateway really serves."""
    port = house.url.rpartition(":")[2]
    written = text or (house.folder / "config.yaml").read_text(encoding="utf-8")
    file = house.folder / "beside.yaml"
    file.write_text(written.replace("server: {", f"server: {{ port: {port},"), encoding="utf-8")
    return file


async def asked(*arguments: str) -> tuple[int, str]:
    return await ask(*arguments, more=SECRETS)


async def findings(command: str, file: Path) -> tuple[int, list[dict[str, Any]]]:
    code, output = await asked(command, "--json", "--config", str(file))
    return code, json.loads(output)


async def test_status_is_six_lines_when_all_is_well(tmp_path: Path) -> None:
    async with running(tmp_path, more=SERVER, script=[says("here")]) as house:
        await becomes(house, "ok")
        code, output = await asked("status", "--config", str(beside(house)))
        assert code == 0, output
        assert [line.split()[:2] for line in output.splitlines()] == [["✓", check] for check in CHECKS]
        assert "\x1b" not in output  # colours are a terminal's
        assert f"ready at {house.url}" in output
        assert "feishu:default" in output
        assert "anthropic/claude-sonnet-4-6" in output
        code, found = await findings("status", beside(house))
        assert (code, [it["check"] for it in found]) == (0, CHECKS)
        assert (await asked("status", "--nonsense"))[0] == 2


async def test_status_says_what_opens_the_page(tmp_path: Path) -> None:
    more = f"{SERVER}\nmcp: {{ servers: {{ away: {{ command: [no-such-program], sandbox: off }} }} }}"
    async with running(tmp_path, more=more, feishu=WEB) as house:
        await becomes(house, "ok")
        for token, words in ((TOKEN, "with the admin token or the sign-in link"), ("''", "MCP server away")):
            text = (house.folder / "config.yaml").read_text(encoding="utf-8").replace(TOKEN, token)
            found = {it["check"]: it for it in (await findings("status", beside(house, text)))[1]}
            assert words in found["page"]["message"]
            assert found["page"]["fix"] == "restart for another link"


async def test_status_without_a_gateway_or_on_a_foreign_port(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    text = "server: {{ port: {} }}\nagents: {{ list: [{{ id: a, model: demo/guide }}] }}\n"
    file.write_text(text.format(1), encoding="utf-8")
    code, output = await asked("status", "--config", str(file))
    assert (code, "no gateway serves at http://127.0.0.1:1 — start it: " in output) == (1, True), output
    async with serve_on_loopback(feishu_emulator().app) as url:
        file.write_text(text.format(url.rpartition(":")[2]), encoding="utf-8")
        code, output = await asked("status", "--config", str(file))
    assert (code, "is no gateway" in output) == (1, True), output


async def test_status_and_doctor_show_a_dead_channel_without_a_token(
    tmp_path: Path,
) -> None:
    """The config's secrets are the proof: a newcomer has no admin token."""
    wrong_key = FEISHU.replace("${FEISHU_ENCRYPT_KEY}", "not-the-key-of-the-console")
    async with running(tmp_path, feishu=wrong_key, agents=WITHOUT_EXEC, more="server: {}") as house:
        file = house.folder / "beside.yaml"
        text = (house.folder / "config.yaml").read_text(encoding="utf-8").replace("server: {}", "server: { }")
        for _ in range(5):
            await house.say("hello")
        code, found = await findings("status", beside(house, text))
        (bad,) = [it for it in found if it["status"] != "ok"]
        assert (code, bad["check"], "signature wrong" in bad["message"]) == (1, "channels", True)
        assert bad["fix"].startswith("is channels.feishu.encryptKey the one in the console?")
        code, doctors = await findings("doctor", file)
        assert bad in doctors
        assert code == 1
        code, output = await asked("doctor", "--config", str(file))
        assert re.match(r"error +channels: feishu:default is refused since ", output), output
        assert re.search(r"\n\d+ errors?, \d+ warnings?, \d+ ok\n$", output), output
        _, output = await ask("status", "--config", str(file), more=SECRETS | {"LANG": "zh_CN.UTF-8"})
        assert re.search(r"\n✗ channels  feishu:default 自 \S+ 起被拒绝：推送的签名不正确", output), output
        assert re.search(r"——\S*channels\.feishu\.encryptKey", output), output
        assert "\n✓ queue     待回答 0 条，待发送 0 条\n" in output
        file.write_text(text.replace("not-the-key-of-the-console", "another-key-that-is-no-proof").replace(
            "server: {", f"server: {{ port: {house.url.rpartition(':')[2]},"), encoding="utf-8")  # fmt: skip
        code, found = await findings("status", file)
        (bad,) = [it for it in found if it["status"] != "ok"]
        assert (code, "signature" in bad["message"], "see its log" in bad["fix"]) == (1, False, True)


async def test_doctor_beside_a_gateway_reports_a_rival_poller(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    telegram.fail_next("getUpdates", times=10**6, status=409, description="Conflict: terminated by other getUpdates")
    async with bot(tmp_path, telegram, more=SERVER) as house:
        await becomes(house, "conflict", "telegram:default")
        code, found = await findings("doctor", beside(house))
        (bad,) = [it for it in found if it["check"] == "channels" and it["status"] == "error"]
        assert (code, "another process polls" in bad["message"]) == (1, True)


async def test_status_is_not_ok_on_model_or_config_errors(tmp_path: Path) -> None:
    async with running(tmp_path, more=SERVER, providers="  mistral: {}") as house:
        house.anthropic.api_key = "another"
        await house.say("hello")
        await house.replies(1)
        _, found = await findings("status", beside(house))
        (bad,) = [it for it in found if it["status"] != "ok"]
        assert (bad["check"], "the vendor refuses the key (auth)" in bad["message"]) == ("model", True)
        text = (house.folder / "config.yaml").read_text(encoding="utf-8").replace("anthropic/claude", "mistral/claude")
        _, found = await findings("status", beside(house, text))
        (bad,) = [it for it in found if it["status"] != "ok"]
        assert (bad["check"], bad["message"]) == ("model", "mistral/claude-sonnet-4-6: no key")


async def test_status_reports_a_wrong_public_url_until_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.app.health.FIRST_REACH_SECONDS", 0.05)
    monkeypatch.setattr("gateway.app.health.REACH_SECONDS", 0.05)
    async with serve_on_loopback(feishu_emulator().app) as elsewhere:
        for public, reason in (("http://127.0.0.1:1", "nobody answers there"), (elsewhere, "is no gateway")):
            server = f'server: {{ adminToken: {TOKEN}, publicUrl: "{public}" }}'
            with capture_logs() as logs:
                async with running(tmp_path, agents=WITHOUT_EXEC, more=server, script=[says("here")]) as house:
                    state = await becomes(house, "silent")
                    assert reason in state["reason"]
                    assert "proxy" in state["fix"]
                    await house.until(lambda: "silent" in {it.get("state") for it in logs})
                    code, found = await findings("doctor", beside(house))
                    (bad,) = [it for it in found if it["check"] == "publicUrl"]
                    assert (code, bad["status"], reason in bad["message"]) == (1, "error", True)
                    assert (await house.say("hello")).status_code == 200
                    await becomes(house, "ok")


async def test_status_verifies_the_public_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house: Running | None = None
    passed = ["/"]

    async def proxy(scope: Any, receive: Any, send: Any) -> None:
        assert house is not None
        if not scope["path"].startswith(passed[0]):
            await send({"type": "http.response.start", "status": 404, "headers": []})
            await send({"type": "http.response.body", "body": b""})
        else:
            await house.gateway.app(scope, receive, send)

    async with serve_on_loopback(proxy) as public:
        server = f'server: {{ adminToken: {TOKEN}, publicUrl: "{public}" }}'
        async with running(tmp_path, agents=WITHOUT_EXEC, more=server) as house:
            for passed[0] in ("/", "/webhooks/"):
                _, found = await findings("doctor", beside(house))
                (finding,) = [it for it in found if it["check"] == "publicUrl"]
                assert finding["status"] == "ok", finding


async def test_notice_of_a_fault_after_a_minute_hourly_and_at_its_end(tmp_path: Path) -> None:
    clock = Clock()
    telegram = TelegramEmulator()
    right, telegram.token = telegram.token, ANOTHER
    async with serve_on_loopback(telegram.app) as url:
        section = f'{FEISHU}  telegram: {{ botToken: "{right}", apiRoot: "{url}" }}\n'
        more = f'{SERVER}\nowners: ["feishu:{ALICE}"]'
        async with running(tmp_path, feishu=section, more=more, now=clock) as house:
            await becomes(house, "refused", "telegram:default")
            clock.now += 59
            await house.idle()
            assert house.feishu.messages == []
            clock.now += 1
            (first,) = await house.replies(1)
            assert first.startswith("telegram:default is refused and receives nothing: ")
            assert "take channels.telegram.botToken from @BotFather" in first
            clock.now += 3_600
            assert len(await house.replies(2)) == 2
            telegram.token = right
            assert (await house.replies(3))[2] == "telegram:default is working again."
            await becomes(house, "ok", "telegram:default")
            clock.now += 3_600
            await house.idle()
            assert len(house.feishu.messages) == 3


async def test_notice_of_an_end_needs_a_notice_before(tmp_path: Path) -> None:
    feishu = feishu_emulator()
    feishu.app_secret = "another"
    async with running(tmp_path, emulator=feishu, more=f'{SERVER}\nowners: ["feishu:{ALICE}"]') as house:
        await becomes(house, "refused")
        feishu.app_secret = SECRETS["FEISHU_APP_SECRET"]
        await becomes(house, "ok")
        await house.idle()
        assert house.feishu.messages == []


async def test_startup_says_which_channels_are_connected(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    right, telegram.token = telegram.token, ANOTHER
    async with serve_on_loopback(telegram.app) as url:
        channels = f'telegram: {{ botToken: "{right}", apiRoot: "{url}" }}'
        async with (
            platforms(tmp_path, channels=channels, agents=WITHOUT_EXEC) as (_, _, config),
            started(config) as run,
        ):
            await run.wrote("telegram   ✗ refused: Telegram refused it (401)")
            await run.wrote("feishu     ✓ connected")
            assert not any(right in line for line in run.output)
