"""A person's tokens are refreshed once, whoever needs them, and never leave the gateway."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.models.script import calls, says
from tests.running import ALICE, BOB, BOB_CHAT, Running, feishu_emulator
from tests.stories.at_work import results
from tests.stories.login.test_login import acting, asked, settled, texts
from tests.waiting import until

CANARY = "canary7f3a9c1e5b"


async def logged_in(house: Running) -> None:
    house.feishu.logins.approve(await asked(house), ALICE)
    await settled(house, "✓ logged in as Alice")


async def acts(house: Running, *arguments: dict[str, Any], **who: Any) -> list[str]:
    """Somebody asks for calls in one answer; what they gave."""
    house.anthropic.script = [calls(*(("act_as", it) for it in arguments)), says("tried")]
    before = len(house.feishu.messages)
    await house.say("go on", **who)
    await house.replies(before + 1)
    await until(lambda: results(house.anthropic.requests[-1].body))
    await house.idle()
    return [_brief(it) for it in results(house.anthropic.requests[-1].body)[-len(arguments) :]]


def _brief(result: str) -> str:
    """The code of an error, or the text."""
    return str(json.loads(result)["error_code"]) if result.startswith('{"ok"') else result


async def test_refresh_is_made_once_for_two_tools(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        await logged_in(house)
        logins = house.feishu.logins
        for pair in logins.pairs:
            pair.access_ends = 0
        assert await acts(house, {}, {}) == ["acted as Alice"] * 2
        assert logins.asked.count("refresh_token") == 1


async def test_refresh_survives_the_stop_of_its_turn(tmp_path: Path) -> None:
    """The platform has used up the token by then: its answer must be stored all the same."""
    async with acting(tmp_path) as house:
        await logged_in(house)
        logins, held = house.feishu.logins, asyncio.Event()
        logins.pairs[-1].access_ends = 0

        async def wait(name: str) -> bool:
            return name == "refresh_token" and not await held.wait()

        logins.after = wait
        house.anthropic.script = [calls(("act_as", {})), says("tried")]
        await house.say("go on")
        await until(lambda: len(logins.pairs) == 2)
        await house.say("/stop")
        await until(lambda: "Stopped" in texts(house)[-1])
        held.set()
        await house.idle()
        assert await acts(house, {}) == ["acted as Alice"]
        assert logins.asked.count("refresh_token") == 1


async def test_refresh_that_is_busy_is_tried_again_later(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        await logged_in(house)
        logins = house.feishu.logins
        logins.pairs[-1].access_ends = 0
        logins.answer_next("refresh_token", 20050)
        assert await acts(house, {}) == ["UNAVAILABLE"]
        assert await acts(house, {}) == ["acted as Alice"]


@pytest.mark.parametrize("code", [20026, 20037, 20064, 20073])
async def test_login_that_the_platform_ended_is_asked_for_again(tmp_path: Path, code: int) -> None:
    async with acting(tmp_path) as house:
        await logged_in(house)
        house.feishu.logins.pairs[-1].access_ends = 0
        house.feishu.logins.answer_next("refresh_token", code, error="invalid_grant")
        house.feishu.logins.approve(await asked(house), ALICE)
        await until(lambda: texts(house).count("done") == 2)


async def test_login_without_offline_access_ends_with_its_token(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        house.feishu.logins.approve(await asked(house), ALICE, scopes=["docx:document:readonly"])
        await settled(house, "✓ logged in as Alice")
        house.feishu.logins.pairs[-1].access_ends = 0
        assert await acts(house, {}) == ["NEEDS_LOGIN"]
        assert house.feishu.logins.asked.count("refresh_token") == 0


async def test_token_is_in_no_file_log_layer_or_request(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    emulator = feishu_emulator()
    emulator.logins.prefix = CANARY
    async with acting(tmp_path, emulator=emulator) as house:
        await logged_in(house)
        house.feishu.logins.pairs[-1].access_ends = 0
        found = await acts(house, {"says_token": True})
        assert found[0].startswith("acted as Alice with ")
        assert CANARY not in found[0]
        asked_of_model = json.dumps([it.body for it in house.anthropic.requests])
        assert CANARY not in asked_of_model + "".join(texts(house))
    written, errors = capfd.readouterr()
    assert CANARY not in written + errors + caplog.text
    files = [it for it in tmp_path.rglob("*") if it.is_file()]
    assert [it for it in files if CANARY.encode() in it.read_bytes()] == []
    (key,) = (it for it in files if it.name == "secret.key")
    assert key.stat().st_mode & 0o777 == 0o600


async def test_lost_key_means_logging_in_again(tmp_path: Path) -> None:
    emulator = feishu_emulator()
    async with acting(tmp_path, emulator=emulator) as house:
        await logged_in(house)
    (tmp_path / "data" / "secret.key").unlink()
    async with acting(tmp_path, emulator=emulator) as house:
        emulator.logins.approve(await asked(house), ALICE)
        await until(lambda: texts(house).count("done") == 2)


async def test_login_copied_to_another_row_opens_nothing(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        await logged_in(house)
        store = house.gateway.runtime.store
        copied = "UPDATE login SET person = :bob"
        await store.write(lambda connection: connection.exec_driver_sql(copied.replace(":bob", f"'{BOB}'")))
        assert await acts(house, {}, sender=BOB, chat=BOB_CHAT) == ["NEEDS_LOGIN"]
