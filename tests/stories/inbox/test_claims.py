"""Claiming a bot through the whole gateway: a code of the start, once, by anybody who writes to it directly."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from channels.feishu.channel import FeishuChannel
from gateway.operate import contacts
from gateway.program import OperatorError
from gateway.store.contacts import ALPHABET, hashed
from gateway.store.errors import StoreUnavailable
from gateway.store.owners import ADD_SECONDS, CLAIM_SECONDS
from tests.channels.contexts import Clock
from tests.emulators.feishu.emulator import Sent
from tests.emulators.models.script import calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, Running, client, running
from tests.stories.channels.test_telegram import MODES, PUBLIC, Bot, bot
from tests.stories.inbox.test_pairing import PAIRING
from tests.stories.operate.test_sessions_command import traces
from tests.stories.store.test_replicas import two
from tests.web_page import WEB, opened

BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}
YOURS, NO_CODE = "This bot is yours. I", "That code is not valid"
PAGE = {"x-clawgate": "1"}


def at(url: str) -> str:
    return f'database: {{ url: "{url}" }}'


async def code_of(house: Running) -> str:
    code = await house.gateway.claim_code()
    assert code is not None
    assert re.fullmatch(rf"[{ALPHABET}]{{4}}-[{ALPHABET}]{{4}}", code)
    return code


async def sent(house: Running) -> list[str]:
    await house.idle()
    return [message.text for message in house.feishu.messages]


async def test_claim_code_makes_one_owner_until_revoked(tmp_path: Path, database_url: str) -> None:
    more = at(database_url)
    async with running(tmp_path, script=[says("hello owner")], feishu=PAIRING, more=more) as house:
        code = await code_of(house)
        assert await house.gateway.claim_code() == code
        await house.say("/claim AAAA-AAAA", **BOBS)
        assert (await sent(house))[-1].startswith(NO_CODE)
        await house.say(f"/claim {code.lower()}", **BOBS)
        assert (await sent(house))[-1].startswith(YOURS)
        for written in (code, code.replace("-", "")):
            assert traces(house, written) == traces(house, written.lower()) == []
        assert await house.gateway.claim_code() is None
        await house.say("/whoami", **BOBS)
        assert (await sent(house))[-1].splitlines() == [
            "- Name: Bob",
            "- Role: owner, approves commands",
            "- Agent: `helper`",
            "- Language: English",
            f"- Id: `feishu:{BOB}`",
            "- Owners: you",
        ]
        await house.say("hello", **BOBS)
        assert (await sent(house))[-1] == "hello owner"
        await house.say(f"/claim {code}", **BOBS)
        assert (await sent(house))[-1].startswith(NO_CODE), "spent"
        await house.say(f"/claim {code}")
        notice, line = sorted((await sent(house))[-2:], key=lambda text: text.startswith("Hi! This is a private bot"))
        assert line.startswith("Hi! This is a private bot"), "nothing but a stranger"
        assert notice.startswith(f"Alice · …{ALICE[-4:]} wants to write to me.")
        emulator = house.feishu
    async with running(tmp_path, feishu=PAIRING, more=more, emulator=emulator) as house:
        assert await house.gateway.claim_code() is None, "after a restart, too"
        await house.say("/pair", **BOBS)
        assert f"/pair feishu:{ALICE}" in (await sent(house))[-1]
        config = house.gateway.config
        (owner,) = (it for it in contacts.listed(config) if it["owner"])
        assert contacts.line(owner).endswith("owner, by a claim code")
        assert await asyncio.to_thread(contacts.revoke, config, f"feishu:{BOB}") == [
            f"feishu:{BOB}: may no longer write, and is no owner any more"
        ]
        await house.say("/pair", **BOBS)
        assert (await sent(house))[-1].startswith("Hi! This is a private bot"), "from the next message on"
        assert await house.gateway.claim_code() not in (None, code)


async def test_claim_tells_the_new_owner_of_pending_pairings(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, feishu=PAIRING, more=at(database_url)) as house:
        await house.say("hello")
        assert "Is it yours?" in (await sent(house))[-1]
        await house.say(f"/claim {await code_of(house)}", **BOBS)
        notice, line = sorted((await sent(house))[1:], key=lambda text: text.startswith(YOURS))
        assert line.startswith(YOURS)
        assert notice.startswith(f"Alice · …{ALICE[-4:]} wants to write to me.")
        await house.say("are you there?")
        assert (await sent(house))[-1].startswith("Still waiting: I asked the owner at ")
        await house.say(f"/pair feishu:{ALICE}", **BOBS)
        assert any(text.startswith("You are in.") for text in (await sent(house))[-2:])


@MODES
async def test_claim_on_telegram_passes_pairing_and_allowlist(tmp_path: Path, mode: str) -> None:
    async with bot(tmp_path, mode, dm_policy="allowlist") as it:
        alice, code = it.telegram.private(), await code_of(it.house)
        await it.happens(it.telegram.text_update("hello", chat=alice))
        await it.happens(it.telegram.text_update(f"/claim {code}", chat=alice))
        (line,) = await it.replies(1)
        assert line.text.startswith(YOURS)
        await it.happens(it.telegram.text_update("/whoami", chat=alice))
        said = (await it.replies(2))[1].text
        assert ("Role: owner" in said, f"Id: telegram:{alice}" in said) == (True, True)
        assert contacts.listed(it.house.gateway.config)[0]["displayName"] == "Alice"


async def test_claim_on_the_page_shows_the_code_to_the_operator_only(tmp_path: Path) -> None:
    users = "server: { users: { ann: ann-token-0123456789abcdef }, adminToken: admin-token-0123456789ab }"
    async with running(tmp_path, feishu=WEB, more=users) as house, client(house.url, headers=PAGE) as http:
        assert (await http.get("/api/setup")).status_code == 401
        for token, status in (("ann-token-0123456789abcdef", 403), ("admin-token-0123456789ab", 200)):
            signed = await http.post("/api/session", json={"token": token})
            cookie = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
            http.cookies.clear()
            setup = await http.get("/api/setup", headers=cookie)
            assert setup.status_code == status
        code = setup.json()["claim"]
        unowned = {"owned": False, "claim": await code_of(house), "channels": ["feishu"], "feishu": False}
        assert setup.json() == unowned | {"here": True, "owners": [], "since": None}
        signed = await http.post("/api/session", json={"token": "ann-token-0123456789abcdef"})
        ann = {"cookie": signed.headers["set-cookie"].partition(";")[0]}
        http.cookies.clear()
        message = {"id": "m1234567", "chat": "c1234567", "text": f"/claim {code}"}
        assert (await http.post("/webhooks/web/default", json=message, headers=ann)).status_code == 200
        await house.idle()
        shown = (await http.get("/api/chats/c1234567", headers=ann)).text
        assert YOURS in shown
        assert code not in shown
        assert str(hashed(code)) not in shown
        owned = (await http.get("/api/setup", headers=cookie)).json()
        assert owned.pop("since") > 0
        known = {"owned": True, "claim": None, "channels": ["feishu"], "feishu": False}
        assert owned == known | {"here": False, "owners": ["web:ann"]}
        assert [*house.gateway.runtime.setup.owners] == ["web:ann"]


async def test_claim_code_is_off_when_the_config_names_an_owner(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, feishu=PAIRING, more=at(database_url)) as house:
        code = await code_of(house)
    more = f'owners: ["feishu:{ALICE}"]\n{at(database_url)}'
    async with running(tmp_path, feishu=PAIRING, more=more) as house:
        assert await house.gateway.claim_code() is None
        await house.say(f"/claim {code}")
        assert (await sent(house))[-1].startswith(NO_CODE)
        await house.say(f"/claim {code}", **BOBS)
        assert (await house.replies(3))[1:] != [YOURS]
        assert [*house.gateway.runtime.setup.owners] == [f"feishu:{ALICE}"]


async def test_claim_code_expires_after_a_day_and_is_ignored_in_groups(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with running(
        tmp_path, feishu=f"{FEISHU}    timestampWindowSeconds: null\n", more=at(database_url), now=clock
    ) as house:
        code = await code_of(house)
        await house.say(f"/claim {code}", chat=GROUP, chat_type="group", mention_bot=True)
        assert (await sent(house))[-1].startswith("Send it to me in a direct chat")
        await house.say("/claim")
        assert "printed" in (await sent(house))[-1]
        clock.now += CLAIM_SECONDS
        await house.say(f"/claim {code}")
        assert (await sent(house))[-1].startswith(NO_CODE)
        again = await code_of(house)
        assert again != code
        await house.say(f"/claim {again}")
        assert (await sent(house))[-1].startswith(YOURS)


async def test_claim_code_guesses_mute_only_their_sender(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, feishu=PAIRING, more=at(database_url)) as house:
        code = await code_of(house)
        for _ in range(10):
            await house.say("/claim AAAA-AAAA", **BOBS)
            await house.idle()
        assert len(await sent(house)) == 10
        await house.say(f"/claim {code}", **BOBS)
        assert len(await sent(house)) == 10, "muted, also with the right one"
        await house.say(f"/claim {code}")
        assert (await sent(house))[-1].startswith(YOURS)


async def test_claim_race_at_two_replicas_has_one_winner(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [], feishu=PAIRING) as (one, other):
        codes = [await code_of(one), await code_of(other)]
        assert codes[0] != codes[1]
        await asyncio.gather(one.say(f"/claim {codes[1]}"), other.say(f"/claim {codes[0]}", **BOBS))
        texts = await one.replies(2)
        assert sorted(text[:12] for text in texts) == [NO_CODE[:12], YOURS[:12]]
        await other.until(lambda: len(one.gateway.runtime.setup.owners) == 1)
        await other.until(lambda: len(other.gateway.runtime.setup.owners) == 1)
        assert await one.gateway.claim_code() is None
        assert await other.gateway.claim_code() is None


async def test_claim_race_at_one_gateway_has_one_winner(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, feishu=PAIRING, more=at(database_url)) as house:
        code = await code_of(house)
        await asyncio.gather(house.say(f"/claim {code}"), house.say(f"/claim {code}", **BOBS))
        texts = await house.replies(2)
        assert sorted(text[:12] for text in texts) == [NO_CODE[:12], YOURS[:12]]


async def test_claim_grants_owner_rights_until_revoked(tmp_path: Path) -> None:
    async with running(tmp_path, script=lambda _: says("yes"), more="") as house:
        tools = [tool["name"] for tool in await asked(house)]
        assert "exec" in tools, "without an owner nothing is an owner's alone"
        await house.say(f"/claim {await code_of(house)}", **BOBS)
        await house.idle()
        assert house.gateway.approvals.approvers("helper") == (f"feishu:{BOB}",)
        assert "exec" not in [tool["name"] for tool in await asked(house)]
        assert "exec" in [tool["name"] for tool in await asked(house, **BOBS)]
        await asyncio.to_thread(contacts.revoke, house.gateway.config, f"feishu:{BOB}")
        await asked(house, **BOBS)
        assert [*house.gateway.runtime.setup.owners] == []
        assert house.gateway.approvals.approvers("helper") == ("web:local",)
        with pytest.raises(OperatorError):
            contacts.revoke(house.gateway.config, f"feishu:{BOB}")


async def asked(house: Running, **who: Any) -> list[dict[str, Any]]:
    """The tools that the model is offered for a message."""
    count = len(house.anthropic.requests)
    await house.say("hello", **({"sender": ALICE, "chat": ALICE_CHAT} | who))
    await house.requested(count + 1)
    await house.idle()
    tools: list[dict[str, Any]] = house.anthropic.requests[-1].body["tools"]
    return tools


async def test_claim_is_ignored_where_dm_policy_is_disabled(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling", more=PUBLIC, dm_policy="disabled") as it:
        alice = it.telegram.private()
        await it.happens(it.telegram.text_update(f"/claim {await code_of(it.house)}", chat=alice))
        await it.house.until(lambda: it.house.counted("dm-disabled"))
        assert it.telegram.messages == [], "nobody may talk there, not even owners"


async def test_claim_on_telegram_shows_the_owners_menu(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling") as it:
        alice = it.telegram.private()

        def chats_with_a_menu() -> set[object]:
            menus = [call.parameters for call in it.telegram.requests if call.method == "setMyCommands"]
            return {menu["scope"].get("chat_id") for menu in menus}

        await it.house.until(lambda: chats_with_a_menu() == {None})
        await it.happens(it.telegram.text_update(f"/claim {await code_of(it.house)}", chat=alice))
        await it.house.until(lambda: chats_with_a_menu() == {None, alice})


KEEP, ALONE = "Keep this machine's page as an owner too", "Only me"
WITH_PAGE = PAIRING + "  web: {}\n"


def page_owns(house: Running) -> bool:
    return "web:local" in house.gateway.approvals.approvers("helper")


async def claimed(house: Running, **who: Any) -> Sent:
    """The message with which the new owner is asked about the page."""
    await house.say(f"/claim {await code_of(house)}", **(BOBS | who))
    await house.idle()
    return house.feishu.messages[-1]


@pytest.mark.parametrize(("label", "kept"), [(KEEP, True), (ALONE, False)])
async def test_claim_asks_its_owner_whether_the_page_stays_an_owner(
    tmp_path: Path, database_url: str, label: str, kept: bool
) -> None:
    async with running(tmp_path, feishu=WITH_PAGE, more=at(database_url)) as house:
        assert page_owns(house), "as long as nobody owns the bot"
        asked = await claimed(house)
        buttons = house.feishu.card(asked.message_id).buttons
        assert [*buttons] == [KEEP, ALONE]
        assert asked.text.startswith(f"{YOURS} will tell you here")
        assert "Only you approve commands from now on." in asked.text
        assert not page_owns(house), "as long as it is undecided"
        for by in (ALICE, BOB, BOB):
            await house.push(house.feishu.press_event(asked.message_id, sender=by, value=buttons[label]))
            await house.idle()
            assert page_owns(house) is (kept and by == BOB)
        card = house.feishu.card(asked.message_id)
        assert (card.buttons, card.shown.startswith("This bot is yours.")) == ({}, True)
        emulator = house.feishu
    async with running(tmp_path, feishu=WITH_PAGE, more=at(database_url), emulator=emulator) as house:
        await house.gateway.runtime.setup.owners.claimed.load()
        assert page_owns(house) is kept
        listed = [contacts.line(it) for it in contacts.listed(house.gateway.config)]
        assert [it.endswith(f"owner, added by Bob · …{BOB[-4:]}") for it in listed] == [False, True][: 1 + kept]
        assert await house.gateway.claim_code() is None
        if kept:
            assert contacts.revoke(house.gateway.config, "web:local") == [
                "web:local: may no longer write, and is no owner any more"
            ]
        await house.say("/claim alone", **BOBS)
        await house.idle()
        assert not page_owns(house)


@pytest.mark.parametrize("lost", ["the reply", "the press"])
async def test_claim_survives_a_kill_before_its_reply(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    async def dies(*_: object, **__: object) -> None:
        raise StoreUnavailable("killed")

    async with running(tmp_path, feishu=WITH_PAGE, more=at(database_url)) as house:
        code, emulator = await code_of(house), house.feishu
        if lost == "the press":
            asked = await claimed(house)
            token = emulator.card(asked.message_id).buttons[KEEP]
        monkeypatch.setattr(house.gateway.runtime.store, "finish", dies)
        if lost == "the press":
            await house.push(emulator.press_event(asked.message_id, sender=BOB, value=token))
            await house.until(lambda: page_owns(house))
        else:
            await house.say(f"/claim {code}", **BOBS)
            await house.until(lambda: bool(house.gateway.runtime.setup.owners))
    async with running(tmp_path, feishu=WITH_PAGE, more=at(database_url), emulator=emulator) as house:
        await house.idle()
        (asked,) = emulator.messages
        assert [*emulator.card(asked.message_id).buttons] == ([] if lost == "the press" else [KEEP, ALONE])
        assert page_owns(house) is (lost == "the press")


@MODES
async def test_claim_question_on_telegram_has_buttons(tmp_path: Path, mode: str) -> None:
    async with bot(tmp_path, mode, feishu_more="  web: {}\n") as it:
        alice = it.telegram.private()
        await it.happens(it.telegram.text_update(f"/claim {await code_of(it.house)}", chat=alice))
        (asked,) = await it.replies(1)
        assert asked.reply_markup is not None
        keys = {key["text"]: key["callback_data"] for (key,) in asked.reply_markup["inline_keyboard"]}
        await it.happens(it.telegram.press_update(asked.message_id, keys[KEEP], chat=alice))
        await it.house.until(lambda: page_owns(it.house))
        await it.house.until(lambda: "reply_markup" not in it.telegram.known[alice, asked.message_id])


async def test_claim_question_without_buttons_is_answered_by_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = replace(FeishuChannel.capabilities, buttons=False)
    monkeypatch.setattr(FeishuChannel, "capabilities", without)
    async with running(tmp_path, feishu=WITH_PAGE) as house:
        asked = await claimed(house)
        assert "`/claim page` keeps this machine's page as an owner too; `/claim alone` does not." in asked.text
        for line, kept in (("/claim page", True), ("/claim page", True), ("/claim alone", False)):
            await house.say(line, **BOBS)
            await house.idle()
            assert page_owns(house) is kept, line
        await house.say("/claim page", chat=ALICE_CHAT)
        await house.idle()
        assert not page_owns(house), "a stranger's"


async def test_claim_question_is_skipped_without_a_page_or_by_the_page(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, feishu=PAIRING) as house:
        asked = await claimed(house)
        assert (KEEP in house.feishu.known[asked.message_id].content, "page" in asked.text) == (False, False)
    async with running(tmp_path / "..", feishu=WITH_PAGE) as house, opened(house.url) as page:
        await page.say(f"/claim {await code_of(house)}")
        (shown,) = await page.answers(1)
        assert (YOURS in shown, "page" in shown) == (True, False)
        assert [*house.gateway.runtime.setup.owners] == ["web:local"]


ADDED = re.compile(rf"`/claim ([{ALPHABET}]{{4}}-[{ALPHABET}]{{4}})`|/claim ([{ALPHABET}]{{4}}-[{ALPHABET}]{{4}})")


def handed_out(text: str) -> str:
    found = ADDED.search(text)
    assert found is not None, text
    return str(found[1] or found[2])


@asynccontextmanager
async def owned(folder: Path, more: str = "", **config: Any) -> AsyncIterator[Bot]:
    """Bob owns it on Feishu; nobody is known on Telegram."""
    claims = "owners" not in more
    async with bot(folder, "polling", dm_policy="pairing", more=f"{PUBLIC}\n{more}", **config) as it:
        if claims:
            await it.house.say(f"/claim {await code_of(it.house)}", **BOBS)
            await it.house.idle()
        yield it


async def invited(it: Bot, **who: Any) -> str:
    await it.house.say("/claim", **(BOBS | who))
    await it.house.idle()
    return handed_out(it.house.feishu.messages[-1].text)


def owners_of(it: Bot) -> set[str]:
    return {*it.house.gateway.runtime.setup.owners}


async def redeems(it: Bot, code: str, chat: int) -> str:
    count = len(it.telegram.messages)
    await it.happens(it.telegram.text_update(f"/claim {code}", chat=chat))
    return (await it.replies(count + 1))[-1].text


@pytest.mark.parametrize("source", ["by claim", "by the config"])
async def test_claim_adds_a_second_account_and_owners_can_revoke_it(
    tmp_path: Path, database_url: str, source: str
) -> None:
    more = "notifyOwners: false\n" + at(database_url) + (f'\nowners: ["feishu:{BOB}"]' if source != "by claim" else "")
    async with owned(tmp_path, more) as it:
        house, alice = it.house, it.telegram.private()
        await it.happens(it.telegram.text_update("/claim AAAA-AAAA", chat=alice))
        assert "private bot" in (await it.replies(1))[0].text, "nobody is awaited: only a stranger"
        code = await invited(it)
        assert traces(house, code) == traces(house, code.replace("-", "")) == []
        assert (await redeems(it, code, alice)).startswith("You are an owner of this bot now, like Bob")
        await house.idle()
        assert owners_of(it) == {f"feishu:{BOB}", f"telegram:{alice}"}
        assert f"telegram:{alice}" in house.gateway.approvals.approvers("helper")
        told = house.feishu.messages[-1]
        assert told.text.startswith(f"Alice · …{str(alice)[-4:]} is an owner now, by the code of Bob · …{BOB[-4:]}.")
        assert [it for it in it.telegram.messages if "is an owner now" in it.text] == [], "not the new one itself"
        await house.say("/whoami", **BOBS)
        await house.idle()
        assert f"Owners: you, Alice · …{str(alice)[-4:]}" in house.feishu.messages[-1].text
        lines = [contacts.line(it) for it in contacts.listed(house.gateway.config)]
        assert any(
            it.startswith(f"Alice  telegram:{alice}") and "owner, added by " in it and BOB[-4:] in it for it in lines
        )
        (label,) = house.feishu.card(told.message_id).buttons
        await house.push(house.feishu.press_event(told.message_id, label, sender=BOB))
        await house.idle()
        assert owners_of(it) == {f"feishu:{BOB}"}
        assert house.feishu.card(told.message_id).buttons == {}


async def test_claim_code_of_an_owner_expires_and_counts_once(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    feishu = "    timestampWindowSeconds: null\n"
    async with owned(tmp_path, at(database_url), now=clock, feishu_more=feishu) as it:
        alice, carol = it.telegram.private(), it.telegram.private(500000033)
        first, second = await invited(it), await invited(it)
        assert (await redeems(it, first, alice)).startswith(NO_CODE), "another has taken its place"
        await it.house.say(f"/claim {second}", **BOBS)
        await it.house.idle()
        assert it.house.feishu.messages[-1].text.startswith("You are already an owner")
        assert (await redeems(it, second, alice)).startswith("You are an owner of this bot now")
        third = await invited(it)
        assert (await redeems(it, second, carol)).startswith(NO_CODE), "spent"
        clock.now += ADD_SECONDS
        assert not (await redeems(it, third, carol)).startswith("You are an owner")
        fourth = await invited(it)
        await asyncio.to_thread(contacts.revoke, it.house.gateway.config, f"feishu:{BOB}")
        assert (await redeems(it, fourth, carol)).startswith(NO_CODE), "its owner is none any more"
        await it.house.gateway.runtime.setup.owners.claimed.load()
        assert owners_of(it) == {f"telegram:{alice}"}


async def test_claim_code_guesses_for_another_account_mute_the_sender(tmp_path: Path) -> None:
    async with owned(tmp_path) as it:
        alice = it.telegram.private()
        code = await invited(it)
        for _ in range(10):
            assert (await redeems(it, "AAAA-AAAA", alice)).startswith(NO_CODE)
        await it.happens(it.telegram.text_update(f"/claim {code}", chat=alice))
        await it.house.idle()
        assert len(it.telegram.messages) == 10, "muted, also with the right one"
        await it.house.say("/claim", sender=BOB, chat=GROUP, chat_type="group", mention_bot=True)
        await it.house.idle()
        assert it.house.feishu.messages[-1].text.startswith("Send it to me in a direct chat")
        assert owners_of(it) == {f"feishu:{BOB}"}


async def test_claim_added_owner_cannot_revoke_the_first(tmp_path: Path) -> None:
    async with owned(tmp_path) as it:
        alice = it.telegram.private()
        await redeems(it, await invited(it), alice)
        await it.happens(it.telegram.text_update(f"/claim revoke feishu:{BOB}", chat=alice))
        assert "was not added by a code" in (await it.replies(2))[-1].text
        assert owners_of(it) == {f"feishu:{BOB}", f"telegram:{alice}"}
        await it.happens(it.telegram.text_update("/claim", chat=alice))
        carol = it.telegram.private(500000033)
        await redeems(it, handed_out((await it.replies(3))[-1].text), carol)
        await it.house.say(f"/claim revoke telegram:{alice}", **BOBS)
        await it.house.idle()
        left = it.house.feishu.messages[-1].text
        assert f"added by them: `/claim revoke telegram:{carol}`" in left
        assert owners_of(it) == {f"feishu:{BOB}", f"telegram:{carol}"}
        await it.house.say(f"/claim revoke telegram:{carol}", **BOBS)
        await it.house.idle()
        assert owners_of(it) == {f"feishu:{BOB}"}
        notes = contacts.revoke(it.house.gateway.config, f"feishu:{BOB}")
        assert len(notes) == 1
        assert await it.house.gateway.claim_code() is not None


async def test_claim_revocation_names_the_owners_they_added(tmp_path: Path) -> None:
    async with owned(tmp_path) as it:
        alice = it.telegram.private()
        await redeems(it, await invited(it), alice)
        notes = contacts.revoke(it.house.gateway.config, f"feishu:{BOB}")
        assert notes[-1].startswith(f"note: telegram:{alice} is an owner whom they added")


async def test_claim_reopens_when_only_the_page_is_left(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WITH_PAGE) as house:
        await claimed(house)
        await house.say("/claim page", **BOBS)
        await house.idle()
        await asyncio.to_thread(contacts.revoke, house.gateway.config, f"feishu:{BOB}")
        asked = await claimed(house, sender=ALICE, chat=ALICE_CHAT)
        assert [*house.feishu.card(asked.message_id).buttons] == [KEEP, ALONE]
        assert [*house.gateway.runtime.setup.owners] == [f"feishu:{ALICE}"]


async def test_claim_leaves_the_page_only_its_own_decisions(tmp_path: Path) -> None:
    script = [calls(("exec", {"command": "date"})), says("it waits")]
    async with running(tmp_path, script=script, feishu=WITH_PAGE) as house, opened(house.url) as page:
        await claimed(house)
        await house.say("run date", **BOBS)
        await house.until(lambda: any("Run this command?" in it.text for it in house.feishu.messages))
        for line, here, waits in (("", False, 0), ("/claim page", True, 1), ("/claim alone", False, 0)):
            if line:
                await house.say(line, **BOBS)
                await house.idle()
            state = (await page.http.get("/api/console/state")).json()
            room = (await page.http.get("/api/console/approvals")).json()
            assert state["waiting"]["approvals"] == waits, line
            (request,) = room["waiting"]
            assert request["mine"] is here
            assert request["approverNames"][0] == f"Bob · …{BOB[-4:]}"
            assert (await page.http.get("/api/setup")).json()["here"] is here
            assert (room["ownership"]["here"], room["ownership"]["owners"]) == (here, [f"Bob · …{BOB[-4:]}"])
            assert room["ownership"]["since"] > 0


async def test_claim_question_is_not_answered_by_another_owner(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=WITH_PAGE) as house:
        asked = await claimed(house)
        token = house.feishu.card(asked.message_id).buttons[KEEP]
        await house.say("/claim", **BOBS)
        await house.idle()
        await house.say(f"/claim {handed_out(house.feishu.messages[-1].text)}")
        await house.idle()
        assert {*house.gateway.runtime.setup.owners} == {f"feishu:{ALICE}", f"feishu:{BOB}"}
        await house.push(house.feishu.press_event(asked.message_id, sender=ALICE, value=token))
        await house.idle()
        assert not page_owns(house)
        assert [*house.feishu.card(asked.message_id).buttons] == [KEEP, ALONE]


async def test_claim_code_is_handed_out_by_an_owning_page(tmp_path: Path) -> None:
    more = 'owners: ["web:local"]'
    async with running(tmp_path, feishu=WITH_PAGE, more=more) as house, opened(house.url) as page:
        await page.say("/claim")
        (shown,) = await page.answers(1)
        await house.say(f"/claim {handed_out(shown)}", **BOBS)
        await house.until(lambda: f"feishu:{BOB}" in house.gateway.runtime.setup.owners)
        told = (await page.answers(2))[-1]
        assert f"Bob · …{BOB[-4:]} is an owner now, by the code of this machine's page" in re.sub("<[^>]+>", "", told)
