"""aiogram, which we did not write, reads all that our channel sends and all that our emulator says, and misses nothing."""

import asyncio
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from channels.abilities import MenuEntry
from channels.channel import DeliveryError, Receipt
from channels.message import Attachment, Button, Outbound, Target
from channels.telegram.channel import TelegramChannel
from channels.telegram.config import TelegramAccount
from channels.telegram.timing import Timing
from tests.channels import test_telegram_content as content
from tests.channels.contexts import Kept
from tests.channels.telegram_calls import ALICE, FORUM, SMALL, TEAM, emulator
from tests.channels.telegram_samples import load_samples
from tests.channels.telegram_texts import FRAGMENTS, NARROW, TABLE, with_words
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.waiting import until

pytestmark = pytest.mark.slow  # aiogram is asked in a process of its own

ROOT = Path(__file__).resolve().parents[2]
JUDGE = ROOT / ".venv" / "judges" / "bin" / "python"
SCRIPT = Path(__file__).with_name("telegram_judge.py")
WAYS_TO_WRITE = 60
LONG = "\n\n".join(f"## Part {number}\n\n{'many **bold** words and `code` ' * 60}" for number in range(8))
judged = pytest.mark.skipif(not JUDGE.exists(), reason="aiogram's environment is not here: `make env` makes it")


@dataclass
class Record:
    """Around the emulator: what the bot asked and what it was answered, as the wire has it."""

    telegram: TelegramEmulator
    calls: list[dict[str, Any]] = field(default_factory=list)
    updates: list[dict[str, Any]] = field(default_factory=list)
    rich: list[str] = field(default_factory=list)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, answered = bytearray(), bytearray()

        async def heard() -> Message:
            message = await receive()
            request.extend(message.get("body", b""))
            return message

        async def send_recorded(message: Message) -> None:
            answered.extend(message.get("body", b""))
            await send(message)

        await self.telegram.app(scope, heard, send_recorded)
        if not request:  # a download
            return
        answer = orjson.loads(answered)
        call = {"method": scope["path"].rpartition("/")[2], "body": orjson.loads(request)}
        self.calls.append(call | ({"result": answer["result"]} if answer["ok"] else {}))

    async def push(self, *updates: dict[str, Any]) -> None:
        self.updates += updates
        for update in updates:
            await self.telegram.push(update)

    def methods(self) -> set[str]:
        return {call["method"] for call in self.calls}

    async def verdict(self, folder: Path) -> Any:
        file = folder / "record.json"
        file.write_bytes(orjson.dumps({"calls": self.calls, "updates": self.updates, "rich": self.rich}))
        process = await asyncio.create_subprocess_exec(
            str(JUDGE), "-W", "error", str(SCRIPT), str(file),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        output, trouble = await process.communicate()
        assert process.returncode == 0, trouble.decode()
        return json.loads(output)


def channel(url: str, telegram: TelegramEmulator, mode: str) -> TelegramChannel:
    settings = {"botToken": telegram.token, "apiRoot": url, "mode": mode, "webhookSecret": "a_secret-word"}
    return TelegramChannel(TelegramAccount.model_validate(settings), "default", Kept(), timing=Timing(poll_seconds=1))


async def connected(bot: TelegramChannel, done: Callable[[], object]) -> None:
    """Let it keep in touch until `done`."""
    menu = (MenuEntry(name="stop", en="Stop the running answer", zh="停止"),)

    async def deliver(receipt: Receipt) -> None: ...

    keeping = asyncio.create_task(
        bot.connect(public_url="https://bot.example.com", commands=menu, owners=[], deliver=deliver)
    )
    await until(done)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)


def what_people_do(telegram: TelegramEmulator) -> list[dict[str, Any]]:
    """One of everything that the emulator can say."""
    name, topic = telegram.bot["username"], telegram.topic(FORUM, "Releases", by=ALICE)
    first = telegram.text_update(f"🔥 @{name} /stop@{name} see example.com", chat=TEAM, sender=ALICE)
    number = first["message"]["message_id"]
    return [
        first,
        telegram.text_update("again", chat=TEAM, sender=ALICE, reply_to=number),
        telegram.text_update("in a topic", chat=FORUM, sender=ALICE, thread=topic),
        telegram.text_update("in General", chat=FORUM, sender=ALICE),
        telegram.anonymous_update("as the group", chat=TEAM),
        telegram.edit_update(number, "changed", chat=TEAM),
        telegram.document_update(b"bytes", name="a.txt", chat=ALICE, caption="look at @this", mime_type="text/plain"),
        telegram.press_update(number, "ap:1", chat=TEAM, sender=ALICE),
        telegram.press_update(1, "ap:2", chat=TEAM, sender=ALICE, accessible=False),
        telegram.reaction_update(number, "👍", chat=TEAM, sender=ALICE),
        telegram.membership_update(TEAM, "administrator", by=ALICE),
        telegram.block(ALICE),
        telegram.text_update("back again", chat=ALICE),
        *telegram.migrate(SMALL, -1002000000099),
    ]


def whatever_a_model_writes() -> list[str]:
    """Markdown at its worst, the same in every run."""
    chance, number = random.Random(2026), count(1)
    return [
        "\n".join(
            with_words(fragment, chance.choice((TABLE, NARROW)), number)
            for fragment in chance.choices(FRAGMENTS, k=chance.randint(1, 12))
        )
        for _ in range(WAYS_TO_WRITE)
    ]


def sends(telegram: TelegramEmulator) -> list[tuple[Target, str]]:
    topic, gone = telegram.topic(FORUM, "Releases"), telegram.topic(FORUM, "Old")
    telegram.delete_topic(FORUM, gone)
    question = telegram.text_update("what?", chat=ALICE)["message"]["message_id"]
    targets = [
        *(Target(chat=str(ALICE), reply_to=reply_to) for reply_to in (str(question), "77")),
        *(Target(chat=str(FORUM), thread=thread) for thread in (str(topic), "1", str(gone))),
        *(Target(chat=chat) for chat in (str(SMALL), "404")),
    ]
    return [(target, "Some *words*, a [link](https://example.com) and `code`.") for target in targets] + [
        (targets[0], text) for text in (LONG, *whatever_a_model_writes())
    ]


@judged
async def test_telegram_traffic_fits_aiograms_models(
    tmp_path: Path,
) -> None:
    telegram, refused = emulator(), 0
    record = Record(telegram, updates=[sample.update for sample in load_samples()])
    async with serve_on_loopback(record) as url:
        polling, by_webhook = channel(url, telegram, "polling"), channel(url, telegram, "webhook")
        await record.push(*what_people_do(telegram))
        await connected(polling, lambda: not telegram.pending and telegram.commands)
        await connected(by_webhook, lambda: "setWebhook" in record.methods())
        telegram.fail_next("sendMessage", status=400, description="Bad Request: can't parse entities: by way of trial")
        for target, text in sends(telegram):
            for part in by_webhook.split(text):
                try:
                    await by_webhook.send(Outbound(target=target, text=part), "key")
                except DeliveryError:
                    refused += 1
        buttons = (
            Button(label="Allow", token="ap:1", style="primary"),
            Button(label="拒绝", token="ap:2", style="danger"),
        )
        shown = Outbound(target=Target(chat=str(TEAM)), text="May I?", buttons=buttons)
        number = await by_webhook.send(shown, "key")
        record.updates.append(telegram.press_update(int(number), "ap:1", chat=TEAM, sender=ALICE))
        for text in ("*Allowed.*", "*Allowed.*"):
            assert await by_webhook.send(replace(shown, text=text, buttons=(), replaces=number), "key") == number
        document = telegram.document_update(b"bytes", name="b.txt", chat=ALICE)["message"]["document"]
        attachment = Attachment(kind="file", key=document["file_id"])
        assert (await by_webhook.fetch(attachment, bytes_max=9)).data == b"bytes"
        await polling.close()
        await by_webhook.close()
    methods = {
        "getMe",
        "getFile",
        "setMyCommands",
        "deleteWebhook",
        "getUpdates",
        "getWebhookInfo",
        "setWebhook",
        "editMessageText",
    }
    assert methods <= record.methods()
    assert refused == 2  # the topic that is gone, and the chat that there is none of
    assert len(telegram.messages) > WAYS_TO_WRITE
    assert {True, False} == {sent.marked_up for sent in telegram.messages}
    hi = {"chat_id": 1, "text": "hi"}
    record.calls += [  # and it does find fault
        {"method": "sendMessage", "body": {"chat_id": 1}},
        {"method": "sendMessage", "body": hi | {"reply_parameters": {"message_id": 2, "id": 3}}},
        {"method": "getUpdates", "body": {"offset": "5"}},
        {"method": "getUpdates", "body": {}, "result": [{"update_id": 1, "news": {}}]},
    ]
    assert await record.verdict(tmp_path) == [
        "sendMessage: ('text',) Field required",
        "sendMessage.reply_parameters: ReplyParameters has no id",
        "getUpdates: ('offset',) Input should be a valid integer",
        "the answer to getUpdates: Update has no news",
    ]


@judged
async def test_rich_types_of_the_bot_api_are_all_among_those_that_are_read(tmp_path: Path) -> None:
    updates = [{"update_id": at, "message": content.rich(block)} for at, block in enumerate(content.RICH, 1)]
    known = [it["type"] for it in (*content.BLOCKS, *content.NODES)]
    assert await Record(TelegramEmulator(), updates=updates, rich=known).verdict(tmp_path) == []
