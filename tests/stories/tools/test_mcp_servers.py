"""MCP servers beside a turn: over HTTP, on the command line, for doctor, in the examples; and a gateway without any."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from tests.case import case
from tests.gateway.config.writing import lines
from tests.running import ALICE, SECRETS, running
from tests.stories.at_work import works
from tests.stories.operate.test_doctor import examined
from tests.stories.process.test_process import ask
from tests.stories.tools.test_mcp import (
    BIN,
    HOSTILE,
    JUDGES,
    ROOT,
    agents,
    behave,
    evil,
    offered,
    program,
    ready,
    servers,
    troubled,
)
from tests.waiting import until

pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as it:
        it.bind(("127.0.0.1", 0))
        port: int = it.getsockname()[1]
        return port


@asynccontextmanager
async def over_http(folder: Path) -> AsyncIterator[str]:
    """A server of somebody else, behind another's proxy: its address."""
    port = free_port()
    command = [JUDGES / "mcp-proxy", "--port", str(port), "--", JUDGES / "mcp-server-sqlite", "--db-path", "a.db"]
    process = await asyncio.create_subprocess_exec(
        *map(str, command), cwd=folder, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    try:

        async def answers() -> bool:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                return False
            writer.close()
            return True

        await until(answers)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def test_mcp_over_http_needs_an_allowed_address(tmp_path: Path) -> None:
    async with over_http(tmp_path) as url:
        config = servers(open=f'url: "{url}", allowPrivate: [127.0.0.1]', closed=f'url: "{url}"')
        async with running(tmp_path, agents=agents("mcp:*"), more=config) as house:
            await ready(house, "open")
            closed = house.gateway.runtime.setup.mcp.servers["closed"]
            await house.until(lambda: "cannot be reached" in closed.fault)
            made, read = await works(
                house,
                ("open__create_table", {"query": "CREATE TABLE a (b TEXT)"}),
                ("open__list_tables", {}),
            )
            assert "created" in made
            assert "'name': 'a'" in read
            assert not any(it.startswith("closed__") for it in offered(house))


@pytest.mark.parametrize("name", ["mcp-time", "mcp-sqlite", "mcp-http"])
async def test_mcp_example_works(tmp_path: Path, name: str) -> None:
    """The program of the example is the one that the tests' requirements install."""
    text = (ROOT / "docs/examples" / f"{name}.yaml").read_text(encoding="utf-8")
    text = text.replace("[mcp-server-time]", f"[{BIN / 'mcp-server-time'}]")
    text = text.replace("[mcp-server-sqlite,", f"[{JUDGES / 'mcp-server-sqlite'},")
    text = text.replace("# allowPrivate: [tracker.internal] #", "allowPrivate: [127.0.0.1] #").replace(
        '"read_*"', '"list_*"'
    )
    asked: dict[str, tuple[str, dict[str, Any], str]] = {
        "mcp-time": ("get_current_time", {"timezone": "UTC"}, "datetime"),
        "mcp-sqlite": ("list_tables", {}, "[]"),
        "mcp-http": ("list_tables", {}, "[]"),
    }
    tool, arguments, expected = asked[name]
    file = tmp_path / "config.yaml"
    file.write_text(text, encoding="utf-8")
    async with over_http(tmp_path) if name == "mcp-http" else nullcontext("") as url:
        more = SECRETS | {
            "TRACKER_URL": url,
            "TRACKER_TOKEN": "canary-tracker-1234",
            "FEISHU_APP_ID": "cli_0123456789abcdef",
        }
        (server,) = load(file, more).config.mcp.servers
        code, output = await ask("mcp", "try", server, tool, json.dumps(arguments), "--config", str(file), more=more)
    assert code == 0, output
    assert expected in output


async def test_mcp_program_through_symlinks_runs_in_the_sandbox(tmp_path: Path) -> None:
    """As tools are installed: a link to a script, of an environment behind a link, made with a Python behind another."""
    python = tmp_path / "python-3"
    python.symlink_to(sys.base_prefix)
    made = tmp_path / "made"
    (made / "bin").mkdir(parents=True)
    (made / "pyvenv.cfg").write_text(f"home = {python / 'bin'}\n")
    (made / "bin" / "python").symlink_to(python / "bin" / "python3")
    (tmp_path / "current").symlink_to("made")
    script = made / "bin" / "serve"
    script.write_text(f"#!{tmp_path / 'current' / 'bin' / 'python'}\n{HOSTILE.read_text()}")
    script.chmod(0o755)
    linked = tmp_path / "linked"
    linked.symlink_to("current/bin/serve")
    lost = tmp_path / "lost"
    lost.write_text("#!/bin/sh\nexec cat /no/such/library\n")
    lost.chmod(0o755)
    config = servers(evil=program(linked), lost=program(lost))
    behave(tmp_path, tools={"echo": "x"})
    async with running(tmp_path, agents=agents("mcp:*"), more=config) as house:
        await ready(house, "evil")
        (heard,) = await works(house, ("evil__echo", {"text": "through four links"}))
        assert "through four links" in heard
        away = house.gateway.runtime.setup.mcp.servers["lost"]
        await house.until(lambda: "/no/such/library" in away.fault)
        assert away.fault.startswith("its program has ended (code 1): ")
    text = "agents: { list: [ { id: helper, model: demo/guide } ] }\nchannels: { web: {} }\n"
    text += servers(lost=program(lost))
    (found,) = await examined(tmp_path, text, "mcp")
    assert "name the folders that it needs in readable" in str(found)
    assert "/no/such/library" in str(found)


async def test_mcp_command_lists_tries_and_accepts(tmp_path: Path) -> None:
    async with troubled(tmp_path, tools={"echo": "Repeats.", "change": "x", "die": "x"}) as house:

        async def mcp(*words: str, code: int = 0) -> str:
            found, output = await ask("mcp", *words, "--config", str(tmp_path / "config.yaml"), more=SECRETS)
            assert found == code, output
            return output

        assert "evil__echo  accepted  helper  Repeats." in await mcp("list")
        assert await mcp("try", "evil", "echo", '{"text": "hello"}') == "hello\n"
        assert "TOOL_UNAVAILABLE" not in await mcp("try", "evil", "echo", "{}", code=1)
        assert "expected a JSON object" in await mcp("try", "evil", "echo", "[]", code=1)
        assert "no tool other of evil" in await mcp("try", "evil", "other", code=1)
        assert "no MCP server other" in await mcp("try", "other", "echo", code=1)
        assert (await mcp("try", "evil", "die", code=1)).endswith("evil: the connection to the server was lost\n")
        assert await mcp("accept", "evil") == "evil: nothing waits\n"
        behave(house, tools={"echo": "Repeats and sends.", "change": "x", "die": "x"})
        await works(house, ("evil__change", {}))
        server = house.gateway.runtime.setup.mcp.servers["evil"]
        await house.until(lambda: len(server.withheld) == 1)
        (shown,) = [it for it in json.loads(await mcp("list", "--json"))[0]["tools"] if it["state"] == "changed"]
        assert (shown["description"], shown["before"]) == ("Repeats and sends.", "Repeats.")
        assert "Repeats and sends. (before: Repeats.)" in await mcp("list")
        assert await mcp("accept", "evil") == "evil: echo\n"
        await house.until(lambda: not server.withheld)
        await works(house)
        assert "evil__echo" in offered(house)


async def test_mcp_review_is_accepted_by_a_button(tmp_path: Path) -> None:
    async with troubled(tmp_path, tools={"echo": "Repeats.", "change": "x"}) as house:
        behave(house, tools={"echo": "Sends.", "change": "x"})
        await works(house, ("evil__change", {}))
        await house.until(lambda: any("stay disabled" in it.text for it in house.feishu.messages))
        (notice,) = [it for it in house.feishu.messages if "stay disabled" in it.text]
        await house.push(house.feishu.press_event(notice.message_id, "Accept", sender=ALICE))
        server = house.gateway.runtime.setup.mcp.servers["evil"]
        await house.until(lambda: not server.withheld)
        await house.idle()


async def test_mcp_doctor_tries_each_server(tmp_path: Path) -> None:
    behave(tmp_path, tools={"echo": "x"})
    config = servers(
        evil=evil(),
        away=program("/usr/bin/no-such-program", more="sandbox: off"),
        silent=evil("startSeconds: 0.5, cwd: ./silent"),
    )
    (tmp_path / "silent").mkdir(mode=0o777)
    (tmp_path / "silent" / "behaviour.json").write_text('{"silent": true}')
    text = f"agents: {{ list: [ {{ id: helper, model: demo/guide }} ] }}\nchannels: {{ web: {{}} }}\n{config}"
    found = await examined(tmp_path, text, "mcp")
    assert [(it.check, it.status) for it in found] == [
        ("mcp evil", "ok"),
        ("mcp evil", "warning"),
        ("mcp away", "warning"),
        ("mcp away", "error"),
        ("mcp silent", "error"),
    ]
    assert "no agent has one of its tools" in str(found[1])
    assert "without a sandbox" in str(found[2])
    assert "there is no program" in str(found[3])
    assert "did not answer within 0.5 s" in str(found[4])


async def test_mcp_tool_left_out_is_named_by_list_and_doctor(tmp_path: Path) -> None:
    behave(tmp_path, tools={"echo": "x"}, raw=[{"name": "old"}])
    text = f"{agents('mcp:evil')}\nchannels: {{ web: {{}} }}\n{servers(evil=evil())}"
    config = tmp_path / "config.yaml"
    config.write_text(text, encoding="utf-8")
    code, output = await ask("mcp", "list", "--config", str(config), more=SECRETS)
    assert (code, "  old  left out: its input schema is not that of an object\n" in output) == (0, True)
    (finding,) = [it for it in await examined(tmp_path, text, "mcp") if "left out" in str(it)]
    assert finding.status == "warning"
    assert "old: its input schema is not that of an object" in str(finding)


DOWNLOADING = {
    "npx, -y, server": "npx",
    "/usr/bin/uvx, server": "uvx",
    "bunx, server": "bunx",
    "pnpm, dlx, server": "pnpm dlx",
    "pipx, run, server": "pipx run",
    "pipx, list": "",
    "mcp-server-time": "",
}


def test_mcp_check_warns_of_a_download_without_network(tmp_path: Path) -> None:
    for command, name in DOWNLOADING.items():
        for more in ("", ", network: true", ", sandbox: off"):
            with case(command, more):
                config = tmp_path / "config.yaml"
                config.write_text(f"{agents('mcp:x')}\n{servers(x=f'command: [{command}]{more}')}", encoding="utf-8")
                warned = [str(it) for it in load(config, SECRETS).warnings if "downloads it" in str(it)]
                assert len(warned) == bool(name and not more)
                assert all(f"MCP server x: {name} downloads it" in it and "network: true" in it for it in warned)


WRONG = {
    "{ }": "expected one of command, a program to start, url, an address, and feishu, an account",
    "{ command: [a], url: 'https://a.example' }": "expected one of command",
    "{ url: 'https://a.example', network: true }": "network: not for a server with url",
    "{ command: [a], headers: { A: b } }": "headers: not for a server with command",
    "{ url: 'ftp://a.example' }": "must be an http or https URL",
}


@pytest.mark.parametrize(("server", "expected"), WRONG.items(), ids=str)
def test_mcp_config_mistake_has_its_place(tmp_path: Path, server: str, expected: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"agents: {{ list: [ {{ id: a, model: demo/guide }} ] }}\nmcp:\n  servers:\n    s: {server}\n")
    with pytest.raises(ConfigErrors) as raised:
        load(file, {})
    assert expected in str(raised.value)
    assert "config.yaml:4:" in str(raised.value)


def test_mcp_tool_lists_name_existing_servers_only(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    allow = ["mcp:clock", "mcp:*", "clock__any", "mcp:clok", "other__tool"]
    tools = f"tools: {{ allow: {json.dumps(allow)} }}"
    text = f"agents: {{ list: [ {{ id: a, model: demo/guide, {tools} }} ] }}\n{servers(clock='command: [a]')}\n"
    file.write_text(text)
    with pytest.raises(ConfigErrors) as raised:
        load(file, {})
    assert [it.message.count("unknown tool") for it in raised.value.problems] == [1, 1]
    assert 'did you mean "mcp:clock"?' in str(raised.value)


async def test_mcp_server_ends_with_the_gateway(tmp_path: Path) -> None:
    async with troubled(tmp_path, tools={"echo": "x"}) as house:

        def alive() -> int:
            commands = (it / "cmdline" for it in Path("/proc").iterdir() if it.name.isdigit())
            return sum(str(tmp_path).encode() in _read(it) for it in commands)

        await works(house)
        assert alive()
    assert not alive()


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize(
    "cwd",
    [
        ".",
        "..",
        "./data",
        "./data/uploads/x",
        "./data/workspaces",
        "./data/workspaces/one/tools",
        "./linked",
        "/",
        "/etc/mcp",
        "~",
    ],
)
def test_mcp_program_folder_may_not_hold_workspace_or_data(tmp_path: Path, cwd: str) -> None:
    """The program may write all of it."""
    (tmp_path / "data" / "workspaces" / "one").mkdir(parents=True)
    (tmp_path / "linked").symlink_to("data")
    agent = "agents: { list: [ { id: one, model: demo/guide } ] }"
    server = "mcp: {{ servers: {{ files: {{ command: [no-such], cwd: '{}' }} }} }}"
    (line,) = lines(tmp_path, f"{agent}\n{server.format(cwd)}\n", {"HOME": str(tmp_path)})
    assert "mcp.servers.files.cwd: " in line
    assert lines(tmp_path, f"{agent}\n{server.format('./files')}\n") == []
