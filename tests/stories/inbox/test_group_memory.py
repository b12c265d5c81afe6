"""A group that the config has the bot remember: what is kept, who may read it, and what is gone again."""

import asyncio
import itertools
import re
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gateway.operate import sessions
from gateway.store.chatter import message_json
from gateway.store.holdings import forget_aged
from gateway.store.opening import connected
from tests.channels.contexts import Clock
from tests.emulators.models.script import calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.running import ALICE, BOB, FEISHU, GROUP, Running, push, running
from tests.stories.at_work import NEVER, results
from tests.stories.channels.test_telegram import bot
from tests.stories.operate.test_privacy import forgotten
from tests.stories.process.test_process import platforms, started
from tests.waiting import until
from tests.web_page import opened

AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, schedule, group_history] }
"""
KEPT = f"{FEISHU.rstrip()}\n    timestampWindowSeconds: null\n    chats: {{ {GROUP}: {{ remember: 30d }} }}\n"
SAYS_SO = "I keep what is said in this group for 30 days"
TOOL = "group_history"
PEOPLE = [f"ou_{number:032x}" for number in range(12)]


async def said(house: Running, text: str, *, sender: str = BOB, to_bot: bool = False, **more: Any) -> None:
    chat = {"chat": GROUP, "chat_type": "group", "mention_bot": to_bot, **more}
    assert (await house.say(text, sender=sender, **chat)).status_code == 200


def tools(house: Running) -> set[str]:
    return {it["name"] for it in house.anthropic.requests[-1].body.get("tools", ())}


async def read(house: Running, ask: str = "look", *, to: str = GROUP, sender: str = ALICE, **arguments: Any) -> str:
    """Have the model call the tool, and return its result."""
    count = len(house.anthropic.requests)
    house.anthropic.script = [calls((TOOL, arguments)), says("so it is")]
    if to == GROUP:
        await said(house, ask, sender=sender, to_bot=True)
    else:
        await house.say(ask, sender=sender, chat=to)
    await house.requested(count + 2)
    await house.idle()
    return results(house.anthropic.requests[-1].body)[-1]


def lines(result: str) -> list[str]:
    return [it.partition(": ")[2] for it in re.findall(r"^[0-9]+\. .*$", result, re.MULTILINE)]


async def test_history_of_a_week_is_read_in_three_pages(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    more = f'database: {{ url: "{database_url}" }}'
    async with running(tmp_path, feishu=KEPT, agents=AGENTS, more=more, now=clock) as house:
        house.feishu.now = clock
        house.feishu.users.update({it: f"Person {number}" for number, it in enumerate(PEOPLE)})
        for number in range(596):
            clock.now += 1_000
            name = f"om_week{number:04}"
            await said(house, f"line {number} of the week", sender=PEOPLE[number % 12], message_id=name)
            if number % 50 == 0:
                await said(house, f"line {number} of the week", sender=PEOPLE[number % 12], message_id=name)
        pages = [calls((TOOL, {"since": "8d", "page": page})) for page in (1, 2, 3)]
        house.anthropic.script = [*pages, says("12 people said 596 things")]
        await said(house, "sum up the week", sender=ALICE, to_bot=True)
        assert (await house.replies(2))[-1] == "12 people said 596 things"
        found = results(house.anthropic.requests[-1].body)
        heads = [re.search(r"\[lines .*?\]", it) for it in found]
        assert [it and it[0] for it in heads] == [
            "[lines 1 to 200 of 597]",
            "[lines 201 to 400 of 597]",
            "[lines 401 to 597 of 597]",
        ]
        whole = [line for it in found for line in lines(it)]
        assert whole == [*(f"line {number} of the week" for number in range(596)), "sum up the week"]
        assert all(f"Person {number}" in found[0] for number in range(12))


async def test_group_is_told_once_and_nothing_is_kept_without_the_key(tmp_path: Path, database_url: str) -> None:
    more = f'database: {{ url: "{database_url}" }}'
    async with running(tmp_path, feishu=FEISHU, agents=AGENTS, more=more, script=[says("hi")]) as house:
        await said(house, "before the key", message_id="om_before")
        await said(house, "hello", to_bot=True)
        assert await house.replies(1) == ["hi"]
        assert TOOL not in tools(house)
        assert await kept(house) == []
    for number in (1, 2):  # also after a restart
        async with running(tmp_path, feishu=KEPT, agents=AGENTS, more=more, emulator=house.feishu) as house:
            await said(house, f"first {number}", message_id=f"om_first{number}")
            await said(house, f"second {number}", message_id=f"om_second{number}")
            await house.replies(2)
            await house.idle()
            assert [it.text.startswith(SAYS_SO) for it in house.feishu.messages] == [False, True]
            assert (house.feishu.messages[1].chat_id, house.feishu.messages[1].reply_to) == (GROUP, None)
    async with running(tmp_path, feishu=FEISHU, agents=AGENTS, more=more, emulator=house.feishu) as house:
        await house.until(lambda: _none_kept(house))  # the pruning takes what the config no longer has
        assert not await house.gateway.runtime.store.chatter.has_said(f"feishu:default:{GROUP}")


async def test_introduction_says_once_that_the_group_is_remembered(tmp_path: Path) -> None:
    introduction = "    introduction: 大家好, I am the helper.\n"
    async with running(tmp_path, feishu=KEPT + introduction, agents=AGENTS) as house:
        body = {"chat_id": GROUP, "operator_id": {"open_id": ALICE}, "external": False, "name": "Team"}
        for _ in range(2):  # removed and added again
            await house.push(house.feishu.event("im.chat.member.bot.added_v1", body))
            await house.idle()
        await said(house, "welcome")
        first, second = await house.replies(2)
        assert first.startswith(f"大家好, I am the helper.\n\n{SAYS_SO}"), first
        assert second == "大家好, I am the helper."
        await house.idle()
        assert len(house.feishu.messages) == 2


async def kept(house: Running) -> list[str]:
    """The texts that are kept of the group."""
    found = await house.gateway.runtime.store.chatter.lines(f"feishu:default:{GROUP}", 0, 9e12)
    return [message_json.validate_json(it.body).text for it in found]


async def _none_kept(house: Running) -> bool:
    return not await kept(house)


async def test_history_has_answers_topics_quotes_and_filters(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=KEPT, agents=AGENTS, script=[says("Noon, 中午")]) as house:
        await said(house, "When is 午饭?\nAnybody?", message_id="om_when", to_bot=True)
        await house.replies(2)
        await said(house, "in the topic", sender=ALICE, thread_id="omt_7", message_id="om_topic")
        await said(house, "thanks for that", parent_id="om_when", root_id="om_when")
        whole = await read(house)
        assert lines(whole) == ["When is 午饭? / Anybody?", "Noon, 中午", "in the topic", "thanks for that", "look"]
        assert whole.startswith("<<<EXTERNAL_CONTENT ")
        assert " Bob: When is" in whole
        assert "you (the bot): Noon" in whole
        assert "(topic omt_7) Alice: in the topic" in whole
        assert "Bob (to 1): thanks" in whole
        assert lines(await read(house, words="午饭")) == ["When is 午饭? / Anybody?"]
        assert lines(await read(house, words="THANKS")) == ["thanks for that"]
        assert lines(await read(house, person="bob")) == ["When is 午饭? / Anybody?", "thanks for that"]
        assert lines(await read(house, person=BOB, until="2020-01-01")) == []


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        ({"since": "last week"}, "write a date such as"),
        ({"until": "2026-13-01"}, "or a span such as 7d or 12h"),
        ({"since": "1h", "until": "2h"}, "'since' must be before 'until'"),
        ({"page": 2}, "'page' must be at most 1"),
        ({"page": 0}, "'page'"),
        ({"person": "Zoe"}, "these did: Alice, Bob"),
        ({"group": "oc_0ther"}, f"'group' must be one of: {GROUP}"),
    ],
)
async def test_wrong_arguments_are_answered_with_the_fix(tmp_path: Path, arguments: dict[str, Any], fix: str) -> None:
    async with running(tmp_path, feishu=KEPT, agents=AGENTS) as house:
        await said(house, "one", sender=ALICE)
        await said(house, "two")
        assert fix in await read(house, **arguments)


async def test_recalled_line_is_gone_from_history_and_results(tmp_path: Path, database_url: str) -> None:
    more = f'database: {{ url: "{database_url}" }}'
    async with running(tmp_path, feishu=KEPT, agents=AGENTS, more=more) as house:
        await said(house, "canary overheard", message_id="om_overheard")
        house.anthropic.script = [says("canary answered")]
        await said(house, "canary asked", message_id="om_asked", to_bot=True)
        await house.replies(2)
        await said(house, "stays")
        assert lines(await read(house))[:4] == ["canary overheard", "canary asked", "canary answered", "stays"]
        for name in ("om_overheard", "om_asked"):
            await house.push(house.feishu.recalled_event(name))
        await house.idle()
        await said(house, "canary overheard", message_id="om_overheard")  # redelivered
        assert await kept(house) == ["stays", "look", "so it is"]
        assert "canary" not in await read(house)
        assert "canary" not in str(house.anthropic.requests[-1].body["messages"])


@pytest.mark.parametrize("way", ["erase", "forget"])
async def test_erased_person_is_gone_from_a_remembered_group(tmp_path: Path, database_url: str, way: str) -> None:
    more = f'database: {{ url: "{database_url}" }}'
    async with running(tmp_path, feishu=KEPT, agents=AGENTS, more=more, script=[says("canary answer")]) as house:
        await said(house, "canary overheard", sender=ALICE)
        await said(house, "canary asked", sender=ALICE, to_bot=True)
        await house.replies(2)
        await said(house, "stays")
        assert "canary overheard" in await read(house, "bob asks", sender=BOB, words="overheard")
        if way == "erase":
            await asyncio.to_thread(sessions.erase, house.gateway.config, person=("feishu", ALICE))
        else:
            assert "lines of groups" in await forgotten(house)
        assert [it for it in await kept(house) if "canary" in it] == []
        assert "stays" in await kept(house)
        house.anthropic.script = [says("who?")]
        await said(house, "and now", to_bot=True)
        await house.idle()
        assert "canary" not in str(house.anthropic.requests[-1].body["messages"])


async def test_edited_line_on_telegram_has_only_the_new_words(tmp_path: Path) -> None:
    telegram = TelegramEmulator()
    team, bob = telegram.supergroup(), telegram.user(500000022, "Bob")
    chats = f'    chats: {{ "{team}": {{ remember: 12h }} }}\n'
    async with bot(tmp_path, "polling", emulator=telegram, telegram_more=chats) as it:
        update = telegram.text_update("old words", chat=team, sender=bob)
        await it.happens(update)
        await it.happens(telegram.edit_update(update["message"]["message_id"], "new words", chat=team))
        chatter = it.house.gateway.runtime.store.chatter
        place = f"telegram:default:{team}"
        await it.house.until(lambda: _says(chatter, place, "new words"))
        assert "old words" not in str(await chatter.lines(place, 0, 9e12))


async def _says(chatter: Any, place: str, text: str) -> bool:
    return text in str(await chatter.lines(place, 0, 9e12))


async def test_lines_expire_with_the_key_and_with_retention(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    more = f'database: {{ url: "{database_url}" }}'
    async with running(tmp_path, feishu=KEPT, agents=AGENTS, more=more, now=clock) as house:
        house.feishu.now = clock
        chatter, day = house.gateway.runtime.store.chatter, 86_400.0
        place = f"feishu:default:{GROUP}"
        for number in range(3):
            await said(house, f"day {number}")
            clock.now += day
        await chatter.prune(clock.now)  # the lines of `history` go after seven days, these do not
        assert await kept(house) == ["day 0", "day 1", "day 2"]
        assert not await chatter.expire({place: clock.now - 2.5 * day})
        assert await kept(house) == ["day 1", "day 2"]
        with connected(house.gateway.config.database) as connection:
            forget_aged(connection, place, clock.now - 1.5 * day)
        assert await kept(house) == ["day 2"]


CAROL = "ou_ca401000000000000000000000000000"
OTHER = "oc_960000000000000000000000000001"
WHO = ("member", "former", "stranger", "owner")


@pytest.mark.parametrize("listed", [True, False])
async def test_who_may_read_a_remembered_group_and_where(tmp_path: Path, listed: bool) -> None:
    clock, person = Clock(), dict(zip(WHO, (ALICE, BOB, CAROL, f"ou_{7:032x}"), strict=True))
    more = f'owners: ["feishu:{person["owner"]}"]\nserver: {{ timezone: UTC }}'
    feishu = KEPT if listed else FEISHU.rstrip() + "\n    timestampWindowSeconds: null\n"
    async with running(tmp_path, feishu=f"{feishu}  web: {{}}\n", agents=AGENTS, more=more, now=clock) as house:
        house.feishu.now = clock
        house.feishu.members[GROUP] = [*(f"ou_{number:032x}" for number in range(100, 250)), ALICE, BOB]
        chats = {it: f"oc_d{number}" for number, it in enumerate(person.values())}

        async def offered(sender: str, chat: str) -> bool:
            clock.now += 1
            count, kind = len(house.anthropic.requests), {"chat_type": "group", "mention_bot": True}
            house.anthropic.script = [says("ok")]
            await house.say("hello", sender=sender, chat=chat, **(kind if chat in (GROUP, OTHER) else {}))
            await house.requested(count + 1)
            await house.idle()
            return TOOL in tools(house)

        for who in person.values():
            assert await offered(who, GROUP) is listed, "anyone who may ask there, as all who read there"
            assert not await offered(who, OTHER)
        direct = {name: await offered(who, chats[who]) for name, who in person.items()}
        assert direct == {"member": listed, "former": listed, "stranger": False, "owner": False}
        house.feishu.members[GROUP].remove(BOB)
        house.feishu.members[GROUP].append(CAROL)
        assert await offered(BOB, chats[BOB]) is listed  # what was looked up holds for five minutes
        clock.now += 301
        assert not await offered(BOB, chats[BOB])
        assert await offered(CAROL, chats[CAROL]) is listed
        if listed:
            assert "hello" in await read(house, to=chats[CAROL], sender=CAROL)
        house.feishu.fail_next("/members", times=9, code=99991672, status=400)
        clock.now += 301
        assert not await offered(ALICE, chats[ALICE]), "a platform that does not say"
        house.anthropic.script = [says("ok")]
        async with opened(house.url) as page:
            await page.say("hello")
            await page.answers(1)
        assert TOOL not in tools(house)


async def test_schedule_of_the_group_reads_it_and_taints(tmp_path: Path) -> None:
    clock = Clock()
    at = f"{datetime.fromtimestamp(clock.now + 3600, UTC):%Y-%m-%dT%H:%M}"
    schedules = f"""
server: {{ timezone: UTC }}
schedules:
  - {{ id: monday, to: "feishu:{GROUP}", at: "{at}", task: "Sum up the week." }}
"""
    async with running(tmp_path, feishu=KEPT, agents=AGENTS, more=schedules, now=clock) as house:
        house.feishu.now = clock
        await said(house, "we shipped it")
        await house.replies(1)
        house.anthropic.script = [calls((TOOL, {"since": "7d"})), says("You shipped it.")]
        clock.now += 3600
        assert (await house.replies(2))[-1] == "You shipped it."
        assert lines(results(house.anthropic.requests[-1].body)[-1])[0] == "we shipped it"


@pytest.mark.parametrize("killed", ["waiting", "asked"])
async def test_killed_gateway_keeps_each_line_once(tmp_path: Path, killed: str) -> None:
    async with platforms(tmp_path, agents=AGENTS) as (feishu, anthropic, config):
        config.write_text(config.read_text().replace(FEISHU.strip(), KEPT.strip()))
        anthropic.script = [NEVER]
        chat: dict[str, Any] = {"chat": GROUP, "chat_type": "group"}
        feishu.now = itertools.count(time.time() - 60).__next__
        events = [
            feishu.text_event("overheard", sender=BOB, message_id="om_overheard", **chat),
            feishu.text_event("asked", sender=BOB, message_id="om_asked", mention_bot=True, **chat),
        ]
        async with started(config) as run:
            for event in events:
                assert (await push(feishu, run.url, event)).status_code == 200
            if killed == "asked":
                await until(lambda: len(anthropic.requests) == 1)
            await run.end(signal.SIGKILL)
        anthropic.script = [says("answered")]
        async with started(config) as run:
            for event in events:
                assert (await push(feishu, run.url, event)).status_code == 200
            await until(lambda: sorted(it.text[:8] for it in feishu.messages) == sorted((SAYS_SO[:8], "answered")))
            anthropic.script, feishu.now = [calls((TOOL, {})), says("done")], time.time
            await push(feishu, run.url, feishu.text_event("read", sender=BOB, mention_bot=True, **chat))
            await until(lambda: len(feishu.messages) == 3)
        assert lines(results(anthropic.requests[-1].body)[-1]) == ["overheard", "asked", "answered", "read"]


@pytest.mark.parametrize(
    ("status", "offered"),
    [("creator", True), ("member", True), ("restricted-in", True), ("restricted", False), ("left", False), ("", False)],
)
async def test_telegram_offers_the_tool_to_members(tmp_path: Path, status: str, offered: bool) -> None:
    telegram = TelegramEmulator()
    team, alice = telegram.supergroup(), telegram.private()
    chats = f'    chats: {{ "{team}": {{ remember: 12h }} }}\n'
    telegram.members.update({(team, alice): status} if status else {})
    async with bot(
        tmp_path, "polling", script=[says("hi")], emulator=telegram, telegram_more=chats, agents=AGENTS
    ) as it:
        await it.happens(telegram.text_update("hello", chat=alice))
        await it.replies(1)
        assert (TOOL in tools(it.house)) is offered
