"""What the README promises, through the real door."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.emulators.models.anthropic.script import Turn
from tests.emulators.models.script import HTML_200, Fault, calls, says
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, client, running
from tests.stories.at_work import users


async def test_the_same_event_five_times_at_once_is_one_turn_and_one_reply(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        event = house.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
        answers = await asyncio.gather(*(house.push(event) for _ in range(5)))
        answers += [await house.push(event) for _ in range(5)]
        await house.idle()
        assert [answer.status_code for answer in answers] == [200] * 10
        assert len(house.anthropic.requests) == 1
        assert len(house.feishu.messages) == 1


async def test_a_repush_of_the_same_text_under_another_message_id_is_the_same_message(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        event = house.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
        again = json.loads(json.dumps(event))
        again["event"]["message"]["message_id"] = "om_another"
        await house.push(event)
        await house.push(again)
        await house.idle()
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


async def test_two_agents_share_no_tools_skills_workspace_or_history(tmp_path: Path) -> None:
    async with running(tmp_path, agents=TWO_AGENTS % BOB_CHAT) as house:
        house.anthropic.script = [calls(("write", {"file_path": "secret.txt", "content": "x"})), says("written")]
        await house.say("keep it to yourself")
        await house.replies(1)
        house.anthropic.script = [calls(("ls", {}), ("read", {"file_path": "secret.txt"})), says("nothing there")]
        await house.say("what is there?", sender=BOB, chat=BOB_CHAT)
        await house.replies(2)
        writer, *_, reader = [received.body for received in house.anthropic.requests]
        assert [tool["name"] for tool in writer["tools"]] == ["write", "ls"]
        assert [tool["name"] for tool in reader["tools"]] == ["read", "ls"]
        assert "create-python-script" not in json.dumps(reader["system"])
        assert "<available_skills>" not in json.dumps(writer["system"])  # it has no read
        assert "You read." not in json.dumps(writer["system"])
        assert "keep it to yourself" not in json.dumps(reader["messages"])
        assert "NOT_FOUND" in json.dumps(reader["messages"])
        assert house.workspace("writer").joinpath("secret.txt").exists()
        assert not house.workspace("reader").joinpath("secret.txt").exists()


async def test_direct_chats_do_not_see_each_other(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await house.say("alice's secret")
        await house.say("hello", sender=BOB, chat=BOB_CHAT)
        await house.replies(2)
        assert "alice" not in "".join(users(house.anthropic.requests[1].body)).lower().replace("alice_", "")


@pytest.mark.parametrize(
    "fault",
    [
        Fault(status=401, type="authentication_error", message="invalid x-api-key"),
        Fault(status=400, type="invalid_request_error", message="credit balance is too low"),
        Fault(status=404, type="not_found_error", message="model: claude-nope"),
        HTML_200,
    ],
    ids=["401", "400", "404", "html"],
)
async def test_a_provider_that_fails_is_one_short_sentence_and_the_next_message_works(
    tmp_path: Path, fault: Fault
) -> None:
    async with running(tmp_path, script=[fault], more="retry: { maxSeconds: 0 }") as house:
        await house.say("你好")
        (reply,) = await house.replies(1)
        assert any("一" <= char <= "鿿" for char in reply)
        assert len(reply) < 120
        for leak in ("x-api-key", "credit", "claude", "html", "{", "Error"):
            assert leak not in reply
        house.anthropic.script = [says("again at work")]
        await house.say("再来")
        assert (await house.replies(2))[-1] == "again at work"


async def test_a_refused_turn_stays_out_of_later_requests(tmp_path: Path) -> None:
    async with running(tmp_path, script=[Turn(blocks=(), stop_reason="refusal"), says("fine")]) as house:
        await house.say("something the model will not touch")
        await house.replies(1)
        await house.say("something else")
        assert (await house.replies(2))[-1] == "fine"
        assert "will not touch" not in json.dumps(house.anthropic.requests[-1].body)


async def test_chosen_silence_sends_nothing_and_is_recorded(tmp_path: Path) -> None:
    async with running(tmp_path, script=[says("__SILENT__"), says("loud")]) as house:
        await house.say("psst", chat=GROUP, chat_type="group", mention_bot=True)
        await house.idle()
        assert house.feishu.messages == []
        await house.say("hello", chat=GROUP, chat_type="group", mention_bot=True)
        assert await house.replies(1) == ["loud"]


async def test_a_model_that_calls_tools_for_ever_is_stopped_with_a_sentence(tmp_path: Path) -> None:
    rounds = "limits: { rounds: 3 }"
    async with running(tmp_path, script=lambda _: calls(("ls", {})), more=rounds) as house:
        await house.say("go")
        (reply,) = await house.replies(1)
        assert "continue" in reply
        assert len(house.anthropic.requests) == 3


ACCESS = [
    ("dmPolicy: open", "p2p", False, True),
    ("dmPolicy: disabled", "p2p", False, False),
    ("dmPolicy: allowlist", "p2p", False, False),
    (f"allowFrom: [{ALICE}]", "p2p", False, True),
    (f"allowFrom: [{BOB}]", "p2p", False, False),
    ("groupPolicy: open", "group", True, True),
    ("groupPolicy: open", "group", False, False),
    ("groupPolicy: open\n    requireMention: false", "group", False, True),
    ("groupPolicy: disabled", "group", True, False),
    (f"groupAllowFrom: [{GROUP}]", "group", True, True),
    ("groupAllowFrom: [oc_other]", "group", True, False),
    (f"allowFrom: [{ALICE}]", "group", True, False),
    ("dmPolicy: open", "group", True, False),
]


@pytest.mark.parametrize(("keys", "chat_type", "mention", "heard"), ACCESS)
async def test_who_is_heard(tmp_path: Path, keys: str, chat_type: str, mention: bool, heard: bool) -> None:
    app = FEISHU.split("    dmPolicy")[0]
    chat = GROUP if chat_type == "group" else ALICE_CHAT
    async with running(tmp_path, feishu=f"{app}    {keys}\n") as house:
        answer = await house.say("hello", chat=chat, chat_type=chat_type, mention_bot=mention)
        await house.idle()
        assert answer.status_code == 200
        assert len(house.feishu.messages) == int(heard)
        assert len(house.anthropic.requests) == int(heard)


async def test_a_reply_survives_an_outage_of_the_platform_and_is_seen_once(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        house.feishu.fail_next("/reply", status=503, code=1)
        house.feishu.fail_next("/reply", lose_answer=True)
        await house.say("hello")
        await house.idle()
        assert len(house.feishu.messages) == 1


async def test_while_the_database_takes_nothing_the_platform_is_told_to_come_again_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as house, client() as http:
        event = house.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
        with closing(sqlite3.connect(tmp_path / "data" / "clawgate.db", isolation_level=None)) as foreign:
            foreign.execute("BEGIN IMMEDIATE")
            answer = await house.push(event)
            assert answer.status_code == 503
            assert answer.headers["retry-after"]
            assert (await http.get(f"{house.url}/readyz")).json()["amiss"] == {"database": "takes no writes"}
            assert (await http.get(f"{house.url}/healthz")).status_code == 200
            foreign.execute("ROLLBACK")
        assert (await house.push(event)).status_code == 200
        await house.idle()
        assert (await http.get(f"{house.url}/readyz")).status_code == 200
        assert len(house.feishu.messages) == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/healthz", 200),
        ("GET", "/readyz", 200),
        ("GET", "/metrics", 404),
        ("GET", "/docs", 404),
        ("GET", "/openapi.json", 404),
        ("GET", "/webhooks/feishu/default", 405),
        ("POST", "/webhooks/feishu/nobody", 404),
        ("POST", "/webhooks/telegram/default", 404),
        ("POST", "/webhooks/feishu/default", 400),
    ],
)
async def test_the_door(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with running(tmp_path) as house, client() as http:
        answer = await http.request(method, house.url + path)
        assert answer.status_code == status


async def test_a_body_beyond_the_cap_is_refused_whether_announced_or_not(tmp_path: Path) -> None:
    async def chunks() -> Any:
        for _ in range(40):
            yield b"x" * 1024

    small = "server: { maxBodyBytes: 8192 }"
    async with running(tmp_path, more=small) as house, client() as http:
        url = f"{house.url}/webhooks/feishu/default"
        assert (await http.post(url, content=b"x" * 8193)).status_code == 413
        assert (await http.post(url, content=chunks())).status_code == 413
        assert (await http.post(url, content=b"x" * 8192)).status_code == 401


async def test_metrics_are_behind_the_admin_token_and_count_what_happened(tmp_path: Path) -> None:
    admin = "server: { adminToken: a-token-of-sixteen-or-more }"
    async with running(tmp_path, more=admin) as house, client() as http:
        await house.say("hello")
        await house.push(house.feishu.event("im.chat.something_new_v9", {}))
        await house.idle()
        url = f"{house.url}/metrics"
        assert (await http.get(url)).status_code == 401
        assert (await http.get(url, headers={"authorization": "Bearer wrong"})).status_code == 401
        text = (await http.get(url, headers={"authorization": "Bearer a-token-of-sixteen-or-more"})).text
        assert 'clawgate_webhook_deliveries_total{channel="feishu",outcome="accepted"} 1.0' in text
        assert 'clawgate_webhook_deliveries_total{channel="feishu",outcome="ignored: unknown event"} 1.0' in text
        assert 'clawgate_turns_total{agent="helper",outcome="replied"} 1.0' in text


async def test_a_chat_that_the_platform_slows_down_delays_no_other(tmp_path: Path) -> None:
    async with running(tmp_path, script=lambda _: says("here")) as house:
        house.feishu.fail_next("/reply", times=1, status=400, code=230020)
        await house.say("slow", chat=ALICE_CHAT)
        await house.until(lambda: house.counted("postponed"))
        await house.say("quick", sender=BOB, chat=BOB_CHAT)
        assert await house.replies(2) == ["here", "here"]
        assert [message.chat_id for message in house.feishu.messages] == [BOB_CHAT, ALICE_CHAT]


async def test_a_message_that_waits_too_long_turns_readiness_red_and_stands_in_the_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.sweep.ALONE_SECONDS", 0.1)
    more = "limits: { unansweredSeconds: 0.5 }"
    async with running(tmp_path, more=more) as house, client(house.url) as http:
        assert (await http.get("/readyz")).status_code == 200
        house.line.hold()
        await house.say("hello")

        async def is_red() -> bool:
            return (await http.get("/readyz")).status_code != 200

        await house.until(is_red)
        assert "unanswered" in (await http.get("/readyz")).json()["amiss"]
        assert not house.counted("clawgate_oldest_unanswered_seconds 0.0")
        house.line.release()
