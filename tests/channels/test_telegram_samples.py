"""Every kind of update Telegram sends, through the channel's door, and what becomes of it for an open bot."""

import json
from datetime import UTC, datetime

import pytest

from channels.access import refusal
from channels.channel import Arrived, Edited, Ignored, Membership, Moved, Reacted, Rejected, Voted, WebhookRequest
from channels.message import Press, Quote
from channels.telegram.channel import SECRET_HEADER
from channels.telegram.updates import ALLOWED_UPDATES
from tests.channels.telegram_bot import bot
from tests.channels.telegram_samples import Sample, load_samples

NOW = datetime(2026, 9, 21, 12, 0, tzinfo=UTC)
SAMPLES = load_samples()


def request(sample: Sample) -> WebhookRequest:
    headers = [] if sample.secret is None else [(SECRET_HEADER, sample.secret)]
    return WebhookRequest(headers=headers, body=json.dumps(sample.update).encode())


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_a_sample_has_the_outcome_its_note_states(sample: Sample) -> None:
    channel = bot()
    if sample.outcome == "rejected":
        with pytest.raises(Rejected) as refused:
            channel.receive(request(sample), NOW)
        assert refused.value.status == 401
        return
    receipt = channel.receive(request(sample), NOW)
    if sample.outcome == "ignored":
        assert isinstance(receipt, Ignored | Edited | Membership | Moved | Reacted) or (
            isinstance(receipt, Arrived) and refusal(channel.access, receipt.context)
        )
        return
    if sample.outcome == "voted":
        answer = sample.update["poll_answer"]
        assert isinstance(receipt, Voted)
        assert (receipt.poll, receipt.options) == (answer["poll_id"], tuple(answer["option_ids"]))
        assert receipt.arrived.context.sender.id == str(answer["user"]["id"])
        assert receipt.arrived.dedupe == (f"update:{sample.update['update_id']}",)
        return
    assert isinstance(receipt, Arrived)
    if sample.outcome == "pressed":
        query, press = sample.update["callback_query"], receipt.context.press
        assert press == Press(token=query["data"], message_id=str(query["message"]["message_id"]))
        assert (receipt.context.chat.id, receipt.context.text) == (str(query["message"]["chat"]["id"]), "")
        assert (receipt.context.sender.id, receipt.context.mentioned) == (str(query["from"]["id"]), True)
        assert receipt.dedupe == (f"update:{sample.update['update_id']}", f"press:{query['id']}")
        return
    context, message = receipt.context, sample.update["message"]
    assert refusal(channel.access, context) is None
    assert (context.chat.id, context.message_id) == (str(message["chat"]["id"]), str(message["message_id"]))
    assert receipt.dedupe == (f"update:{sample.update['update_id']}", f"message:{context.chat.id}:{context.message_id}")
    assert context.chat.kind == ("direct" if message["chat"]["type"] == "private" else "group")
    assert context.sent_at.timestamp() == message["date"]
    assert (context.chat.thread, context.more) == (sample.thread, sample.more)
    assert sample.text is None or context.text == sample.text
    assert sample.mentioned is None or context.mentioned == sample.mentioned
    assert sample.sender is None or context.sender.id == sample.sender
    assert sample.quote is None or (isinstance(context.reply_to, Quote) and context.reply_to.text == sample.quote)
    assert sample.attached is None or [attachment.key for attachment in context.attachments] == [sample.attached]
    assert context.text.strip()


def test_there_is_a_sample_for_every_kind_of_update() -> None:
    assert len(SAMPLES) == 64
    assert {sample.outcome for sample in SAMPLES} == {
        "accepted",
        "duplicate",
        "pressed",
        "voted",
        "ignored",
        "rejected",
    }
    kinds = {key for sample in SAMPLES for key in sample.update if key != "update_id"}
    assert kinds >= {*ALLOWED_UPDATES, "channel_post", "message_reaction"}
