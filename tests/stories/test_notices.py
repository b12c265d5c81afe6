"""Owners hear in their direct chats of what they should know: one cause once an hour, whatever is killed meanwhile."""

from pathlib import Path

import pytest

from gateway.approvals.notices import Notice
from gateway.store.errors import StoreUnavailable
from tests.channels.contexts import Clock
from tests.emulators.models.script import says
from tests.running import ALICE, BOB, GROUP, Running, running
from tests.stories.test_reload import edited
from tests.stories.test_replicas import two

OWNED = f'owners: ["feishu:{ALICE}"]'
DOWN = Notice(cause="channel telegram:default", en="Telegram refuses the token.", zh="Telegram 拒绝了令牌。")


def stored(url: str, *more: str) -> str:
    return "\n".join((OWNED, f'database: {{ url: "{url}" }}', *more))


async def told(house: Running) -> list[str]:
    """All that was sent once nothing is left to do."""
    await house.idle()
    return [message.text for message in house.feishu.messages]


async def test_an_owner_hears_of_one_cause_once_an_hour_and_of_another_at_once(
    tmp_path: Path, database_url: str
) -> None:
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


async def test_two_replicas_tell_one_cause_once(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [], OWNED) as (one, other):
        for _ in range(2):
            assert await one.gateway.notices.tell(DOWN)
            assert await other.gateway.notices.tell(DOWN)
        await other.idle()
        assert await told(one) == [DOWN.en]


async def test_a_notice_is_in_the_language_of_what_the_owner_wrote_last(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, script=[says("好的")], more=stored(database_url)) as house:
        await house.say("你好，请介绍一下自己")
        await house.replies(1)
        await house.gateway.notices.tell(DOWN)
        assert (await told(house))[1:] == [DOWN.zh]


async def test_nobody_hears_anything_where_the_config_says_so_or_where_there_is_no_chat(tmp_path: Path) -> None:
    for more in (f"{OWNED}\nnotifyOwners: false", 'owners: ["web:local"]', ""):
        async with running(tmp_path, more=more) as house:
            assert not await house.gateway.notices.tell(DOWN)
            assert await told(house) == []


@pytest.mark.parametrize("lost", ["accept", "finish"])
async def test_a_kill_loses_no_notice_and_doubles_none(
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


async def test_owners_hear_of_an_edit_that_was_refused_and_nobody_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.app.reload.LOOK_SECONDS", 0.05)
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
