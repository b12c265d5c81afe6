"""Telegram through the whole gateway: polled or by webhook, what people notice of it is the same."""

import base64
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from channels.channel import Arrived
from channels.telegram.channel import TelegramChannel
from channels.telegram.timing import Timing
from gateway.inbox.intake import Intake
from gateway.state.queues import MORE_SECONDS
from gateway.store.dead_letters import dead_letters, replay
from gateway.store.errors import StoreUnavailable
from tests.agents.providers.requests import PIXEL as ENCODED_PIXEL
from tests.emulators.models.script import says
from tests.emulators.models.server import Script
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.emulators.telegram.sending import Sent
from tests.loopback import serve_on_loopback
from tests.running import FEISHU, Running, running
from tests.stories.at_work import shown, users

PUBLIC = "server: { publicUrl: https://bot.example.com }"
PIXEL = base64.b64decode(ENCODED_PIXEL)
SECRET = "a-long-random-word_0123456789"
HEARD = 'clawgate_webhook_deliveries_total{channel="telegram",outcome="accepted"}'
MODES = pytest.mark.parametrize("mode", ["polling", "webhook"])


@dataclass
class Bot:
    """A gateway with a Telegram bot, and the emulated Telegram around it."""

    house: Running
    telegram: TelegramEmulator
    mode: str

    async def happens(self, *updates: dict[str, Any]) -> None:
        """Telegram tells the bot, in the way of this mode."""
        for update in updates:
            if self.mode == "polling":
                await self.telegram.push(update)
                continue
            self.telegram.learn(update)
            url = f"{self.house.url}/webhooks/telegram/default"
            assert (await self.telegram.deliver_once(url, update, secret=SECRET)).status_code == 200

    async def replies(self, count: int) -> list[Sent]:
        await self.house.until(lambda: len(self.telegram.messages) >= count)
        return self.telegram.messages


@asynccontextmanager
async def bot(
    folder: Path,
    mode: str,
    *,
    script: Script = (),
    emulator: TelegramEmulator | None = None,
    more: str = PUBLIC,
    dm_policy: str = "open",
    feishu_more: str = "",
    group_policy: str = "open",
    telegram_more: str = "",
    **config: Any,
) -> AsyncIterator[Bot]:
    """`feishu_more` follows Feishu's section, before Telegram's; `telegram_more` follows that."""
    telegram = emulator or TelegramEmulator()
    async with serve_on_loopback(telegram.app) as url:
        section = f"""
  telegram:
    botToken: "{telegram.token}"
    apiRoot: "{url}"
    streaming: off
    mode: {mode}
    webhookSecret: {SECRET}
    dmPolicy: {dm_policy}
    groupPolicy: {group_policy}
{telegram_more}"""
        async with running(folder, script=script, feishu=FEISHU + feishu_more + section, more=more, **config) as house:
            made = Bot(house, telegram, mode)
            await house.until(lambda: bool(telegram.commands))
            if mode == "webhook":
                await house.until(lambda: bool(telegram.webhook.url))
            yield made


@MODES
async def test_redelivered_update_is_one_turn_and_a_press_starts_none(tmp_path: Path, mode: str) -> None:
    async with bot(tmp_path, mode, script=[says("once")]) as it:
        alice = it.telegram.private()
        old = it.telegram.text_update("with buttons, from another life", chat=alice)["message"]["message_id"]
        pressed = it.telegram.press_update(old, "ap:1", chat=alice)
        again = it.telegram.press_update(old, "ap:1", chat=alice, accessible=False)
        update = it.telegram.text_update("hello", chat=alice)
        await it.happens(pressed, pressed, again, update, update, update)
        await it.replies(1)
        await it.happens(update)
        await it.house.until(lambda: len(it.telegram.callback_answers) >= 2)
        queries = [(sent["callback_query"]["id"], "") for sent in (pressed, again)]
        assert [(answer.callback_query_id, answer.text) for answer in it.telegram.callback_answers] == queries
        assert [request.method for request in it.telegram.requests].count("answerCallbackQuery") == 2
        await it.house.idle()
        shown = [sent.text for sent in it.telegram.messages]
        assert [text for text in shown if not text.startswith("You have no pending request")] == ["once"]
        assert len(shown) == 3  # a button of nothing says so, once each time that it is pressed
        assert len(it.house.anthropic.requests) == 1


@pytest.mark.parametrize(("mode", "queue"), [("polling", "collect"), ("webhook", "followup")])
async def test_album_and_split_paste_are_debounced_into_one_message(tmp_path: Path, mode: str, queue: str) -> None:
    script, clock = [says("three pictures"), says("a long text")], [time.time()]
    more = f"{PUBLIC}\nqueue: {{ mode: {queue} }}"
    async with bot(tmp_path, mode, script=script, more=more, now=lambda: clock[0]) as it:
        alice = it.telegram.private()
        await it.happens(*it.telegram.album_updates([PIXEL] * 3, chat=alice, caption="what is this?"))
        await it.house.until(lambda: it.house.counted(f"{HEARD} 3.0"))
        clock[0] += MORE_SECONDS
        await it.replies(1)
        assert shown(it.house)[1] == ["image/png"] * 3
        await it.happens(*(it.telegram.text_update(f"{part} {part * 4000}", chat=alice) for part in "abc"))
        await it.house.until(lambda: it.house.counted(f"{HEARD} 6.0"))
        clock[0] += MORE_SECONDS
        await it.replies(2)
        await it.house.idle()
        assert [sent.text for sent in it.telegram.messages] == ["three pictures", "a long text"]
        album, paste = [users(received.body)[-1] for received in it.house.anthropic.requests]
        assert "what is this?" in album
        assert [part for part in ("a a", "b b", "c c") if part not in paste] == []
        if mode == "webhook":
            assert it.telegram.webhook.url == "https://bot.example.com/webhooks/telegram/default"
            assert it.telegram.webhook.secret == SECRET


@MODES
async def test_telegram_forum_answers_and_types_in_its_topic(tmp_path: Path, mode: str) -> None:
    async with bot(tmp_path, mode, script=[says("here")]) as it:
        alice = it.telegram.user(500000011, "Alice")
        forum = it.telegram.supergroup(forum=True)
        topic = it.telegram.topic(forum, "Releases", by=alice)
        it.house.line.hold()
        for text in ("not for the bot", f"@{it.telegram.bot['username']} what is new?"):
            await it.happens(it.telegram.text_update(text, chat=forum, sender=alice, thread=topic))
        await it.house.until(lambda: bool(it.telegram.actions))
        assert it.telegram.messages == []
        it.house.line.release()
        (reply,) = await it.replies(1)
        assert (reply.chat_id, reply.thread, reply.text) == (forum, topic, "here")
        assert {(seen.chat_id, seen.thread, seen.action) for seen in it.telegram.actions} == {(forum, topic, "typing")}
        await it.house.idle()
        assert len(it.house.anthropic.requests) == 1
        channel = it.house.gateway.runtime.setup.channels["telegram", "default"]
        assert isinstance(channel, TelegramChannel)
        assert channel._activity._tasks == {}


async def test_telegram_send_is_retried_after_a_broken_connection(
    tmp_path: Path,
) -> None:
    words = " ".join(f"word{number}" for number in range(2_000))
    async with bot(tmp_path, "polling", script=[says(words)]) as it:
        it.telegram.fail_next("getUpdates", times=2, status=502)
        await it.happens(it.telegram.text_update("say much", chat=it.telegram.private()))
        await it.replies(1)
        await it.house.until(lambda: it.telegram.messages[-1].text.endswith("word1999"))
        assert " ".join(sent.text for sent in it.telegram.messages).split() == words.split()
        first, *others = [sent.reply_to is not None for sent in it.telegram.messages]
        assert first
        assert len(others) > 1
        assert not any(others)


async def test_ambiguous_send_on_telegram_is_counted_and_not_retried(tmp_path: Path) -> None:
    async with bot(tmp_path, "polling", script=[says("perhaps"), says("surely")]) as it:
        alice = it.telegram.private()
        it.telegram.fail_next("sendMessage", lose_answer=True)
        await it.happens(it.telegram.text_update("hello", chat=alice))
        await it.replies(1)
        await it.house.idle()
        await it.happens(it.telegram.text_update("are you there?", chat=alice))
        await it.house.until(lambda: any(sent.text == "surely" for sent in it.telegram.messages))
        assert [sent.text for sent in it.telegram.messages] == ["perhaps", "surely"]
        assert it.house.counted('clawgate_send_ambiguous_total{channel="telegram"} 1.0')

        await it.house.idle()
        (dead_letter,) = dead_letters(it.house.gateway.config.database)
        assert replay(it.house.gateway.config.database, [dead_letter.name]) == [dead_letter.name]
        await it.house.gateway.sweep.once()
        await it.house.until(lambda: [sent.text for sent in it.telegram.messages] == ["perhaps", "surely", "perhaps"])


async def test_edit_changes_a_queued_message_and_steers_a_running_turn(tmp_path: Path) -> None:
    more = f"{PUBLIC}\nqueue: {{ mode: followup }}"
    script = [says("one " * 60), says("two"), says("three"), says("four")]
    async with bot(tmp_path, "webhook", script=script, more=more) as it:
        alice = it.telegram.private()
        it.house.line.hold(after_pieces=1)
        first, second = (it.telegram.text_update(text, chat=alice) for text in ("monday", "tuesday"))
        await it.happens(first, second)
        await it.house.until(lambda: it.house.line.holding)
        ids = [update["message"]["message_id"] for update in (first, second)]
        running_edit = it.telegram.edit_update(ids[0], "friday", chat=alice)
        await it.happens(it.telegram.edit_update(ids[1], "sunday", chat=alice), running_edit, running_edit)
        it.house.line.release()
        await it.house.idle()
        texts = [users(received.body)[-1].rpartition("]\n")[2] for received in it.house.anthropic.requests]
        assert texts == ["Alice: monday", "Alice: sunday", "Alice: (edited)\nfriday"]
        assert [sent.text.strip() for sent in it.telegram.messages][1:] == ["two", "three"]
        await it.happens(it.telegram.edit_update(ids[1], "too late", chat=alice))
        await it.house.idle()
        assert len(it.house.anthropic.requests) == 3


@pytest.mark.parametrize("fault", ["odd", "database"])
async def test_poison_update_on_telegram_is_given_up_after_three_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """After three tries it is given up, where it is the update's own fault; a database that is away gives up nothing."""
    receive, tries = Intake.receive, 0

    async def taken(self: Intake, channel: Any, receipt: Any) -> str:
        nonlocal tries
        if isinstance(receipt, Arrived) and receipt.context.text == "odd":
            tries += 1
            if fault == "odd":
                raise ValueError("nobody knew")
            if tries < 5:
                raise StoreUnavailable("away")
        return await receive(self, channel, receipt)

    monkeypatch.setattr(Intake, "receive", taken)
    monkeypatch.setattr(Timing, "backoff", lambda *_, **__: 0.0)
    async with bot(tmp_path, "polling", script=lambda _: says("fine")) as it:
        chat = it.telegram.private()
        for text in ("odd", "behind"):
            await it.happens(it.telegram.text_update(text, chat=chat))
        asked = it.house.anthropic.requests  # both in one turn, or in one each
        await it.house.until(lambda: any("behind" in users(request.body)[-1] for request in asked))
        await it.house.idle()
        assert any("odd" in users(request.body)[-1] for request in asked) == (fault == "database")
        assert len(it.telegram.messages) == len(asked)
        assert tries == (3 if fault == "odd" else 5)
        given_up = 'clawgate_webhook_deliveries_total{channel="telegram",outcome="ignored: given up"} 1.0'
        assert it.house.counted(given_up) == (fault == "odd")
