"""Owners hear in their direct chats of what they should know: one cause once an hour, whatever is killed meanwhile."""

from pathlib import Path
from typing import Any

import pytest

from gateway.approvals.notices import Notice
from gateway.operate import contacts
from gateway.store.errors import StoreUnavailable
from tests.channels.contexts import Clock
from tests.emulators.models.script import Fault, says
from tests.running import ALICE, BOB, BOB_CHAT, GROUP, Running, running
from tests.stories.config.test_reload import edited
from tests.stories.inbox.test_pairing import PAIRING
from tests.stories.operate.test_sessions_command import traces
from tests.stories.store.test_replicas import two

OWNED = f'owners: ["feishu:{ALICE}"]'
DOWN = Notice(cause="channel telegram:default", en="Telegram refuses the token.", zh="Telegram 拒绝了令牌。")


def stored(url: str, *more: str) -> str:
    return "\n".join((OWNED, f'database: {{ url: "{url}" }}', *more))


async def told(house: Running) -> list[str]:
    """All that was sent once nothing is left to do."""
    await house.idle()
    return [message.text for message in house.feishu.messages]


async def test_notice_rate_limit_is_one_cause_an_hour(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with running(tmp_path, more=stored(database_url), now=clock) as house:
        for _ in range(3):
            assert await house.gateway.notices.tell(DOWN)
        assert await told(house) == [DOWN.en]
        assert house.feishu.messages[0].chat_id == house.feishu.direct[ALICE]
        clock.now += 3_599
        await house.gateway.notices.tell(DOWN)
        assert await told(house) == [DOWN.en]
        clock.now += 1
        await house.gateway.notices.tell(DOWN)
        assert await told(house) == [DOWN.en, DOWN.en]
        await house.gateway.notices.tell(Notice(cause="another", en="Another.", zh="另一个。"))
        assert await told(house) == [DOWN.en, DOWN.en, "Another."]
        assert house.anthropic.requests == []


async def test_notice_is_sent_once_by_two_replicas(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [], OWNED) as (one, other):
        for _ in range(2):
            assert await one.gateway.notices.tell(DOWN)
            assert await other.gateway.notices.tell(DOWN)
        await other.idle()
        assert await told(one) == [DOWN.en]


async def test_notice_language_is_the_owners(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, script=[says("好的")], more=stored(database_url)) as house:
        await house.say("你好，请介绍一下自己")
        await house.replies(1)
        await house.gateway.notices.tell(DOWN)
        assert (await told(house))[1:] == [DOWN.zh]


async def test_notice_is_off_by_config_or_without_a_chat(tmp_path: Path) -> None:
    for more in (f"{OWNED}\nnotifyOwners: false", 'owners: ["web:local"]', ""):
        async with running(tmp_path, more=more) as house:
            assert not await house.gateway.notices.tell(DOWN)
            assert await told(house) == []


@pytest.mark.parametrize("lost", ["accept", "finish"])
async def test_notice_survives_a_kill_once(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    clock = Clock()
    async with running(tmp_path, more=stored(database_url), now=clock) as house:

        async def dies(*_: object, **__: object) -> None:
            raise StoreUnavailable("killed")

        monkeypatch.setattr(house.gateway.runtime.store, lost, dies)
        if lost == "accept":
            with pytest.raises(StoreUnavailable):
                await house.gateway.notices.tell(DOWN)
        else:
            await house.gateway.notices.tell(DOWN)
        emulator = house.feishu
        assert emulator.messages == []
    async with running(tmp_path, more=stored(database_url), now=clock, emulator=emulator) as house:
        clock.now += 60
        await house.gateway.notices.tell(DOWN)
        assert await told(house) == [DOWN.en]


async def test_notice_of_a_refused_config_edit_goes_to_owners_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.app.serve.LOOK_SECONDS", 0.05)
    async with edited(tmp_path, more=OWNED) as (house, editor):
        await house.say("/whoami", sender=BOB, chat=GROUP, chat_type="group")
        await editor.replace("streaming: off", "streamin: off")
        (line,) = await house.replies(1)
        assert line.startswith("An edit of the config was refused, and the one before still holds: `config.yaml:")
        assert "streamin" in line
        assert str(tmp_path) not in line
        assert house.feishu.messages[0].chat_id == house.feishu.direct[ALICE]
        await editor.replace("streamin: off", "streaming_: off")
        assert len(await told(house)) == 1, "one an hour"


CAROL, CAROL_CHAT = "ou_ca401000000000000000000000000000", "oc_ca401000000000000000000000000000"
CAROLS: dict[str, Any] = {"sender": CAROL, "chat": CAROL_CHAT}
BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}


@pytest.mark.parametrize(("label", "becomes"), [("Let in", "can write to me now"), ("Refuse", "was refused")])
async def test_notice_of_pairing_lets_an_owner_decide_by_a_button(
    tmp_path: Path, database_url: str, label: str, becomes: str
) -> None:
    async with running(tmp_path, script=[says("hello Bob")], feishu=PAIRING, more=stored(database_url)) as house:
        house.feishu.users[BOB] = "Bob `/pair x`"
        event = house.feishu.text_event("my secret is swordfish", **BOBS)
        for _ in range(2):
            await house.push(event)
            await house.idle()
        (notice,) = [it for it in house.feishu.messages if it.chat_id != BOB_CHAT]
        assert notice.text.startswith(f"Bob &#96;/pair x&#96; · …{BOB[-4:]} wants to write to me.")
        assert "swordfish" not in notice.text
        value = house.feishu.card(notice.message_id).buttons[label]
        for count, text in enumerate(("hello?", "hello??"), start=1):
            await house.say(text, **BOBS)
            (greeting, *lines) = [it for it in await told(house) if "wants to write" not in it]
            assert greeting.startswith("Hi! This is a private bot")
            assert len(lines) == 1, count
            assert lines[0].startswith("Still waiting: I asked the owner at ")
        for _ in range(2):
            await house.push(house.feishu.press_event(notice.message_id, sender=ALICE, value=value))
            await house.idle()
        card = house.feishu.card(notice.message_id)
        assert card.buttons == {}
        await house.say("hello", **BOBS)
        last = (await told(house))[-1]
        assert (last == "hello Bob") == (label == "Let in")
        assert becomes in card.shown or "is no longer waiting" in card.shown
        assert traces(house, "swordfish") == []


async def test_pairing_notice_second_press_is_idempotent(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=PAIRING, more=OWNED) as house:
        await house.say("hi", **BOBS)
        await house.idle()
        (notice,) = [it for it in house.feishu.messages if it.chat_id != BOB_CHAT]
        buttons = house.feishu.card(notice.message_id).buttons
        await house.push(house.feishu.press_event(notice.message_id, sender=ALICE, value=buttons["Let in"]))
        await house.idle()
        assert house.feishu.card(notice.message_id).shown == f"Bob · …{BOB[-4:]} can write to me now."
        await house.push(house.feishu.press_event(notice.message_id, sender=ALICE, value=buttons["Refuse"]))
        await house.idle()
        assert house.feishu.card(notice.message_id).shown == "This person is no longer waiting. /pair lists who is."
        (contact,) = contacts.listed(house.gateway.config)
        assert (contact["state"], contact["displayName"]) == ("approved", "Bob")


async def test_pairing_by_id_is_announced_once_after_a_kill(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = stored(database_url)
    async with running(tmp_path, feishu=PAIRING, more=more) as house:

        async def dies(*_: object, **__: object) -> None:
            raise StoreUnavailable("killed")

        monkeypatch.setattr(house.gateway.runtime.store, "finish", dies)
        await house.say("hi", **BOBS)
        await house.until(lambda: bool(contacts.listed(house.gateway.config)))
        emulator = house.feishu
    async with running(tmp_path, feishu=PAIRING, more=more, emulator=emulator) as house:
        await house.until(lambda: len(emulator.messages) == 2)
        assert sum("wants to write" in text for text in await told(house)) == 1
        await house.say(f"/pair feishu:{BOB}")
        await house.idle()
        assert "can write to me now" in (await told(house))[-1]


REFUSED = Fault(status=401, message="invalid x-api-key")


async def test_notice_of_a_model_refusal_has_the_vendors_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.app.gateway.TROUBLE_EVERY_SECONDS", 0.05)
    owned = OWNED.replace(f'"feishu:{ALICE}"', f'"feishu:{ALICE}", "feishu:{CAROL}"')
    async with running(tmp_path, script=lambda _: REFUSED, more=owned) as house:
        await house.say("你好，请帮我", **CAROLS)
        (line,) = await house.replies(1)
        fix = "set a valid key: providers.anthropic.apiKey (ANTHROPIC_API_KEY)"
        fix_zh = "请设置有效的密钥：providers.anthropic.apiKey（ANTHROPIC_API_KEY）"
        assert line == (
            "我暂时无法回答：模型拒绝了访问。\n\n"
            f"（anthropic/claude-sonnet-4-6：厂商拒绝了密钥（auth）：invalid x-api-key——{fix_zh}）"
        )
        await house.idle()
        house.feishu.messages.clear()
        await house.say("hello", **BOBS)
        await house.replies(2)
        line, notice = (it.text for it in sorted(house.feishu.messages, key=lambda it: it.chat_id != BOB_CHAT))
        assert line == "I can't answer right now: my access to the model was refused. I have notified the owner."
        assert notice == (
            "I cannot answer: `anthropic/claude-sonnet-4-6: the vendor refuses the key (auth): invalid x-api-key`. "
            f"To do: {fix}."
        )
        assert CAROL_CHAT not in {it.chat_id for it in house.feishu.messages}  # she has read it
        await house.say("hello")
        line = (await house.replies(3))[2]
        assert line.startswith("I can't answer right now: my access to the model was refused.\n\n(anthropic/")
        assert line.endswith(f"invalid x-api-key — {fix})")
        await house.idle()
        assert len(house.feishu.messages) == 3


@pytest.mark.parametrize(
    ("more", "end"), [("", "the bot's owner."), (f"{OWNED}\nnotifyOwners: false", "the bot's owner.")]
)
async def test_notice_is_promised_to_a_guest_only_if_sent(tmp_path: Path, more: str, end: str) -> None:
    async with running(tmp_path, script=lambda _: REFUSED, more=more) as house:
        await house.say("hello", **BOBS)
        (line,) = await house.replies(1)
        assert line.endswith(end)
