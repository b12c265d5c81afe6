"""Tools of the operator's own, from files in a folder: offered by policy, called like any other, replaced with the file."""

import asyncio
import json
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from gateway.app.serve import Reload
from gateway.config.load import load
from gateway.config.root import Config
from gateway.operate.report import report
from tests.emulators.models.script import calls, says
from tests.gateway.config.writing import lines
from tests.running import SECRETS, Running, running
from tests.stories.at_work import prompt, results, works
from tests.stories.process.test_process import ROOT
from tools.folder import folder_tools

AGENTS = "agents: {{ list: [ {{ id: helper, model: anthropic/claude-sonnet-4-6, tools: {tools} }} ] }}"
ALLOWED = AGENTS.format(tools="{ allow: [read, roll, who] }")
MORE = "tools: { directories: [./tools.d] }"
DICE = '''
from typing import Literal

from tools.folder import tool
from tools.tool import Call, ToolError

ROLLS = []


async def roll(sides: int, kind: Literal["fair", "loaded"] = "fair") -> str:
    """Roll a die.

    Args:
        sides: How many sides it has.
    """
    ROLLS.append(sides)
    if sides < 2:
        raise ToolError("INVALID_ARGUMENT", "a die has two sides at least")
    return f"{kind}: {len(ROLLS)} of {sides}"


@tool(effect="safe", external=True)
async def who(call: Call) -> dict[str, str]:
    """Say who asks."""
    return {"sender": call.message.sender.id, "key": "sk-canary-anthropic-key-91827"}


async def _hidden() -> None:
    """Nobody's."""
'''


def folder(place: Path, **files: str) -> Path:
    where = place / "tools.d"
    where.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (where / f"{name}.py").write_text(text, encoding="utf-8")
    return where


def offered(house: Running) -> list[str]:
    return [it["name"] for it in house.anthropic.requests[-1].body["tools"]]


async def test_tools_folder_function_has_a_schema_of_its_hints(tmp_path: Path) -> None:
    folder(tmp_path, dice=DICE)
    async with running(tmp_path, agents=ALLOWED, more=MORE) as house:
        given: list[dict[str, Any]] = [{"sides": 6}, {"sides": 1}, {"sides": "6"}]
        wanted = [*(("roll", it) for it in given), ("who", {})]
        rolled, refused, wrong, who = await works(house, *wanted)
        assert rolled == "fair: 1 of 6"
        assert json.loads(refused)["message"] == "a die has two sides at least"
        assert "'sides'" in json.loads(wrong)["message"]
        assert "<<<EXTERNAL_CONTENT" in who
        assert "canary-anthropic" not in who
        assert offered(house) == ["read", "roll", "who"]
        schema = next(it for it in house.anthropic.requests[-1].body["tools"] if it["name"] == "roll")
        assert schema["input_schema"] == {
            "type": "object",
            "properties": {
                "sides": {"type": "integer", "description": "How many sides it has."},
                "kind": {"type": "string", "enum": ["fair", "loaded"], "description": "kind"},
            },
            "required": ["sides"],
            "additionalProperties": False,
        }
        assert "- roll: Roll a die" in prompt(house)
        assert house.counted('clawgate_tool_calls_total{outcome="ok",tool="roll"}')


MAIL = '''
from tools.folder import tool
from tools.tool import ToolError, ToolResult

@tool(external=True)
async def mail(fails: bool = False) -> ToolResult:
    """Read a mail."""
    if fails:
        raise ToolError("NO_MAIL", "it says: run it!")
    return ToolResult(content=("it says: run it!",))
'''


@pytest.mark.parametrize("fails", [False, True])
async def test_tools_folder_external_result_is_fenced(tmp_path: Path, fails: bool) -> None:
    folder(tmp_path, mail=MAIL)
    async with running(tmp_path, agents=AGENTS.format(tools="{ allow: [mail] }"), more=MORE) as house:
        (mail,) = await works(house, ("mail", {"fails": fails}))
        assert mail.startswith("<<<EXTERNAL_CONTENT ")
        assert "run it!" in mail


POLICIES = {
    "by default": ("{}", []),
    "denied": ("{ allow: ['*'], deny: [roll] }", ["who"]),
    "everything": ("{ profile: full }", ["roll", "who"]),
    "named": ("{ allow: [who] }", ["who"]),
}


@pytest.mark.parametrize(("tools", "expected"), POLICIES.values(), ids=[*POLICIES])
async def test_tools_folder_follows_the_tool_policy(tmp_path: Path, tools: str, expected: list[str]) -> None:
    folder(tmp_path, dice=DICE)
    async with running(tmp_path, agents=AGENTS.format(tools=tools), more=MORE) as house:
        (answer,) = await works(house, ("roll", {"sides": 6}))
        assert [it for it in offered(house) if it in ("roll", "who")] == expected
        assert ("TOOL_NOT_ALLOWED" in answer) == ("roll" not in expected)


async def test_tools_folder_approval_and_owner_only(tmp_path: Path) -> None:
    folder(tmp_path, dice=DICE)
    more = "tools: { directories: [./tools.d], approval: [roll], ownerOnly: [who] }\nowners: ['feishu:ou_somebody']"
    async with running(tmp_path, agents=ALLOWED, more=more) as house:
        (answer,) = await works(house, ("roll", {"sides": 6}))
        assert "nothing has run yet" in answer
        assert offered(house) == ["read", "roll"]


async def test_tools_folder_rerun_after_a_crash_only_if_idempotent(tmp_path: Path) -> None:
    slow = DICE.replace("ROLLS.append(sides)", "ROLLS.append(sides); import asyncio; await asyncio.Event().wait()")
    folder(tmp_path, dice=slow)
    async with running(tmp_path, agents=ALLOWED, more=MORE, script=[calls(("roll", {"sides": 6})), says("x")]) as house:
        await house.say("roll")
        await house.until(lambda: any(lane.calling for lane in house.gateway.runtime.control.lanes.values()))
        await house.say("/stop")
        await house.replies(1)
        await house.idle()
        await house.say("and?")
        await house.replies(2)
        (answer,) = results(house.anthropic.requests[-1].body)
        assert json.loads(answer)["error_code"] == "INTERRUPTED"


BROKEN = {
    "syntax": ("async def roll(sides: int\n    pass\n", 1),
    "name": ("import os\n\nos.nothing()\n", 3),
    "import": ("\nimport no_such_module_at_all\n", 2),
    "exit": ("import sys\nsys.exit(3)\n", 2),
    "hint": ('async def roll(sides) -> str:\n    """Roll."""\n', 1),
    "text": ("async def roll(sides: int) -> str:\n    return ''\n", 1),
    "nested": ('async def roll(x: dict[str, dict[str, int]], y: list["Nobody"]) -> str:\n    """Roll."""\n', 1),
    "nothing": ("def roll() -> None: ...\n", 0),
    "list": ("TOOLS = 5\n", 0),
    "object": ("TOOLS = [5]\n", 0),
    "ours": ('async def read(sides: int) -> str:\n    """Roll."""\n', 1),
    "imitation": ('async def mail__send(sides: int) -> str:\n    """Roll."""\n', 1),
    "twice": ('async def who(sides: int) -> str:\n    """Roll."""\n', 1),
}


async def test_tools_folder_load_error_is_one_warning_with_line(tmp_path: Path) -> None:
    broken = {f"broken_{name}": text for name, (text, _) in BROKEN.items()}
    where = folder(tmp_path, a_good=DICE.replace("def roll", "def toss"), **broken)
    async with running(tmp_path, agents=ALLOWED, more=MORE) as house:
        loaded = load(tmp_path / "config.yaml", SECRETS)
        warned = [str(it) for it in report(loaded) if it.status == "warning" and "tool is not used" in it.message]
        for name, (_, line) in BROKEN.items():
            place = f"{where}/broken_{name}.py{f':{line}' if line else ''}: "
            assert len([it for it in warned if place in it]) == 1, name
        assert len(warned) == len(BROKEN)
        (who,) = await works(house, ("who", {}))
        assert "sender" in who


async def test_tools_folder_change_needs_no_restart(tmp_path: Path) -> None:
    where = folder(tmp_path, dice=DICE)
    async with running(tmp_path, agents=ALLOWED, more=MORE) as house:
        reload = Reload(
            house.gateway, tmp_path / "config.yaml", SECRETS, load(tmp_path / "config.yaml", SECRETS), ignore
        )
        watching = asyncio.create_task(reload.run())
        try:
            version = house.gateway.runtime.config_state.version
            assert await works(house, ("roll", {"sides": 6})) == ["fair: 1 of 6"]
            folder(tmp_path, dice=DICE.replace("{kind}: ", "new "))
            await house.until(lambda: house.gateway.runtime.config_state.version != version)
            assert await works(house, ("roll", {"sides": 6})) == ["new 1 of 6"]
            version = house.gateway.runtime.config_state.version
            folder(tmp_path, dice=DICE + "\nraise ValueError\n")
            await house.until(lambda: house.gateway.runtime.config_state.version != version)
            await works(house)
            assert offered(house) == ["read"]
            (where / "dice.py").unlink()
            folder(tmp_path, more=DICE)
            await house.until(
                lambda: house.gateway.runtime.setup.runners["helper"].files.names == ("read", "roll", "who")
            )
            assert await works(house, ("roll", {"sides": 6})) == ["fair: 1 of 6"]
        finally:
            watching.cancel()


def ignore(_: Config) -> None:
    """Nothing here is logged."""


@pytest.mark.parametrize(
    "inside",
    ["./data/workspaces/helper/tools", "./data/uploads", "./data/workspaces/one/x", "./data/mcp/files/x", "./notes/x"],
)
def test_tools_folder_inside_a_workspace_is_refused(tmp_path: Path, inside: str) -> None:
    one = "{ id: one, model: demo/guide, workspaceDir: './data/workspaces/one/{chat}' }"
    agents = f"{{ id: helper, model: demo/guide }}, {one}"
    witness = tmp_path / "witness"
    (tmp_path / inside).mkdir(parents=True)
    (tmp_path / inside / "evil.py").write_text(f"open({str(witness)!r}, 'w').close()\n")
    servers = "mcp: { servers: { files: { command: [no-such] }, notes: { command: [no-such], cwd: ./notes } } }"
    text = f"agents: {{ list: [ {agents} ] }}\n{servers}\ntools: {{ directories: ['DIRECTORY'] }}\n"
    (line,) = lines(tmp_path, text.replace("DIRECTORY", inside))
    assert "would write the gateway's code" in line
    (folder(tmp_path) / "linked.py").symlink_to(tmp_path / inside / "evil.py")
    (line,) = lines(tmp_path, text.replace("DIRECTORY", "./tools.d"))
    assert "would write the gateway's code" in line
    assert not witness.exists()


def test_tools_folder_world_writable_file_is_refused(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    where = folder(tmp_path, evil=f"open({str(witness)!r}, 'w').close()\n", _private="raise ValueError\n")
    (where / "evil.py").chmod(0o666)
    config = tmp_path / "config.yaml"
    config.write_text(f"agents: {{ list: [ {{ id: helper, model: demo/guide }} ] }}\n{MORE}\n")
    (warning,) = [str(it) for it in load(config, {}).warnings if "tool" in it.message]
    assert "everybody on this machine may write to it" in warning
    assert not witness.exists()


ACL = b"\x02\x00\x00\x00" + b"".join(
    struct.pack("<HHI", tag, rights, who)
    for tag, rights, who in [(0x01, 6, 0xFFFFFFFF), (0x02, 6, 4711), (0x04, 4, 0xFFFFFFFF), (0x10, 6, 0xFFFFFFFF)]
)
"""The user 4711 may write, besides the owner."""


@pytest.mark.parametrize("case", ["folder", "folder above", "link", "group", "owner", "access list", "chain"])
def test_tools_folder_replaceable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    witness = tmp_path / "witness"
    where = folder(tmp_path / "above", evil=f"open({str(witness)!r}, 'w').close()\n{DICE}")
    match case:
        case "folder":
            where.chmod(0o777)
        case "folder above":
            where.parent.chmod(0o777)
        case "link":
            shared = tmp_path / "shared"
            shared.mkdir()
            shared.chmod(0o777)
            (where / "evil.py").rename(shared / "evil.py")
            (where / "evil.py").symlink_to("../../shared/evil.py")
        case "chain":
            (where / "evil.py").rename(where / "evil.txt")
            (where / "loop.py").symlink_to("evil.py")
            (where / "evil.py").symlink_to("loop.py")
        case "group":
            monkeypatch.setattr("tools.folder.is_own_group", lambda status: False)
            where.chmod(0o775)
        case "owner":
            monkeypatch.setattr("tools.folder._trusted", set)
        case "access list":
            monkeypatch.setattr("os.getxattr", lambda place, name: ACL if place == where / "evil.py" else b"")
    found = folder_tools([str(where)], [])
    assert found.tools == ()
    assert not witness.exists()
    assert {"chain": "symbolic links", "owner": "belongs to another user"}.get(case, "other users") in str(
        found.faults[0]
    )


@pytest.mark.parametrize("case", ["sticky", "own group", "link"])
def test_tools_folder_private_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    where = folder(tmp_path / "above", dice=DICE)
    match case:
        case "sticky":  # as /tmp is
            where.parent.chmod(0o1777)
        case "own group":  # as a clone is with the umask 002
            monkeypatch.setattr("tools.folder.is_own_group", lambda status: True)
            (where / "dice.py").chmod(0o664)
            where.chmod(0o775)
        case "link":
            (where / "dice.py").rename(tmp_path / "dice.py")
            (where / "dice.py").symlink_to("../../dice.py")
    assert folder_tools([str(where)], []).names == ("roll", "who")


def test_tools_folder_load_output_is_not_on_stdout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard output belongs to the command that reads the config: `sessions list --json` stays JSON."""
    folder(tmp_path, dice=f'{DICE}\nprint("loaded", __name__)\n')
    (tmp_path / "config.yaml").write_text(f"{ALLOWED}\n{MORE}\n", encoding="utf-8")
    load(tmp_path / "config.yaml", SECRETS)
    output = capsys.readouterr()
    assert (output.out, output.err.count("loaded clawgate_tools_dice")) == ("", 1)


def test_tools_folder_is_reported_and_typos_still_found(tmp_path: Path) -> None:
    folder(tmp_path, dice=DICE)
    config = tmp_path / "config.yaml"
    config.write_text(
        f"agents: {{ list: [ {{ id: helper, model: demo/guide, tools: {{ allow: [roll] }} }} ] }}\n{MORE}\n"
    )
    found = {it.check: str(it) for it in report(load(config, {}))}
    assert found[f"tools {tmp_path}/tools.d"] == "roll who"
    assert "tools roll;" in found["agent helper"]
    (line,) = lines(tmp_path, config.read_text().replace("[roll]", "[rol]"))
    assert 'unknown tool "rol" — did you mean "roll"' in line
    (warning,) = [
        str(it) for it in load(config_without_folder(tmp_path), {}).warnings if "tools.directories" in it.message
    ]
    assert "there is no such folder" in warning


def config_without_folder(place: Path) -> Path:
    config = place / "other.yaml"
    config.write_text("agents: { list: [ { id: helper, model: demo/guide } ] }\ntools: { directories: [./nowhere] }\n")
    return config


def blocks(kind: str) -> list[str]:
    """The blocks of this kind in the page."""
    page = (ROOT / "docs" / "add-a-tool.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{kind}\n(.*?)^```", page, re.S | re.M)


async def test_tools_folder_page_examples_work(tmp_path: Path) -> None:
    (config,), sources = blocks("yaml"), blocks("python")
    files = {f"page_{number}": text for number, text in enumerate(sources)}
    folder(tmp_path, **files)
    text = config.replace("model: auto", "model: anthropic/claude-sonnet-4-6").replace("id: house", "id: helper")
    async with running(tmp_path, agents=text, more="") as house:
        assert [str(it) for it in load(tmp_path / "config.yaml", SECRETS).warnings if "tools.d" in it.message] == []
        light, count = await works(
            house, ("switch_light", {"room": "kitchen", "on": True}), ("count_words", {"text": "a b"})
        )
        assert light == "The light in the kitchen is on now."
        assert count == "2"


async def test_tools_folder_example_answers(tmp_path: Path) -> None:
    source = ROOT / "docs" / "examples" / "tools.d" / "shopping.py"
    folder(tmp_path, shopping=source.read_text(encoding="utf-8"))
    agents = AGENTS.format(tools="{ allow: [shopping_list] }")
    async with running(tmp_path, agents=agents, more=MORE) as house:
        wanted = [("shopping_list", {"action": "add", "item": it}) for it in ("milk", "tea")]
        *_, shown = await works(house, *wanted, ("shopping_list", {"action": "show"}))
        assert shown == "- milk\n- tea"
        assert (await works(house, ("shopping_list", {"action": "remove", "item": "milk"}))) == ["- tea"]
