"""`clawgate usage` beside a running gateway and without one: its sums are those of what the journal holds."""

import json
import time
from pathlib import Path
from typing import Any, get_args

import pytest
from sqlalchemy import text

from agents.messages import Usage
from gateway.config.root import Config
from gateway.operate.usage import By, beginning, facts
from gateway.operate.usage import usage as report_of
from gateway.store.opening import connected
from tests.emulators.models.script import calls, says
from tests.running import ALICE, BOB, BOB_CHAT, SECRETS, running
from tests.stories.process.test_process import ask

pytestmark = pytest.mark.slow  # it starts processes

TAKES = Usage(input=1000, cache_read=200, output=50)
MORE = """
database: {{ url: "{url}" }}
server: {{ timezone: Asia/Shanghai }}
models:
  anthropic/claude-sonnet-4-6: {{ prices: {{ input: 3, cacheRead: 0.3, output: 15, asOf: "2026-11-23" }} }}
  anthropic/claude-house-1: {{ window: 100000, maxOutput: 8000 }}
"""


def journaled(config: Config) -> dict[str, Any]:
    """The sums of all answers of models, as each was written when it came."""
    with connected(config.database) as connection:
        rows = connection.execute(text("SELECT content FROM transcript WHERE kind = 'assistant'")).scalars().all()
    answers = [json.loads(it) for it in rows]
    usages = [it["usage"] for it in answers]
    return {
        "input": sum(it.get(name, 0) for it in usages for name in ("input", "cache_read", "cache_write")),
        "output": sum(it["output"] for it in usages),
        "cost": round(sum(it.get("cost") or 0.0 for it in answers), 6),
    }


async def usage(folder: Path, *words: str) -> str:
    code, output = await ask("usage", *words, "--config", str(folder / "config.yaml"), more=SECRETS)
    assert code == 0, output
    return output


def reported(config: Config, by: By = "agent", since: str = "30d") -> dict[str, Any]:
    """What `usage --json` prints, without a process."""
    return facts(report_of(config, by, beginning(since, config, time.time())), config)


async def test_usage_command_sums_by_agent_chat_person_and_model(tmp_path: Path, database_url: str) -> None:
    async with running(tmp_path, more=MORE.format(url=database_url)) as house:
        house.anthropic.script = [calls(("ls", {}), usage=TAKES), says("two", usage=TAKES), says("more", usage=TAKES)]
        await house.say("one")
        await house.replies(1)
        await house.idle()
        await house.say("again")
        await house.replies(2)
        await house.idle()
        who: dict[str, Any] = {"sender": BOB, "chat": BOB_CHAT}
        await house.say("/model anthropic/claude-house-1", **who)
        await house.replies(3)
        house.anthropic.script = [says("three", usage=TAKES)]
        await house.say("hello", **who)
        await house.replies(4)
        await house.idle()
        config = house.gateway.config
        whole = {it: reported(config, it) for it in get_args(By)}
        whole["person"] = json.loads(await usage(tmp_path, "--by", "person", "--json"))
        sums = journaled(config)
        assert sums == {"input": 4800, "output": 200, "cost": 0.01143}
        for report in whole.values():
            assert {name: report["total"][name] for name in sums} == sums
            assert sum(it["input"] for it in report["rows"]) == sums["input"]
            assert round(sum(it["cost"] or 0 for it in report["rows"]), 6) == sums["cost"]
            assert report["since"].endswith("T00:00:00+08:00")
            assert ([*report["prices"]], report["currency"]) == (["2026-11-23"], "USD")
        people = {it["person"]: (it["turns"], it["output"], it["cost"]) for it in whole["person"]["rows"]}
        assert people == {f"feishu:{ALICE}": (2, 150, 0.01143), f"feishu:{BOB}": (1, 50, None)}
        models = {it["model"]: it["cost"] for it in whole["model"]["rows"]}
        assert models == {"anthropic/claude-sonnet-4-6": 0.01143, "anthropic/claude-house-1": None}
        shown = await usage(tmp_path, "--by", "model")
        assert shown.splitlines()[2:] == [
            "model                        turns  tokens in  tokens out  cost",
            "anthropic/claude-sonnet-4-6      2      3,600         150  $0.0114",
            "anthropic/claude-house-1         1      1,200          50  no price",
            "---------------------------  -----  ---------  ----------  ----",
            "total                            3      4,800         200  $0.0114 (no price for 1 of the turns)",
            "",
            "Each request at the price when it was made; the prices now are of 2026-11-23.",
        ]
        assert " 00:00 CST" in shown.splitlines()[0]
        assert reported(config, since="2100-01-01")["total"]["turns"] == 0
    assert await usage(tmp_path, "--by", "model") == shown
    with connected(house.gateway.config.database) as connection:  # as version 1.0 wrote it
        rows = connection.execute(text("SELECT sid, seq, content FROM transcript WHERE kind = 'final'")).all()
        for row in rows:
            final = json.loads(row.content)
            final.pop("models", None)
            final["at"] -= 7200
            change = text("UPDATE transcript SET content = :content WHERE sid = :sid AND seq = :seq")
            connection.execute(change, {"content": json.dumps(final), "sid": row.sid, "seq": row.seq})
    assert "(not recorded)      3      4,800         200  $0.0114" in await usage(tmp_path, "--by", "model")
    assert json.loads(await usage(tmp_path, "--since", "1h", "--json"))["total"]["turns"] == 0
    assert reported(config, since="3h")["total"]["turns"] == 3
    assert await ask("usage", "--since", "soon", "--config", str(tmp_path / "config.yaml"), more=SECRETS) == (
        1,
        "--since soon: expected 30d, 12h or a day such as 2026-11-01\n",
    )


async def test_usage_command_ignores_the_demo_model(tmp_path: Path) -> None:
    agents = "agents: { list: [{ id: helper, model: demo/guide }] }"
    async with running(tmp_path, agents=agents) as house:
        await house.say("hello")
        await house.replies(1)
        await house.idle()
        total = reported(house.gateway.config)["total"]
        assert (total["turns"], total["unpriced"], total["cost"]) == (1, 0, 0.0)
        assert "no price" not in await usage(tmp_path)
