"""Pairing through the whole gateway: a stranger's first message, the code, who approves it, and what holds from then on."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.operate import contacts
from gateway.program import OperatorError
from gateway.store.contacts import ALPHABET
from gateway.store.errors import StoreUnavailable
from gateway.store.opening import connected
from tests.channels.contexts import Clock
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, SECRETS, Running, running
from tests.stories.at_work import users
from tests.stories.channels.test_telegram import PUBLIC, bot
from tests.stories.operate.test_sessions_command import sessions, traces
from tests.stories.process.test_process import ask
from tests.stories.store.test_replicas import two
from tests.web_page import WEB, opened

PAIRING = FEISHU.replace("dmPolicy: open", "dmPolicy: pairing\n    timestampWindowSeconds: null")
OWNED = f'owners: ["feishu:{ALICE}"]\nnotifyOwners: false'
STILL = "Still waiting. Give the code to the bot's owner; I will write to you as soon as you are let in."
CODE = re.compile(rf"`([{ALPHABET}]{{4}}-[{ALPHABET}]{{4}})`")
BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}


def stored(url: str) -> str:
    return f'{OWNED}\ndatabase: {{ url: "{url}" }}'


def code_in(text: str) -> str:
    found = CODE.search(text)
    assert found is not None, text
    return found[1]


def stranger(number: int) -> dict[str, Any]:
    return {"sender": f"ou_{number:032d}", "chat": f"oc_{number:032d}"}


async def settled(house: Running) -> list[str]:
    """All that was sent once nothing is left to do."""
    await house.idle()
    return [message.text for message in house.feishu.messages]


async def test_pairing_code_approved_by_an_owner_lets_a_stranger_talk(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, script=[says("hello Bob")], feishu=PAIRING, more=stored(database_url)) as house:
        first = house.feishu.text_event("my secret is swordfish", **BOBS)
        await house.push(first)
        (line,) = await house.replies(1)
        code = code_in(line)
        assert "\n" not in line
        assert line.startswith("Hi! This is a private bot")
        for text in ("hello?", "/whoami", "你好", "/start", f"/pair {code}"):
            await house.say(text, **BOBS)
        await house.push(first)
        assert (await settled(house))[0] == line
        assert (await settled(house))[1:] == [STILL]
        house.feishu.messages.pop()
        assert house.anthropic.requests == []
        assert traces(house, code) == traces(house, code.replace("-", "")) == traces(house, "swordfish") == []

        await house.say(f"/pair {code}")
        approved, welcome = sorted((await house.replies(3))[1:], key=lambda text: "You" in text)
        assert approved == f"Bob · …{BOB[-4:]} can write to me now."
        assert welcome.startswith("You are in.")
        await house.say("hello", **BOBS)
        assert (await house.replies(4))[3] == "hello Bob"
        assert users(house.anthropic.requests[0].body)[-1].endswith(": hello")
        assert await settled(house)
        assert len(house.feishu.messages) == 4
        await house.say("/whoami", **BOBS)
        assert (await house.replies(5))[4].splitlines()[1::3] == [
            "- Role: approved by an owner",
            f"- Id: `feishu:{BOB}`",
        ]
        await house.say("/pair", **BOBS)
        assert (await house.replies(6))[5].startswith("Only an owner")
        await house.say("hello", sender=BOB, chat=GROUP, chat_type="group", mention_bot=False)
        assert len(await settled(house)) == 6


LANGUAGES = [
    ("你好", "en", "你好！这是一个私人机器人"),
    ("hello, may I talk to you?", "zh-hans", "Hi! This is a private bot"),
    ("/start", "zh-hans", "你好！这是一个私人机器人"),
    ("/start hello", "zh-hans", "你好！这是一个私人机器人"),
    ("👋?", "en", "Hi! This is a private bot"),
    ("/start", None, "你好！这是一个私人机器人"),
]


@pytest.mark.parametrize(("text", "language", "begins"), LANGUAGES, ids=str)
async def test_pairing_reply_language_of_message_platform_or_config(
    tmp_path: Path, text: str, language: str | None, begins: str
) -> None:
    async with bot(tmp_path, "polling", more=f"{PUBLIC}\nlanguage: zh", dm_policy="pairing") as it:
        update = it.telegram.text_update(text, chat=it.telegram.private())
        update["message"]["from"].pop("language_code", None)
        if language:
            update["message"]["from"]["language_code"] = language
        await it.happens(update)
        (line,) = await it.replies(1)
        assert line.text.startswith(begins)
        assert re.search(rf"[{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", line.text)


async def test_pairing_on_telegram_by_the_command_line(
    tmp_path: Path,
) -> None:
    async with bot(tmp_path, "webhook", script=[says("hello Alice")], dm_policy="pairing") as it:
        house, alice = it.house, it.telegram.private()
        old = it.telegram.text_update("from another life", chat=alice)["message"]["message_id"]
        await it.happens(it.telegram.press_update(old, "ap:1", chat=alice))
        await house.idle()
        assert it.telegram.messages == []
        await it.happens(it.telegram.text_update("hi", chat=alice))
        (line,) = await it.replies(1)
        code = re.findall(rf"[{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", line.text)[0]
        config = house.gateway.config
        (waiting,) = contacts.listed(config)
        assert (waiting["name"], waiting["state"]) == (f"telegram:{alice}", "pending")
        assert await asyncio.to_thread(contacts.approve, config, code.lower().replace("-", "")) == [
            f"telegram:{alice}: may write now"
        ]
        await it.replies(2)
        assert it.telegram.messages[1].text.startswith("You are in.")
        await it.happens(it.telegram.text_update("hello", chat=alice))
        assert (await it.replies(3))[2].text == "hello Alice"
        assert contacts.listed(config)[0]["approvedBy"] == "command line"
        await asyncio.to_thread(contacts.revoke, config, f"telegram:{alice}")
        await it.happens(it.telegram.text_update("and now?", chat=alice))
        await house.idle()
        assert len(it.telegram.messages) == 3, "no answer, and no second code within the hour"
        assert contacts.listed(config) == []


async def test_pairing_requests_are_limited_to_three_and_expire_hourly(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with running(tmp_path, feishu=PAIRING, more=stored(database_url), now=clock) as house:
        for number in (1, 2, 3):
            await house.say("hi", **stranger(number))
        first = code_in((await house.replies(3))[0])
        await asyncio.gather(*(house.say("hi", **stranger(number)) for number in range(4, 9)))
        assert len(await settled(house)) == 3
        await house.say("/pair")
        assert (await house.replies(4))[3].count("`/pair feishu:ou_") == 3
        clock.now += 3_599
        await house.say("hi", **stranger(1))
        await house.say("hi", **stranger(4))
        assert (await settled(house))[4:] == [STILL]
        clock.now += 1
        await house.say(f"/pair {first}")
        assert "is not valid" in (await house.replies(6))[5]
        await house.say("hi", **stranger(4))
        await house.say("hi", **stranger(1))
        lines = (await house.replies(8))[6:]
        assert first not in lines
        assert len(set(map(code_in, lines))) == 2


async def test_pairing_crowd_is_not_stored_while_no_turn_can_begin(tmp_path: Path, database_url: str) -> None:
    more = f"{stored(database_url)}\nlimits: {{ parallelTurns: 1 }}"
    async with running(tmp_path, script=[says("done")], feishu=PAIRING, more=more) as house:
        house.line.hold()
        await house.say("think")
        await house.requested(1)
        for number in range(20):
            await house.say("hi", **stranger(number))
        with connected(house.gateway.config.database) as connection:
            kept = connection.exec_driver_sql("SELECT body FROM inbox").scalars().all()
        assert sum('"pairing"' in body for body in kept) == 3
        house.line.release()
        await house.replies(4)
        assert len(await settled(house)) == 4


async def test_pairing_limit_of_three_holds_concurrently(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, feishu=PAIRING, more=stored(database_url)) as house:
        await asyncio.gather(*(house.say("hi", **stranger(number % 10)) for number in range(30)))
        assert len(await settled(house)) == 3


async def test_pairing_code_guesses_are_muted_across_a_restart(tmp_path: Path, database_url: str) -> None:
    clock, emulator = Clock(), None
    async with running(tmp_path, feishu=PAIRING, more=stored(database_url), now=clock) as house:
        emulator = house.feishu
        await house.say("hi", **BOBS)
        code = code_in((await house.replies(1))[0])
        for number, wrong in enumerate(["AAAA-AAAA", "x", "0000-1111", "*", "'--", *["BBBB-BBBB"] * 5], start=2):
            event = emulator.text_event(f"/pair {wrong}", sender=ALICE, chat=ALICE_CHAT)
            await house.push(event)
            answers = await house.replies(number)
            await house.push(event)
        assert len(set(answers[1:])) == 1
    async with running(tmp_path, feishu=PAIRING, more=stored(database_url), now=clock, emulator=emulator) as house:
        count = len(await settled(house))
        await house.say(f"/pair {code}")
        await house.say(f"/pair {code}", chat=GROUP, chat_type="group", mention_bot=True)
        assert len(await settled(house)) == count
        for _ in range(2):
            await house.say("hi", **BOBS)
            assert (await settled(house))[count:] == [STILL]
        count += 1
        clock.now += 3_000
        await asyncio.to_thread(contacts.revoke, house.gateway.config, f"feishu:{BOB}")
        clock.now += 601
        await house.say("hi", **BOBS)
        again = code_in((await house.replies(count + 1))[count])
        await house.say(f"/pair approve {again}")
        assert "can write to me now" in "".join((await house.replies(count + 3))[count + 1 :])


async def test_pairing_survives_a_kill_before_its_reply(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = stored(database_url)
    async with running(tmp_path, feishu=PAIRING, more=more) as house:

        async def dies(*_: Any, **__: Any) -> None:
            raise StoreUnavailable("killed")

        monkeypatch.setattr(house.gateway.runtime.store, "finish", dies)
        event = house.feishu.text_event("hi", **BOBS)
        await house.push(event)
        await house.until(lambda: bool(contacts.listed(house.gateway.config)))
        assert house.feishu.messages == []
        emulator = house.feishu
    async with running(tmp_path, script=[says("yes")], feishu=PAIRING, more=more, emulator=emulator) as house:
        await house.push(event)
        (line,) = await house.replies(1)
        await house.say(f"/pair {code_in(line)}")
        await house.replies(3)
        await house.push(event)
        await house.say("may I?", **BOBS)
        assert (await house.replies(4))[3] == "yes"
        assert len(await settled(house)) == 4


async def test_pairing_and_revocation_hold_at_every_replica(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, lambda _: says("here"), OWNED, feishu=PAIRING) as (one, other):
        event = one.feishu.text_event("hi", **BOBS)
        await asyncio.gather(*(it.push(event) for it in (one, other) * 3))
        (line,) = await one.replies(1)
        await one.say(f"/pair {code_in(line)}")
        await one.replies(3)
        for house in (other, one):
            await house.say("hello", **BOBS)
        await one.replies(4)
        for house in (one, other):
            await house.idle()
        count = len(one.feishu.messages)
        assert "feishu" in str(await asyncio.to_thread(contacts.revoke, one.gateway.config, f"feishu:{BOB}"))
        for house in (one, other):
            await house.say("and now?", **BOBS)
            await house.idle()
        assert len(one.feishu.messages) == count
        assert "and now?" not in str([request.body for request in one.anthropic.requests])


async def test_pairing_is_approved_on_the_web_page(tmp_path: Path) -> None:
    async with (
        running(tmp_path, feishu=WEB.replace("dmPolicy: open", "dmPolicy: pairing")) as house,
        opened(house.url) as page,
    ):
        await house.say("hi", **BOBS)
        code = code_in((await house.replies(1))[0])
        await page.say("/pair")
        await page.answers(1)
        await page.say(f"/pair {code}")
        shown = await page.answers(2)
        assert f"feishu:{BOB}" in shown[0]
        assert "can write to me now" in shown[1]
        await house.replies(2)


async def test_pairing_by_id_needs_no_code_and_takes_no_wildcard(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, script=[says("hello")], feishu=PAIRING, more=stored(database_url)) as house:
        config = house.gateway.config
        for wrong in (
            "feishu:*",
            "feishu:",
            "feishu:bob",
            "feishu:elsewhere:ou_1",
            "telegram:1",
            "web:local",
            "ABCD",
            "*",
        ):
            with pytest.raises(OperatorError):
                contacts.approve(config, wrong)
        (line,) = await asyncio.to_thread(contacts.approve, config, f"feishu:{BOB}")
        assert line.startswith(f"feishu:{BOB}: may write now (tell them")
        assert contacts.approve(config, f"feishu:default:{BOB}") == [f"feishu:default:{BOB}: may write already"]
        await house.say("hi", **BOBS)
        assert await house.replies(1) == ["hello"]


@pytest.mark.slow
async def test_pairing_contact_is_erased_with_the_person(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, feishu=PAIRING, more=stored(database_url)) as house:
        await house.say("hi", **BOBS)
        await house.replies(1)
        await house.idle()
        code, output = await sessions(house, "erase", "--person", f"feishu:{BOB}", "--yes")
        assert code == 0, output
        assert contacts.listed(house.gateway.config) == []
        await house.say("hi again", **BOBS)
        await house.replies(2)


@pytest.mark.slow
async def test_pairing_command_line_reports_and_fails_honestly(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=PAIRING, more=OWNED) as house:
        await house.say("hi", **BOBS)
        code = code_in((await house.replies(1))[0])
        config = ["--config", str(house.folder / "config.yaml")]

        async def typed(*words: str) -> tuple[int, str]:
            return await ask("pairing", *words, *config, more=SECRETS)

        listed = (await typed("list"))[1]
        assert listed.startswith(f"Bob  feishu:{BOB}  ")
        assert f" pairing approve feishu:{BOB}\n" in listed
        assert (await typed("approve", "BBBB-BBBB"))[0] == 1
        assert await typed("approve", code) == (0, f"feishu:{BOB}: may write now\n")
        (approved,) = json.loads((await typed("list", "--json"))[1])
        assert (approved["id"], approved["state"], approved["approvedBy"]) == (BOB, "approved", "command line")
        await house.replies(2)
        assert await typed("revoke", f"feishu:{BOB}") == (0, f"feishu:{BOB}: may no longer write\n")
        assert (await typed("revoke", f"feishu:{BOB}"))[0] == 1
