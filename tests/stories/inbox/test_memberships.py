"""The bot is added to a group, removed from it, and the group becomes another one."""

import json
from pathlib import Path

import pytest

from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE, FEISHU, GROUP, running
from tests.stories.channels.test_telegram import bot

HELLO = "    introduction: 大家好, I am the helper.\n"
OTHER = "oc_0ther0000000000000000000000000"


async def test_membership_added_to_a_group_introduces_itself_once(tmp_path: Path) -> None:
    listed = FEISHU.replace("groupPolicy: open", f"groupPolicy: allowlist\n    groupAllowFrom: [{GROUP}]")
    async with running(tmp_path, feishu=listed.rstrip() + "\n" + HELLO) as house:
        house.feishu.chats[OTHER] = "Elsewhere"

        def changed(kind: str, chat: str) -> dict[str, object]:
            body = {"chat_id": chat, "operator_id": {"open_id": ALICE}, "external": False, "name": "Team"}
            return house.feishu.event(f"im.chat.member.bot.{kind}_v1", body)

        added = changed("added", GROUP)
        for event in (added, added, changed("deleted", GROUP), changed("added", OTHER)):
            assert (await house.push(event)).status_code == 200
        assert await house.replies(1) == ["大家好, I am the helper."]
        await house.idle()
        assert [(it.chat_id, it.reply_to) for it in house.feishu.messages] == [(GROUP, None)]
        await house.push(changed("added", GROUP))  # it was removed and is back
        await house.replies(2)
        await house.idle()
        assert (len(house.feishu.messages), house.anthropic.requests) == (2, [])
        await house.push(house.feishu.event("im.chat.member.bot.added_v1", {"chat_id": 7}))
        await house.idle()
        assert len(house.feishu.messages) == 2


async def test_membership_on_telegram_and_a_block_is_no_group(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    async with serve_on_loopback(telegram.app) as url:
        account = f'botToken: "{telegram.token}"\n    apiRoot: "{url}"\n    dmPolicy: open\n    groupPolicy: open\n'
        async with running(tmp_path, feishu=f"{FEISHU}  telegram:\n    {account}{HELLO}") as house:
            team, alice = telegram.supergroup(), telegram.private()
            await telegram.push(telegram.membership_update(team, "administrator"))  # it was a member before
            await telegram.push(telegram.block(alice))
            await telegram.push(telegram.membership_update(alice, "member", before="kicked"))
            await telegram.push(telegram.membership_update(team, "member", before="left", by=alice))
            assert [(it.chat_id, it.text) for it in await telegram.sent(1)] == [(team, "大家好, I am the helper.")]
            await house.idle()
            assert len(telegram.messages) == 1


async def test_supergroup_move_keeps_nothing_of_a_group_not_listened_to(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    async with serve_on_loopback(telegram.app) as url:
        account = f'botToken: "{telegram.token}"\n    apiRoot: "{url}"\n    dmPolicy: open\n    groupPolicy: disabled\n'
        async with running(tmp_path, script=[says("hi")], feishu=f"{FEISHU}  telegram:\n    {account}") as house:
            for moved in telegram.migrate(telegram.group(), -1002000000077):
                await telegram.push(moved)
            await telegram.push(telegram.text_update("hi", chat=telegram.private()))
            await telegram.sent(1)
            choices = house.gateway.runtime.choices
            await choices.load()
            assert not choices._chosen


async def test_supergroup_move_keeps_group_listening(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    alice, small, large = telegram.user(500000011, "Alice"), telegram.group(), -1002000000077
    more = 'owners: ["telegram:500000011"]'
    async with bot(tmp_path, "polling", script=[says("hi")], emulator=telegram, more=more) as it:
        name = telegram.bot["username"]
        await it.happens(telegram.text_update(f"@{name} /unlisten", chat=small, sender=alice))
        await it.replies(1)
        await it.happens(*telegram.migrate(small, large))
        bob = telegram.user(500000022, "Bob")
        await it.happens(telegram.text_update(f"@{name} hello", chat=large, sender=bob))
        await it.happens(telegram.text_update(f"@{name} /listen", chat=large, sender=alice))
        await it.replies(2)
        await it.happens(telegram.text_update(f"@{name} hello", chat=large, sender=bob))
        assert [sent.chat_id for sent in await it.replies(3)] == [small, large, large]
        assert len(it.house.anthropic.requests) == 1


@pytest.mark.parametrize("first", [0, 1])
async def test_supergroup_move_keeps_the_history(tmp_path: Path, first: int) -> None:
    async with bot(tmp_path, "polling", script=[says("noted"), says("blue"), says("still blue")]) as it:
        alice, small, large = it.telegram.user(500000011, "Alice"), it.telegram.group(), -1002000000077
        name = it.telegram.bot["username"]
        await it.happens(it.telegram.text_update(f"@{name} my colour is blue", chat=small, sender=alice))
        await it.replies(1)
        await it.house.idle()
        moved = it.telegram.migrate(small, large)
        await it.happens(moved[first], moved[1 - first])
        await it.happens(it.telegram.text_update(f"@{name} which colour?", chat=large, sender=alice))
        (_, answer) = await it.replies(2)
        assert (answer.chat_id, answer.reply_to is not None) == (large, True)
        await it.house.idle()
        assert "my colour is blue" in json.dumps(it.house.anthropic.requests[-1].body)
        again = it.house.gateway.runtime.choices
        again._chosen = {}
        await again.load()  # as after a restart
        await it.happens(it.telegram.text_update(f"@{name} and now?", chat=large, sender=alice))
        await it.replies(3)
        assert "my colour is blue" in json.dumps(it.house.anthropic.requests[-1].body)
