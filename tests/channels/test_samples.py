"""Every kind of event Feishu sends, through the real door: encrypted, signed, posted, and what became of it."""

from pathlib import Path

import httpx
import pytest

from agents.turn import TurnStarted
from tests.channels.feishu_samples import APP_ID, BOT_OPEN_ID, VERIFICATION_TOKEN, Sample, load_samples
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.running import Running, running

SAMPLES = load_samples()
EARLIER = {"06_direct_text_retry": "05_direct_text", "07_direct_text_other_event_id": "05_direct_text"}


def emulator(*, encrypted: bool) -> FeishuEmulator:
    return FeishuEmulator(
        app_id=APP_ID,
        app_secret="sample-secret",
        encrypt_key="sample-encrypt-key" if encrypted else "",
        verification_token=VERIFICATION_TOKEN,
        bot_open_id=BOT_OPEN_ID,
    )


def account_yaml(*, encrypted: bool) -> str:
    checks = "encryptKey: sample-encrypt-key" if encrypted else "verification: token"
    return f"""
    appId: {APP_ID}
    appSecret: sample-secret
    verificationToken: {VERIFICATION_TOKEN}
    {checks}
    dmPolicy: open
    groupPolicy: open
"""


async def post(house: Running, sample: Sample) -> httpx.Response:
    feishu = house.feishu
    is_check = sample.event.get("type") == "url_verification"
    headers, body = feishu.encode(sample.event, signed=not is_check)
    if sample.name == "42_forged_signature":
        headers["X-Lark-Signature"] = "0" * 64
    return await feishu.deliver(f"{house.url}/webhooks/feishu/default", headers, body)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
async def test_a_sample_has_the_outcome_its_note_states(tmp_path: Path, sample: Sample) -> None:
    feishu = emulator(encrypted=sample.encrypted)
    async with running(tmp_path, emulator=feishu, feishu=account_yaml(encrypted=sample.encrypted)) as house:
        if sample.name in EARLIER:
            earlier = next(other for other in SAMPLES if other.name == EARLIER[sample.name])
            assert (await post(house, earlier)).status_code == 200
        response = await post(house, sample)
        await house.idle()

        turns = [event.turn for event in house.events if isinstance(event, TurnStarted)]
        match sample.outcome:
            case "rejected":
                assert 400 <= response.status_code < 500
            case "answered":
                assert response.status_code == 200
                challenge = sample.event.get("challenge")
                assert response.json() == ({"challenge": challenge} if challenge else {})
                assert response.headers["content-type"] == "application/json"
            case "ignored" | "accepted" | "duplicate":
                assert (response.status_code, response.json()) == (200, {})
        assert len(turns) == {"accepted": 1, "duplicate": 1}.get(sample.outcome, 0)
        if sample.outcome == "accepted":
            context = turns[0].context
            message = sample.event["event"]["message"]
            assert context.message_id == message["message_id"]
            assert context.chat.thread == message.get("thread_id")
            assert sample.text is None or context.text == sample.text
            assert sample.mentioned is None or context.mentioned == sample.mentioned
            assert context.text.strip()


def test_there_is_a_sample_for_every_kind_of_event() -> None:
    assert len(SAMPLES) == 43
    assert {sample.outcome for sample in SAMPLES} == {"accepted", "duplicate", "ignored", "answered", "rejected"}
