"""A person logs in at Feishu, and the turn that waited for it continues by itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.acting import folder
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, Running, feishu_emulator, running
from tests.stories.at_work import results
from tests.stories.later.test_identity import MESSAGE
from tests.waiting import until
from tools.tool import Call

AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [act_as, schedule, task] }
"""
SESSION = f"agent:helper:feishu:default:{ALICE_CHAT}"
ANYTIME = f"{FEISHU}    timestampWindowSeconds: null\n"
IN_GROUP: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
WANTS: list[Any] = [calls(("act_as", {})), says("I will do it once you are logged in.")]


def acting(tmp_path: Path, **more: Any) -> Any:
    """A gateway whose agent has the tool, and an emulator that answers polls at any pace."""
    emulator = more.pop("emulator", None) or feishu_emulator()
    emulator.logins.interval = 0.05
    lines = "\n".join((folder(tmp_path), more.pop("more", "")))
    return running(tmp_path, emulator=emulator, **({"agents": AGENTS, "feishu": ANYTIME, "more": lines} | more))


def cards(house: Running) -> list[Any]:
    """The login cards as they are now, oldest first."""
    found = [house.feishu.card(it.message_id) for it in house.feishu.messages if it.msg_type == "interactive"]
    return [it for it in found if it.buttons or "✓" in it.shown or "✗" in it.shown or "newer" in it.shown]


def texts(house: Running) -> list[str]:
    return [house.feishu.reads(it) for it in house.feishu.messages]


async def asked(house: Running, **who: Any) -> str:
    """Somebody asks for what needs a login; the code on the card."""
    house.anthropic.script = [*WANTS, calls(("act_as", {})), says("done")]
    before = len(house.feishu.logins.devices)
    await house.say("do it", **who)
    await until(lambda: len(house.feishu.logins.devices) > before)
    await until(lambda: any("once you are logged in" in it for it in texts(house)))
    code = house.feishu.logins.devices[-1].user_code
    await until(lambda: any(code in it.shown for it in cards(house)))
    return code


async def settled(house: Running, mark: str) -> None:
    """Until a card says this, and nothing runs any more."""
    await until(lambda: any(mark in it.shown for it in cards(house)))
    await house.idle()


async def test_login_from_nothing_to_the_continued_turn(tmp_path: Path, database_url: str) -> None:
    async with acting(tmp_path, more=f'database: {{ url: "{database_url}" }}') as house:
        code = await asked(house)
        (card,) = cards(house)
        assert code in card.shown
        assert "4 minutes" in card.shown
        assert card.buttons == {
            "Log in": {"url": f"https://accounts.feishu.cn/oauth/v1/device/verify?user_code={code}"}
        }
        house.feishu.logins.approve(code, ALICE)
        await until(lambda: "done" in texts(house))
        await settled(house, "✓ logged in as Alice")
        assert results(house.anthropic.requests[-1].body)[-1] == "acted as Alice"
        assert texts(house).count("done") == 1
        assert len(cards(house)) == 1
        (device,) = house.feishu.logins.devices
        assert device.scopes == ("docx:document:readonly", "offline_access")


async def test_login_of_another_person_is_thrown_away(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        house.feishu.logins.approve(await asked(house), BOB)
        await settled(house, "✗ Somebody else logged in with this link, so nothing was kept.")
        assert "Bob" not in "".join(texts(house))
        assert "done" not in texts(house)
        store = house.gateway.runtime.store.logins
        for person in (ALICE, BOB):
            assert await store.get("feishu", "default", person) is None


async def test_denied_and_expired_logins_say_so_and_drop_the_turn(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        house.feishu.logins.deny(await asked(house))
        await settled(house, "✗ The login was denied. Write /login to try again.")
        house.feishu.logins.expires_in = 0.3
        code = await asked(house, sender=BOB, chat=BOB_CHAT)
        await settled(house, "✗ The login was not finished in time.")
        assert "done" not in texts(house)
        assert code
        assert not await house.gateway.runtime.store.later.due(float("inf"), 10)


async def test_poll_obeys_slow_down(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        logins = house.feishu.logins
        logins.answers += [("device_code", 400, {"error": "slow_down"})] * 1
        await asked(house)
        await until(lambda: not logins.answers)
        later = house.gateway.runtime.store.later

        async def slowed() -> bool:
            rows = await later.due(float("inf"), 10)
            return [json.loads(it.body)["interval_seconds"] for it in rows] == [5.05]

        await until(slowed)


async def test_poll_that_takes_long_is_not_joined_by_another(tmp_path: Path) -> None:
    """The code works once: a second poll would count the login as lost."""
    async with acting(tmp_path) as house:
        logins, held, answering = house.feishu.logins, asyncio.Event(), asyncio.Event()
        code = await asked(house)

        async def wait(name: str) -> bool:
            if name == "device_code" and logins.devices[-1].state == "used":
                answering.set()
                await held.wait()
            return False

        logins.after = wait
        logins.approve(code, ALICE)
        await answering.wait()
        (row,) = await house.gateway.runtime.store.later.due(float("inf"), 10)
        assert row.due is not None
        assert row.due > house.gateway.runtime.now() + 5
        held.set()
        await until(lambda: "done" in texts(house))
        assert len(logins.devices) == 1


async def test_login_command_shows_the_same_card_twice(tmp_path: Path) -> None:
    scopes = f"{ANYTIME}    login: {{ scopes: ['task:task:read'] }}\n"
    async with acting(tmp_path, feishu=scopes) as house:
        await house.say("/login")
        await until(lambda: len(cards(house)) == 1)
        await house.say("/login")
        await until(lambda: len(cards(house)) == 2)
        (device,) = house.feishu.logins.devices
        assert device.scopes == ("task:task:read", "offline_access")
        assert all(device.user_code in it.shown for it in cards(house))
        house.feishu.logins.approve(device.user_code, ALICE)
        await until(lambda: ["✓" in it.shown for it in cards(house)] == [True, True])
        await house.say("/whoami")
        await until(lambda: "Login: Alice (`task:task:read`)" in texts(house)[-1])
        await house.say("/logout")
        await until(lambda: "Logged out" in texts(house)[-1])
        assert await house.gateway.runtime.store.logins.get("feishu", "default", ALICE) is None
        await house.say("/login", sender=BOB, **IN_GROUP)
        await until(lambda: house.feishu.shown(GROUP) == ["Write /login to me in a direct chat in Feishu."])


async def test_login_card_is_in_the_language_of_its_reader(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        house.anthropic.script = list(WANTS)
        await house.say("帮我整理这份文档的要点", **IN_GROUP)
        await until(lambda: len(cards(house)) == 1)
        (card,) = cards(house)
        assert card.shown.startswith("请登录，以便我以你的身份在飞书中操作。")
        assert list(card.buttons) == ["登录"]
        await until(lambda: "登录卡片已发到你和我的私聊" in "".join(house.feishu.shown(GROUP)))
        house.feishu.logins.approve(house.feishu.logins.devices[-1].user_code, ALICE)
        await settled(house, "✓ 已登录：Alice")


async def test_login_in_a_group_is_shown_in_the_direct_chat(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        house.feishu.direct[ALICE] = ALICE_CHAT
        code = await asked(house, **IN_GROUP)
        direct = house.feishu.direct[ALICE]
        (group_text,) = house.feishu.shown(GROUP)
        assert "write /login to me there" in group_text
        assert code not in group_text
        assert any(code in it for it in house.feishu.shown(direct))
        house.feishu.logins.approve(code, ALICE)
        await until(lambda: "done" in house.feishu.shown(GROUP))


async def test_login_of_someone_who_cannot_be_reached_is_asked_for_directly(tmp_path: Path) -> None:
    """Feishu lets the bot write to nobody outside of its range first: the line in the group says what to do."""
    async with acting(tmp_path) as house:
        del house.feishu.users[BOB]
        house.anthropic.script = [*WANTS, calls(("act_as", {})), says("done")]
        await house.say("do it", sender=BOB, **IN_GROUP)
        await until(lambda: "write /login to me there" in "".join(house.feishu.shown(GROUP)))
        await house.idle()
        assert cards(house) == []
        await house.say("/login", sender=BOB, chat=BOB_CHAT)
        await until(lambda: len(cards(house)) == 1)
        (device,) = house.feishu.logins.devices
        assert device.user_code in "".join(house.feishu.shown(BOB_CHAT))
        house.feishu.logins.approve(device.user_code, BOB)
        await until(lambda: "done" in house.feishu.shown(GROUP))


async def test_login_asks_for_what_the_app_still_may(tmp_path: Path) -> None:
    """A scope that was granted once, and that the app has lost since, keeps nobody out."""
    async with acting(tmp_path) as house:
        house.feishu.logins.approve(await asked(house), ALICE)
        await settled(house, "✓ logged in as Alice")
        house.feishu.logins.scopes.discard("docx:document:readonly")
        house.anthropic.script = [calls(("act_as", {"scopes": ["task:task:read"]})), says("once you are logged in")]
        await house.say("more")
        await until(lambda: len(house.feishu.logins.devices) == 2)
        assert house.feishu.logins.devices[-1].scopes == ("task:task:read", "offline_access")


async def test_scope_that_the_app_lacks_is_told_to_owners_once(tmp_path: Path) -> None:
    owners = f'owners: ["feishu:{BOB}"]'
    async with acting(tmp_path, more=owners) as house:
        house.feishu.logins.scopes.discard("docx:document:readonly")
        for number in (1, 2):
            house.anthropic.script = [calls(("act_as", {})), says("I may not.")]
            await house.say("do it")
            await until(lambda: texts(house).count("I may not.") == number)  # noqa: B023
        await house.idle()
        (notice,) = house.feishu.shown(house.feishu.direct[BOB])
        assert "lacks the permission `docx:document:readonly`" in notice
        assert "/auth?q=docx:document:readonly&op_from=openapi&token_type=user" in notice
        assert "APP_LACKS_SCOPE" in results(house.anthropic.requests[-1].body)[-1]
        assert house.feishu.logins.devices == []


async def test_scope_that_the_platform_misses_is_asked_for(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        house.feishu.logins.approve(await asked(house), ALICE)
        await settled(house, "✓ logged in as Alice")
        call = Call(id="c", key="k", message=MESSAGE, session=SESSION)
        error = await house.gateway.logins.missing(call, "default", ["wiki:node:read"])
        assert error.code == "NEEDS_LOGIN"
        assert "wiki:node:read" in house.feishu.logins.devices[-1].scopes
        await until(lambda: len(cards(house)) == 2)


async def test_scopes_add_up_over_logins(tmp_path: Path) -> None:
    async with acting(tmp_path) as house:
        house.feishu.logins.approve(await asked(house), ALICE)
        await settled(house, "✓ logged in as Alice")
        more = calls(("act_as", {"scopes": ["task:task:read"]}))
        house.anthropic.script = [more, says("once you are logged in"), more, says("both done")]
        await house.say("more")
        await until(lambda: len(house.feishu.logins.devices) == 2)
        device = house.feishu.logins.devices[-1]
        assert set(device.scopes) == {"docx:document:readonly", "task:task:read", "offline_access"}
        house.feishu.logins.approve(device.user_code, ALICE)
        await until(lambda: "both done" in texts(house))
