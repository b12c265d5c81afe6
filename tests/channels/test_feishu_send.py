"""Sending through the real client to the strict emulator: replies, tokens, codes and what they mean."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from channels.channel import DeliveryError, Gone, RateLimited, Refused, Unreachable
from channels.feishu.card import answer_card, card, fenced
from channels.feishu.channel import FeishuChannel
from channels.feishu.config import FeishuAccount
from channels.feishu.outgoing import NOT_PASSED
from channels.message import Button, Chat, MessageContext, Outbound, Quote, Sender, Target
from tests.channels.contexts import Kept, context
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.loopback import serve_on_loopback

CHAT = "oc_chat"


@asynccontextmanager
async def connected(**settings: Any) -> AsyncIterator[tuple[FeishuEmulator, FeishuChannel]]:
    emulator = FeishuEmulator(app_id="cli_a", app_secret="secret", bot_open_id="ou_bot")
    emulator.chats[CHAT] = "Team"
    emulator.text_event("the question", sender="ou_alice", chat=CHAT, message_id="om_asked")
    async with serve_on_loopback(emulator.app) as url:
        config = {"appId": "cli_a", "appSecret": "secret", "encryptKey": "k", "baseUrl": url} | settings
        channel = FeishuChannel(FeishuAccount.model_validate(config), "default", Kept())
        try:
            yield emulator, channel
        finally:
            await channel.close()


def part(text: str = "**hi**", *, reply_to: str | None = "om_asked", thread: str | None = None) -> Outbound:
    return Outbound(target=Target(chat=CHAT, thread=thread, reply_to=reply_to), text=text)


@pytest.mark.parametrize(
    ("failure", "thread", "sent"),
    [
        ({}, None, ("om_asked", False, "post", "**hi**")),
        ({}, "omt_1", ("om_asked", True, "post", "**hi**")),
        ({"code": 230071}, "omt_1", ("om_asked", False, "post", "**hi**")),
        ({"code": 230001}, None, ("om_asked", False, "text", "**hi**")),
        ({"code": 230099}, None, ("om_asked", False, "text", "**hi**")),
        ({"code": 230022, "times": 2}, None, ("om_asked", False, "text", NOT_PASSED)),
        ({"code": 230011}, None, (None, False, "post", "**hi**")),
        ({"code": 230011}, "omt_1", None),
    ],
    ids=["reply", "topic", "no topics known", "not taken", "bad table", "audited", "withdrawn", "withdrawn in a topic"],
)
async def test_feishu_reply_is_rich_text_under_its_message(
    failure: dict[str, Any], thread: str | None, sent: tuple[str | None, bool, str, str] | None
) -> None:
    async with connected() as (feishu, channel):
        if failure:
            feishu.fail_next("/reply", status=400, **failure)
        if sent is None:
            with pytest.raises(Gone):
                await channel.send(part(thread=thread), "key-1")
            assert feishu.messages == []
            return
        message_id = await channel.send(part(thread=thread), "key-1")
        (found,) = feishu.messages
        assert (found.reply_to, found.thread, found.msg_type, found.text) == sent
        assert (found.message_id, found.chat_id, found.uuid) == (message_id, CHAT, "key-1")


async def test_feishu_send_is_idempotent_by_key() -> None:
    async with connected() as (feishu, channel):
        feishu.fail_next("/reply", lose_answer=True)
        with pytest.raises(Unreachable):
            await channel.send(part(), "key-1")
        first, again, other = [await channel.send(part(), key) for key in ("key-1", "key-1", "key-2")]
        assert first == again != other
        assert len(feishu.messages) == 2


ALLOW, DENY = Button(label="Allow", token="ap:1", style="primary"), Button(label="拒绝", token="ap:2", style="danger")
HOSTILE = [
    "rm -rf <at id=all></at> **x** ![](https://evil.example/x.png)",
    "echo '```' ; echo \\",
    "a\u2028```\u2028b\x0b\x85c",
    "  two  spaces\n\n\n<font color='red'>ok</font> &lt; <raw>",
    "~~~\n# not a heading\n~~~",
    "printf 'x\\r\\n' # \t tab",
]


@pytest.mark.parametrize("command", HOSTILE)
async def test_feishu_card_shows_a_command_verbatim_and_mentions_nobody(command: str) -> None:
    async with connected() as (feishu, channel):
        text = f"Run it? <at id=all></at> ![](https://evil.example/x.png)\n\n````\n{command}\n````\n\n/approve X deny"
        sent = await channel.send(replace(part(text), buttons=(ALLOW, DENY)), "key-1")
        card = feishu.card(sent)
        before, shown, after = card.body.elements[:3]
        assert shown.model_dump() == {"tag": "div", "text": {"tag": "plain_text", "content": command}}
        assert (before.tag, after.model_dump()) == ("markdown", {"tag": "markdown", "content": "/approve X deny"})
        assert "<at" not in str(before)
        assert card.buttons == {"Allow": {"token": "ap:1"}, "拒绝": {"token": "ap:2"}}
        (found,) = feishu.messages
        assert (found.reply_to, found.msg_type, found.uuid) == ("om_asked", "interactive", "key-1")


@pytest.mark.parametrize(
    ("failure", "kind", "text"),
    [
        ({}, "interactive", "**hi**"),
        ({"code": 230099}, "post", "**hi**"),
        ({"code": 230099, "times": 2}, "text", "**hi**"),
        ({"code": 230022, "times": 3}, "text", NOT_PASSED),
    ],
)
async def test_feishu_card_refused_becomes_text(failure: dict[str, Any], kind: str, text: str) -> None:
    async with connected() as (feishu, channel):
        if failure:
            feishu.fail_next("/reply", status=400, **failure)
        await channel.send(replace(part(), buttons=(ALLOW,)), "key-1")
        (found,) = feishu.messages
        assert (found.msg_type, found.text) == (kind, text)


async def test_feishu_card_fits_the_longest_part_and_many_buttons() -> None:
    async with connected() as (feishu, channel):
        buttons = tuple(Button(label="很长的标签" * 50, token=f"{number:060}") for number in range(10))
        text = channel.split("```\n" + "汉字\n" * 9_000 + "```")[0]
        sent = await channel.send(replace(part(text), buttons=buttons), "key-1")
        assert all(len(label) <= 40 for label in feishu.card(sent).buttons)


async def test_feishu_card_replacement_is_idempotent() -> None:
    async with connected() as (feishu, channel):
        card = await channel.send(replace(part(), buttons=(ALLOW, DENY)), "key-1")
        text = await channel.send(part("not a card"), "key-2")
        feishu.expire_tokens()
        for _ in range(2):
            assert await channel.send(replace(part("**done**"), replaces=card), "key-3") == card
        assert (feishu.card(card).shown, feishu.card(card).buttons, len(feishu.messages)) == ("**done**", {}, 2)
        feishu.fail_next(card, status=400, code=230028)
        await channel.send(replace(part("something vile"), replaces=card), "key-4")
        assert feishu.card(card).shown == NOT_PASSED
        feishu.recall(card)
        for lost, error in (
            (card, Gone),
            ("om_never", Gone),
            ("om_asked", Refused),
            ("../x", Refused),
        ):
            with pytest.raises(error):
                await channel.send(replace(part("x"), replaces=lost), "key-5")
        assert await channel.send(replace(part("other words"), replaces=text), "key-5") == text
        assert feishu.messages[1].text == "other words"
        with pytest.raises(Refused):  # it would have no buttons
            await channel.send(replace(part("x"), replaces=text, buttons=(ALLOW,)), "key-5")
        feishu.fail_next(card, status=429, code=99991400, headers={"x-ogw-ratelimit-reset": "3"})
        with pytest.raises(RateLimited):
            await channel.send(replace(part("x"), replaces=card), "key-6")


async def test_feishu_person_id_is_the_direct_chat() -> None:
    async with connected() as (feishu, channel):
        feishu.users["ou_bob"] = "Bob"
        for _ in range(2):
            await channel.send(Outbound(target=Target(chat="ou_bob"), text="hi", buttons=(ALLOW,)), "key-1")
        (found,) = feishu.messages
        assert (found.chat_id, found.reply_to) == (feishu.direct["ou_bob"], None)
        with pytest.raises(Gone):
            await channel.send(Outbound(target=Target(chat="ou_nobody"), text="hi"), "key-2")


async def test_feishu_text_cannot_mention_people() -> None:
    async with connected() as (feishu, channel):
        await channel.send(part('<at user_id="all"></at> <AT id=all></AT> hello'), "key-1")
        assert "<at " not in feishu.messages[0].text.lower()
        assert "hello" in feishu.messages[0].text


CODES: dict[type[DeliveryError], list[tuple[int, int]]] = {
    RateLimited: [(400, 230020), (400, 11232), (200, 99991400)],
    Unreachable: [(500, 1), (503, 0), (400, 230049)],
    Gone: [(400, 230002), (400, 232009), (200, 230053)],
    Refused: [(400, 99991672), (400, 230022), (403, 987654)],
}


@pytest.mark.parametrize(("error", "status", "code"), [(error, *it) for error, codes in CODES.items() for it in codes])
async def test_feishu_error_code_is_one_of_four_errors(error: type[DeliveryError], status: int, code: int) -> None:
    async with connected() as (feishu, channel):
        feishu.fail_next("/messages", status=status, code=code, times=3)
        with pytest.raises(error) as raised:
            await channel.send(part("the text is nobody's business"), "key-1")
        assert type(raised.value) is error
        assert "business" not in str(raised.value)
        assert "secret" not in str(raised.value)


async def test_feishus_word_on_how_long_to_wait_is_passed_on() -> None:
    async with connected() as (feishu, channel):
        feishu.fail_next("/reply", status=429, code=99991400, headers={"x-ogw-ratelimit-reset": "7"})
        with pytest.raises(RateLimited) as raised:
            await channel.send(part(), "key-1")
        assert raised.value.retry_after_seconds == 7


async def test_feishu_token_is_shared_and_renewed_once_on_expiry() -> None:
    async with connected() as (feishu, channel):
        for fetches in (1, 2):
            await asyncio.gather(*(channel.send(part(), f"key-{fetches}-{number}") for number in range(20)))
            assert (feishu.token_fetches, len(feishu.messages)) == (fetches, 20 * fetches)
            feishu.expire_tokens()


async def test_feishu_wrong_secret_is_refused_with_a_hint() -> None:
    async with connected(appSecret="not-the-secret") as (feishu, channel):
        with pytest.raises(Refused, match="the secret is wrong") as raised:
            await channel.send(part(), "key-1")
        assert "not-the-secret" not in str(raised.value)
        assert feishu.token_fetches == 1


async def test_feishu_identity_is_asked_once_and_retried_after_a_failure() -> None:
    async with connected() as (feishu, channel):
        feishu.fail_next("/bot/v3/info", status=500, code=1)
        with pytest.raises(Unreachable):
            await channel.learn_identity(5)
        await asyncio.gather(*(channel.learn_identity(5) for _ in range(10)))
        assert channel._bot == "ou_bot"
        assert [request.path for request in feishu.requests] == ["/open-apis/bot/v3/info"] * 2


def asking(**changes: Any) -> MessageContext:
    place = Chat(id=CHAT, kind="group")
    return context("feishu", place, message_id="om_asked", sender=Sender(id="ou_alice"), **changes)


@pytest.mark.parametrize("name", ["爱丽丝", None], ids=["a name", "one that may not be read"])
async def test_feishu_names_titles_and_quotes_are_cached(name: str | None) -> None:
    async with connected() as (feishu, channel):
        feishu.users |= {"ou_alice": name} if name else {}
        for _ in range(3):
            rich = await channel.enrich(asking(reply_to=Quote(message_id="om_asked")))
        assert (rich.sender.name, rich.chat.title) == (name or "ou_alice", "Team")
        assert rich.reply_to == Quote(message_id="om_asked", text="the question", sender="ou_alice")
        assert sum("contact" in request.path for request in feishu.requests) == 1


async def test_feishu_unreachable_server_fails_sends_not_lookups() -> None:
    async with connected(baseUrl="http://127.0.0.1:9") as (_, channel):
        with pytest.raises(Unreachable) as raised:
            await channel.send(part(), "key-1")
        assert not raised.value.maybe_arrived
        rich = await channel.enrich(asking(reply_to=Quote(message_id="om_x")))
        assert (rich.sender.name, rich.chat.title, rich.text) == ("ou_alice", None, "hi")


TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"
SHAPES = [("auto", "**bold** and `x`", "post"), ("auto", "a | b", "post"), ("auto", "```py\nx\n```", "interactive")]
SHAPES += [("auto", f"see\n\n{TABLE}", "interactive"), ("auto", "\n\n".join([TABLE] * 7), "interactive")]
SHAPES += [("post", TABLE, "post"), ("card", "plain", "interactive")]


@pytest.mark.parametrize(("rendering", "text", "kind"), SHAPES)
async def test_code_and_tables_come_as_a_card_and_plain_words_as_rich_text(
    rendering: str, text: str, kind: str
) -> None:
    async with connected(rendering=rendering) as (emulator, channel):
        await channel.send(Outbound(target=Target(chat=CHAT), text=text), "k")
        (sent,) = emulator.messages
        assert (sent.msg_type, sent.text.replace("```\n", "").replace("\n```", "")) == (
            kind,
            text.replace("```\n", "").replace("\n```", ""),
        )
        emulator.fail_next("/im/v1/messages", code=230099)
        await channel.send(Outbound(target=Target(chat=CHAT), text=text), "k2")
        assert emulator.messages[-1].msg_type == ("post" if kind == "interactive" else "text")


@pytest.mark.parametrize("steps", [0.0, -60.0], ids=["within a millisecond", "the clock is set back"])
async def test_feishu_card_sequence_numbers_are_unique(steps: float) -> None:
    async with connected() as (feishu, channel):
        clock = [1_000.0]
        channel._outgoing.cards._now = lambda: clock[0]
        handle = await channel.open_draft(part("…"), "key-1")
        handle = await channel.update_draft(replace(part("…"), replaces=handle), "key-1")
        for text in ("one", "one two", "one two three"):
            await channel.update_draft(replace(part(text), replaces=handle), "key-1")
            clock[0] += steps
        await channel.send(replace(part("whole"), replaces=handle), "key-2")
        (card,) = feishu.cardkit.cards.values()
        assert card.states[-4:] == ["one", "one two", "one two three", "whole"]


SUMMARIES = [
    ("Here:\n\n| Name | Qty |\n|---|---:|\n| Apples | 3 |", "Here: Name Qty Apples 3"),
    ("```bash\nls -l\n```", "ls -l"),
    ("# Plan\n\n- **one**\n- [x] *two*\n> ~~three~~", "Plan one [x] two three"),
    ("see [the page](https://x.y) and ![a chart](https://x.y/z.png)", "see the page and a chart"),
    ('a <b>bold</b> `x` <at user_id="all">all</at>\nline', "a bold x all line"),
    ("1. one\n2. two\n\n---\n\nthe\\* end", "one two the* end"),
    ("**" + "word " * 30 + "end**", ("word " * 30)[:60].strip()),
    ("    indented", "indented"),
]


@pytest.mark.parametrize(("text", "summary"), SUMMARIES)
def test_card_summary_has_the_words_without_markup(text: str, summary: str) -> None:
    for made in (answer_card(text), card(text, ())):
        assert made["config"]["summary"]["content"].strip() == summary


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("plain", ["plain"]),
        ("a\n```\nx\n```\nb", ["a", "```\nx\n```", "b"]),
        ("a\n\n~~~py\nx\n~~~\n\nb\n```\ny\n```", ["a\n", "~~~py\nx\n~~~", "\nb", "```\ny\n```"]),
        ("- a\n  ```\n  x\n  ```\n- b", ["- a\n  ```\n  x\n  ```\n- b"]),
        ("```\nnever closed", ["```\nnever closed"]),
        ("", [""]),
    ],
)
def test_post_has_a_node_for_each_fence(text: str, pieces: list[str]) -> None:
    assert fenced(text) == pieces
    assert "\n".join(fenced(text)) == text
