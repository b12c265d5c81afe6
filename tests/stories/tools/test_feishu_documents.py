"""Feishu's own documents server: listed as the app, called as the person whose turn it is, and as nobody else."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.app.serve import Reload
from gateway.config.load import load
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.feishu.workplace import APP, DOC
from tests.emulators.models.script import calls, says
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, FEISHU, GROUP, SECRETS, Running, feishu_emulator, running
from tests.stories.at_work import prompt
from tests.stories.config.test_reload import Editor
from tests.stories.tools.test_feishu import IN_GROUP, asks, code, log_in, waiting
from tools.mcp.config import SCOPES

pytestmark = pytest.mark.slow  # the SDK of MCP takes a second to load
NEEDED = sorted({scope for scopes in SCOPES.values() for scope in scopes})
AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, schedule, message, "mcp:docs"] }
"""
LOGS_IN = f"{FEISHU}    login: {{ scopes: {json.dumps(NEEDED)} }}\n"
TOOLS = ("fetch-doc", "search-doc", "create-doc")
FETCH = ("docs__fetch-doc", {"doc_id": DOC})
SEARCH = ("docs__search-doc", {"query": "plan"})
CREATE = ("docs__create-doc", {"title": "Lamps", "markdown": "Three."})


def server(acts_as: str = "person", tools: Any = TOOLS) -> str:
    found = f"feishu: default, as: {acts_as}, tools: [{', '.join(tools)}], allowPrivate: [127.0.0.1]"
    return f"mcp: {{ servers: {{ docs: {{ {found} }} }} }}"


def emulated() -> FeishuEmulator:
    emulator = feishu_emulator()
    emulator.logins.interval = 0.05
    emulator.logins.scopes = {*NEEDED, "offline_access"}
    emulator.users |= {ALICE: "Ann", BOB: "Bob"}
    emulator.workplace.grant(ALICE, DOC)
    return emulator


@asynccontextmanager
async def documents(tmp_path: Path, more: str = "", **config: Any) -> AsyncIterator[Running]:
    """A gateway whose account is at the emulator, which is also where its documents are."""
    lines = "\n".join((more or server(), config.pop("beside", "")))
    settings: dict[str, Any] = {"agents": AGENTS, "feishu": LOGS_IN, "more": lines, "emulator": emulated()}
    async with running(tmp_path, **(settings | config)) as house:
        there = house.gateway.runtime.setup.mcp.servers
        await house.until(lambda: all(not it.fault for it in there.values()))
        yield house


async def test_documents_are_read_with_the_rights_of_the_one_who_asks(tmp_path: Path) -> None:
    """Ann and Bob are logged in, in one group: her document is hers."""
    async with documents(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        await log_in(house, BOB, BOB_CHAT)
        found = await asks(house, calls(FETCH), sender=ALICE, **IN_GROUP)
        assert "Buy three lamps" in found
        assert "<<<EXTERNAL_CONTENT" in found
        assert code(await asks(house, calls(FETCH), sender=BOB, **IN_GROUP)) == "NO_ACCESS"
        assert house.feishu.documents.called == [(ALICE, "fetch-doc")]
        listed = [who for method, who, _ in house.feishu.documents.asked if method == "tools/list"]
        assert {*listed} == {APP}
        assert {allowed for _, _, allowed in house.feishu.documents.asked} == {TOOLS}
        everything = json.dumps([it.body for it in house.anthropic.requests])
        assert not any(it.access in everything or it.refresh in everything for it in house.feishu.logins.pairs)
        assert not any(it in everything for it in house.feishu.tokens)


async def test_documents_of_nobody_become_a_login_and_the_turn_continues(tmp_path: Path) -> None:
    async with documents(tmp_path) as house:
        assert code(await asks(house, calls(FETCH))) == "NEEDS_LOGIN"
        assert {*SCOPES["fetch-doc"]} <= {*house.feishu.logins.devices[-1].scopes}
        assert code(await asks(house, calls(CREATE))) == "NEEDS_LOGIN"
        assert not any("/approve" in it for it in house.feishu.shown(ALICE_CHAT))
        house.anthropic.script = [calls(FETCH), says("as you asked")]
        house.feishu.logins.approve(house.feishu.logins.devices[-1].user_code, ALICE)
        await house.until(lambda: any("as you asked" in it for it in house.feishu.shown(ALICE_CHAT)))
        assert house.feishu.documents.called == [(ALICE, "fetch-doc")]


async def test_documents_change_waits_for_the_person_who_acts(tmp_path: Path) -> None:
    """The request of a group is in her direct chat, whole. An owner who approves other tools may not decide it."""
    beside = f'owners: ["feishu:{BOB}"]\napprovals: {{ approvers: ["feishu:{BOB}"] }}'
    async with documents(tmp_path, beside=beside) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        assert code(await asks(house, calls(CREATE), sender=ALICE, **IN_GROUP)) == "EXEC_APPROVAL_PENDING"
        request = await waiting(house)
        await house.until(lambda: any(request.id in it.text for it in house.feishu.messages))
        (shown,) = [it for it in house.feishu.messages if request.id in it.text and "Lamps" in it.text]
        assert shown.chat_id == house.feishu.direct.get(ALICE, ALICE_CHAT)
        assert "docs create-doc" in shown.text
        await house.say(f"/approve {request.id} allow-once", sender=BOB, chat=BOB_CHAT)
        await house.until(lambda: any("no pending request" in it for it in house.feishu.shown(BOB_CHAT)))
        assert not house.feishu.documents.created
        house.anthropic.script = [says("it is written")]
        await house.say(f"/approve {request.id} allow-once", sender=ALICE, chat=ALICE_CHAT)
        await house.until(lambda: any("it is written" in it for it in house.feishu.shown(GROUP)))
        assert house.feishu.documents.created == [(ALICE, "Lamps")]


@pytest.mark.parametrize("at", ["initialize", "tools/call"])
async def test_documents_token_that_is_refused_is_refreshed_once(tmp_path: Path, at: str) -> None:
    async with documents(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        if at == "initialize":
            house.feishu.logins.pairs[-1].access_ends = 0.0
        else:
            house.feishu.documents.answer_next(at, -32003)
        assert "three lamps" in await asks(house, calls(FETCH))
        assert house.feishu.logins.asked.count("refresh_token") == 1


REFUSED = {-32011: "UNAVAILABLE", -32003: "UNAVAILABLE", -32030: "RATE_LIMITED"}


@pytest.mark.parametrize("number", [-32700, -32600, -32601, -32602, -32603, -32030, -32011, -32003])
async def test_documents_refusals_say_what_to_do(tmp_path: Path, number: int) -> None:
    async with documents(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        for _ in range(2):
            house.feishu.documents.answer_next("tools/call", number)
        found = await asks(house, calls(FETCH))
        if number in REFUSED:
            assert code(found) == REFUSED[number]
        else:
            assert "The server refuses the call: refused" in found
        assert not house.feishu.documents.called


async def test_documents_missing_permissions_become_a_login_or_a_link(tmp_path: Path) -> None:
    async with documents(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        house.feishu.logins.pairs[-1].scopes = ("offline_access",)  # revoked at the platform
        before = len(house.feishu.logins.devices)
        assert code(await asks(house, calls(SEARCH))) == "NEEDS_LOGIN"
        assert len(house.feishu.logins.devices) == before + 1
        assert {*SCOPES["search-doc"]} <= {*house.feishu.logins.devices[-1].scopes}
        house.feishu.logins.scopes -= {"search:docs:read"}
        refused = await asks(house, calls(SEARCH))
        assert code(refused) == "APP_LACKS_SCOPE"
        assert "search:docs:read" in refused


async def test_documents_as_the_app_where_the_config_says_so(tmp_path: Path) -> None:
    async with documents(tmp_path, server("app"), beside=f'approvals: {{ approvers: ["feishu:{BOB}"] }}') as house:
        assert code(await asks(house, calls(FETCH))) == "APP_LACKS_SCOPE"
        house.feishu.workplace.app_scopes |= {*NEEDED}
        assert code(await asks(house, calls(FETCH))) == "NO_ACCESS"
        house.feishu.workplace.grant(APP, DOC)
        assert "three lamps" in await asks(house, calls(FETCH))
        house.feishu.expire_tokens()
        assert "three lamps" in await asks(house, calls(FETCH))
        assert code(await asks(house, calls(CREATE))) == "EXEC_APPROVAL_PENDING"


async def test_documents_of_a_gateway_that_wraps_results(tmp_path: Path) -> None:
    emulator = emulated()
    emulator.documents.wraps = True
    async with documents(tmp_path, emulator=emulator) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        assert "three lamps" in await asks(house, calls(FETCH))


async def test_documents_token_follows_no_redirect(tmp_path: Path) -> None:
    stolen: list[Any] = []

    async def thief(scope: Any, receive: Any, send: Any) -> None:
        stolen.append(scope)

    async with documents(tmp_path) as house, serve_on_loopback(thief) as url:
        await log_in(house, ALICE, ALICE_CHAT)
        house.feishu.documents.redirect_next("tools/call", f"{url}/mcp")
        house.feishu.documents.redirect_next("initialize", f"{url}/mcp")
        for _ in range(2):
            await asks(house, calls(FETCH))
        assert not house.feishu.documents.called
        assert not stolen


async def test_documents_offer_what_the_config_names(tmp_path: Path) -> None:
    async with documents(tmp_path, server(tools=["fetch-doc"])) as house:
        await asks(house, calls(SEARCH))
        assert "docs__fetch-doc" in prompt(house)
        names = [it["name"] for it in house.anthropic.requests[-1].body["tools"]]
        assert [it for it in names if it.startswith("docs")] == ["docs__fetch-doc"]


async def test_documents_follow_an_edit_of_the_config(tmp_path: Path) -> None:
    async with documents(tmp_path) as house:
        file = tmp_path / "config.yaml"
        reload = Reload(house.gateway, file, SECRETS, load(file, SECRETS), applied=lambda config: None)
        house.gateway.spawn(reload.run())
        await log_in(house, ALICE, ALICE_CHAT)
        assert "three lamps" in await asks(house, calls(FETCH))
        before = house.gateway.runtime.setup.mcp.servers["docs"]
        await Editor(house).replace(f"as: person, tools: [{', '.join(TOOLS)}]", "as: app, tools: [fetch-doc]")
        await house.until(lambda: before.is_closed)
        await house.until(lambda: not house.gateway.runtime.setup.mcp.servers["docs"].fault)
        assert code(await asks(house, calls(FETCH))) == "APP_LACKS_SCOPE"
        assert house.feishu.documents.asked[-1] == ("tools/call", APP, ("fetch-doc",))
