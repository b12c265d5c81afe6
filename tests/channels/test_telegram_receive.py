"""Who may post an update, and what it says to whom: the secret, hostile bodies, and the finer points of a text."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Arrived, Ignored, NotReady, Receipt, Rejected, WebhookRequest
from channels.message import Quote
from channels.telegram.channel import SECRET_HEADER, TelegramChannel
from channels.telegram.config import TelegramAccount, TelegramConfig, accounts, problems, warnings
from channels.telegram.content import Me
from channels.telegram.updates import receipt
from tests.channels.contexts import oversized
from tests.channels.telegram_bot import bot
from tests.channels.telegram_samples import BOT_ID, BOT_TOKEN, BOT_USERNAME, WEBHOOK_SECRET

NOW = datetime(2026, 9, 21, 12, 0, tzinfo=UTC)
ME = Me(id=BOT_ID, username=BOT_USERNAME, commands=frozenset({"stop"}))
ALICE = {"id": 500000011, "is_bot": False, "first_name": "Alice"}
DIRECT = {"id": 500000011, "type": "private", "first_name": "Alice"}
GROUP = {"id": -1002000000041, "type": "supergroup", "title": "Team chat"}


def message(text: str | None = "hi", *, chat: dict[str, Any] = DIRECT, **more: Any) -> dict[str, Any]:
    words = {} if text is None else {"text": text}
    return {"message_id": 7, "from": ALICE, "chat": chat, "date": 1790000101} | words | more


def entity(kind: str, words: str, text: str, **more: Any) -> dict[str, Any]:
    """Where `words` stand in `text`, counted as Telegram counts."""
    before, _, _ = text.partition(words)
    return {"type": kind, "offset": units(before), "length": units(words)} | more


def units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def post(body: bytes, secret: str | None = WEBHOOK_SECRET, channel: TelegramChannel | None = None) -> Receipt:
    headers = [] if secret is None else [(SECRET_HEADER, secret)]
    return (channel or bot()).receive(WebhookRequest(headers=headers, body=body), NOW)


def judged(message: dict[str, Any], me: Me = ME) -> Receipt:
    return receipt({"update_id": 1, "message": message}, account="default", me=me, now=NOW)


def arrived(message: dict[str, Any], me: Me = ME) -> Arrived:
    found = judged(message, me)
    assert isinstance(found, Arrived)
    return found


def updated(**more: Any) -> bytes:
    return json.dumps({"update_id": 1, "message": message(**more)}).encode()


@pytest.mark.parametrize("secret", ["", "wrong", WEBHOOK_SECRET + "x", WEBHOOK_SECRET[:-1], "sécret", "\ud800", None])
def test_webhook_secret_is_required_on_telegram(secret: str | None) -> None:
    with pytest.raises(Rejected) as refused:
        post(updated(), secret)
    assert refused.value.status == 401
    with pytest.raises(Rejected):
        post(updated(), secret, bot(webhookSecret=""))
    assert isinstance(post(updated()), Arrived)


def test_webhook_secret_sent_twice_is_refused() -> None:
    twice = WebhookRequest(headers=[(SECRET_HEADER, WEBHOOK_SECRET)] * 2, body=updated())
    with pytest.raises(Rejected):
        bot().receive(twice, NOW)
    with pytest.raises(Rejected) as refused:
        post(updated(), channel=bot(mode="polling"))
    assert refused.value.status == 404


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"7", b"not JSON", b"[" * 100_000, b"\xff", b"{}", b'{"update_id": 1}'),
        b'{"update_id": 1, "a new thing": {}}',
        b'{"update_id": 1, "message": []}',
        b'{"update_id": 1, "message": {"message_id": 1}}',
        b'{"message": {"message_id": 1, "from": {"id": 1}, "chat": {"id": 1, "type": "private"}, "text": "x"}}',
        updated(message_id=0),
        updated(chat={"id": 2**70, "type": "private"}),
    ],
)
def test_telegram_unreadable_update_is_dropped_not_redelivered(body: bytes) -> None:
    assert isinstance(post(body), Ignored)


def test_telegram_update_depth_keys_and_text_are_limited() -> None:
    for fits, update in oversized(json.loads(updated())):
        assert isinstance(post(json.dumps(update).encode()), Arrived if fits else Ignored)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
_fields = st.sampled_from(
    ["text", "caption", "entities", "caption_entities", "photo", "document", "reply_to_message", "quote", "location",
     "external_reply", "forward_origin", "rich_message", "sender_chat", "poll", "message_thread_id", "date", "venue"]
)  # fmt: skip


@given(st.dictionaries(_fields, _json, max_size=5))
def test_telegram_message_of_any_shape_is_no_error(odd: dict[str, Any]) -> None:
    found = judged(message(None) | odd)
    if isinstance(found, Arrived):
        found.context.text.encode()
        assert found.context.text.strip() or found.context.attachments


@given(st.text(), st.text(), st.lists(st.sampled_from(["bold", "text_link", "pre", "mention"]), max_size=3))
def test_telegram_mention_is_found_after_any_text(before: str, after: str, others: list[str]) -> None:
    text = f"{before} @{BOT_USERNAME} {after}"
    around = {"offset": 0, "length": units(before), "url": "https://example.com"}
    marks = [around | {"type": kind} for kind in others if before]
    mine = {"type": "mention", "offset": units(before) + 1, "length": units(BOT_USERNAME) + 1}
    found = judged(message(text, chat=GROUP, entities=[*marks, mine]))
    assert isinstance(found, Arrived)
    assert found.context.mentioned


@pytest.mark.parametrize(
    ("text", "kind", "words", "mentioned", "clean"),
    [
        (f"@{BOT_USERNAME} hello", "mention", f"@{BOT_USERNAME}", True, "hello"),
        (f"hello @{BOT_USERNAME}", "mention", f"@{BOT_USERNAME}", True, "hello"),
        (f"hello @{BOT_USERNAME}, you", "mention", f"@{BOT_USERNAME}", True, "hello, you"),
        (f"hello\n@{BOT_USERNAME}\nyou", "mention", f"@{BOT_USERNAME}", True, "hello\n\nyou"),
        (f"@{BOT_USERNAME}", "mention", f"@{BOT_USERNAME}", True, f"@{BOT_USERNAME}"),
        (f"👨‍👩‍👧‍👦 @{BOT_USERNAME} 𝒳", "mention", f"@{BOT_USERNAME}", True, "👨‍👩‍👧‍👦 𝒳"),
        ("@alice_samples hi", "mention", "@alice_samples", False, "@alice_samples hi"),
        (f"@{BOT_USERNAME}2 hi", "mention", f"@{BOT_USERNAME}2", False, f"@{BOT_USERNAME}2 hi"),
        (f"/ask@{BOT_USERNAME.upper()} hi", "bot_command", f"/ask@{BOT_USERNAME.upper()}", True, "/ask hi"),
        ("/stop", "bot_command", "/stop", True, "/stop"),
        ("please /stop", "bot_command", "/stop", False, "please /stop"),
        ("/weather", "bot_command", "/weather", False, "/weather"),
        ("Helper, hi", "text_mention", "Helper", True, ", hi"),
    ],
)
def test_telegram_mention_rules_in_a_group(text: str, kind: str, words: str, mentioned: bool, clean: str) -> None:
    """The bot's own mention goes, unless it is all there is."""
    found = arrived(message(text, chat=GROUP, entities=[entity(kind, words, text, user={"id": BOT_ID})]))
    assert (found.context.mentioned, found.context.text) == (mentioned, clean)


def test_a_command_for_another_bot_is_never_answered() -> None:
    text = "/ask@some_other_bot hi"
    marks = [entity("bot_command", "/ask@some_other_bot", text)]
    assert judged(message(text, chat=GROUP, entities=marks)) == Ignored(kind="message", reason="for another bot")


def test_telegram_group_messages_wait_for_the_bots_identity() -> None:
    nameless = bot(known=False)
    with pytest.raises(NotReady):
        post(updated(chat=GROUP), channel=nameless)
    assert isinstance(post(updated(), channel=nameless), Arrived)


def test_code_keeps_its_fence_a_quote_its_marks_and_a_link_its_address() -> None:
    text = "look here: print(1)"
    marks = [
        entity("text_link", "here", text, url="https://example.com/a"),
        entity("pre", "print(1)", text, language="python"),
    ]
    found = arrived(message(text, entities=marks))
    assert found.context.text == "look [here](https://example.com/a): \n```python\nprint(1)\n```"
    quote = "first\nsecond"
    found = arrived(message(f"{quote}\nno", entities=[entity("blockquote", quote, f"{quote}\nno")]))
    assert found.context.text == "> first\n> second\nno"


@pytest.mark.parametrize(("length", "more"), [(3_999, False), (4_000, True)])
def test_a_text_as_long_as_a_message_can_be_is_likely_to_go_on(length: int, more: bool) -> None:
    assert arrived(message("x" * length)).context.more is more
    assert arrived(message("🔥" * (length // 2) + "x" * (length % 2))).context.more is more


def test_the_answered_message_goes_along_also_from_another_chat() -> None:
    channel = {"id": -1002000000061, "type": "channel", "title": "News"}
    elsewhere = {"origin": {"type": "channel", "chat": channel}, "chat": channel, "message_id": 77}
    found = arrived(message("thoughts?", external_reply=elsewhere, quote={"text": "breaking"}))
    assert found.context.reply_to == Quote(message_id="-1002000000061:77", text="breaking", sender="News", foreign=True)
    found = arrived(message("why?", reply_to_message=message("the whole of it", message_id=5)))
    assert found.context.reply_to == Quote(message_id="5", text="the whole of it", sender="Alice")


def test_telegram_topic_opened_by_the_bot_is_no_reply() -> None:
    opened = message(None, chat=GROUP, message_id=12, forum_topic_created={"name": "x"}) | {"from": {"id": BOT_ID}}
    topic = {"message_thread_id": 12, "is_topic_message": True, "reply_to_message": opened}
    found = arrived(message("hello all", chat=GROUP, **topic))
    assert (found.context.mentioned, found.context.reply_to, found.context.chat.thread) == (False, None, "12")


def account(**written: Any) -> TelegramAccount:
    return TelegramAccount.model_validate({"botToken": BOT_TOKEN} | written)


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        *(({"botToken": token}, [("botToken",)]) for token in ("123:short", f"bot{BOT_TOKEN}")),
        *(({"mode": "webhook", "webhookSecret": secret}, [("webhookSecret",)]) for secret in ("", " ", "a:b")),
        *(({"webhookSecret": secret}, [("webhookSecret",)]) for secret in ("a.b", "x" * 257)),
        *((written, []) for written in ({}, {"mode": "webhook", "webhookSecret": "Az09_-"})),
        ({"apiRoot": "api.telegram.org"}, [("apiRoot",)]),
        ({"allowFrom": ("500000011", "*", "@alice", "-5")}, [("allowFrom", 2), ("allowFrom", 3)]),
        ({"groupAllowFrom": ("-1002000000041", "*", "5", "Team")}, [("groupAllowFrom", 2), ("groupAllowFrom", 3)]),
    ],
)
def test_telegram_config_problems_name_their_key(written: dict[str, Any], keys: list[Any]) -> None:
    found = list(problems(account(**written)))
    assert [key for key, _ in found] == keys
    assert not any(BOT_TOKEN in sentence for _, sentence in found)


def test_telegram_config_warns_of_an_open_or_empty_allowlist() -> None:
    assert len(list(warnings(account()))) == 0
    assert len(list(warnings(account(dmPolicy="allowlist")))) == 1
    assert len(list(warnings(account(chats={"-1": {}})))) == 1
    assert len(list(warnings(account(dmPolicy="open", groupPolicy="open", resendAmbiguous=True)))) == 3
    assert list(warnings(account(allowFrom=("1",), groupAllowFrom=("-1",)))) == []


def test_telegram_account_without_a_token_is_not_configured() -> None:
    config = TelegramConfig.model_validate({"accounts": {"sales": {"botToken": BOT_TOKEN}, "empty": {}}})
    assert list(accounts(config)) == ["sales"]
    assert accounts(TelegramConfig.model_validate({"botToken": BOT_TOKEN, "enabled": False})) == {}
