"""Feishu's login on the wire: what each answer means, where it is asked, and what a channel never passes on."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

import pytest
from pydantic import SecretStr
from starlette.applications import Starlette

from channels.channel import Unreachable
from channels.feishu.config import FeishuAccount
from channels.feishu.login import PERSON_PATH, FeishuLogin, accounts_url, is_page
from channels.login import LoginFailed
from tests.emulators.feishu.login import PeopleLogins
from tests.loopback import serve_on_loopback
from tests.running import ALICE, APP_ID

SECRET = "canary-app-secret-91827"
SCOPE = "docx:document:readonly"


@asynccontextmanager
async def platform(secret: str = SECRET) -> AsyncIterator[tuple[FeishuLogin, PeopleLogins]]:
    emulator = PeopleLogins(app_id=APP_ID, app_secret=SECRET, users={ALICE: "Alice"}, clock=lambda: 1e9)
    async with serve_on_loopback(Starlette(routes=emulator.routes())) as url:
        login = FeishuLogin(
            FeishuAccount.model_validate({"appId": APP_ID, "appSecret": SecretStr(secret), "baseUrl": url})
        )
        try:
            yield login, emulator
        finally:
            await login.close()


async def reason(login: FeishuLogin, code: str = "x") -> str:
    with pytest.raises(LoginFailed) as failed:
        await login.poll(code)
    return failed.value.reason


async def test_device_login_answers_in_every_state() -> None:
    async with platform() as (login, emulator):
        begun = await login.begin([SCOPE])
        assert (begun.seconds, begun.interval_seconds) == (240.0, 5.0)
        assert begun.url.endswith(begun.user_code)
        assert begun.device_code not in repr(begun)
        assert await reason(login, begun.device_code) == "pending"
        assert await reason(login, begun.device_code) == "slow_down"
        emulator.pass_time(5)
        emulator.approve(begun.user_code, ALICE)
        tokens = await login.poll(begun.device_code)
        assert tokens.scopes == (SCOPE, "offline_access")
        assert (tokens.access_seconds, tokens.refresh_seconds) == (7_200.0, 604_800.0)
        assert tokens.access not in repr(tokens)
        assert await reason(login, begun.device_code) == "lost"
        assert (await login.owner(tokens.access)).name == "Alice"
        second = await login.refresh(tokens.refresh)
        with pytest.raises(LoginFailed, match="ended"):
            await login.refresh(tokens.refresh)
        with pytest.raises(LoginFailed, match="ended"):  # a token that was used twice ends the whole login
            await login.owner(second.access)
        denied = await login.begin([])
        emulator.deny(denied.user_code)
        assert await reason(login, denied.device_code) == "denied"
        emulator.pass_time(240)
        assert await reason(login, denied.device_code) == "expired"


async def test_device_login_of_a_wrong_app_or_scope_is_refused() -> None:
    async with platform("wrong") as (login, _):
        with pytest.raises(LoginFailed, match="refused"):
            await login.begin([SCOPE])
    async with platform() as (login, _):
        with pytest.raises(LoginFailed, match="app_lacks"):
            await login.begin(["im:message.send_as_user"])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *((it, "ended") for it in (20026, 20037, 20064, 20073)),
        *((it, "policy") for it in (21000, 21001)),
        (20050, "busy"),
        (20010, "barred"),
        (99991672, "app_lacks"),
        (20999, "refused"),
    ],
)
async def test_token_error_code_has_its_reason(code: int, expected: str) -> None:
    async with platform() as (login, emulator):
        emulator.answer_next("refresh_token", code, data={"challenge_url": "https://accounts.feishu.cn/challenge"})
        with pytest.raises(LoginFailed) as failed:
            await login.refresh("canary-refresh-token")
        assert (failed.value.reason, failed.value.code) == (expected, str(code))
        assert failed.value.link == "https://accounts.feishu.cn/challenge"
        assert "canary" not in str(failed.value)


async def test_token_answer_that_is_none_is_unreachable() -> None:
    async with platform() as (login, emulator):
        emulator.answers.append(("refresh_token", 502, {"unexpected": True}))
        emulator.answers.append(("refresh_token", 200, {"code": 0}))
        for _ in range(2):
            with pytest.raises(Unreachable):
                await login.refresh("canary-refresh-token")


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        ("https://open.feishu.cn", "https://accounts.feishu.cn"),
        ("https://open.larksuite.com/", "https://accounts.larksuite.com"),
        ("https://open.corp.example:8443", "https://accounts.corp.example:8443"),
        ("http://127.0.0.1:9000", "http://127.0.0.1:9000"),
    ],
)
def test_accounts_url_is_derived_from_the_open_platforms(base: str, expected: str) -> None:
    assert accounts_url(base) == expected


def test_link_under_a_button_is_a_plain_page() -> None:
    assert is_page("https://accounts.feishu.cn/verify?user_code=AB-CD")
    for link in ("javascript:alert(1)", "lark://x", "https://a b", 'https://a"', "https://a)", ""):
        assert not is_page(link)


@pytest.mark.slow  # it imports the SDK
def test_person_request_is_that_of_the_official_sdk() -> None:
    import_module("tests.feishu_sdk")
    sdk = import_module("lark_oapi.api.authen.v1.model.get_user_info_request")
    judged = sdk.GetUserInfoRequest.builder().build()
    assert (str(judged.http_method.name), judged.uri) == ("GET", PERSON_PATH)


@pytest.mark.slow  # it imports the SDK
async def test_device_login_and_refresh_are_read_as_by_the_official_sdk() -> None:
    import_module("tests.feishu_sdk")
    flow = import_module("lark_oapi.channel.auth.device_flow")
    async with platform() as (login, emulator):
        begun = await login.begin([SCOPE])
        emulator.approve(begun.user_code, ALICE)
        sdk = flow.DeviceFlowClient(APP_ID, SECRET, domain=login._open)
        judged = await sdk.poll(begun.device_code)
        ours = await login.refresh(judged.refresh_token)
        again = await sdk.refresh(ours.refresh)
        assert judged.scopes == again.scopes == list(ours.scopes)
        assert again.access_token == emulator.pairs[-1].access
        await sdk.close()


def test_grant_link_names_app_and_scopes() -> None:
    login = FeishuLogin(FeishuAccount.model_validate({"appId": APP_ID}))
    link = login.grant_link([SCOPE, "task:task:read"])
    scopes = f"{SCOPE},task:task:read"
    assert link == f"https://open.feishu.cn/app/{APP_ID}/auth?q={scopes}&op_from=openapi&token_type=user"
