"""Verification: what is signed and bent, and hostile deliveries on `receive`; the official SDK judges next door."""

import base64
import json
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import AnsweredAtOnce, Arrived, Ignored, NotReady, Rejected, WebhookRequest
from channels.feishu.channel import FeishuChannel
from channels.feishu.config import FeishuAccount
from channels.feishu.signature import sign
from tests.channels.contexts import Kept, oversized
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.events import encrypt

KEY = "an Encrypt Key with ünïcode"
TOKEN = "verification-令牌"
NOW = datetime(2026, 9, 21, 12, 0, tzinfo=UTC)
BOT = "ou_bot"


def emulator(*, key: str = KEY) -> FeishuEmulator:
    return FeishuEmulator(
        app_id="cli_a",
        app_secret="s",
        encrypt_key=key,
        verification_token=TOKEN,
        bot_open_id=BOT,
        now=lambda: NOW.timestamp(),
    )


def channel(**changes: Any) -> FeishuChannel:
    settings_ = {"appId": "cli_a", "appSecret": "s", "encryptKey": KEY, "verificationToken": TOKEN} | changes
    built = FeishuChannel(FeishuAccount.model_validate(settings_), "default", Kept())
    built._bot = BOT
    return built


def request(headers: dict[str, str], body: bytes) -> WebhookRequest:
    return WebhookRequest(headers=[(name.lower(), value) for name, value in headers.items()], body=body)


def delivered(event: dict[str, Any], *, signed: bool = True, key: str = KEY) -> WebhookRequest:
    return request(*emulator(key=key).encode(event, signed=signed))


def text_event(text: str = "hi", **more: Any) -> dict[str, Any]:
    return emulator().text_event(text, sender="ou_alice", chat="oc_1", **more)


def _resigned(body: bytes, *, timestamp: str = "", nonce: str = "n") -> dict[str, str]:
    timestamp = timestamp or str(int(NOW.timestamp()))
    return {
        "X-Lark-Request-Timestamp": timestamp,
        "X-Lark-Request-Nonce": nonce,
        "X-Lark-Signature": sign(timestamp, nonce, KEY, body),
    }


@pytest.mark.parametrize(
    ("timestamp", "nonce"),
    [
        *(("17900000000", "n"), ("179000000", "0n")),  # a digit of the nonce moved over
        *((timestamp, "n") for timestamp in (" 1790000000", "1790000000.0", "١٧٩٠٠٠٠٠٠٠")),
        *(("1790000000", nonce) for nonce in ("", "a b", "x" * 129)),
    ],
)
def test_webhook_signature_replay_with_a_changed_timestamp_is_refused(timestamp: str, nonce: str) -> None:
    _, body = emulator().encode(text_event())
    signed = request(_resigned(body, timestamp=timestamp, nonce=nonce), body)
    with pytest.raises(Rejected, match="malformed"):
        channel(timestampWindowSeconds=None).receive(signed, NOW)


def test_webhook_signature_header_sent_twice_is_refused() -> None:
    once = delivered(text_event())
    with pytest.raises(Rejected, match="malformed"):
        channel().receive(WebhookRequest(headers=[*once.headers, *once.headers], body=once.body), NOW)


def test_feishu_event_depth_keys_and_text_are_limited() -> None:
    plain = {"encryptKey": "", "verification": "token"}
    for fits, event in oversized(text_event()):
        for changes, post in (({}, delivered(event)), (plain, delivered(event, key=""))):
            with nullcontext() if fits else pytest.raises(Rejected) as refused:
                assert isinstance(channel(**changes).receive(post, NOW), Arrived)
            assert fits or (refused and refused.value.status == 400)
            # it is genuine: five of them must not make the operator look at the Encrypt Key
            assert fits or (refused and "262,144 characters" in refused.value.reason and refused.value.sentence)
            assert fits or (refused and (refused.value.guess, refused.value.cause) == (False, ""))


@pytest.mark.parametrize(("age", "ok"), [(3600, True), (3601, False), (-3600, True), (-3601, False)])
def test_webhook_signature_replay_older_than_the_window_is_refused(age: int, ok: bool) -> None:
    _, body = emulator().encode(text_event())
    signed = request(_resigned(body, timestamp=str(int(NOW.timestamp()) - age)), body)
    with nullcontext() if ok else pytest.raises(Rejected, match="old"):
        channel().receive(signed, NOW)
    assert isinstance(channel(timestampWindowSeconds=None).receive(signed, NOW), Arrived)


def encrypted(plain: bytes, key: str = KEY, **more: Any) -> bytes:
    return orjson.dumps({"encrypt": encrypt(plain, key), **more})


EVENT = orjson.dumps(text_event())


@pytest.mark.parametrize(
    "body",
    [
        *(EVENT, orjson.dumps({"challenge": "c", "token": TOKEN, "type": "url_verification"})),
        *(encrypted(EVENT, extra=1), encrypted(EVENT, "another key"), encrypted(b"[1]"), encrypted(b'{"a": "\xff"}')),
        *(orjson.dumps({"encrypt": value}) for value in (7, "not base64!")),
        *(orjson.dumps({"encrypt": base64.b64encode(b"x" * size).decode()}) for size in (16, 40)),
        *(b"", b"[" * 100_000, b'{"encrypt": "' + b"\xff" + b'"}'),
    ],
    ids=[f"body {number}" for number in range(13)],  # what is encrypted differs from process to process
)
@pytest.mark.parametrize("signed", [True, False])
def test_webhook_with_an_encrypt_key_refuses_plain_bodies(body: bytes, signed: bool) -> None:
    with pytest.raises(Rejected) as refused:
        channel().receive(request(_resigned(body) if signed else {}, body), NOW)
    assert 400 <= refused.value.status < 500


def test_webhook_signature_missing_is_refused_despite_encryption() -> None:
    with pytest.raises(Rejected, match="signature missing"):
        channel().receive(delivered(text_event(), signed=False), NOW)


@pytest.mark.parametrize("key", [KEY, ""], ids=["encrypted", "plain"])
def test_challenge_in_its_2_0_form_is_answered_without_a_signature(key: str) -> None:
    header = {"event_type": "url_verification", "token": TOKEN, "app_id": "cli_a"}
    check = {"schema": "2.0", "header": header, "event": {"challenge": 'a "quoted" \n one'}}
    changes: dict[str, Any] = {} if key else {"encryptKey": "", "verification": "token"}
    answer = channel(**changes).receive(delivered(check, signed=False, key=key), NOW)
    assert isinstance(answer, AnsweredAtOnce)
    assert json.loads(answer.body) == {"challenge": 'a "quoted" \n one'}


@pytest.mark.parametrize("token", ["wrong", "", None, 7, ["x"], "verification-\ud800"])
def test_challenge_or_signature_does_not_excuse_a_wrong_token(token: object) -> None:
    event = text_event()
    event["header"]["token"] = token
    check = {"challenge": "c", "token": token, "type": "url_verification"}
    for plain, signed in ((check, False), (event, True)):
        body = encrypted(json.dumps(plain).encode())
        with pytest.raises(Rejected, match=r"token|decrypted"):  # half a character is no JSON
            channel().receive(request(_resigned(body) if signed else {}, body), NOW)


def test_webhook_for_another_app_is_refused() -> None:
    event = text_event()
    event["header"]["app_id"] = "cli_other"
    with pytest.raises(Rejected, match="another app"):
        channel().receive(delivered(event), NOW)


MINIMAL = {
    "header": {"event_type": "im.message.receive_v1"},
    "event": {
        "sender": {"sender_id": {"open_id": "ou_alice"}},
        "message": {"message_id": "om_1", "chat_id": "oc_1", "chat_type": "p2p", "message_type": "text"}
        | {"content": '{"text":"hi"}'},
    },
}


def test_feishu_minimal_event_works_only_without_a_token() -> None:
    arrived = channel(verificationToken="").receive(delivered(MINIMAL), NOW)
    assert isinstance(arrived, Arrived)
    assert (arrived.context.text, arrived.context.sent_at, arrived.dedupe) == ("hi", NOW, ("message:om_1",))
    assert not arrived.context.sender.is_bot
    with pytest.raises(Rejected, match="token"):
        channel().receive(delivered(MINIMAL), NOW)


def test_own_message_starts_no_turn_even_as_a_person() -> None:
    own = emulator().text_event("echo", sender=BOT, chat="oc_1", sender_type="user")
    assert channel().receive(delivered(own), NOW) == Ignored(kind="im.message.receive_v1", reason="own message")


@pytest.mark.parametrize("chat_type", [None, "topic_group", 3])
def test_feishu_unknown_chat_kind_is_treated_as_a_group(chat_type: object) -> None:
    event = text_event()
    event["event"]["message"]["chat_type"] = chat_type
    arrived = channel().receive(delivered(event), NOW)
    assert isinstance(arrived, Arrived)
    assert arrived.context.chat.kind == "group"


def test_feishu_group_messages_wait_for_the_bots_identity() -> None:
    young = channel()
    young._bot = None
    assert isinstance(young.receive(delivered(text_event()), NOW), Arrived)
    with pytest.raises(NotReady):
        young.receive(delivered(text_event(chat_type="group")), NOW)


def test_redelivered_event_under_another_id_shares_its_dedupe_key() -> None:
    first, again, other = (
        text_event(text, message_id=name) for text, name in (("a", "om_1"), ("a", "om_2"), ("b", "om_3"))
    )
    keys = [channel().receive(delivered(event), NOW) for event in (first, again, other)]
    texts = [receipt.dedupe[1] for receipt in keys if isinstance(receipt, Arrived)]
    assert texts[0] == texts[1] != texts[2]


_scalar = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8) | st.sampled_from(["p2p", BOT])
_members = st.sampled_from(
    [
        *("header", "event", "message", "sender", "sender_id", "open_id", "content", "mentions", "id", "key", "name"),
        *("tag", "message_id", "chat_id", "chat_type", "create_time", "thread_id", "event_type", "type", "challenge"),
        *("text", "title"),
    ]
)
_shallow = _scalar | st.lists(_scalar, max_size=3) | st.dictionaries(_members, _scalar, max_size=6)
_json = _shallow | st.lists(_shallow, max_size=3) | st.dictionaries(_members, _shallow, max_size=6)
_kinds = st.sampled_from(["text", "post", "image", "interactive", "location", "nonsense"])


@given(st.dictionaries(_members, _shallow, max_size=6), _json, _kinds)
def test_feishu_signed_event_of_any_shape_is_received_or_refused(bent: Any, content: Any, kind: str) -> None:
    event = text_event()
    text = content if isinstance(content, str) else orjson.dumps(content).decode()
    event["event"]["message"] |= {"message_type": kind, "content": text} | bent
    event["event"] |= {key: value for key, value in bent.items() if key in ("sender", "message")}
    with suppress(Rejected):
        receipt = channel().receive(delivered(event), NOW)
        assert isinstance(receipt, Arrived | Ignored | AnsweredAtOnce)
        if isinstance(receipt, Arrived):
            receipt.context.text.encode()


@given(st.binary(max_size=200), st.booleans())
def test_webhook_of_random_bytes_is_refused(body: bytes, signed: bool) -> None:
    with pytest.raises(Rejected):
        channel().receive(request(_resigned(body) if signed else {}, body), NOW)


@pytest.mark.parametrize("raw", ['{"text":"inside half \\ud83d a smile"}', '{"text":"inside nul \\u0000"}'])
def test_feishu_message_loses_characters_no_database_takes(raw: str) -> None:
    event = text_event()
    event["event"]["message"]["content"] = raw
    receipt = channel().receive(delivered(event), NOW)
    assert isinstance(receipt, Arrived)
    assert "inside" in receipt.context.text.encode().decode()
    assert "\0" not in receipt.context.text
