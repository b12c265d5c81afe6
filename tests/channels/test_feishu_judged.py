"""Feishu's official SDK judges the signature and the encryption: ours, and those of our emulator."""

import json
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Arrived, Rejected
from channels.feishu.signature import decrypt
from tests.channels.test_feishu_receive import KEY, NOW, TOKEN, channel, emulator, request, text_event
from tests.emulators.feishu.events import encrypt

pytestmark = pytest.mark.slow  # the SDK takes half a second to import


@pytest.fixture(scope="module")
def cipher() -> Any:
    """The SDK is imported where it judges, and not wherever tests are collected."""
    import_module("tests.feishu_sdk")
    return import_module("lark_oapi.core.utils").AESCipher


def test_the_published_test_vector_decrypts(cipher: Any) -> None:
    published = "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="
    assert cipher("test key").decrypt_str(published) == "hello world"
    with pytest.raises(Rejected):  # it is no JSON object, so not an event
        decrypt(published, "test key")
    assert decrypt(encrypt(b'{"a": 1}', "test key"), "test key") == {"a": 1}


@given(
    event=st.dictionaries(st.text(max_size=5), st.text(max_size=40), max_size=4), key=st.text(min_size=1, max_size=20)
)
def test_the_official_sdk_decrypts_what_we_encrypt(cipher: Any, event: dict[str, str], key: str) -> None:
    key = key.encode("utf-8", errors="replace").decode()
    plain = json.dumps(event)
    assert json.loads(cipher(key).decrypt_str(encrypt(plain.encode(), key))) == event


def test_feishu_webhook_signature_agrees_with_the_official_sdk() -> None:
    import_module("tests.feishu_sdk")
    from lark_oapi.core import const
    from lark_oapi.core.model import RawRequest
    from lark_oapi.event.callback.model.p2_card_action_trigger import P2CardActionTriggerResponse
    from lark_oapi.event.dispatcher_handler import EventDispatcherHandler

    seen: list[Any] = []
    builder = EventDispatcherHandler.builder(KEY, TOKEN)

    def pressed_in_sdk(event: Any) -> P2CardActionTriggerResponse:
        seen.append(event)
        return P2CardActionTriggerResponse({})

    builder = builder.register_p2_card_action_trigger(pressed_in_sdk)
    handler = builder.register_p2_im_message_receive_v1(seen.append).build()
    headers, body = emulator().encode(text_event("judged by the SDK"))

    def status(headers: dict[str, str], body: bytes) -> int:
        raw = RawRequest()
        raw.uri, raw.body = "/", body
        names = (const.LARK_REQUEST_TIMESTAMP, const.LARK_REQUEST_NONCE, const.LARK_REQUEST_SIGNATURE)
        raw.headers = {name: headers[name] for name in names}
        return int(handler.do(raw).status_code)

    pressed = emulator()
    message = pressed.text_event("x", sender="ou_alice", chat="oc_1")["event"]["message"]["message_id"]
    headers_of_press, press = pressed.encode(pressed.press_event(message, sender="ou_alice", value={"token": "ap:1"}))
    assert status(headers_of_press, press) == 200
    event = seen.pop().event
    assert (event.action.value, event.operator.open_id, event.context.open_message_id) == (
        {"token": "ap:1"},
        "ou_alice",
        message,
    )
    receipt = channel().receive(request(headers_of_press, press), NOW)
    assert isinstance(receipt, Arrived)
    toast = P2CardActionTriggerResponse(json.loads(receipt.answer)).toast
    assert toast is not None
    assert (toast.type, toast.content, toast.i18n["zh_cn"]) == ("info", "Received", "已收到")
    assert status(headers, body) == 200
    assert seen[0].event.message.content == '{"text":"judged by the SDK"}'
    assert isinstance(channel().receive(request(headers, body), NOW), Arrived)
    forged = headers | {"X-Lark-Signature": "0" * 64}
    assert status(forged, body) != 200
    with pytest.raises(Rejected, match="signature wrong"):
        channel().receive(request(forged, body), NOW)
