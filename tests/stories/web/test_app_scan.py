"""Connect Feishu from the operator's page by one scan: the app is created, owned, written to `.env`, and in force."""

import asyncio
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.emulators.feishu.emulator import FeishuEmulator
from tests.keyless import Keyless, keyless
from tests.loopback import serve_on_loopback
from tests.running import APP_ID, SECRETS, feishu_emulator
from tests.web_page import opened

PATH = "/api/setup/feishu"
SECRET = SECRETS["FEISHU_APP_SECRET"]
FEISHU = 'feishu: {{ baseUrl: "{url}", appId: "${{FEISHU_APP_ID:-}}", appSecret: "${{FEISHU_APP_SECRET:-}}" }}'


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.05)


@asynccontextmanager
async def house(folder: Path, *, more: str = "", feishu: str = FEISHU) -> AsyncIterator[tuple[Keyless, FeishuEmulator]]:
    emulator = feishu_emulator()
    async with (
        serve_on_loopback(emulator.app) as url,
        keyless(folder, more=more, channels=f"web: {{}}, {feishu.format(url=url)}") as opened_house,
    ):
        yield opened_house, emulator


async def begin(gateway: Keyless, **headers: str) -> tuple[int, dict[str, Any]]:
    async with opened(gateway.url, watching=False, **headers) as page:
        answer = await page.http.post(PATH)
    assert SECRET not in answer.text
    return answer.status_code, answer.json()


async def ended(gateway: Keyless) -> dict[str, str]:
    """Poll as the page does until the scan has ended."""
    async with opened(gateway.url, watching=False) as page:
        while True:
            answer = await page.http.get(PATH)
            assert SECRET not in answer.text
            state: dict[str, str] = answer.json()
            if state["state"] != "waiting":
                return state
            await asyncio.sleep(0.1)


async def is_offered(gateway: Keyless) -> bool:
    async with opened(gateway.url, watching=False) as page:
        return bool((await page.http.get("/api/setup")).json()["feishu"])


async def test_app_scan_connects_feishu_and_makes_its_person_an_owner(tmp_path: Path) -> None:
    async with house(tmp_path) as (gateway, feishu):
        assert await is_offered(gateway)
        with capture_logs() as logs:
            status, shown = await begin(gateway)
            assert (status, shown["minutes"]) == (200, 5)
            assert shown["link"].endswith(f"/page/cli?user_code={feishu.registrations.link_code}")
            assert shown["picture"].startswith("data:image/svg+xml")
            assert (await begin(gateway))[1] == shown  # a second tab shows the same code
            feishu.registrations.confirm(APP_ID, SECRET, "ou_scanner1")
            assert await ended(gateway) == {"state": "done", "app": APP_ID}
        assert SECRET not in json.dumps(logs, default=str)
        assert gateway.dotenv.read_text() == f"FEISHU_APP_ID='{APP_ID}'\nFEISHU_APP_SECRET='{SECRET}'\n"
        assert stat.S_IMODE(gateway.dotenv.stat().st_mode) == 0o600
        owners = gateway.gateway.runtime.setup.owners
        assert {"feishu:ou_scanner1", "web:local"} <= {*owners}
        assert ("feishu", "default") in gateway.gateway.runtime.setup.channels
        assert not await is_offered(gateway)
        assert (await begin(gateway))[0] == 409


@pytest.mark.parametrize(("error", "state"), [("access_denied", "denied"), ("expired_token", "expired")])
async def test_app_scan_that_ends_without_an_app_writes_nothing(tmp_path: Path, error: str, state: str) -> None:
    async with house(tmp_path) as (gateway, feishu):
        await begin(gateway)
        feishu.registrations.end(error)
        assert (await ended(gateway))["state"] == state
        assert not gateway.dotenv.exists()
        assert not gateway.gateway.runtime.setup.owners.is_owned
        assert (await begin(gateway))[0] == 200  # again, with a new code
        assert len(feishu.registrations.pending) == 2


async def test_app_scan_obstacles_have_sentences(tmp_path: Path) -> None:
    async with house(tmp_path, feishu='feishu: {{ baseUrl: "{url}", appId: "" }}') as (gateway, _):
        status, answer = await begin(gateway)
        assert (status, answer["code"]) == (409, "scan-unused")
        assert "FEISHU_APP_ID" in answer["error"]
    other = tmp_path / "other"
    other.mkdir()
    async with house(other, feishu=FEISHU.replace("{url}", "http://127.0.0.1:9")) as (gateway, _):
        assert (await begin(gateway))[1]["code"] == "feishu-unreachable"
        (other / "config.yaml").write_text("nonsense: 1\n")
        assert (await begin(gateway))[1]["code"] == "config-broken"


async def test_app_scan_whose_env_file_is_unwritable_says_so(tmp_path: Path) -> None:
    async with house(tmp_path) as (gateway, feishu):
        await begin(gateway)
        gateway.dotenv.mkdir()
        feishu.registrations.confirm(APP_ID, SECRET, "ou_scanner1")
        assert await ended(gateway) == {"state": "unwritten", "app": APP_ID}


async def test_app_scan_that_no_reload_takes_up_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.operate.scan.IN_FORCE_SECONDS", 0.2)
    async with house(tmp_path) as (gateway, feishu):
        await begin(gateway)
        (tmp_path / "config.yaml").write_text("nonsense: 1\n")
        feishu.registrations.confirm(APP_ID, SECRET, "ou_scanner1")
        assert await ended(gateway) == {"state": "late", "app": APP_ID}
        assert f"FEISHU_APP_ID='{APP_ID}'" in gateway.dotenv.read_text()


async def test_app_scan_needs_the_operator(tmp_path: Path) -> None:
    users = f"server: {{ host: 0.0.0.0, adminToken: {'o' * 40}, users: {{ ann: {'a' * 40} }} }}"
    async with house(tmp_path, more=users) as (gateway, feishu):
        assert (await begin(gateway))[0] == 401
        assert (await begin(gateway, authorization=f"Bearer {'a' * 40}"))[0] == 403
        evil = {"authorization": f"Bearer {'o' * 40}", "origin": "https://evil.example"}
        assert (await begin(gateway, **evil))[0] == 403
        assert feishu.registrations.pending == {}
        assert (await begin(gateway, authorization=f"Bearer {'o' * 40}"))[0] == 200


async def test_app_scan_is_not_offered_when_owners_are_elsewhere(tmp_path: Path) -> None:
    async with house(tmp_path, more='owners: ["telegram:123"]') as (gateway, _):
        assert not await is_offered(gateway)
        assert (await begin(gateway))[1]["code"] == "scan-not-offered"
