"""Claiming a bot through the whole gateway: a code of the start, once, by anybody who writes to it directly."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from gateway.fault import OperatorError
from gateway.operate import contacts
from gateway.records.codes import ALPHABET, hashed
from gateway.store.owners import CLAIM_SECONDS
from tests.channels.contexts import Clock
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, Running, client, running
from tests.stories.test_pairing import PAIRING
from tests.stories.test_replicas import two
from tests.stories.test_sessions_command import traces
from tests.stories.test_telegram import MODES, PUBLIC, bot
from tests.web_page import WEB

BOBS: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}
YOURS, NO_CODE = "This bot is yours now", "There is no such code"
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


async def test_a_stranger_becomes_the_owner_by_the_code_once_and_is_one_until_revoked(
    tmp_path: Path, database_url: str
) -> None:
    more = at(database_url)
    async with running(tmp_path, script=[says("hello owner")], feishu=PAIRING, more=more) as house:
        code = await code_of(house)
        assert await house.gateway.claim_code() == code
        await house.say("/claim AAAA-AAAA", **BOBS)
        assert (await sent(house))[-1].startswith(NO_CODE)
        await house.say(f"/claim {code.lower()}", **BOBS)
        assert (await sent(house))[-1].startswith(YOURS)
        assert traces(house, code) == traces(house, code.replace("-", "")) == []
        assert await house.gateway.claim_code() is None
        await house.say("/whoami", **BOBS)
        assert (await sent(house))[-1] == f"`feishu:{BOB}` (an owner of this bot)"
        await house.say("hello", **BOBS)
        assert (await sent(house))[-1] == "hello owner"
        await house.say(f"/claim {code}", **BOBS)
        assert (await sent(house))[-1].startswith(NO_CODE), "spent"
        await house.say(f"/claim {code}")
        notice, line = sorted((await sent(house))[-2:], key=lambda text: text.startswith("I do not know you yet"))
        assert line.startswith("I do not know you yet"), "nothing but a stranger"
        assert notice == f"`Alice` (`feishu:{ALICE}`) wants to write to me."
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
        assert (await sent(house))[-1].startswith("I do not know you yet"), "from the next message on"
        assert await house.gateway.claim_code() not in (None, code)


@MODES
async def test_on_telegram_as_well_where_pairing_or_a_list_keeps_strangers_out(tmp_path: Path, mode: str) -> None:
    async with bot(tmp_path, mode, dm_policy="allowlist") as it:
        alice, code = it.telegram.private(), await code_of(it.house)
        await it.happens(it.telegram.text_update("hello", chat=alice))
        await it.happens(it.telegram.text_update(f"/claim {code}", chat=alice))
        (line,) = await it.replies(1)
        assert line.text.startswith(YOURS)
        await it.happens(it.telegram.text_update("/whoami", chat=alice))
        assert (await it.replies(2))[1].text == f"telegram:{alice} (an owner of this bot)"
        assert contacts.listed(it.house.gateway.config)[0]["displayName"] == "Alice"


async def test_on_the_page_as_well_and_setup_has_the_code_for_the_operator_alone(tmp_path: Path) -> None:
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
        assert setup.json() == {"owned": False, "claim": await code_of(house), "channels": ["feishu"]}
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
        assert (await http.get("/api/setup", headers=cookie)).json() == {
            "owned": True,
            "claim": None,
            "channels": ["feishu"],
        }
        assert [*house.gateway.runtime.setup.owners] == ["web:ann"]


async def test_with_an_owner_in_the_config_there_is_no_code_and_an_old_one_is_none(
    tmp_path: Path, database_url: str
) -> None:
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


async def test_a_code_ends_after_a_day_and_in_a_group_it_is_not_looked_at(tmp_path: Path, database_url: str) -> None:
    clock = Clock()
    async with running(
        tmp_path, feishu=f"{FEISHU}    timestampWindowSeconds: null\n", more=at(database_url), now=clock
    ) as house:
        code = await code_of(house)
        await house.say(f"/claim {code}", chat=GROUP, chat_type="group", mention_bot=True)
        assert (await sent(house))[-1].startswith("Send it to me in a direct chat")
        await house.say("/claim")
        assert "prints" in (await sent(house))[-1]
        clock.now += CLAIM_SECONDS
        await house.say(f"/claim {code}")
        assert (await sent(house))[-1].startswith(NO_CODE)
        again = await code_of(house)
        assert again != code
        await house.say(f"/claim {again}")
        assert (await sent(house))[-1].startswith(YOURS)


async def test_wrong_codes_of_one_person_end_in_silence_and_nobody_else_s(tmp_path: Path, database_url: str) -> None:
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


async def test_of_two_persons_at_two_replicas_at_once_one_becomes_the_owner(tmp_path: Path, postgres_url: str) -> None:
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


async def test_at_one_gateway_two_at_once_as_well(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, feishu=PAIRING, more=at(database_url)) as house:
        code = await code_of(house)
        await asyncio.gather(house.say(f"/claim {code}"), house.say(f"/claim {code}", **BOBS))
        texts = await house.replies(2)
        assert sorted(text[:12] for text in texts) == [NO_CODE[:12], YOURS[:12]]


async def test_who_claims_gets_what_is_the_owners_and_loses_it_with_the_revocation(tmp_path: Path) -> None:
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


async def test_polling_and_public_url_are_no_part_of_it(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling", more=PUBLIC, dm_policy="disabled") as it:
        alice = it.telegram.private()
        await it.happens(it.telegram.text_update(f"/claim {await code_of(it.house)}", chat=alice))
        await it.house.until(lambda: it.house.counted("dm-disabled"))
        assert it.telegram.messages == [], "nobody may talk there, not even owners"


async def test_whoever_claims_a_telegram_bot_gets_the_owners_menu(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling") as it:
        alice = it.telegram.private()

        def chats_with_a_menu() -> set[object]:
            menus = [call.parameters for call in it.telegram.requests if call.method == "setMyCommands"]
            return {menu["scope"].get("chat_id") for menu in menus}

        await it.house.until(lambda: chats_with_a_menu() == {None})
        await it.happens(it.telegram.text_update(f"/claim {await code_of(it.house)}", chat=alice))
        await it.house.until(lambda: chats_with_a_menu() == {None, alice})
