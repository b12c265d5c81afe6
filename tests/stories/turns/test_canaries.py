"""Every configured secret is a canary: whatever a model, a tool, a person or a vendor does with them, none is written."""

import base64
import io
import logging
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson
import pytest
import structlog

from gateway.observe import logs
from tests.emulators.models.script import calls, says
from tests.running import ALICE_CHAT, SECRETS, client, push, running
from tests.stories.at_work import RUNS, results, works
from tests.stories.config.test_reload import edited
from tests.web_page import CHAT, WEB, opened

TOKEN = "canary-admin-token-91827-91827-91827"
PASSED_ON = "canary-header-91827"
ALL = (*SECRETS.values(), TOKEN, PASSED_ON)
FORMS = [
    form for it in ALL for form in (it, base64.b64encode(it.encode()).decode(), quote(it + "/&"), it.encode().hex())
]
CONFIG: dict[str, Any] = {
    "feishu": WEB,
    "providers": f"  other: {{ api: openai-chat, baseUrl: 'http://127.0.0.1:9/v1', headers: {{ x-key: {PASSED_ON} }} }}\n",
    "more": f"server: {{ adminToken: {TOKEN} }}\n{RUNS}",
}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """What is written to the log, down to `debug`, from the moment that a test gives it a scrubber."""
    root, stream, shown = logging.getLogger(), io.StringIO(), structlog.get_config()
    before, level = root.handlers, root.level
    yield stream
    structlog.configure(**shown)
    root.handlers = before
    root.setLevel(level)


def leaks(text: str) -> set[str]:
    """What a text shows of a canary: the end of it, or a piece of one of its other forms."""
    pieces = {form[at : at + 12] for form in FORMS if "91827" not in form for at in range(len(form) - 12)}
    return {piece for piece in (*pieces, "91827") if piece in text}


async def test_secret_canaries_are_never_written(tmp_path: Path, log: io.StringIO) -> None:
    everything = "\n".join(f"<{form}>" for form in FORMS)
    async with running(tmp_path, **CONFIG) as house:
        logs.configure(level="debug", output="json", scrubber=house.gateway.runtime.scrubber, stream=log)
        (house.workspace() / "secrets.txt").write_text(everything)
        commands = ({"command": "cat secrets.txt; base64 secrets.txt >&2; exit 3"}, {"command": f"echo {TOKEN[:12]}"})
        found = await works(house, ("read", {"file_path": "secrets.txt"}), *(("exec", it) for it in commands))
        assert "***" in found[0]
        house.anthropic.script = [
            calls(("message", {"action": "send", "message": everything}), ("read", {"file_path": TOKEN})),
            says(f"Half of it is {TOKEN[:18]}, the rest {TOKEN[18:]}.\n\n{everything}"),
        ]
        await house.say("tell me")
        answers = await house.replies(3)
        assert "Half of it is ***" in answers[-1]
        event = house.feishu.text_event("x", sender="ou_x", chat=ALICE_CHAT)
        event["header"]["token"] = SECRETS["FEISHU_ENCRYPT_KEY"]
        assert (await push(house.feishu, house.url, event)).status_code == 401
        async with client(house.url) as http:
            for address in ("/metrics", "/api/chats", "/webhooks/telegram/default", "/nothing"):
                answer = await http.get(f"{address}?token={TOKEN}", headers={"authorization": f"Bearer x{TOKEN}"})
                assert not leaks(answer.text)
        logging.getLogger("some.library").debug("%s", [{TOKEN: (everything,)}], extra={"more": everything})
        structlog.get_logger().error("failed", exc_info=ValueError(everything), key=everything.encode())
        given = [result for request in house.anthropic.requests for result in results(request.body)]
    with sqlite3.connect(tmp_path / "data" / "clawgate.db") as database:
        queued = [payload for (payload,) in database.execute("SELECT payload FROM outbox")]
    said = [message.text for message in house.feishu.messages]
    for places in (given, queued, said, [log.getvalue()]):
        assert not leaks("\n".join(places))
        assert "***" in "".join(places)


async def test_secret_canaries_never_reach_a_page_in_any_cut(tmp_path: Path) -> None:
    async with running(tmp_path, **CONFIG) as house, opened(house.url, authorization=f"Bearer {TOKEN}") as page:
        for text in (f"It is {TOKEN}.", f"{TOKEN[:20]} and {TOKEN[20:]}", f"`{PASSED_ON}`"):
            house.anthropic.script = [calls(("ls", {"path": TOKEN}), (TOKEN, {})), says(text, pause_seconds=0.03)]
            count = len(page.written())
            await page.say("tell me")
            await page.answers(count + 1)
        (house.workspace() / f"a-{TOKEN}.txt").write_text(f"one\n{TOKEN}\n")
        (house.workspace() / "a.bin").write_bytes(b"\xff\x00\xff")
        house.anthropic.script = [says(f"Here.\n\nMEDIA: ./a-{TOKEN}.txt\nMEDIA: ./a.bin")]
        await page.say("send them")
        await page.answers(4)
        await page.say("/export")
        await page.answers(5)
        found = [file["id"] for answer in page.written() for file in answer["files"]]
        files = [(await page.http.get(f"/api/files/{name}")).content for name in found]
        assert files[:2] == [b"one\n***\n", b"\xff\x00\xff"]
        assert len(files) == 3
        assert not leaks(files[2].decode())
        seen = orjson.dumps([event.data for event in page.events]).decode()
        kept = orjson.dumps(await page.conversation()).decode()
        await page.say(f"my own words hold {TOKEN} and {PASSED_ON[:9]}")
        await page.answers(6)
        exported = await page.http.get(f"/api/chats/{CHAT}/export")
        assert "my own words hold *** and " in exported.text
        assert not leaks(exported.text + str(exported.headers))
    assert page.drafts()
    assert not leaks(seen)
    assert not leaks(kept)


async def test_secret_revoked_by_a_reload_stays_masked(tmp_path: Path) -> None:
    new = "canary-new-key-91827"
    async with edited(tmp_path) as (house, editor):
        await editor.replace("${ANTHROPIC_API_KEY}", new)
        house.anthropic.api_key = new
        house.anthropic.script = [says(f"{SECRETS['ANTHROPIC_API_KEY']} was replaced by {new}")]
        await house.say("which key?")
        assert await house.replies(1) == ["*** was replaced by ***"]
