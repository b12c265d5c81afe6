"""`clawgate rehearse`: past turns of a real gateway against another config, by a process beside it that leaves it alone."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import inspect, text

from agents.messages import Usage
from gateway.config.root import Config
from gateway.store.opening import connected
from tests.channels.contexts import Clock
from tests.emulators.models.script import Fault, calls, says
from tests.running import AGENTS, ALICE, BOB, BOB_CHAT, GROUP, SECRETS, Running, running
from tests.stories.approvals.test_approvals import ASKS, RUN, asked
from tests.stories.at_work import RUNS, results, users, works
from tests.stories.http.test_openai_api import API, official
from tests.stories.inbox.test_hooks import BODY, RAW, call, hooks, signed
from tests.stories.later.test_schedules import BEGIN, REPORT, settled
from tests.stories.later.test_tasks import Model, start
from tests.stories.process.test_process import ask
from tests.stories.tools.test_mcp import troubled
from tests.stories.turns.test_compaction import GOOD, SMALL, script, summed, talk, until_summed
from tests.web_page import WEB, opened

pytestmark = pytest.mark.slow  # it starts processes

NOTE = ("write", {"file_path": "note.txt", "content": "milk"})
LIST = ("ls", {"path": "."})
TAKES = Usage(input=1000, output=50)
PRICED = 'models: { anthropic/claude-sonnet-4-6: { prices: { input: 3, output: 15, asOf: "2026-11-23" } } }'


async def asks(house: Running, words: str, *script: Any, **who: Any) -> None:
    """Somebody writes, the model answers as `script` says, and all is done."""
    house.anthropic.script = [*script]
    answers = len(house.feishu.messages)
    await house.say(words, **who)
    await house.replies(answers + 1)
    await house.idle()


def new_config(house: Running, **changed: str) -> Path:
    """A copy of the config with these texts replaced by others."""
    file = house.folder / "new.yaml"
    written = (house.folder / "config.yaml").read_text(encoding="utf-8")
    for before, after in changed.items():
        assert before in written
        written = written.replace(before, after)
    file.write_text(written, encoding="utf-8")
    return file


async def rehearsed(house: Running, *words: str, script: Any = (), **env: str) -> tuple[int, str]:
    """The exit code and the words of a rehearsal of `new.yaml`, in which the model answers as `script` says."""
    house.anthropic.script = script if callable(script) else [*script]
    files = "--config", str(house.folder / "new.yaml"), "--in-force", str(house.folder / "config.yaml")
    return await ask("rehearse", *files, *words, more=SECRETS | env)


async def as_json(house: Running, *words: str, script: Any = ()) -> tuple[int, dict[str, Any]]:
    code, output = await rehearsed(house, "--yes", "--json", *words, script=script)
    assert "{" in output, output
    return code, json.loads(output[output.index("{\n") :])


def stored(config: Config) -> dict[str, Any]:
    """Every row of the database; its file is left alone: who closes it ends the locks that the gateway here has on it."""
    with connected(config.database) as connection:
        tables = [it for it in inspect(connection).get_table_names() if it != "worker"]
        return {it: sorted(map(repr, connection.execute(text(f'SELECT * FROM "{it}"')))) for it in tables}


def files_below(folder: Path) -> Mapping[str, Any]:
    found = [it for it in folder.rglob("*") if "clawgate.db" not in it.name and it.name != "data"]
    return {str(it): (it.stat().st_mtime_ns, it.read_bytes() if it.is_file() else b"") for it in found}


async def test_rehearse_with_the_same_config_changes_nothing(tmp_path: Path, database_url: str) -> None:
    more = f'database: {{ url: "{database_url}" }}\n{PRICED}'
    agents = f"{AGENTS.rstrip()}\n      systemPrompt: Never say {SECRETS['ANTHROPIC_API_KEY']}.\n"
    async with running(tmp_path, more=more, agents=agents) as house:
        await asks(house, "note it", calls(NOTE, usage=TAKES), says("Noted: milk.", usage=TAKES))
        (house.workspace() / "note.txt").unlink()
        await asks(house, "thanks", says("You are welcome.", usage=TAKES))
        new_config(house)
        config, asked = house.gateway.config, len(house.anthropic.requests)
        before, workspaces, heard = stored(config), files_below(tmp_path), len(house.feishu.requests)
        script = [calls(NOTE, usage=TAKES), says("Noted: milk!", usage=TAKES), says("You are welcome.", usage=TAKES)]
        code, output = await rehearsed(house, "--yes", script=script)
        assert code == 0, output
        requests = house.anthropic.requests[asked:]
        assert len(requests) == 3
        assert stored(config) == before
        assert files_below(tmp_path) == workspaces
        assert len(house.feishu.requests) == heard
    originals = house.anthropic.requests[:asked]
    assert [it.body["system"] for it in requests] == [it.body["system"] for it in originals]
    assert [users(it.body) for it in requests] == [users(it.body) for it in originals]
    assert results(requests[1].body) == results(originals[1].body)
    assert requests[1].body["tools"] == originals[1].body["tools"]
    first, second, *_ = [it for it in output.splitlines() if it[0].isdigit() and "same" in it]
    assert first == "1  same  helper  2,100 → 2,100 tokens  $0.0075 → $0.0075  note it"
    assert second == "2  same  helper  1,050 → 1,050 tokens  $0.0037 → $0.0037  thanks"
    assert "2 turns: then 3 requests, cost $0.0112; now 120 requests at most" in output
    assert "  reply: 12 characters → 12 characters, 92 % alike" in output
    assert "  prompt:" not in output  # that of then was kept without the key
    assert output.splitlines()[-1] == "same 2; 3,150 → 3,150 tokens, cost $0.0112 → $0.0112"


async def test_rehearse_without_a_gateway_leaves_the_file_alone(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await asks(house, "hello", says("Hi."))
        new_config(house, **{"claude-sonnet-4-6": "claude-haiku-4-5"})
        database = tmp_path / "data" / "clawgate.db"
        await house.gateway.drain()
        await house.gateway.close()
        before = {it.name: it.read_bytes() for it in database.parent.glob("clawgate.db*")}
        code, output = await rehearsed(house, "--yes", script=[says("Hi.")])
        assert {it.name: it.read_bytes() for it in database.parent.glob("clawgate.db*")} == before
        assert (code, house.anthropic.requests[-1].body["model"]) == (0, "claude-haiku-4-5")
        assert "  model: anthropic/claude-sonnet-4-6 → anthropic/claude-haiku-4-5" in output.splitlines()


def bodies(house: Running, begin: int, end: int | None = None) -> list[str]:
    """The requests of conversations, as a set of a kind: tasks run beside each other. The emulator counts its calls."""
    found = (json.dumps(it.body) for it in house.anthropic.requests[begin:end] if not summed(it.body))
    return sorted(re.sub(r"toolu_\d+", "toolu", it) for it in found)


async def test_rehearse_asks_each_turn_as_it_was_then(tmp_path: Path, database_url: str) -> None:
    """Whatever has become of the conversation since: a new one, another model, an undone turn, a task, an approval."""
    model = Model({"count": calls(start("list all")), "run it": calls(RUN)}, {"list all": calls(LIST)})
    agents = AGENTS.replace("exec,", "exec, task,")
    more = f'{ASKS}\ndatabase: {{ url: "{database_url}" }}\nmodels: {{ anthropic/claude-house-1: {{}} }}'
    async with running(tmp_path, agents=agents, more=more, script=model) as house:
        for words in ("hello", "count", "/model house", "and now?", "/undo", "/new", "here?", "/reset"):
            answers = len(house.feishu.messages) + (words == "count")
            await house.say(words)
            await house.replies(answers + 1)
            await house.idle()
        id_ = await asked(house)
        await house.say(f"/approve {id_} allow-once")
        await house.until(lambda: "done so" in house.feishu.messages[-1].text)
        await house.idle()
        await house.say("in the group", sender=BOB, chat=GROUP, chat_type="group", mention_bot=True)
        await house.until(lambda: "in the group" in house.feishu.messages[-1].text)
        await house.idle()
        count = len(house.anthropic.requests)
        new_config(house)
        code, found = await as_json(house, script=model)
    assert [(it["text"], it["differences"]) for it in found["turns"] if it["verdict"] != "same"] == []
    assert (code, bodies(house, count)) == (0, bodies(house, 0, count))
    assert {"no-model"} == {it["reason"] for it in found["skipped"]}  # the task's report
    assert found["totals"]["same"] == len(found["turns"]) == 8


async def test_rehearse_restores_a_compacted_conversation(tmp_path: Path) -> None:
    model = script(lambda _: says(GOOD))
    async with running(tmp_path, script=model, agents=SMALL) as house:
        await talk(house, "My order is 48213377, see https://shop.example/o/7.")
        await until_summed(house)
        await talk(house, "And now?", "And then?")
        count = len(house.anthropic.requests)
        new_config(house)
        code, output = await rehearsed(house, "--yes", script=model)
    assert code == 0, output
    asked = bodies(house, 0, count)
    assert bodies(house, count) == asked
    assert sum("## Earlier Conversation (summary)" in it for it in asked) >= 3


async def test_rehearse_schedules_and_hooks_with_their_agent(tmp_path: Path) -> None:
    clock = Clock(BEGIN)
    more = f"{REPORT}\n{hooks(say='', task='Look at {{ body.state }}')}"
    agents = (
        f"{AGENTS}    - {{ id: last, model: demo/guide }}\n"  # with a second one there is /agent, also in the prompt
    )
    async with running(tmp_path, script=lambda _: says("Seen."), agents=agents, more=more, now=clock) as house:
        await house.until(lambda: house.gateway.runtime.store.later.next_due())
        clock.now = BEGIN + 3 * 86_400 + 3_600
        await settled(house, 1)
        assert (await call(house, BODY, signed(RAW, at=clock.now))).status_code == 202
        await settled(house, 2)
        count = len(house.anthropic.requests)
        new_config(house, **{"agents:\n  list:": "agents:\n  list:\n    - { id: first, model: demo/guide }"})
        code, found = await as_json(house, script=lambda _: says("Seen."))
    assert (code, [it["verdict"] for it in found["turns"]]) == (0, ["same", "same"])
    assert bodies(house, count) == bodies(house, 0, count)


async def test_rehearse_names_differences_by_layer_tokens_and_cost(tmp_path: Path) -> None:
    key = SECRETS["ANTHROPIC_API_KEY"]
    async with running(tmp_path, more=PRICED) as house:
        await asks(house, "what is there?", calls(LIST, usage=TAKES), says("Nothing at all.", usage=TAKES))
        brief = (
            f"tools: {{ allow: [read, ls] }}\n      systemPrompt: Be brief. Never say {SECRETS['ANTHROPIC_API_KEY']}."
        )
        new_config(house, **{"tools: { allow: [read, write, edit, ls, exec, message] }": brief})
        other = [
            calls(("read", {"file_path": "a"}), usage=TAKES),
            calls(("exec", {"command": "ls"})),
            says(f"No. {key}"),
        ]
        code, output = await rehearsed(house, "--yes", script=other)
        told = [it["name"] for it in house.anthropic.requests[-1].body["tools"]]
        refusal = results(house.anthropic.requests[-1].body)[-1]
        _, found = await as_json(house, script=other)
    assert (code, told) == (1, ["read", "ls"])
    assert "TOOL_NOT_ALLOWED" in refusal
    (turn,) = found["turns"]
    first, *lines = output[output.index("1  different") :].splitlines()
    assert first.startswith("1  different (prompt)  helper  2,100 → ")
    assert "    + Agent Instructions: " in output
    assert key not in output + json.dumps(found)
    assert "    + No. ***" in lines
    assert [it for it in lines if it.startswith("  calls")] == ["  calls: 1 → 2"]
    changed = [it for it in lines if it[4:6] in ("- ", "+ ") and "{" in it]
    shown = ['    - ls {"path":"."}', '    + read {"file_path":"a"}', '    + exec {"command":"ls"}']
    assert changed == shown
    assert "  tools: 6 → 2" in lines
    assert "  unknown tool answer: read" in lines
    assert lines[-1].startswith("different 1; 2,100 → ")
    assert (turn["verdict"], turn["first"], turn["unknownToolAnswers"]) == ("different", "prompt", ["read"])
    assert [it["layer"] for it in turn["differences"] if it["counts"]] == ["calls"]
    assert (turn["before"]["cost"], turn["after"]["requests"]) == (0.0075, 3)


async def test_rehearse_shows_a_changed_binding(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await asks(house, "hello", says("Hi."))
        await asks(house, "hello", says("Hi."), sender=BOB, chat=BOB_CHAT)
        bound = f"bindings: [ {{ agent: other, match: {{ channel: feishu, chat: {BOB_CHAT} }} }} ]\nagents:\n  list:"
        other = "    - { id: other, model: anthropic/claude-sonnet-4-6 }"
        new_config(house, **{"agents:\n  list:\n": f"{bound}\n", "      model: anthropic": "      model: anthropic"})
        file = house.folder / "new.yaml"
        file.write_text(f"{file.read_text()}".replace("exec, message] }", f"exec, message] }}\n{other}"))
        code, output = await rehearsed(house, "--yes", script=[says("Hi."), says("Hi.")])
    assert code == 1
    assert [it.split("  ")[1:3] for it in output.splitlines() if it[:3] in ("1  ", "2  ")] == [
        *(["same", "helper"], ["different (agent)", "other"])
    ]
    assert "  agent: helper → other" in output.splitlines()
    assert not (house.folder / "data" / "workspaces" / "other").exists()


async def test_rehearse_of_a_refused_sender_costs_no_request(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await asks(house, "hello", says("Hi."))
        await asks(house, "hello", says("Hi."), sender=BOB, chat=BOB_CHAT)
        count = len(house.anthropic.requests)
        new_config(house, **{"dmPolicy: open": f"dmPolicy: allowlist\n    allowFrom: [{ALICE}]"})
        code, output = await rehearsed(house, "--yes", script=[says("Hi.")])
        assert (code, len(house.anthropic.requests)) == (1, count + 1)
        new_config(house, **{"  feishu:\n": "  web: {}\n  feishu:\n    enabled: false\n"})
        gone, closed = await rehearsed(house, "--yes")
    assert "  access: allowed → dmPolicy is allowlist, and neither allowFrom nor owners has the sender" in output
    assert output.splitlines()[-1].startswith("same 1, different 1; ")
    assert (gone, closed.count("access: allowed → no account feishu:default")) == (1, 2)


async def test_rehearse_shows_a_model_failure(tmp_path: Path) -> None:
    async with running(tmp_path) as house:
        await asks(house, "hello", says("Hi."))
        new_config(house)
        refusal = Fault(status=401, type="authentication_error", message="no such key here")
        code, output = await rehearsed(house, "--yes", script=[refusal] * 3)
        _, found = await as_json(house, script=[refusal] * 3)
    assert code == 1
    assert "1  failed  helper" in output
    assert "no such key here" in output[output.index("1  failed") :]
    assert "no such key here" in found["turns"][0]["after"]["fault"]


async def test_rehearse_cost_limit_ends_it_and_needs_prices(tmp_path: Path) -> None:
    async with running(tmp_path, more=PRICED) as house:
        for _ in range(3):
            await asks(house, "hello", says("Hi.", usage=TAKES))
        count = len(house.anthropic.requests)
        new_config(house)
        script = [says("Hi.", usage=TAKES)] * 3
        code, output = await rehearsed(house, "--yes", "--max-cost", "0.004", script=script)
        assert (code, len(house.anthropic.requests)) == (1, count + 2)
        assert "same 2, not asked 1; " in output
        new_config(house, **{"model: anthropic/claude-sonnet-4-6": "model: anthropic/claude-house-1"})
        code, output = await rehearsed(house, "--yes", "--max-cost", "1")
        assert (code, "no price is known of anthropic/claude-house-1" in output) == (2, True)


async def test_rehearse_asks_nothing_without_consent(tmp_path: Path) -> None:
    async with running(tmp_path, more="console: { keepDays: 0 }") as house:
        await asks(house, "hello", says("Hi."))
        count = len(house.anthropic.requests)
        new_config(house)
        code, output = await rehearsed(house, "--yes")
        assert (code, output.splitlines()[0]) == (2, "1 finished turn skipped: its layers were not stored")
        assert "no turn to rehearse" in output
    async with running(tmp_path) as house:
        await asks(house, "again", says("Hi."))
        await asks(house, "oops", says("Hi."), message_id="om_oops")
        await house.push(house.feishu.recalled_event("om_oops"))
        await house.idle()
        asked, new = len(house.anthropic.requests), new_config(house)
        assert (await rehearsed(house))[0] == 2
        assert "no turn: 99" in (await rehearsed(house, "--yes", "--turn", "99"))[1]
        new.write_text(new.read_text().replace("logging:", "loging:"))
        code, output = await rehearsed(house, "--yes")
        assert (code, "loging: unknown key" in output) == (2, True)
        assert len(house.anthropic.requests) == asked
        new_config(house)
        code, output = await rehearsed(house, "--yes", script=[says("Hi.")])
        assert code == 0, output
        assert "skipped: its message was recalled" in output
        assert "1 finished turn skipped: its layers were not stored" in output
        assert "same 1, skipped 2; " in output
    assert count == 1


async def test_rehearse_speaks_chinese_by_config(tmp_path: Path) -> None:
    async with running(tmp_path, more="language: zh") as house:
        await asks(house, "你好", says("你好！"))
        new_config(house)
        code, output = await rehearsed(house, "--yes", script=[calls(LIST), says("你好。")])
    assert code == 1
    assert "1  不同 (调用)  helper" in output
    assert "  回复: 3 characters → 3 characters，相似度 67%" in output
    assert "  没有可用的工具结果：ls" in output
    assert "1 轮：当时请求 1 次" in output


async def test_rehearse_replays_steered_messages_in_place(tmp_path: Path) -> None:
    wait = ("exec", {"command": "until [ -e go ]; do sleep 0.02; done"})
    more, answers = f"queue: {{ mode: steer }}\n{RUNS}", [calls(wait), says("Both.")]
    async with running(tmp_path, more=more, script=[*answers]) as house:
        await house.say("look")
        await house.requested(1)
        await house.say("and add this")
        (house.workspace() / "go").touch()
        await house.replies(1)
        await house.idle()
        count = len(house.anthropic.requests)
        new_config(house)
        code, output = await rehearsed(house, "--yes", script=answers)
    assert code == 0, output
    assert (count, house.anthropic.requests[-1].body["messages"][-1]["content"][0]["type"]) == (2, "tool_result")
    assert "and add this" in users(house.anthropic.requests[-1].body)[-1]
    assert bodies(house, count) == bodies(house, 0, count)


async def test_rehearse_stubs_tools_of_other_programs(tmp_path: Path) -> None:
    async with troubled(tmp_path, tools={"echo": "Repeats."}) as house:
        await works(house, ("evil__echo", {"text": "a"}))
        count = len(house.anthropic.requests)
        new_config(house, **{sys.executable: "/nowhere/python"})
        code, output = await rehearsed(house, "--yes", script=[calls(("evil__echo", {"text": "a"})), says("done")])
        assert code == 0, output
        assert bodies(house, count) == bodies(house, 0, count)
        new_config(house, **{'"mcp:evil"': '"write"'})
        code, output = await rehearsed(house, "--yes", script=[says("done")])
    assert (code, "    - evil__echo" in output) == (1, True)


async def test_rehearse_keeps_the_agent_of_api_and_page(tmp_path: Path) -> None:
    talk_so_far: list[Any] = [
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "user", "content": "my number is 48213377"},
        {"role": "assistant", "content": "Aye."},
        {"role": "user", "content": "what is it?"},
    ]
    second = '    - { id: second, model: anthropic/claude-sonnet-4-6, workspaceDir: "rooms/{chat}" }'
    agents, more = f"{AGENTS.rstrip()}\n{second}\n", f"{API}\n"
    async with (
        running(tmp_path, script=lambda _: says("Hi."), agents=agents, feishu=WEB, more=more) as house,
        official(house.url) as ai,
        opened(house.url) as page,
    ):
        await ai.chat.completions.create(model="second", messages=talk_so_far)
        await page.say("hello", agent="second")
        await house.requested(2)
        await house.idle()
        # Neither is to be in a workspace, which is not there yet, nor with another first agent.
        new_config(house, **{"rooms/": "others/", "agents:\n  list:\n": "agents:\n  list:\n    - { id: first }\n"})
        code, found = await as_json(house, script=lambda _: says("Hi."))
    then, now = bodies(house, 0, 2), bodies(house, 2)
    assert (code, [it["after"]["agent"] for it in found["turns"]]) == (0, ["second", "second"])
    assert [json.loads(it)["messages"] for it in now] == [json.loads(it)["messages"] for it in then]
    assert all("pirate" in it for it in (then[0] + then[1], now[0] + now[1]))
    assert not (tmp_path / "others").exists()
