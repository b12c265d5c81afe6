"""Reply parts and their keys."""

from datetime import UTC, datetime
from typing import Any

from channels.message import Chat, MessageContext, Sender, Target
from gateway.outbox import payload_json, reply_parts


def asked(**changes: Any) -> MessageContext:
    facts: dict[str, Any] = {
        "channel": "feishu",
        "account": "default",
        "chat": Chat(id="oc_1", kind="group", thread="omt_1"),
        "message_id": "om_1",
        "sender": Sender(id="ou_1"),
        "text": "hi",
        "sent_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return MessageContext(**facts | changes)


def test_a_part_has_the_same_key_whenever_it_is_made_and_no_two_share_one() -> None:
    def keys(context: MessageContext, purpose: str = "reply") -> list[str]:
        return [part.key for part in reply_parts(context, ["one", "two"], purpose=purpose)]

    first = keys(asked())
    assert first == keys(asked())
    elsewhere = asked(chat=Chat(id="oc_2", kind="group"))
    others = [asked(message_id="om_2"), asked(account="sales"), asked(channel="telegram"), elsewhere]
    every = [*first, *keys(asked(), "overflow"), *(key for other in others for key in keys(other))]
    assert len(set(every)) == len(every) == 12
    assert all(len(key) <= 50 for key in every)


def test_a_part_is_a_reply_to_the_message_in_its_chat_and_topic() -> None:
    (part,) = reply_parts(asked(), ["one"])
    payload = payload_json.validate_json(part.payload)
    assert payload.part.target == Target(chat="oc_1", thread="omt_1", reply_to="om_1")
    assert (payload.channel, payload.account, payload.part.text) == ("feishu", "default", "one")


def test_where_a_platform_shows_the_question_with_each_part_only_the_first_is_a_reply() -> None:
    parts = reply_parts(asked(), ["one", "two", "three"], quotes_once=True)
    told = [payload_json.validate_json(part.payload).part.target for part in parts]
    assert [target.reply_to for target in told] == ["om_1", None, None]
    assert {(target.chat, target.thread) for target in told} == {("oc_1", "omt_1")}
