"""An owner switches the bot on and off in a group, from the group or by the buttons of the notice that it was added."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.operate.routes import explained, message_to
from tests.emulators.models.script import says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import ALICE, ALICE_CHAT, BOB, FEISHU, GROUP, SECRETS, Running, running
from tests.stories.channels.test_telegram import bot
from tests.stories.store.test_replicas import two

LISTED = FEISHU.replace("groupPolicy: open", "groupPolicy: allowlist")
OWNED = f'owners: ["feishu:{ALICE}"]'
UNHEARD = "I stay silent in this group until you switch me on: send `/listen` here."
THERE: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}


async def sent(house: Running) -> list[str]:
    await house.idle()
    return [message.text for message in house.feishu.messages]


async def test_group_listening_is_switched_by_owners_only(tmp_path: Path, database_url: str) -> None:
    more = f'{OWNED}\ndatabase: {{ url: "{database_url}" }}'
    async with running(tmp_path, script=lambda _: says("hello"), feishu=LISTED, more=more) as house:
        for text in ("hello", "/listen", "/unlisten"):
            await house.say(text, sender=BOB, **THERE)
        await house.say("beside the bot", chat=GROUP, chat_type="group")
        assert await sent(house) == []
        await house.say("hello", **THERE)
        assert await sent(house) == [UNHEARD]
        await house.say("/listen", chat=GROUP, chat_type="group")
        assert (await sent(house))[-1] == "I am on. Mention me with a question."
        await house.say("hello", sender=BOB, **THERE)
        assert (await sent(house))[-1] == "hello"
        await house.say("/unlisten", sender=BOB, **THERE)
        assert (await sent(house))[-1].startswith("Only an owner")
        await house.say("/listen owners", **THERE)
        assert (await sent(house))[-1] == "I am on, for my owners only."
        count = len(house.feishu.messages)
        await house.say("hello", sender=BOB, **THERE)
        assert len(await sent(house)) == count
        await house.say("hello", **THERE)
        assert (await sent(house))[-1] == "hello"
        emulator = house.feishu
    async with running(tmp_path, script=[says("still")], feishu=LISTED, more=more, emulator=emulator) as house:
        await house.say("and after a restart?", **THERE)
        assert (await sent(house))[-1] == "still"
        await house.say("/unlisten", **THERE)
        assert (await sent(house))[-1] == "I am off in this group. `/listen` switches me on again."
        await house.say("hello", **THERE)
        assert (await sent(house))[-1] == UNHEARD
        await house.say("/listen")
        assert (await sent(house))[-1] == "Send it in the group."


@pytest.mark.parametrize("policy", ["open", "listed"])
async def test_group_listening_overrides_the_config_list(tmp_path: Path, policy: str) -> None:
    feishu = FEISHU if policy == "open" else LISTED + f"    groupAllowFrom: [{GROUP}]\n"
    async with running(tmp_path, script=[says("hello"), says("again")], feishu=feishu, more=OWNED) as house:
        await house.say("hello", sender=BOB, **THERE)
        await house.idle()
        await house.say("/unlisten", **THERE)
        assert (await sent(house))[-1] == "I am off in this group. `/listen` switches me on again."
        await house.say("hello", sender=BOB, **THERE)
        assert len(await sent(house)) == 2
        await house.say("/listen", **THERE)
        await house.idle()
        await house.say("hello", sender=BOB, **THERE)
        assert (await sent(house))[-1] == "again"


async def test_group_listening_off_in_config_is_told_to_an_owner(tmp_path: Path) -> None:
    feishu = FEISHU.replace("groupPolicy: open", "groupPolicy: disabled")
    async with running(tmp_path, feishu=feishu, more=OWNED) as house:
        for text in ("hello", "/listen"):
            await house.say(text, **THERE)
            await house.idle()
        await house.say("hello", sender=BOB, **THERE)
        assert set(await sent(house)) == {"I am off in all groups, because the config sets `groupPolicy: disabled`."}
        assert len(house.feishu.messages) == 2


async def test_group_listening_is_shared_by_replicas(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [says("hello")], OWNED, feishu=LISTED) as (one, other):
        await one.say("/listen", **THERE)
        await one.replies(1)
        await other.until(lambda: "on" in other.gateway.runtime.choices._chosen.values())
        await other.say("hello", sender=BOB, **THERE)
        assert (await one.replies(2))[1] == "hello"


def added(house: Running, by: str = BOB, chat: str = GROUP) -> dict[str, Any]:
    body = {"chat_id": chat, "operator_id": {"open_id": by}, "external": False, "name": "Team"}
    return house.feishu.event("im.chat.member.bot.added_v1", body)


@pytest.mark.parametrize(("label", "becomes"), [("Listen here", "on"), ("Only owners", "owners"), ("Leave", "off")])
async def test_group_added_notice_lets_owners_decide_by_a_button(tmp_path: Path, label: str, becomes: str) -> None:
    async with running(tmp_path, script=lambda _: says("hello"), feishu=LISTED, more=OWNED) as house:
        await house.say("hello")
        await house.replies(1)
        event = added(house)
        await asyncio.gather(*(house.push(event) for _ in range(3)))
        await house.idle()
        notice = house.feishu.messages[1]
        assert notice.chat_id == ALICE_CHAT
        assert notice.text.startswith(
            f"Bob · …{BOB[-4:]} added me to the group Team · …{GROUP[-4:]}. I stay silent there until you switch me on."
        )
        value = house.feishu.card(notice.message_id).buttons[label]
        await house.push(house.feishu.press_event(notice.message_id, sender=BOB, value=value))
        assert (await sent(house))[-1] == "This button is for someone else, or it has expired."
        assert house.gateway.runtime.choices.listens_in("feishu", "default", GROUP) is None
        await house.push(house.feishu.press_event(notice.message_id, sender=ALICE, value=value))
        await house.idle()
        assert house.gateway.runtime.choices.listens_in("feishu", "default", GROUP) == becomes
        assert (GROUP in house.feishu.chats) == (becomes != "off")
        card = house.feishu.card(notice.message_id)
        assert card.buttons == {}
        assert card.shown.startswith("`Team`: I ")
        assert len(house.feishu.messages) == 3


async def test_group_added_notice_has_a_rate_limit_for_strangers(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=LISTED, more=OWNED) as house:
        groups = [f"oc_{number:032d}" for number in range(3)]
        house.feishu.chats.update(dict.fromkeys(groups, "Team"))
        for group in groups:
            await house.push(added(house, BOB, group))
            await house.idle()
        assert len(await sent(house)) == 1
        for group in groups:
            await house.push(added(house, ALICE, group))
            await house.idle()
        assert len(await sent(house)) == 4


async def test_group_added_notice_on_telegram_switches_or_leaves(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    alice = telegram.private()
    async with bot(
        tmp_path, "polling", script=[says("hi")], emulator=telegram, more=f'owners: ["telegram:{alice}"]'
    ) as it:
        team = telegram.supergroup()
        await telegram.push(telegram.membership_update(team, "member", before="left", by=alice))
        (notice,) = await it.replies(1)
        assert notice.chat_id == alice
        assert "The config switches me on there." in notice.text
        assert notice.reply_markup is not None
        keys = {key["text"]: key["callback_data"] for (key,) in notice.reply_markup["inline_keyboard"]}
        assert list(keys) == ["Only owners", "Leave"]
        await it.happens(telegram.press_update(notice.message_id, keys["Leave"], chat=alice, sender=alice))
        await it.house.until(lambda: telegram.left == [team])
        assert it.house.gateway.runtime.choices.listens_in("telegram", "default", str(team)) == "off"


async def test_routes_explain_knows_a_switched_on_group(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=LISTED, more=OWNED) as house:
        loaded = load(house.folder / "config.yaml", SECRETS)
        there = message_to(loaded.config, "feishu", "default", GROUP, "group", None, BOB)
        assert explained(loaded, there, 0.0)["access"].value == "group-not-allowed"
        for text, value in (
            ("/listen", "allowed"),
            ("/listen owners", "sender-not-allowed"),
            ("/unlisten", "group-not-allowed"),
        ):
            await house.say(text, **THERE)
            await house.idle()
            assert explained(loaded, there, 0.0)["access"].value == value
