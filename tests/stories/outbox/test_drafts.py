"""An answer that grows: as a card in Feishu, as an edited message in Telegram; and what becomes of it in the end."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from channels.telegram.config import warnings
from tests.emulators.models.script import calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import ALICE_CHAT, Running, push, running
from tests.running import FEISHU as WHOLE
from tests.stories.at_work import RUNS
from tests.stories.config.test_config_edits import House, house
from tests.waiting import until

FEISHU = WHOLE.replace("    streaming: off\n", "")
LONG = "first words " + "and more " * 30 + "the end"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.turns.watch.OPEN_SECONDS", 0.01)
    monkeypatch.setattr("channels.telegram.channel.EDIT_SECONDS", 0.02)


@asynccontextmanager
async def on_telegram(
    folder: Path, *, more: str = "", **config: Any
) -> AsyncIterator[tuple[Running, TelegramEmulator]]:
    telegram = TelegramEmulator()
    async with serve_on_loopback(telegram.app) as url:
        section = f"""{FEISHU}
  telegram:
    botToken: "{telegram.token}"
    apiRoot: "{url}"
    dmPolicy: open
    {more}
"""
        async with running(folder, feishu=section, **config) as house:
            yield house, telegram


async def test_draft_card_grows_and_becomes_the_answer(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[says(LONG)]) as house:
        house.line.hold(after_pieces=2)
        await house.say("tell me")
        await house.until(lambda: house.feishu.messages and len(_states(house)) > 1)
        assert LONG.startswith(_states(house)[-1].removesuffix(" …"))
        house.line.release()
        await house.idle()
        assert house.feishu.shown(ALICE_CHAT) == [LONG]
        (card,) = house.feishu.cardkit.cards.values()
        assert not card.streams
        assert [it.card for it in house.feishu.messages] == [True]


def _states(house: Running) -> list[str]:
    return [state for card in house.feishu.cardkit.cards.values() for state in card.states]


async def test_draft_is_skipped_for_a_short_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.turns.watch.OPEN_SECONDS", 60.0)
    async with running(tmp_path, feishu=FEISHU, script=[says("here")]) as house:
        await house.say("hi")
        assert await house.replies(1) == ["here"]
        assert not house.feishu.cardkit.cards


@pytest.mark.parametrize("streaming", ["off", "progress", "partial"])
async def test_draft_shows_as_much_as_configured(tmp_path: Path, streaming: str) -> None:
    feishu = FEISHU + f"    streaming: {streaming}\n"
    script = [calls(("exec", {"command": "cat go"})), says(LONG)]
    async with running(tmp_path, feishu=feishu, script=script, more=RUNS) as house:
        house.workspace().mkdir(parents=True, exist_ok=True)
        os.mkfifo(house.workspace() / "go", 0o666)
        (house.workspace() / "go").chmod(0o666)
        house.line.hold(after_pieces=0)
        await house.say("look")
        if streaming != "off":
            await house.until(lambda: any("⏳ exec cat go" in state for state in _states(house)))
        await asyncio.to_thread((house.workspace() / "go").write_text, "gone")
        await house.requested(2)
        assert streaming == "off" or "⏳ exec cat go" in _states(house)[-1]  # until there is text
        house.line.release()
        await house.idle()
        assert house.feishu.shown(ALICE_CHAT) == [LONG]
        shown = _states(house)[:-1]
        assert streaming == "partial" or not any("first words" in state for state in shown)
        assert bool(house.feishu.cardkit.cards) == (streaming != "off")


@pytest.mark.parametrize("streaming", ["progress", "partial"])
async def test_draft_shows_a_slow_tool_until_text_follows(tmp_path: Path, streaming: str) -> None:
    feishu = FEISHU + f"    streaming: {streaming}\n"
    async with running(tmp_path, feishu=feishu, script=[calls(("ls", {})), says(LONG)]) as house:
        house.line.hold(after_pieces=0)
        await house.say("look")
        await house.until(lambda: any("⏳ ls" in state for state in _states(house)))
        house.line.release()
        await house.idle()
        assert house.feishu.shown(ALICE_CHAT) == [LONG]


async def test_draft_ambiguous_opening_is_retried_where_idempotent(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[says(LONG)]) as house:
        house.feishu.fail_next("/cardkit/v1/cards", lose_answer=True)
        house.line.hold(after_pieces=2)
        await house.say("tell me")
        await house.until(lambda: "first words" in str(house.feishu.shown(ALICE_CHAT)))
        house.line.release()
        await house.idle()
        assert house.feishu.shown(ALICE_CHAT) == [LONG]


@pytest.mark.parametrize("later", [0.0, 7_200.0], ids=["at once", "when Feishu recognises no repetition any more"])
async def test_draft_card_is_finished_after_a_restart(tmp_path: Path, later: float) -> None:
    script = [says(LONG), says("whole at last")]
    async with running(tmp_path, feishu=FEISHU, script=script) as house:
        house.line.hold(after_pieces=2)
        await house.say("tell me")
        await house.until(lambda: len(_states(house)) > 1)
        emulator = house.feishu
        await house.gateway.lanes.drain(0)
    emulator.now = emulator.cardkit.now = lambda: time.time() + later
    async with running(tmp_path, feishu=FEISHU, script=script[1:], emulator=emulator) as house:
        await house.until(lambda: "whole at last" in emulator.shown(ALICE_CHAT))
        await house.idle()
        assert emulator.shown(ALICE_CHAT) == ["whole at last"]
        assert len(emulator.messages) == 1


async def test_draft_of_a_stopped_or_silent_turn_is_removed(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[says(LONG), says(f"hm {'x ' * 40}")]) as house:
        house.line.hold(after_pieces=2)
        await house.say("tell me")
        await house.until(lambda: len(_states(house)) > 1)
        await house.say("/stop")
        await house.until(lambda: "first words" not in str(house.feishu.shown(ALICE_CHAT)))
        await house.idle()
        assert len(house.feishu.messages) == 2
        assert len(house.feishu.shown(ALICE_CHAT)) == 1


async def test_draft_card_refused_by_feishu_costs_nothing(tmp_path: Path) -> None:
    async with running(tmp_path, feishu=FEISHU, script=[says(LONG), says(LONG)]) as house:
        house.feishu.fail_next("/cardkit/v1/cards", code=99991672, status=400)
        house.line.hold(after_pieces=2)
        await house.say("one")
        await house.until(lambda: any("cardkit" in it.path for it in house.feishu.requests))
        house.line.release()
        await house.idle()
        assert house.feishu.shown(ALICE_CHAT) == [LONG]
        house.line.hold(after_pieces=2)
        await house.say("two")
        await house.until(lambda: len(_states(house)) > 1)
        (card_id,) = house.feishu.cardkit.cards
        house.feishu.fail_next(f"/cards/{card_id}", times=100, code=200750, status=400)
        house.line.release()
        await house.idle()
        assert house.feishu.shown(ALICE_CHAT) == [LONG, LONG]
        assert [it.card for it in house.feishu.messages] == [False, True, False]


async def test_draft_on_telegram_is_edited_into_the_answer(tmp_path: Path) -> None:
    script = [says(LONG), says("again " * 900)]
    async with on_telegram(tmp_path, script=script) as (house, telegram):
        alice = telegram.private()
        house.line.hold(after_pieces=2)
        await telegram.push(telegram.text_update("tell me", chat=alice, sender=alice))
        await house.until(lambda: bool(telegram.messages))
        house.line.release()
        await house.idle()
        assert telegram.shown(alice) == [LONG]
        assert telegram.edits[-1].text == LONG
        assert len(telegram.messages) == 1
        shown = [it.parameters["text"] for it in telegram.requests if it.method in ("sendMessage", "editMessageText")]
        assert shown[0] != shown[1]  # what is there already is not sent again
        house.line.hold(after_pieces=2)
        await telegram.push(telegram.text_update("longer", chat=alice, sender=alice))
        await house.until(lambda: len(telegram.messages) == 2)
        telegram.forget(alice, telegram.messages[-1].message_id)  # somebody deletes it
        house.line.release()
        await house.idle()
        assert " ".join(telegram.shown(alice)[1:]).split().count("again") == 900


async def test_draft_streaming_per_direct_chat_on_telegram(tmp_path: Path) -> None:
    alice, bob = 500_000_011, 500_000_012
    more = f'chats: {{ "{alice}": {{ streaming: off }} }}'
    async with on_telegram(tmp_path, more=more, script=lambda body: says(LONG)) as (house, telegram):
        for chat in (alice, bob):
            telegram.private(chat)
        house.line.hold(after_pieces=2)
        for chat in (alice, bob):
            await telegram.push(telegram.text_update("tell me", chat=chat, sender=chat))
        await house.until(lambda: telegram.shown(bob))
        assert telegram.shown(alice) == []
        house.line.release()
        await house.idle()
        assert (telegram.shown(alice), telegram.shown(bob)) == ([LONG], [LONG])
        config = house.gateway.config.channels.telegram
        assert config is not None
        assert [it for it in warnings(config) if "chats." in it] == []


async def test_draft_ambiguous_opening_on_telegram_is_not_retried(tmp_path: Path) -> None:
    async with on_telegram(tmp_path, script=[says(LONG)]) as (house, telegram):
        alice = telegram.private()
        house.line.hold(after_pieces=2)
        telegram.fail_next("sendMessage", lose_answer=True)
        await telegram.push(telegram.text_update("tell me", chat=alice, sender=alice))
        await house.until(lambda: bool(telegram.messages))
        house.line.release()
        await house.idle()
        assert telegram.shown(alice)[1:] == [LONG]  # the first is the draft that nobody knows of


async def test_draft_native_to_telegram_in_a_direct_chat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.turns.watch.REFRESH_SECONDS", 0.05)
    script = [says(LONG), says(LONG), says(LONG)]
    async with on_telegram(tmp_path, more="drafts: true\n    groupPolicy: open", script=script) as (house, telegram):
        alice, group = telegram.private(), telegram.supergroup()

        async def grows(chat: int, text: str, shown: Any) -> None:
            house.line.hold(after_pieces=2)
            await telegram.push(telegram.text_update(text, chat=chat, sender=alice))
            await house.until(shown)
            house.line.release()
            await house.idle()

        await grows(alice, "tell me", lambda: len(telegram.drafts) > 3)  # it is kept alive while nothing is new
        assert {(it.chat_id, it.draft_id) for it in telegram.drafts} == {(alice, telegram.drafts[0].draft_id)}
        assert all(LONG.startswith(it.text) for it in telegram.drafts)
        assert (telegram.shown(alice), telegram.edits, telegram.live_drafts(alice)) == ([LONG], [], [])
        await grows(group, f"@{telegram.bot['username']} tell us", lambda: len(telegram.messages) == 2)
        assert {it.chat_id for it in telegram.drafts} == {alice}
        telegram.fail_next("sendMessageDraft", status=400, description="Bad Request: TEXTDRAFT_PEER_INVALID")
        before = len(telegram.drafts)
        await grows(alice, "again", lambda: len(telegram.messages) == 3)
        assert (telegram.shown(alice), len(telegram.drafts)) == ([LONG, LONG], before)


POINTS = {"before": (), "opening": ("/cardkit/v1/cards", "/sendMessage"), "placing": ("/reply",)}
"""Which call is held while the draft is not growing yet; a card is opened first and placed then."""


ACTS = ("stop", "recall", "interrupt", "new")


async def hold_at(it: House, point: str, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Let Alice ask, and wait until her answer's draft is that far. The event lets a mark through."""
    marked, before = asyncio.Event(), drafts(it)
    it.line.hold(after_pieces=2)
    if point == "before":
        monkeypatch.setattr("gateway.turns.watch.OPEN_SECONDS", 60.0)
    if point == "marking":
        store, reached = it.gateway.runtime.store, asyncio.Event()
        mark = store.mark

        async def late(sid: str, what: Any) -> None:
            if what.kind == "draft":
                reached.set()
                await marked.wait()
            await mark(sid, what)

        monkeypatch.setattr(store, "mark", late)
        await it.say("tell me")
        await reached.wait()
    elif point == "growing":
        await it.say("tell me")
        await until(lambda: drafts(it) > before)
    else:
        it.held.hold(*POINTS[point], times=1)
        await it.say("tell me")
        await until(lambda: it.line.holding if point == "before" else it.held.holding)
    return marked


def drafts(it: House) -> int:
    """How often a draft has been seen so far."""
    cards = [state for card in it.feishu.cardkit.cards.values() for state in card.states]
    return sum("first words" in text for text in [*cards, *(sent.text for sent in it.telegram.messages)])


@pytest.mark.parametrize("way", ["feishu webhook", "telegram polling"])
async def test_draft_of_a_turn_that_is_cut_off_is_removed(tmp_path: Path, way: str) -> None:
    """Telegram tells nobody of a recall, and places no card."""

    def script(body: dict[str, Any]) -> Any:
        return says("the second answer") if "hurry" in str(body["messages"][-1]) else says(LONG)

    async with house(tmp_path, way, streaming="partial", script=script, queue={"mode": "interrupt"}) as it:
        for point, act in product(("before", "opening", "placing", "marking", "growing"), ACTS):
            if way.startswith("feishu") or (act != "recall" and point != "placing"):
                before = await it.shown()
                with pytest.MonkeyPatch.context() as patch:
                    await cut_off(it, point, act, patch)
                shown = await it.shown()
                assert [text for text in shown if "first words" in text] == [], (point, act)
                assert ("the second answer" in shown[len(before) :]) is (act == "interrupt"), (point, act)


async def cut_off(it: House, point: str, act: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = len(it.feishu.known)
    marked = await hold_at(it, point, monkeypatch)
    (lane,) = it.gateway.runtime.control.lanes.values()
    match act:
        case "stop" | "new":
            await it.say(f"/{act}")
        case "interrupt":
            await it.say("hurry up")
        case _:
            asked = list(it.feishu.known)[known]
            assert (await push(it.feishu, it.url, it.feishu.recalled_event(asked))).status_code == 200
    await until(lambda: lane.turn is None or lane.turn.cancelling())
    it.held.release()
    marked.set()
    it.line.release()
    await it.idle()
