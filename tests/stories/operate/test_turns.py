"""A turn opened layer by layer, through the real door: the reference case, and what must not be in a layer any more."""

import json
import re
import sqlite3
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import httpx
import pytest
from sqlalchemy import Connection
from structlog.testing import capture_logs
from typer.testing import CliRunner

from agents.messages import ErrorKind
from agents.turn import Payer, TurnLimit
from gateway.cli import app
from gateway.commands.report import CHINESE
from gateway.config.load import load
from gateway.config.root import BindingConfig, MatchConfig
from gateway.operate.sessions import erase
from gateway.state.runtime import ConfigState
from gateway.store import engine, operations
from gateway.store.statements import KEEP_LAYER_TEXT
from tests.demo import story
from tests.demo.platforms import FeishuStage
from tests.demo.play import Layer, stage
from tests.emulators.models.script import Fault, calls, says
from tests.running import AGENTS, ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, SECRETS, Running, client, push, running
from tests.tools.hostile import response, web
from tests.web_page import opened as opened_page

TOKEN, CI = "canary-admin-token-91827-canary-admin-token", "canary-api-token-91827"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
CONSOLE = {"feishu": f"{FEISHU}  web: {{}}\n", "more": f"server: {{ adminToken: {TOKEN} }}"}


@dataclass(slots=True)
class WithConsole(FeishuStage):
    def section(self, url: str) -> str:
        return f"{FeishuStage.section(self, url)}  web: {{}}\nserver: {{ adminToken: {TOKEN} }}\n"


@asynccontextmanager
async def housed(folder: Path, database: str = "", **config: Any) -> AsyncIterator[tuple[Running, httpx.AsyncClient]]:
    config = {**CONSOLE, **config}
    config["more"] += f'\ndatabase: {{ url: "{database}" }}' if database else ""
    async with running(folder, **config) as house, client(house.url, headers=OPERATOR) as http:
        yield house, http


async def listed(http: httpx.AsyncClient, **query: Any) -> list[dict[str, Any]]:
    answer = await http.get("/api/turns", params=query)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["turns"])


async def opened(http: httpx.AsyncClient, number: int) -> dict[str, Any]:
    answer = await http.get(f"/api/turns/{number}", headers=OPERATOR)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_turns_show_has_every_layer_of_the_reference_case(tmp_path: Path) -> None:
    seen: list[Layer] = []
    async with stage(tmp_path, seen, platform=WithConsole()) as (url, feishu, anthropic), client(url) as http:
        event = feishu.text_event(story.ASKED, sender=story.SENDER, chat=story.CHAT, message_id=story.MESSAGE_ID)
        await push(feishu, url, event)
        (sent,) = await feishu.sent(1)
        turn = (await http.get("/api/turns", headers=OPERATOR)).json()["turns"][0]
        await until_sent(http, turn["id"])
        found = await opened(http, turn["id"])
        anthropic.script = [says("不客气！")]
        thanks = feishu.text_event("谢谢", sender=story.SENDER, chat=story.CHAT, message_id="om_2")
        await push(feishu, url, thanks)
        await feishu.sent(2)
        later = await opened(http, (await http.get("/api/turns", headers=OPERATOR)).json()["turns"][0]["id"])
    received = [it.body for it in anthropic.requests]

    assert found["missing"] == []
    facts = ("agent", "channel", "chat", "person", "name", "outcome", "requests", "calls")
    assert [turn[it] for it in facts] == [
        *("coder", "feishu", story.CHAT, f"feishu:{story.SENDER}", story.SENDER_NAME, "replied", 4, 3)
    ]
    (delivered,) = found["events"]
    assert delivered["body"]["event"] == event["event"]
    assert delivered["body"]["header"]["token"] == "***"
    (context,) = found["contexts"]
    assert (context["text"], context["sender"]["name"], context["message_id"]) == (
        *(story.ASKED, story.SENDER_NAME, story.MESSAGE_ID),
    )
    assert {name: it["value"] for name, it in found["route"].items() if name in ("agent", "access", "model")} == {
        "agent": "coder",
        "access": "allowed",
        "model": "anthropic/claude-sonnet-4-6",
    }
    assert found["route"]["session"]["value"] == turn["session"]
    assert all(it["reason"] for it in found["route"].values())

    stable = [it for it in found["prompt"] if it["stable"]]
    assert "\n\n".join(it["text"] for it in stable).strip() == received[0]["system"][0]["text"]
    assert "\n\n".join(it["text"] for it in found["prompt"] if not it["stable"]) == received[0]["system"][1]["text"]
    assert [it["chars"] for it in found["prompt"]] == [len(it["text"]) for it in found["prompt"]]
    assert [it["name"] for it in found["tools"]] == [it["name"] for it in received[0]["tools"]]
    assert found["tools"][0]["parameters"] == received[0]["tools"][0]["input_schema"]

    first, *_ = found["steps"]
    assert first["metadata"] + "\n\n" + first["text"] == received[0]["messages"][0]["content"][0]["text"]
    assert [it["role"] for it in found["steps"]] == ["user", *["assistant", "toolResult"] * 3, "assistant"]
    assert [len(it["rows"]) for it in found["requests"]] == [len(it["messages"]) for it in received[:4]]
    assert [it["response"]["stopReason"] for it in found["requests"]] == ["tool_use"] * 3 + ["end_turn"]
    assert [it["options"]["maxTokens"] for it in found["requests"]] == [it["max_tokens"] for it in received[:4]]
    assert found["requests"][-1]["response"]["text"] == story.ANSWER
    assert sum(it["response"]["tokens"]["input"] for it in found["requests"]) == turn["tokens"]["input"]
    assert sum(it["response"]["cost"] for it in found["requests"]) == pytest.approx(turn["cost"])

    assert [(it["tool"], it["round"], it["state"], it["cut"]) for it in found["calls"]] == [
        *(("read", 1, "done", False), ("ls", 2, "done", False), ("write", 3, "done", False)),
    ]
    assert found["calls"][2]["arguments"]["content"] == story.SCRIPT
    assert found["calls"][1]["result"] == "README.md\nrequirements.txt\nscripts/\ntests/"
    assert found["calls"][2]["details"]["bytesWritten"] == len(story.SCRIPT.encode())
    (part,) = found["reply"]
    assert (part["state"], part["text"], part["platformId"]) == ("sent", story.ANSWER, sent.message_id)

    kinds = [it["kind"] for it in found["timeline"]]
    assert kinds == ["waited", "prepared", *["request", "call"] * 3, "request", "reply"]
    ends = [it["begin"] + it["seconds"] for it in found["timeline"]]
    assert all(
        end <= begin + 0.05 for end, begin in zip(ends, (it["begin"] for it in found["timeline"][1:]), strict=False)
    )
    assert ends[-1] == pytest.approx(found["turn"]["seconds"], abs=0.01)
    assert later["requests"][0]["history"] == {"turns": 1, "first": turn["id"], "last": turn["id"], "summary": False}
    assert {it["hash"] for it in later["prompt"] if it["stable"]} == {it["hash"] for it in stable}


LONG = '''
async def long() -> str:
    """Say much."""
    return "word " * 20_000
'''


async def test_turns_show_which_turns_fit_and_how_long_a_cut_result_was(tmp_path: Path) -> None:
    small = "contextWindow: 9000\n      maxTokens: 1000\n      compaction: { at: 1 }\n      tools: { allow: [long] }\n"
    (tmp_path / "tools.d").mkdir()
    (tmp_path / "tools.d" / "long.py").write_text(LONG)
    more = CONSOLE["more"] + "\ntools: { directories: [./tools.d] }"
    async with housed(tmp_path, agents=AGENTS.partition("tools:")[0] + small, more=more) as (house, http):
        house.anthropic.script = lambda request: says("ok " * 2_500)
        for number in range(6):
            await house.say(f"turn {number}")
            await house.replies(number + 1)
            await house.idle()
        turns = [it["id"] for it in await listed(http)]
        history = (await opened(http, turns[0]))["requests"][0]["history"]
        assert history["last"] == turns[1]
        assert turns[-1] < history["first"] == turns[history["turns"]]
        house.anthropic.script = [calls(("long", {})), says("read")]
        await house.say("read it")
        await house.replies(7)
        await house.idle()
        (call,) = (await opened(http, (await listed(http))[0]["id"]))["calls"]
        assert call["cut"]
        assert call["chars"] == 100_000 > len(call["result"])


async def until_sent(http: httpx.AsyncClient, number: int) -> None:
    while (await opened(http, number))["reply"][0]["state"] != "sent":
        pass


async def test_turns_need_the_operators_token(tmp_path: Path) -> None:
    users = f"server: {{ adminToken: {TOKEN}, users: {{ ann: canary-token-of-ann-91827-canary-of }} }}"
    async with housed(tmp_path, more=users) as (house, http):
        await house.say("hello")
        await house.replies(1)
        number = (await listed(http))[0]["id"]
        ann = {"authorization": "Bearer canary-token-of-ann-91827-canary-of"}
        for path in ("/api/turns", f"/api/turns/{number}"):
            assert (await http.get(path, headers=ann)).status_code == 403
            async with client(house.url) as nobody:
                assert (await nobody.get(path)).status_code == 401
        assert (await http.get("/api/turns/999")).status_code == 404
        assert (await http.get("/api/turns/x")).status_code == 404


async def test_turns_list_filters_by_person_and_outcome(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.operate.turns.TURNS_MAX", 3)
    async with housed(tmp_path, database_url, script=lambda request: says("ok")) as (house, http):
        for number in range(1, 7):
            await house.say(f"m {number}")
            await house.replies(number)
        await house.say("from Bob", sender=BOB, chat=BOB_CHAT)
        await house.replies(7)
        page = (await http.get("/api/turns")).json()
        assert (len(page["turns"]), page["keepDays"]) == (3, 7)
        rest = (await http.get("/api/turns", params={"before": page["before"]})).json()
        assert [it["text"] for it in rest["turns"]] == ["m 4", "m 3", "m 2"]
        last = (await http.get("/api/turns", params={"before": rest["before"]})).json()
        assert ([it["text"] for it in last["turns"]], last["before"]) == (["m 1"], None)
        assert [it["text"] for it in await listed(http, person=f"feishu:{BOB}")] == ["from Bob"]
        assert await listed(http, outcome="failed") == await listed(http, agent="nobody") == []
        assert len(await listed(http, agent="helper", channel="feishu", outcome="replied")) == 3


async def test_turns_list_starts_with_the_running_ones(tmp_path: Path, database_url: str) -> None:
    async with housed(tmp_path, database_url, script=[calls(("ls", {"path": "."})), says("done")]) as (house, http):
        house.line.hold()
        await house.say("look")
        await house.until(lambda: house.line.holding)
        (turn,) = await listed(http)
        assert turn["outcome"] == "running"
        found = await opened(http, turn["id"])
        assert found["missing"] == ["running"]
        assert [(it["tool"], it["state"]) for it in found["calls"]] == [("ls", "done")]
        house.line.release()
        await house.replies(1)


async def test_turns_are_not_kept_with_zero_days(tmp_path: Path) -> None:
    more = f"{CONSOLE['more']}\nconsole: {{ keepDays: 0 }}"
    async with housed(tmp_path, more=more) as (house, http):
        await house.say("hello")
        await house.replies(1)
        await house.idle()
        assert await listed(http) == []
        found = await opened(http, 1)
        assert found["missing"] == ["not-kept"]
        assert found["events"][0]["body"] is None
        assert found["steps"]
    assert rows(tmp_path, "layer") == rows(tmp_path, "layer_text") == []


async def test_turns_record_failure_costs_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a layer that nobody thought of")

    for name in ("Recording._called", "Layers._route"):
        monkeypatch.setattr(f"gateway.turns.layers.{name}", broken)
    async with housed(tmp_path, script=[says("here I am")]) as (house, _):
        with capture_logs() as logs:
            await house.say("hello")
            assert await house.replies(1) == ["here I am"]
            await house.idle()
    assert {"layers_not_noted", "layers_not_made"} <= {it["event"] for it in logs}
    assert len(house.anthropic.requests) == 1


async def test_turns_show_no_secret_of_the_config(tmp_path: Path) -> None:
    """Neither where a model repeats one, nor in what a person, a program or the platform sends, nor in an instruction."""
    key = SECRETS["ANTHROPIC_API_KEY"]
    more = f"server: {{ adminToken: {TOKEN}, api: {{ tokens: {{ ci: {CI} }} }} }}"
    agents = f"""
agents:
  list:
    - {{ id: helper, model: anthropic/claude-sonnet-4-6, systemPrompt: "never say {key}", tools: {{ allow: [exec] }} }}
"""
    script = [says(f"it is {key}"), says("hello, program")]
    async with housed(tmp_path, agents=agents, more=more, script=script) as (house, http):
        await house.say(f"is it {key}?")
        await house.replies(1)
        said = [{"role": "system", "content": f"whisper {key}"}, {"role": "user", "content": "hello"}]
        asked = {"model": "helper", "messages": said}
        called = await http.post("/v1/chat/completions", json=asked, headers={"authorization": f"Bearer {CI}"})
        assert called.status_code == 200, called.text
        await house.idle()
        answers = [await http.get(f"/api/turns/{number}") for number in (1, 2)]
        both = "".join(it.text for it in answers) + (await http.get("/api/turns")).text
    assert [it.json()["missing"] for it in answers] == [[], []]
    assert "whisper ***" in both
    stored = json.dumps([rows(tmp_path, it) for it in ("layer", "layer_text")])
    for name, secret in SECRETS.items():
        for piece in (secret[:-3], secret[3:], secret[-10:]):
            assert piece not in both, name
            assert piece not in stored, name


KEYS = (
    *("sk-proj-abcdefghijklmnop1234", "AKIAIOSFODNN7EXAMPLE", "AIzaSyA1234567890abcdefghijklmnopqrstuv"),
    *("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "7123456789:AAHabcdefghijklmnopqrstuvwxyz0123456"),
    *(
        "xoxb-1234567890-abcdefghijkl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA\n-----END RSA PRIVATE KEY-----",
    ),
)
READS = """
agents:
  list: [{ id: helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [read] } }]
"""


async def test_turns_mask_and_count_keys_of_a_known_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key in a tool's result belongs to somebody, also if no config has it. The model still reads it."""
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    kept = tmp_path / "data/workspaces/helper/keys.txt"
    kept.parent.mkdir(parents=True, exist_ok=True)
    kept.write_text("".join(f"{number} {key}\n" for number, key in enumerate(KEYS)))
    script = [calls(("read", {"file_path": "keys.txt"})), says("read")]
    async with housed(tmp_path, agents=READS, script=script) as (house, http):
        await house.say("what is in keys.txt?")
        await house.replies(1)
        await house.idle()
        assert KEYS[0] in json.dumps(house.anthropic.requests[1].body)
        turn = await http.get("/api/turns/1")
        text = await http.get("/api/turns/1/text", params={"at": "/calls/0/result"})
        (session,) = (await http.get("/api/sessions")).json()["sessions"]
        chat = await http.get(f"/api/sessions/{session['id']}")

    def shown(*form: str) -> str:
        command = ["turns", "show", "1", *form, "--config", str(tmp_path / "config.yaml")]
        with ThreadPoolExecutor() as pool:  # a loop of its own
            return pool.submit(lambda: CliRunner().invoke(app, command).output).result()

    assert turn.json()["masked"] >= len(KEYS)
    assert chat.json()["masked"] >= 1
    whole, lines = shown("--json"), shown()
    assert json.loads(whole)["masked"] >= len(KEYS)
    assert re.search(r"\n! \d+ keys are masked as \*\*\*\n", lines)
    for key in KEYS:
        for secret in key.splitlines():
            for place, answer in {
                "turn": turn.text,
                "text": text.text,
                "chat": chat.text,
                "json": whole,
                "lines": lines,
            }.items():
                assert secret not in answer, (place, secret)


TWO_MODELS = """
agents:
  list: [{ id: helper, model: [anthropic/claude-sonnet-4-6, anthropic/claude-opus-4-6] }]
"""


async def test_turns_record_has_failed_attempts_without_secrets(tmp_path: Path) -> None:
    """A vendor quotes the key that it refuses; the record, too, has the attempt and not the key."""
    refused = Fault(status=404, message=f"no such model for {KEYS[0]}")
    async with housed(tmp_path, agents=TWO_MODELS, script=[refused, says("here")]) as (house, http):
        await house.say("hello")
        assert await house.replies(1) == ["here"]
        await house.idle()
        (request,) = (await opened(http, 1))["requests"]
    (attempt,) = request["retries"]
    assert (attempt["error"], request["state"], request["model"]) == ("not_found", "answered", "claude-opus-4-6")
    assert attempt["words"].endswith("no such model for ***")
    assert KEYS[0] not in json.dumps([rows(tmp_path, it) for it in ("layer", "transcript")])


async def test_turns_show_external_content_and_a_forgotten_message(tmp_path: Path) -> None:
    agents = "agents:\n  list: [{ id: helper, model: anthropic/claude-sonnet-4-6, tools: { allow: [web_fetch, ls] } }]"
    async with web({"/a": response(b"a page")}) as site:
        allowed = f"tools: {{ web: {{ fetch: {{ allowPrivate: [127.0.0.1], ports: [{site.port}] }} }} }}"
        script = [calls(("web_fetch", {"url": site.url("/a", host="127.0.0.1")}), ("ls", {})), says("read")]
        more = f"{CONSOLE['more']}\n{allowed}"
        async with housed(tmp_path, agents=agents, more=more, script=script) as (house, http):
            await house.say("what is there?")
            await house.replies(1)
            await house.idle()
            shown = await opened(http, 1)
            assert [(it["tool"], it["external"]) for it in shown["calls"]] == [("web_fetch", True), ("ls", False)]
            assert shown["missing"] == []
            await house.gateway.runtime.store.prune(time.time() + 1)
            later = await opened(http, 1)
            assert (later["missing"], later["turn"]["text"], later["contexts"]) == (["pruned"], "", [])
            assert later["calls"] == shown["calls"]


WHY = f"""{CONSOLE["more"]}
owners: ["feishu:{ALICE}"]
approvals: {{ approvers: ["feishu:{ALICE}"] }}
"""
HAN = re.compile("[一-鿿]")


async def why(house: Running) -> tuple[list[str], list[str]]:
    """The lines of the last turn, in English and in Chinese: each is in its own language, and both name the same turn."""
    told = []
    for command in ("/remember I would like to read English from now on", "/why", "/为什么"):
        await house.idle()
        before = len(house.feishu.messages)
        await house.say(command)
        told.append((await house.replies(before + 1))[-1].splitlines())
    _, english, chinese = told
    assert len(english) == len(chinese) == 5
    assert english[-1].partition("`")[2] == chinese[-1].partition("`")[2]
    assert not HAN.search("".join(english))
    for it in chinese:  # what is neither a name nor a unit is Chinese
        assert not re.search(r"(?<![\w/.])[a-z]{2,}(?! ?[：:])", re.sub(r"`[^`]*`|token|agents\.list", "", it)), it
    return english, chinese


async def test_why_command_tells_only_an_owner_in_five_lines(tmp_path: Path) -> None:
    async with housed(tmp_path, more=WHY, script=[calls(("ls", {"path": "."})), says("done")]) as (house, http):
        await house.say("/why")
        assert (await house.replies(1))[-1] == "I have not answered anything here yet."
        await house.say("look around here")
        await house.replies(2)
        english, chinese = await why(house)
        number = (await listed(http))[0]["id"]
        turn, agent, requests, tools, link = english
        assert turn.startswith(f"- Turn {number}: replied after ")
        assert agent == "- Agent: `helper`: first of agents.list, because no binding matches"
        assert requests.startswith("- Requests: 2 to `anthropic/claude-sonnet-4-6`; ")
        assert re.fullmatch(r"- Tools: `ls` \d\.\d s", tools)
        assert link.startswith("- For more, run this on the gateway's machine: `http://127.0.0.1:")
        assert link.endswith(f"/console#turns/{number}`")
        assert chinese[0].startswith(f"- 第 {number} 轮：已回答，用时 ")
        assert chinese[1] == "- 智能体：`helper`：没有匹配的绑定规则，取 agents.list 的第一个"
        assert re.fullmatch(r"- 工具：`ls` \d\.\d 秒", chinese[3])
        before = len(house.feishu.messages)
        await house.say("/why", sender=BOB, chat=BOB_CHAT)
        assert "Only an owner of this bot" in (await house.replies(before + 1))[-1]


PUBLIC = "https://bot.example.org"


@pytest.mark.parametrize("public", ["", PUBLIC, "http://127.0.0.1:9"])
@pytest.mark.parametrize("page", ["web: {}", "web: { enabled: false }", ""])
async def test_why_command_links_only_where_it_opens(tmp_path: Path, page: str, public: str) -> None:
    """A phone opens no address of the gateway's machine, and nobody opens a page that is off."""
    server = f', publicUrl: "{public}"' if public else ""
    more = f'server: {{ adminToken: {TOKEN}{server} }}\nowners: ["feishu:{ALICE}", "web:local"]'
    async with running(tmp_path, script=lambda _: says("done"), feishu=f"{FEISHU}  {page}\n", more=more) as house:
        await house.say("hello there, how are you")
        await house.replies(1)
        await house.idle()
        await house.say("/why")
        link = (await house.replies(2))[-1].splitlines()[-1]
        if page != "web: {}":
            assert re.fullmatch(r"- For more, run this on the gateway's machine: `.* turns show \d+`", link), link
        elif public == PUBLIC:
            assert re.fullmatch(rf"- {PUBLIC}/console#turns/\d+", link), link
        else:
            assert re.fullmatch(
                r"- For more, run this on the gateway's machine: `http://127\.0\.0\.1:8080/console#turns/\d+`", link
            ), link
        if page == "web: {}":
            async with opened_page(house.url, authorization=f"Bearer {TOKEN}") as tab:
                await tab.say("hello there, how are you")
                await tab.answers(1)
                await tab.say("/why")
                link = (await tab.answers(2))[-1].splitlines()[-1]
                assert re.fullmatch(rf"- {public or 'http://127.0.0.1:8080'}/console#turns/\d+", link), link


async def test_why_command_names_fallback_model_and_failure(tmp_path: Path) -> None:
    gone = Fault(status=404)
    async with housed(tmp_path, agents=TWO_MODELS, more=WHY, script=[gone, says("here")]) as (house, _):
        await house.say("hello")
        assert await house.replies(1) == ["here"]
        english, chinese = await why(house)
        assert "`anthropic/claude-opus-4-6`" in english[2]
        assert "`anthropic/claude-opus-4-6`" in chinese[2]
        house.anthropic.script = [gone, gone]
        before = len(house.feishu.messages)
        await house.say("and now?")
        await house.replies(before + 1)
        english, chinese = await why(house)
        assert " failed (not_found) after " in english[0]
        assert "：失败（模型不存在），用时 " in chinese[0]
        assert (english[3], chinese[3]) == ("- Tools: none", "- 工具：无")


@pytest.mark.parametrize(
    ("decision", "en", "zh"),
    [("allow-once", "allowed once by {}", "已由 {} 允许一次"), ("deny", "denied by {}", "已被 {} 拒绝")],
)
async def test_why_command_says_what_was_approved_and_by_whom(tmp_path: Path, decision: str, en: str, zh: str) -> None:
    """In the turn that asks, and in the one that goes on with the decision."""
    script = [calls(("exec", {"command": "echo hello; echo again"})), says("it waits")]
    async with housed(tmp_path, more=WHY, script=script) as (house, http):
        await house.say("run it")
        (id_,) = {it for text in await house.replies(2) for it in re.findall(r"/approve (\S+) deny", text)}
        english, chinese = await why(house)
        assert english[3].endswith("; asked for `exec`: nobody has decided yet")
        assert chinese[3].endswith("；已请求审批 `exec`：尚无人决定")
        turns = [await opened(http, it["id"]) for it in await listed(http)]
        assert [(it["state"], it["approval"]["state"]) for turn in turns for it in turn["calls"]] == [
            ("waiting", "pending")
        ]
        house.anthropic.script = [says("so be it")]
        await house.say(f"/approve {id_} {decision}")
        await house.until(lambda: any(it.text == "so be it" for it in house.feishu.messages))
        english, chinese = await why(house)
        assert english[3].endswith(f"; asked for `exec`: {en.format('you')}")
        assert chinese[3].endswith(f"；已请求审批 `exec`：{zh.format('你')}")


def test_why_command_has_chinese_for_every_reason() -> None:
    outcomes = ("replied", "silent", "failed", "declined", "stopped", "recalled", "over-budget", "stale")
    missing = {*get_args(ErrorKind), *get_args(TurnLimit), *get_args(Payer), *outcomes} - {*CHINESE}
    assert not missing


async def test_turns_command_lists_and_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, secret in SECRETS.items():
        monkeypatch.setenv(name, secret)
    async with housed(tmp_path, script=[calls(("ls", {"path": "."})), says("done")]) as (house, _):
        await house.say("look around here")
        await house.replies(1)
        await house.idle()

    def ran(*arguments: str) -> str:
        done = CliRunner().invoke(app, ["turns", *arguments, "--config", str(tmp_path / "config.yaml")])
        assert done.exit_code == (0 if "404" not in arguments else 1), done.output
        return done.output

    def told(*arguments: str) -> str:
        with ThreadPoolExecutor() as pool:  # a loop of its own
            return pool.submit(ran, *arguments).result()

    assert "replied" in told("list")
    assert json.loads(told("list", "--json"))[0]["person"] == f"feishu:{ALICE}"
    shown = told("show", "1")
    for layer in ("event", "context", "route", "prompt", "requests", "tool calls", "reply", "timeline"):
        assert f"\n{layer}\n" in shown
    assert json.loads(told("show", "1", "--json"))["calls"][0]["tool"] == "ls"
    told("show", "404")


async def test_recall_deletes_the_turns_record(tmp_path: Path, database_url: str) -> None:
    async with housed(tmp_path, database_url, script=[says("an echo of pineapple")]) as (house, http):
        await house.say("my word is pineapple", message_id="om_1")
        await house.replies(1)
        await house.idle()
        assert "pineapple" in (await http.get("/api/turns/1")).text
        await house.push(house.feishu.recalled_event("om_1"))
        found = await http.get("/api/turns/1")
        assert "pineapple" not in found.text
        assert "recalled" in found.json()["missing"]
        assert "pineapple" not in (await http.get("/api/turns")).text


async def test_erase_person_deletes_the_turns_record(tmp_path: Path) -> None:
    async with housed(tmp_path) as (house, http):
        await house.say("pineapple")
        await house.say("from Bob", sender=BOB, chat=BOB_CHAT)
        await house.replies(2)
        await house.idle()
        assert len(await listed(http)) == 2
        erase(load(tmp_path / "config.yaml", SECRETS).config, person=("feishu", ALICE))
        assert [it["person"] for it in await listed(http)] == [f"feishu:{BOB}"]
    left = json.dumps([rows(tmp_path, it) for it in ("layer", "layer_text")])
    assert ALICE not in left
    assert ALICE_CHAT not in left
    assert BOB_CHAT in left


async def test_turns_after_an_erasure_keep_prompt_and_tools(tmp_path: Path, database_url: str) -> None:
    async with housed(tmp_path, database_url) as (house, http):
        for words in ("before", "after"):  # the second turn has the texts that went with the first
            await house.say(words)
            await house.idle()
            [turn] = await listed(http)
            shown = await opened(http, turn["id"])
            assert all(it["text"] for it in shown["prompt"])
            assert shown["tools"]
            assert shown["route"]
            if words == "before":
                assert erase(house.gateway.config, person=("feishu", ALICE)).removed["layer_text"] > 0


async def test_turns_record_dedupes_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with housed(tmp_path) as (house, _):
        written = list[str]()

        def counted(connection: Connection, statement: str, **names: Any) -> list[Any]:
            if statement == KEEP_LAYER_TEXT:
                written.append(names["hash"])
            return operations.rows(connection, statement, **names)

        monkeypatch.setattr(engine, "rows", counted)
        for count in (1, 2, 3):
            await house.say("hello")
            await house.replies(count)
            await house.idle()
        assert len(written) == len(set(written)) > 0


def rows(folder: Path, table: str) -> list[Any]:
    with closing(sqlite3.connect(folder / "data" / "clawgate.db")) as database:
        return database.execute(f"SELECT * FROM {table}").fetchall()


async def test_turns_after_a_config_edit_have_its_reasons(tmp_path: Path) -> None:
    async with housed(tmp_path) as (house, http):
        house.anthropic.script = [says("One."), says("Two.")]
        await house.say("one")
        await house.idle()
        binding = BindingConfig(agent="helper", match=MatchConfig(channel="feishu"))
        edited = house.gateway.config.model_copy(update={"bindings": (binding,)})
        edited.__dict__.pop("routes", None)  # it is worked out once a config
        await house.gateway.apply(edited, {}, ConfigState(version="edited"))
        await house.say("two")
        await house.idle()
        after, before = [(await opened(http, it["id"]))["route"]["agent"]["reason"] for it in await listed(http)]
        assert "first of agents.list" in before
        assert after == "the binding says so"
