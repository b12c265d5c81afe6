"""Buttons under messages, through the whole gateway: who may press, what a press becomes, and what replaces a message."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from channels.channel import DeliveryError
from channels.message import Chat
from gateway.store.errors import StoreUnavailable
from tests.offers import ALLOW, BUTTONS, COMMAND, DENY, offered, presses
from tests.running import ALICE, ALICE_CHAT, BOB, FEISHU, GROUP, Running, running
from tests.stories.channels.test_telegram import MODES, SECRET, Bot, bot
from tests.web_page import CHAT, Page, new_id

LISTED = (
    f"\n    dmPolicy: allowlist\n    groupPolicy: allowlist\n    allowFrom: [{ALICE}]\n    groupAllowFrom: [{GROUP}]\n"
)
STRICT = FEISHU.split("    dmPolicy")[0].rstrip() + LISTED
DIRECT, TEAM = Chat(id=ALICE_CHAT, kind="direct"), Chat(id=GROUP, kind="group")
OTHER = Chat(id="oc_0ther0000000000000000000000000", kind="group")


@asynccontextmanager
async def feishu(folder: Path, **more: Any) -> AsyncIterator[Running]:
    async with running(folder, feishu=STRICT, **more) as house:
        house.feishu.chats |= {ALICE_CHAT: "", OTHER.id: "Others", GROUP: "Team"}
        yield house


GATES: dict[str, tuple[Chat, str | None, str, bool]] = {
    "direct": (DIRECT, None, ALICE, True),
    "a stranger": (DIRECT, None, BOB, False),
    "sent to a person": (DIRECT, ALICE, ALICE, True),
    "sent to a stranger": (DIRECT, BOB, BOB, False),
    "group": (TEAM, None, BOB, True),
    "topic": (Chat(id=GROUP, kind="group", thread="omt_1"), None, BOB, True),
    "another group": (OTHER, None, ALICE, False),
}


async def test_button_press_passes_the_gate_of_its_cards_chat(
    tmp_path: Path,
) -> None:
    async with feishu(tmp_path) as house:
        for gate, (chat, to, presser, taken) in GATES.items():
            before = len(presses(house.gateway))
            card = await offered(house.gateway, "feishu", chat, to=to)
            assert list(house.feishu.card(card).buttons) == [ALLOW.label, DENY.label], gate
            event = house.feishu.press_event(card, ALLOW.label, sender=presser)
            answers = [await house.push(event) for _ in range(3)]
            await house.idle()
            toasts = [answer.json().get("toast", {}).get("i18n", {}).get("zh_cn") for answer in answers]
            assert [answer.status_code for answer in answers] == [200] * 3, gate
            assert toasts == ["已收到" if taken else None] * 3, gate
            found = presses(house.gateway)[before:]
            assert len(found) == taken, gate
            for sid, context in found:
                where = house.feishu.known[card].chat_id
                topic = f":thread:{chat.thread}" if chat.thread else ""
                assert sid == f"aside:agent:helper:feishu:default:{where}{topic}", gate
                assert (context.chat.kind, context.sender.id) == (chat.kind, presser), gate
                assert context.press is not None, gate
                assert (context.press.token, context.press.message_id) == (ALLOW.token, card), gate
        assert house.anthropic.requests == []


async def test_button_press_trusts_only_the_signed_event(tmp_path: Path) -> None:
    async with feishu(tmp_path) as house:
        card = await offered(house.gateway, "feishu", DIRECT)
        odd: list[Any] = [None, "ap_allow:1", {}, {"token": ""}, {"token": "x" * 61}, {"token": "a b"}, {"token": 7}]
        odd += [{"token": "ap_allow:1\n"}, {"token": ["ap_allow:1"]}, {"action": "approve"}]
        for value in odd:
            event = house.feishu.press_event(card, sender=ALICE, value=value)
            assert (await house.push(event)).json() == {}
        pressed = house.feishu.press_event(card, ALLOW.label, sender=ALICE)
        other_tag = house.feishu.press_event(card, sender=ALICE, value={"token": ALLOW.token}, tag="select_static")
        assert (await house.push(other_tag)).json() == {}
        for path, wrong in (
            (("operator", "open_id"), ""),
            (("context", "open_chat_id"), None),
            (("context", "open_message_id"), 7),
        ):
            event = house.feishu.press_event(card, ALLOW.label, sender=ALICE)
            event["event"][path[0]] = event["event"][path[0]] | {path[1]: wrong}
            assert (await house.push(event)).json() == {}  # refused, it would be pushed again
        # A card that the gateway has not sent stands in nobody's direct chat, whatever the button says.
        foreign = house.feishu.text_event("not a card", sender=ALICE, chat=ALICE_CHAT)["event"]["message"]["message_id"]
        says_so = {"token": ALLOW.token, "chat_type": "p2p", "operator": ALICE}
        assert (await house.push(house.feishu.press_event(foreign, sender=ALICE, value=says_so))).json() == {}
        headers, body = house.feishu.encode(pressed)
        headers["X-Lark-Signature"] = "0" * 64
        forged = await house.feishu.deliver(f"{house.url}/webhooks/feishu/default", headers, body)
        assert forged.status_code == 401
        pressed["header"]["token"] = "another"
        assert (await house.push(pressed)).status_code == 401
        await house.idle()
        assert presses(house.gateway) == []


async def test_button_card_is_replaced_in_place_or_given_up(tmp_path: Path) -> None:
    async with feishu(tmp_path) as house:
        card = await offered(house.gateway, "feishu", DIRECT)
        elements = house.feishu.card(card).body.elements
        plain = [it.text.content for it in elements if it.tag == "div"]
        assert plain == ["rm -rf ./build  # **not** <at id=all></at>"]
        assert await offered(house.gateway, "feishu", DIRECT, buttons=(), said="Denied.", replaces=card) == card
        house.feishu.fail_next(card, status=502)
        assert await offered(house.gateway, "feishu", DIRECT, buttons=(), said="Denied by Bob.", replaces=card) == card
        now = house.feishu.card(card)
        assert (now.shown, now.buttons) == ("Denied by Bob.", {})
        assert len(house.feishu.messages) == 1
        old = house.feishu.press_event(card, sender=ALICE, value={"token": ALLOW.token})
        assert (await house.push(old)).status_code == 200
        assert [context.press and context.press.token for _, context in presses(house.gateway)] == [ALLOW.token]
        await house.replies(2)  # nobody was asked for anything: the press is answered so
        await house.idle()
        house.feishu.recall(card)
        for lost in (card, "om_never"):
            with pytest.raises(DeliveryError):
                await offered(house.gateway, "feishu", DIRECT, said="too late", replaces=lost)
        assert len(house.feishu.messages) == 2


async def test_button_press_not_stored_is_not_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with feishu(tmp_path) as house:
        card = await offered(house.gateway, "feishu", DIRECT)
        event = house.feishu.press_event(card, ALLOW.label, sender=ALICE)

        async def busy(*_: object, **__: object) -> None:
            raise StoreUnavailable("database is locked")

        with monkeypatch.context() as patch:
            patch.setattr(house.gateway.runtime.store, "accept", busy)
            assert (await house.push(event)).status_code == 503
        assert (await house.push(event)).json()["toast"]["content"] == "Received"
        assert len(presses(house.gateway)) == 1


async def happens_and_is_answered(it: Bot, *updates: dict[str, Any]) -> None:
    """Telegram's people press, and their buttons stop spinning."""
    known = len(it.telegram.callback_answers)
    await it.happens(*updates)
    wanted = known + len({update["callback_query"]["id"] for update in updates})
    await it.house.until(lambda: len(it.telegram.callback_answers) >= wanted)
    await it.house.idle()


@MODES
async def test_button_press_on_telegram_is_one_command_and_edits_the_keyboard(tmp_path: Path, mode: str) -> None:
    async with bot(tmp_path, mode) as it:
        alice, team = it.telegram.private(), it.telegram.supergroup(forum=True)
        topic = str(it.telegram.topic(team, "Releases"))
        for chat in (Chat(id=str(alice), kind="direct"), Chat(id=str(team), kind="group", thread=topic)):
            sent = int(await offered(it.house.gateway, "telegram", chat))
            keyboard = it.telegram.known[int(chat.id), sent]["reply_markup"]["inline_keyboard"]
            assert [row[0]["text"] for row in keyboard] == [button.label for button in BUTTONS]
            data = keyboard[0][0]["callback_data"]
            pressed = it.telegram.press_update(sent, data, chat=int(chat.id), sender=alice)
            await happens_and_is_answered(it, pressed, pressed)
            sid, context = presses(it.house.gateway)[-1]
            assert sid == f"aside:agent:helper:telegram:default:{chat.id}" + (f":thread:{topic}" if chat.thread else "")
            assert (context.press and context.press.message_id, context.chat.kind) == (str(sent), chat.kind)
            for text in ("Allowed by Alice.", "Allowed by Alice."):  # the second time it says so already
                assert await offered(
                    it.house.gateway, "telegram", chat, buttons=(), said=text, replaces=str(sent)
                ) == str(sent)
            shown = it.telegram.known[int(chat.id), sent]
            assert (shown["text"], "reply_markup" in shown) == ("Allowed by Alice.", False)
            late = it.telegram.press_update(sent, data, chat=int(chat.id), sender=alice, accessible=False)
            await happens_and_is_answered(it, late)
            with pytest.raises(DeliveryError):
                await offered(it.house.gateway, "telegram", chat, said="x", replaces="77")
        assert len(presses(it.house.gateway)) == 4
        assert len(it.telegram.messages) == 2 + 4  # nobody is asked for anything here, and each press is answered so
        assert it.house.anthropic.requests == []


async def test_button_press_on_telegram_by_a_stranger_does_nothing(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling") as it:
        account: Any = it.house.gateway.runtime.setup.channels["telegram", "default"]
        account.access = account.access.model_copy(update={"dm_policy": "allowlist", "group_policy": "allowlist"})
        alice, team = it.telegram.private(), it.telegram.supergroup()
        old = it.telegram.text_update("with buttons", chat=alice)["message"]["message_id"]
        updates = [it.telegram.press_update(old, ALLOW.token, chat=chat, sender=alice) for chat in (alice, team)]
        updates += [it.telegram.press_update(old, data, chat=alice) for data in ("", "a b", '{"a":1}', "x" * 61)]
        await happens_and_is_answered(it, *updates)
        assert presses(it.house.gateway) == []
        assert it.telegram.messages == []


async def test_button_press_on_telegram_is_answered_once_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bot(tmp_path, "webhook") as it:
        alice = it.telegram.private()
        old = it.telegram.text_update("with buttons", chat=alice)["message"]["message_id"]
        update = it.telegram.press_update(old, ALLOW.token, chat=alice)
        url = f"{it.house.url}/webhooks/telegram/default"

        async def busy(*_: object, **__: object) -> None:
            raise StoreUnavailable("database is locked")

        with monkeypatch.context() as patch:
            patch.setattr(it.house.gateway.runtime.store, "accept", busy)
            assert (await it.telegram.deliver_once(url, update, secret=SECRET)).status_code == 503
        channel: Any = it.house.gateway.runtime.setup.channels["telegram", "default"]
        assert not channel._callbacks._known
        await happens_and_is_answered(it, update)
        assert len(presses(it.house.gateway)) == 1


async def test_button_press_on_the_page_replaces_the_message_everywhere(house: Running, page: Page) -> None:
    await page.say("hello")
    await page.answers(1)
    here = Chat(id=CHAT, kind="direct")
    key = await offered(house.gateway, "web", here)
    await page.answers(2)
    shown = page.written()[-1]
    assert (shown["message"], shown["place"], shown["text"]) == (key, None, COMMAND)
    assert [(it["label"], it["style"]) for it in shown["buttons"]] == [(it.label, it.style) for it in BUTTONS]
    posted = {"id": new_id("p"), "chat": CHAT, "agent": "helper", "press": {"token": DENY.token, "message": key}}
    for _ in range(3):
        assert (await page.http.post("/webhooks/web/default", json=posted)).json() == {}
    await house.idle()
    ((sid, context),) = presses(house.gateway)
    assert (sid, context.press and context.press.message_id) == (f"aside:agent:helper:web:default:{CHAT}", key)
    authors = [it["author"] for it in (await page.conversation())["messages"]]
    assert authors == ["you", "agent", "agent", "agent"]  # nobody was asked for anything: the press is answered so
    await page.answers(3)

    for text in ("Denied.", "Denied.", "Denied by you."):
        assert await offered(house.gateway, "web", here, buttons=(), said=text, replaces=key) == key
    await page.answers(5)
    assert [(it["text"], it["place"], it["buttons"]) for it in page.written()[3:]] == [
        ("Denied.", shown["id"], []),
        ("Denied by you.", shown["id"], []),
    ]
    *_, last = (await page.conversation())["messages"]
    assert (last["text"], last["id"] > shown["id"]) == ("Denied by you.", True)
    assert len((await page.conversation())["messages"]) == 4
    for lost in (shown["reply_to"] or "m_nothing", new_id()):
        with pytest.raises(DeliveryError):
            await offered(house.gateway, "web", here, said="x", replaces=lost)
    assert len(house.anthropic.requests) == 1


NO_PRESSES: list[dict[str, Any]] = [
    {"text": "and words"},
    {"files": ["f_12345678"]},
    *({"press": it} for it in ({}, {"token": "x"}, {"token": "", "message": "k" * 36}, "ap_allow:1")),
    {"press": {"token": "x" * 61, "message": "k" * 36}},
    {"press": {"token": "a b", "message": "k" * 36}},
    {"press": {"token": "x", "message": "../../x"}},
    {"press": {"token": "x", "message": "k" * 36, "sender": "owner"}},
]


async def test_button_press_on_the_page_must_be_valid(house: Running, page: Page) -> None:
    for change in NO_PRESSES:
        sound = {"id": new_id("p"), "chat": CHAT, "press": {"token": "x", "message": "k" * 36}}
        assert (await page.http.post("/webhooks/web/default", json=sound | change)).status_code == 400, change
    assert presses(house.gateway) == []


async def test_button_press_on_the_page_is_admitted_like_a_message(house: Running, page: Page) -> None:
    posted = {"id": new_id("p"), "chat": CHAT, "press": {"token": "x", "message": "k" * 36}}
    del page.http.headers["x-clawgate"]
    assert (await page.http.post("/webhooks/web/default", json=posted)).status_code == 403
    page.http.headers["x-clawgate"] = "1"
    for name, value in (("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")):
        answer = await page.http.post("/webhooks/web/default", json=posted, headers={name: value})
        assert answer.status_code == 403
    assert presses(house.gateway) == []
