"""App registration by one scan against the strict emulator: polling, its ends, and the brand of the tenant."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from channels.channel import Refused, Unreachable
from channels.feishu.registration import AppRegistration
from channels.registration import RegistrationEnded
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.loopback import serve_on_loopback
from tests.running import APP_ID, feishu_emulator

SECRET = "canary-scan-secret-4711"


@pytest.fixture
async def feishu() -> AsyncIterator[tuple[FeishuEmulator, str]]:
    emulator = feishu_emulator()
    async with serve_on_loopback(emulator.app) as url:
        yield emulator, url


async def test_registration_polls_until_the_app_is_confirmed(feishu: tuple[FeishuEmulator, str]) -> None:
    emulator, url = feishu
    registration = AppRegistration(url)
    pending = await registration.begin()
    assert pending.link == f"{url}/page/cli?user_code={emulator.registrations.link_code}"
    waiting = asyncio.create_task(registration.wait(pending))
    while not emulator.registrations.polls:
        await asyncio.sleep(0.02)
    assert not waiting.done()
    emulator.registrations.confirm(APP_ID, SECRET, "ou_scanner1")
    app = await waiting
    assert (app.app_id, app.base_url, app.scanned_by) == (APP_ID, url, "ou_scanner1")
    assert app.variables == {"FEISHU_APP_ID": APP_ID, "FEISHU_APP_SECRET": SECRET}
    assert SECRET not in repr(app)
    assert pending.device_code not in repr(pending)
    assert emulator.registrations.refusals == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("access_denied", "denied"),
        ("expired_token", "expired"),
        ("invalid_grant", "expired"),
        ("unauthorized_client", "refused"),
    ],
)
async def test_registration_end_has_its_reason(feishu: tuple[FeishuEmulator, str], error: str, reason: str) -> None:
    emulator, url = feishu
    registration = AppRegistration(url)
    pending = await registration.begin()
    emulator.registrations.end(error)
    with pytest.raises(RegistrationEnded) as ended:
        await registration.wait(pending)
    assert ended.value.reason == reason


async def test_registration_expires_although_the_platform_is_silent(feishu: tuple[FeishuEmulator, str]) -> None:
    emulator, url = feishu
    emulator.registrations.expires_seconds = 2
    registration = AppRegistration(url)
    with pytest.raises(RegistrationEnded) as ended:
        await registration.wait(await registration.begin())
    assert ended.value.reason == "expired"


async def test_registration_slow_down_lengthens_the_polling_interval(feishu: tuple[FeishuEmulator, str]) -> None:
    emulator, url = feishu
    registration = AppRegistration(url)
    pending = await registration.begin()
    emulator.registrations.interval_seconds = 3  # the platform now wants a slower pace than it announced
    waiting = asyncio.create_task(registration.wait(pending))
    while not emulator.registrations.refusals:
        await asyncio.sleep(0.02)
    emulator.registrations.confirm(APP_ID, SECRET, "ou_scanner1")
    assert (await waiting).app_id == APP_ID
    assert emulator.registrations.refusals == ["slow_down"]


async def test_registration_of_a_lark_tenant_gets_its_secret_at_lark() -> None:
    feishu, lark = feishu_emulator(), feishu_emulator()
    pending = lark.registrations.pending = feishu.registrations.pending  # one platform behind two hosts
    lark.registrations.is_lark = True
    async with serve_on_loopback(feishu.app) as feishu_url, serve_on_loopback(lark.app) as lark_url:
        registration = AppRegistration(feishu_url, lark_url)
        begun = await registration.begin()
        feishu.registrations.confirm(APP_ID, SECRET, "ou_scanner1", brand="lark")
        app = await registration.wait(begun)
        assert (app.base_url, app.variables["FEISHU_APP_SECRET"]) == (lark_url, SECRET)
        assert pending == {}


@pytest.mark.parametrize(
    ("app_id", "secret", "open_id"),
    [("evil\nX=1", SECRET, "ou_a123"), (APP_ID, "a'b", "ou_a123"), (APP_ID, "", "ou_a123"), (APP_ID, SECRET, "")],
)
async def test_registration_answer_without_usable_keys_is_refused(
    feishu: tuple[FeishuEmulator, str], app_id: str, secret: str, open_id: str
) -> None:
    emulator, url = feishu
    registration = AppRegistration(url)
    pending = await registration.begin()
    emulator.registrations.confirm(app_id, secret, open_id)
    with pytest.raises(Refused):
        await registration.wait(pending)


async def test_registration_is_refused_or_unreachable_from_the_start(feishu: tuple[FeishuEmulator, str]) -> None:
    emulator, url = feishu
    emulator.registrations.closed = True
    with pytest.raises(Refused):
        await AppRegistration(url).begin()
    with pytest.raises(Unreachable):
        await AppRegistration("http://127.0.0.1:9").begin()
