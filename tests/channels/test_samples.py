"""Every kind of event Feishu sends, through the real door: encrypted, signed, posted, and what became of it."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.turn import TurnStarted
from channels.message import MessageContext
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.running import Running, running

FOLDER = Path(__file__).resolve().parents[2] / "channels" / "feishu" / "samples"
ACCOUNT = """
    appId: cli_sample0000000001
    appSecret: sample-secret
    verificationToken: sample-verification-token
    dmPolicy: open
    groupPolicy: open
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """`event` is the decrypted body. `text` and `mentioned` are what the context must hold, where the sample says."""

    name: str
    note: str
    encrypted: bool
    outcome: str
    event: dict[str, Any]
    text: str | None = None
    mentioned: bool | None = None


SAMPLES = [Sample(name=it.stem, **json.loads(it.read_text(encoding="utf-8"))) for it in sorted(FOLDER.glob("*.json"))]


async def post(house: Running, sample: Sample) -> httpx.Response:
    is_check = sample.event.get("type") == "url_verification"
    headers, body = house.feishu.encode(sample.event, signed=not is_check)
    if sample.name == "42_forged_signature":
        headers["X-Lark-Signature"] = "0" * 64
    return await house.feishu.deliver(f"{house.url}/webhooks/feishu/default", headers, body)


@pytest.mark.parametrize("encrypted", [True, False])
async def test_a_sample_has_the_outcome_its_note_states(tmp_path: Path, encrypted: bool) -> None:
    """One behind the other at one gateway: so those that say a thing again come behind it."""
    feishu = FeishuEmulator(
        app_id="cli_sample0000000001",
        app_secret="sample-secret",
        encrypt_key="sample-encrypt-key" if encrypted else "",
        verification_token="sample-verification-token",
        bot_open_id="ou_5aa0d3e33fb57ba28c5e5e077a15faab",
    )
    checks = "encryptKey: sample-encrypt-key" if encrypted else "verification: token"
    async with running(tmp_path, emulator=feishu, feishu=f"{ACCOUNT}    {checks}\n") as house:
        for sample in (it for it in SAMPLES if it.encrypted == encrypted):
            before, taken = len(house.events), accepted(house)
            response = await post(house, sample)
            await house.idle()
            turns = [event.turn for event in house.events[before:] if isinstance(event, TurnStarted)]
            assert len(turns) == (sample.outcome == "accepted"), sample.name
            if sample.outcome == "rejected":
                assert 400 <= response.status_code < 500, sample.name
                continue
            if sample.outcome == "pressed":
                assert response.json()["toast"]["i18n"]["zh_cn"], sample.name
                assert accepted(house) == taken + 1, sample.name
                continue
            challenge = sample.event.get("challenge") if sample.outcome == "answered" else None
            answer = (response.status_code, response.headers["content-type"])
            assert answer == (200, "application/json"), sample.name
            assert response.json() == ({"challenge": challenge} if challenge else {}), sample.name
            if sample.outcome == "accepted":
                is_as_noted(turns[0].context, sample)


def accepted(house: Running) -> float:
    metrics = house.gateway.runtime.metrics.render().decode()
    found = re.search(r'{channel="feishu",outcome="accepted"} (.+)', metrics)
    return float(found[1]) if found else 0.0


def is_as_noted(context: MessageContext, sample: Sample) -> None:
    message = sample.event["event"]["message"]
    assert (context.message_id, context.chat.thread) == (message["message_id"], message.get("thread_id")), sample.name
    assert sample.text is None or context.text == sample.text, sample.name
    assert sample.mentioned is None or context.mentioned == sample.mentioned, sample.name
    assert context.text.strip(), sample.name


def test_there_is_a_sample_for_every_kind_of_event() -> None:
    assert len(SAMPLES) == 48
    outcomes = {"accepted", "duplicate", "pressed", "ignored", "answered", "rejected"}
    assert {sample.outcome for sample in SAMPLES} == outcomes
