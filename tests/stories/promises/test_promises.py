"""What the README promises, through the real door."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from gateway.http import door, request
from tests.emulators.models.anthropic.script import Turn
from tests.emulators.models.script import HTML_200, Fault, calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, client, running


async def test_redelivered_event_is_deduped_to_one_turn_and_one_reply(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        event = house.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
        renamed = json.loads(json.dumps(event))
        renamed["event"]["message"]["message_id"] = "om_another"
        answers = await asyncio.gather(*(house.push(event) for _ in range(5)))
        answers += [await house.push(again) for again in (event, renamed, event)]
        await house.idle()
        assert [answer.status_code for answer in answers] == [200] * 8
        assert len(house.anthropic.requests) == 1
        assert len(house.feishu.messages) == 1


TWO_AGENTS = """
agents:
  list:
    - id: writer
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [write, ls] }
      skills: { allow: [create-python-script] }
    - id: reader
      model: anthropic/claude-sonnet-4-6
      systemPrompt: You read.
      tools: { allow: [read, ls] }
      skills: { deny: [create-python-script] }
bindings:
  - { agent: reader, match: { channel: feishu, chat: %s } }
"""


async def test_agents_share_nothing_and_two_chats_of_one_share_no_history(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, agents=TWO_AGENTS % BOB_CHAT) as house:
        house.anthropic.script = [calls(("write", {"file_path": "secret.txt", "content": "x"})), says("written")]
        await house.say("keep it to yourself")
        await house.replies(1)
        house.anthropic.script = [calls(("ls", {}), ("read", {"file_path": "secret.txt"})), says("nothing there")]
        await house.say("what is there?", sender=BOB, chat=BOB_CHAT)
        await house.replies(2)
        await house.say("hello", sender=BOB, chat="oc_c0c0000000000000000000000000000")
        await house.replies(3)
        writer, *_, reader, beside = [received.body for received in house.anthropic.requests]
        assert [tool["name"] for tool in writer["tools"]] == ["write", "ls"]
        assert [tool["name"] for tool in reader["tools"]] == ["read", "ls"]
        assert "create-python-script" not in json.dumps(reader["system"])
        assert "<available_skills>" not in json.dumps(writer["system"])  # it has no read
        assert "You read." not in json.dumps(writer["system"])
        for other in (reader, beside):
            assert "keep it to yourself" not in json.dumps(other["messages"])
        assert "NOT_FOUND" in json.dumps(reader["messages"])
        assert house.workspace("writer").joinpath("secret.txt").exists()
        assert not house.workspace("reader").joinpath("secret.txt").exists()


FAULTS = [
    Fault(status=401, type="authentication_error", message="invalid x-api-key"),
    Fault(status=400, type="invalid_request_error", message="credit balance is too low"),
    Fault(status=404, type="not_found_error", message="model: claude-nope"),
    Fault(status=529, type="overloaded_error"),
    HTML_200,
]


async def test_provider_failure_is_one_sentence_and_the_next_message_works(tmp_path: Path) -> None:
    async with running(tmp_path, more="retry: { maxSeconds: 0 }") as house:
        for number, fault in enumerate(FAULTS):
            house.anthropic.script = [fault, says("again at work")]
            await house.say("你好")
            reply = (await house.replies(2 * number + 1))[-1]
            assert any("一" <= char <= "鿿" for char in reply)
            assert len(reply) < 120
            for leak in ("x-api-key", "credit", "claude", "html", "{", "Error"):
                assert leak not in reply
            await house.say("再来")
            assert (await house.replies(2 * number + 2))[-1] == "again at work"


async def test_refused_or_silent_turn_shows_nothing_and_tool_loops_end(
    tmp_path: Path,
) -> None:
    async with running(tmp_path, more="limits: { rounds: 3 }") as house:
        house.anthropic.script = [Turn(blocks=(), stop_reason="refusal"), says("__SILENT__"), says("fine")]
        await house.say("something the model will not touch")
        await house.replies(1)
        await house.say("psst")
        await house.idle()
        await house.say("something else")
        assert (await house.replies(2))[-1] == "fine"
        assert "will not touch" not in json.dumps(house.anthropic.requests[-1].body)
        house.anthropic.script = lambda _: calls(("ls", {}))
        await house.say("go")
        assert "continue" in (await house.replies(3))[-1]
        assert len(house.anthropic.requests) == 3 + 3


DIRECT: dict[str, Any] = {"chat": ALICE_CHAT}
ADDRESSED: dict[str, Any] = {"chat": GROUP, "chat_type": "group", "mention_bot": True}
BESIDE = ADDRESSED | {"mention_bot": False}
ACCESS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("dmPolicy: open", [DIRECT], [ADDRESSED]),
    ("dmPolicy: disabled", [], [DIRECT]),
    ("dmPolicy: allowlist", [], [DIRECT]),
    (f"allowFrom: [{ALICE}]", [DIRECT], [ADDRESSED]),
    (f"dmPolicy: allowlist\n    allowFrom: [{BOB}]", [], [DIRECT]),
    ("groupPolicy: open", [ADDRESSED], [BESIDE]),
    ("groupPolicy: open\n    requireMention: false", [BESIDE], []),
    ("groupPolicy: disabled", [], [ADDRESSED]),
    (f"groupAllowFrom: [{GROUP}]", [ADDRESSED], []),
    ("groupAllowFrom: [oc_other]", [], [ADDRESSED]),
]


@pytest.mark.parametrize(("keys", "heard", "unheard"), ACCESS)
async def test_allowlist_and_policies_decide_who_is_heard(
    tmp_path: Path, keys: str, heard: list[dict[str, Any]], unheard: list[dict[str, Any]]
) -> None:
    app = FEISHU.split("    dmPolicy")[0]
    async with running(tmp_path, feishu=f"{app}    {keys}\n") as house:
        for said, count in ((unheard, 0), (heard, len(heard))):
            for how in said:
                assert (await house.say("hello", **how)).status_code == 200
            await house.idle()
            assert (len(house.feishu.messages), len(house.anthropic.requests)) == (count, count)


async def test_reply_is_retried_over_a_platform_outage_and_seen_once(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        house.feishu.fail_next("/reply", status=503, code=1)
        house.feishu.fail_next("/reply", lose_answer=True)
        await house.say("hello")
        await house.idle()
        assert len(house.feishu.messages) == 1


async def test_database_outage_makes_the_platform_redeliver_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "ACCEPT_SECONDS", request.ACCEPT_SECONDS)
    async with running(tmp_path) as house, client() as http:
        event = house.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db", isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            answer = await house.push(event)
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert (await http.get(f"{house.url}/readyz")).json()["failing"] == {"database": "locked"}
            assert (await http.get(f"{house.url}/healthz")).status_code == 200
            foreign.execute("ROLLBACK")
        assert (await house.push(event)).status_code == 200
        await house.idle()
        assert (await http.get(f"{house.url}/readyz")).status_code == 200
        assert len(house.feishu.messages) == 1


async def test_metrics_count_what_happened(tmp_path: Path) -> None:
    admin = "server: { adminToken: a-token-of-sixteen-or-more }"
    async with running(tmp_path, more=admin) as house, client() as http:
        await house.say("hello")
        await house.push(house.feishu.event("im.chat.something_new_v9", {}))
        await house.idle()
        headers = {"authorization": "Bearer a-token-of-sixteen-or-more"}
        text = (await http.get(f"{house.url}/metrics", headers=headers)).text
        assert 'clawgate_webhook_deliveries_total{channel="feishu",outcome="accepted"} 1.0' in text
        assert 'clawgate_webhook_deliveries_total{channel="feishu",outcome="ignored: unknown event"} 1.0' in text
        assert 'clawgate_turns_total{agent="helper",outcome="replied"} 1.0' in text


async def test_readiness_fails_when_a_message_waits_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.turns.lanes.ALONE_SECONDS", 0.1)
    more = "limits: { unansweredSeconds: 0.5 }"
    async with running(tmp_path, more=more) as house, client(house.url) as http:
        assert (await http.get("/readyz")).status_code == 200
        house.line.hold()
        await house.say("hello")

        async def is_red() -> bool:
            return (await http.get("/readyz")).status_code != 200

        await house.until(is_red)
        assert "unanswered" in (await http.get("/readyz")).json()["failing"]
        assert not house.counted("clawgate_oldest_unanswered_seconds 0.0")
        house.line.release()
