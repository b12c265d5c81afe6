"""A command that an agent runs is at this machine, too, and is nobody: the web chat's door treats it like a stranger."""

import re
from pathlib import Path
from shlex import quote

import orjson
import pytest

from tests.emulators.models.script import calls, says
from tests.running import AGENTS, BOB, BOB_CHAT, client, running
from tests.stories.at_work import RUNS, results, works
from tests.stories.process.test_process import platforms, started
from tests.web_page import CHAT, WEB, opened

TOKEN = "canary-admin-token-91827"
SECRET = "The operator's own words"
MESSAGE = {"id": "m_12345678", "chat": CHAT, "agent": "helper", "text": "sent by a command", "files": []}
REQUESTS = [
    ("GET", "/api/chats", b""),
    ("GET", f"/api/chats/{CHAT}", b""),
    ("PATCH", f"/api/chats/{CHAT}", b'{"title": "renamed by a command"}'),
    ("POST", "/api/files?name=a.txt", b"uploaded by a command"),
    ("GET", "/api/files/{file}", b""),
    ("GET", "/api/events?after=0", b""),
    ("POST", "/webhooks/web/default", orjson.dumps(MESSAGE)),
    ("DELETE", f"/api/chats/{CHAT}", b""),
]
QUIET = "agents: { list: [ { id: helper, model: anthropic/claude-sonnet-4-6 } ] }"
"""Its agent runs no commands, so the page is open."""


def command(url: str, file: str) -> str:
    """Every request that reads, writes or deletes, with whatever a page could send."""
    lines = []
    for method, path, body in REQUESTS:
        address = f"{url}{path.replace('{file}', file)}"
        origin = f"-H 'origin: {url}' -H 'sec-fetch-site: same-origin'"
        data = f"--data-binary {quote(body.decode())}" if body else ""
        lines.append(
            f"curl -s -m 2 -o body -w '%{{http_code}} ' -X {method} -H 'x-clawgate: 1' {origin} {data} {quote(address)}; "
            "head -c 300 body; echo"
        )
    return "\n".join(lines)


async def test_exec_cannot_reach_the_operators_web_chats(tmp_path: Path) -> None:
    quiet = running(tmp_path, script=[says("Noted.")], agents=QUIET, feishu=WEB)
    async with quiet as house, opened(house.url) as page:
        file = (await page.upload(b"a file of mine", "mine.txt", "text/plain")).json()["id"]
        await page.say(SECRET, files=[file])
        await page.answers(1)
        before = await page.conversation()
    for token in ("", TOKEN):
        server = f"server: {{ adminToken: '{token}' }}\ntools: {{ exec: {{ mode: allow, sandbox: off }} }}"
        async with running(tmp_path, agents=AGENTS, more=server, feishu=WEB) as house:
            house.anthropic.script = [calls(("exec", {"command": command(house.url, file)})), says("Done.")]
            await house.say("run it")
            assert await house.replies(1) == ["Done."]
            output = results(house.anthropic.requests[-1].body)[-1]
        codes = [line[:3] for line in output.splitlines() if line[:3].isdigit()]
        assert codes == ["401"] * len(REQUESTS), token or "without a token"
        assert SECRET not in output
        assert "mine" not in output
    async with running(tmp_path, agents=QUIET, feishu=WEB) as house, opened(house.url) as page:
        assert await page.conversation() == before


FETCH = '''
import asyncio
from urllib.error import HTTPError
from urllib.request import urlopen


async def fetch(url: str) -> str:
    """Fetch a page."""
    def got() -> str:
        try:
            return urlopen(url, timeout=10).read().decode()
        except HTTPError as error:
            return f"no page: {error}"

    return await asyncio.to_thread(got)
'''


PRESENT = (
    "tools: { directories: [./tools.d] }",
    "mcp: { servers: { away: { command: [/usr/bin/no-such-program], sandbox: off } } }",
    'mcp: { servers: { near: { url: "http://127.0.0.1:9/mcp", allowPrivate: [127.0.0.1] } } }',
    "tools: { web: { fetch: { allowPrivate: [127.0.0.1] } } }",
)
"""What a model can send requests from this machine with."""


@pytest.mark.parametrize("more", PRESENT)
async def test_unsandboxed_tool_cannot_read_the_operators_page(tmp_path: Path, more: str) -> None:
    """Whoever may write to the bot has its model call the tool. So being at this machine signs nobody in."""
    (tmp_path / "tools.d").mkdir()
    (tmp_path / "tools.d" / "fetch.py").write_text(FETCH, encoding="utf-8")
    agents = QUIET.replace(" } ]", ", tools: { allow: [fetch] } } ]") if "directories" in more else QUIET
    async with running(tmp_path, agents=agents, more=more, feishu=WEB) as house, client(house.url) as http:
        for path in ("/api/turns", "/api/search?words=operator", f"/api/chats/{CHAT}", "/api/console/state"):
            assert (await http.get(path)).status_code == 401
            if agents is not QUIET:
                (found,) = await works(house, ("fetch", {"url": f"{house.url}{path}"}), sender=BOB, chat=BOB_CHAT)
                assert "401" in found


async def test_login_link_is_printed_once_and_works_once(tmp_path: Path) -> None:
    async with platforms(tmp_path, channels="web: {}", more=RUNS) as (_, _, config), started(config) as run:
        (line,) = [line for line in run.output if line.startswith("  sign in ")]
        found = re.fullmatch(r"  sign in    (\S+)/#sign-in=(\S+) \(once, within 60 min\)\n", line)
        assert found is not None
        url, code = found.groups()
        assert url == run.url
        async with client(url, headers={"x-clawgate": "1"}) as http:
            assert (await http.get("/api/chats")).status_code == 401
            assert (await http.post("/api/session", json={"token": code})).status_code == 204
            assert (await http.get("/api/chats")).json()["signed_in"] is True
            again = await http.post("/api/session", json={"token": code})
        assert (again.status_code, again.json()["code"]) == (401, "link-spent")
        assert "Restart the gateway" in again.json()["error"]
        process = Path("/proc", str(run.process.pid))
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert [path for path in files if code.encode() in path.read_bytes()] == []
        assert [name for name in ("environ", "cmdline") if code.encode() in (process / name).read_bytes()] == []
        assert sum(code in line for line in run.output) == 1
