"""`${person:feishu}` in the headers or the environment of an MCP server: each call has the token of the one who asks."""

import hashlib
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from gateway.config.load import load
from gateway.config.problems import ConfigErrors
from tests.emulators.models.script import calls
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, SECRETS, Running, config_text
from tests.stories.login.test_refresh import CANARY
from tests.stories.process.test_process import ask
from tests.stories.tools.test_feishu import IN_GROUP, asks, code, log_in
from tests.stories.tools.test_feishu_documents import FETCH, documents, emulated
from tests.stories.tools.test_mcp import agents, behave, evil, servers
from tools.mcp import person

pytestmark = pytest.mark.slow
PERSON = "${person:feishu}"
WHOSE: tuple[str, dict[str, Any]] = ("evil__whose", {})
IN_ENV = servers(evil=evil(f'env: {{ TOKEN: "{PERSON}" }}, effect: safe'))


def digest(house: Running, person: str) -> str:
    """That of the person's newest token."""
    token = next(it.access for it in reversed(house.feishu.logins.pairs) if it.person == person)
    return hashlib.sha256(token.encode()).hexdigest()


@asynccontextmanager
async def program(tmp_path: Path, more: str = IN_ENV, **config: Any) -> AsyncIterator[Running]:
    behave(tmp_path, tools={"whose": "Tells whose token it has.", "hang": "Hangs.", "die": "Dies."})
    async with documents(tmp_path, more, agents=agents("mcp:evil"), **config) as house:
        yield house


async def whose(house: Running, **who: Any) -> tuple[str, str, bool, bool]:
    """What the program of a person says: the digest of its token, its run, and whether it finds what one before it left
    in its folder, and the server's own file."""
    found = re.search(
        r"([0-9a-f]{64}) ([0-9a-f]{16}) (True|False) (True|False)", await asks(house, calls(WHOSE), **who)
    )
    assert found
    return found[1], found[2], found[3] == "True", found[4] == "True"


async def test_person_in_env_is_a_process_for_each(tmp_path: Path) -> None:
    """A new token is a new process, in a folder where nobody has been."""
    async with program(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        await log_in(house, BOB, BOB_CHAT)
        ann = await whose(house, sender=ALICE, **IN_GROUP)
        bob = await whose(house, sender=BOB, **IN_GROUP)
        again = await whose(house, sender=ALICE, **IN_GROUP)
        assert [ann[0], bob[0]] == [digest(house, ALICE), digest(house, BOB)]
        assert again[:2] == ann[:2]
        assert bob[1] != ann[1]
        assert [ann[2:], bob[2:], again[2:]] == [(False, False), (False, False), (True, False)]
        runtime = house.gateway.runtime
        login = await runtime.store.logins.get("feishu", "default", ALICE)
        assert login is not None
        house.gateway.runtime.now = lambda: login.access_until
        fresh = await whose(house, sender=ALICE, **IN_GROUP)
        assert fresh[0] == digest(house, ALICE) != ann[0]
        assert (fresh[1] != ann[1], fresh[2]) == (True, False)


async def test_person_in_env_ends_when_idle_or_crowded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(person, "PROCESSES_MAX", 1)
    async with program(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        await log_in(house, BOB, BOB_CHAT)
        server = house.gateway.runtime.setup.mcp.servers["evil"].person
        await whose(house, sender=ALICE, **IN_GROUP)
        await whose(house, sender=BOB, **IN_GROUP)
        await house.until(lambda: len(server._tasks) == 1)
        monkeypatch.setattr(person, "IDLE_SECONDS", 0.05)
        await whose(house, sender=ALICE, **IN_GROUP)
        await house.until(lambda: not server._tasks)
        assert (await whose(house, sender=BOB, **IN_GROUP))[0] == digest(house, BOB)


async def test_person_in_env_starts_anew_after_its_end(tmp_path: Path) -> None:
    async with program(tmp_path) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        before = await whose(house)
        assert code(await asks(house, calls(("evil__die", {})))) == "TOOL_UNAVAILABLE"
        after = await whose(house)
        assert after[0] == before[0]
        assert after[1] != before[1]


async def test_person_in_env_asks_unless_the_server_only_reads(tmp_path: Path) -> None:
    more = servers(evil=evil(f'env: {{ TOKEN: "{PERSON}" }}'))
    async with program(tmp_path, more) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        assert code(await asks(house, calls(WHOSE))) == "EXEC_APPROVAL_PENDING"


async def test_person_in_headers_of_a_server_of_the_official_sdk(tmp_path: Path) -> None:
    """Each call is a session for itself; the tools are listed without the header."""
    judge, seen = MCPServer("judge"), list[str]()

    @judge.tool()
    def whose_header(context: Context) -> str:
        """Tells whose token it was called with."""
        headers = context.request_context.request.headers  # type: ignore[union-attr]
        seen.append(headers["x-plain"])
        scheme, _, token = headers["authorization"].partition(" ")
        return f"{scheme} {hashlib.sha256(token.encode()).hexdigest()}"

    app = judge.streamable_http_app()
    async with judge.session_manager.run(), serve_on_loopback(app) as url:
        headers = f'headers: {{ Authorization: "Bearer {PERSON}", X-Plain: plain }}'
        more = servers(judge=f'url: "{url}/mcp", allowPrivate: [127.0.0.1], effect: safe, {headers}')
        async with documents(tmp_path, more, agents=agents("mcp:judge")) as house:
            await log_in(house, ALICE, ALICE_CHAT)
            await log_in(house, BOB, BOB_CHAT)
            call = calls(("judge__whose_header", {}))
            for who in (ALICE, BOB, ALICE):
                assert f"Bearer {digest(house, who)}" in await asks(house, call, sender=who, **IN_GROUP)
            assert seen == ["plain"] * 3


async def test_person_token_is_in_no_file_log_or_listing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A program says the token, and complains of it; Feishu's own server is called with it. The app's token counts, too."""
    emulator = emulated()
    emulator.logins.prefix = CANARY
    behave(tmp_path, tools={"tell": "Tells its environment.", "leak": "Complains, and dies."})
    tools = "docs: { feishu: default, tools: [fetch-doc, no-doc], allowPrivate: [127.0.0.1] }"
    more = f"{IN_ENV}\n    {tools}"
    async with documents(tmp_path, more, agents=agents("mcp:evil", "mcp:docs"), emulator=emulator) as house:
        await log_in(house, ALICE, ALICE_CHAT)
        assert "three lamps" in await asks(house, calls(FETCH))
        assert "None" not in (told := await asks(house, calls(("evil__tell", {}))))
        assert "TOKEN" in told
        assert code(await asks(house, calls(("evil__leak", {})))) == "TOOL_UNAVAILABLE"
        secrets = {CANARY, *emulator.tokens}
        asked_of_model = json.dumps([it.body for it in house.anthropic.requests])
        shown = "".join(house.feishu.reads(it) for it in house.feishu.messages)
        emulator.logins.scopes -= {"im:chat:read"}
        config = str(tmp_path / "config.yaml")
        outputs = [await ask(*words, "--config", config, more=SECRETS) for words in (("mcp", "list"), ("doctor",))]
        failed, tried = await ask(
            "mcp", "try", "docs", "fetch-doc", json.dumps(FETCH[1]), "--config", config, more=SECRETS
        )
    listed, examined = (output for _, output in outputs)
    assert "docs__fetch-doc  accepted" in listed
    assert "it does not offer no-doc" in examined
    assert "people cannot grant im:chat:read" in examined
    assert (failed, "its calls need a person" in tried) == (1, True)
    written, errors = capfd.readouterr()
    everywhere = asked_of_model + shown + listed + examined + tried + written + errors + caplog.text
    assert [it for it in {*secrets, *emulator.tokens} if it in everywhere] == []
    files = [it for it in tmp_path.rglob("*") if it.is_file()]
    assert [it for it in files if CANARY.encode() in it.read_bytes()] == []


WRONG = {
    'mcp: { servers: { a: { url: "https://a.example/${person:feishu}" } } }': (
        "mcp.servers.a.url",
        "write it only in headers or env of a server in mcp.servers",
    ),
    'x-a: "${person:feishu}"': ("x-a", "write it only in headers or env"),
    'mcp: { servers: { a: { url: "https://a.example", headers: { A: "${person:telegram}" } } } }': (
        "mcp.servers.a.headers.A",
        "expected ${person:feishu} or ${person:feishu:ACCOUNT}",
    ),
    'mcp: { servers: { a: { url: "https://a.example", headers: { A: "${person:feishu:work}" } } } }': (
        "mcp.servers.a",
        "unknown Feishu account",
    ),
    "mcp: { servers: { a: { feishu: work, tools: [fetch-doc] } } }": ("mcp.servers.a.feishu", "unknown Feishu account"),
    "mcp: { servers: { a: { feishu: default } } }": ("mcp.servers.a", "tools: missing"),
    "mcp: { servers: { a: { feishu: default, tools: [a], effect: safe } } }": ("mcp.servers.a", "effect: not for"),
    'mcp: { servers: { a: { feishu: default, tools: ["a,b"] } } }': ("mcp.servers.a.tools[0]", "must match"),
    "mcp: { servers: { a: { url: 'https://a.example', as: app } } }": ("mcp.servers.a", "as: not for"),
}


@pytest.mark.parametrize("written", WRONG)
def test_person_written_elsewhere_is_a_mistake_with_its_place(tmp_path: Path, written: str) -> None:
    file = tmp_path / "config.yaml"
    text = config_text(feishu_url="http://127.0.0.1:1", anthropic_url="http://127.0.0.1:1", more=written)
    file.write_text(text, encoding="utf-8")
    key, message = WRONG[written]
    with pytest.raises(ConfigErrors) as caught:
        load(file, SECRETS)
    problem = str(caught.value)
    line = text.splitlines().index(written) + 1
    assert re.search(rf":{line}:\d+", problem), problem
    assert key in problem
    assert message in problem
