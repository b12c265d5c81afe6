"""Two gateways on one PostgreSQL, side by side: who owns a chat, and what reaches its owner from the other."""

import asyncio
import zlib
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from random import Random

import orjson
import psycopg
import pytest

from gateway.app.gateway import Gateway
from gateway.config.load import load
from gateway.store.errors import NOTIFY_CHANNEL
from gateway.store.opening import open_store
from tests.emulators.models.script import calls, says
from tests.loopback import serve_on_loopback
from tests.running import AGENTS, ALICE, ALICE_CHAT, FEISHU, SECRETS, Running, client, running, started
from tests.stories.at_work import NEVER, RUNS, users
from tests.web_page import CHAT, WEB, opened

TWO_AGENTS = f"{AGENTS}    - {{ id: second, model: anthropic/claude-sonnet-4-6 }}\n"


@asynccontextmanager
async def two(
    folder: Path, postgres_url: str, script: object, more: str = "", feishu: str = FEISHU, agents: str = AGENTS
) -> AsyncIterator[list[Running]]:
    """The second one shares the first one's config, emulators and database."""
    more = f'database: {{ url: "{postgres_url}" }}\n{more}'
    async with running(folder, script=script, more=more, feishu=feishu, agents=agents) as first:  # type: ignore[arg-type]
        config = load(folder / "config.yaml", SECRETS).config
        gateway = Gateway(config, SECRETS, store=open_store(config.database))
        await started(gateway)
        try:
            async with serve_on_loopback(gateway.app, http=gateway.connections.protocol) as url:
                yield [first, replace(first, gateway=gateway, url=url)]
                await gateway.drain()
        finally:
            await gateway.lanes.drain(0)
            await gateway.close()


async def test_replicas_dedupe_an_event_delivered_to_both(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, lambda _: says("here")) as houses:
        event = houses[0].feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT)
        answers = await asyncio.gather(*(house.push(event) for house in houses * 5))
        assert {answer.status_code for answer in answers} == {200}
        await houses[0].replies(1)
        for house in houses:
            await house.idle()
        assert len(houses[0].anthropic.requests) == 1


async def test_replicas_hand_messages_to_the_lease_owner(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [says("slow"), says("both")]) as (one, other):
        one.line.hold()
        await one.say("first")
        await one.requested(1)
        await other.say("second")
        await other.say("third")
        one.line.release()
        assert await one.replies(2) == ["slow", "both"]
        words = "\n".join(users(one.anthropic.requests[1].body))
        assert words.index(": second") < words.index(": third")


@pytest.mark.parametrize("mode", ["collect", "interrupt"])
async def test_replicas_pass_a_stop_to_the_lease_owner(tmp_path: Path, postgres_url: str, mode: str) -> None:
    more = f"queue: {{ mode: {mode} }}"
    async with two(tmp_path, postgres_url, [NEVER, says("fresh")], more) as (one, other):
        await one.say("first")
        await one.requested(1)
        if mode == "collect":
            await other.say("/stop")
            assert (await one.replies(1))[0].startswith("Stopped.")
            await one.idle()
        await other.say("second")
        assert (await one.replies(2 if mode == "collect" else 1))[-1] == "fresh"


async def test_replicas_know_who_answers_a_chat(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, [says("here")], agents=TWO_AGENTS) as (one, other):
        await one.say("/agent second")
        await one.replies(1)
        await other.until(lambda: "second" in other.gateway.runtime.choices._chosen.values())
        await other.say("/start")
        assert "I am second" in (await one.replies(2))[1]


async def test_replicas_hand_over_leases_at_shutdown(tmp_path: Path, postgres_url: str) -> None:
    wait = ("exec", {"command": "touch begun; until [ -e go ]; do sleep 0.02; done; echo ran >> ran.txt"})
    async with two(tmp_path, postgres_url, [calls(wait), says("done")], RUNS) as (one, other):
        await other.say("run it")
        await one.requested(1)
        await other.until((one.workspace() / "begun").exists)
        draining = asyncio.create_task(other.gateway.drain())
        await other.until(lambda: other.gateway.runtime.control.draining)
        (one.workspace() / "go").touch()
        await draining
        assert await one.replies(1) == ["done"]
        assert (one.workspace() / "ran.txt").read_text() == "ran\n"
        assert "INTERRUPTED" not in str(one.anthropic.requests[-1].body)


async def test_replicas_without_the_lease_send_nothing(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path, postgres_url, [says("slow"), says("again")]) as (one, other):
        one.line.hold()
        await other.say("hello")
        await one.requested(1)
        owner = other.gateway.runtime.store
        monkeypatch.setattr(owner._presence, "lease_valid", lambda: False)  # type: ignore[attr-defined]
        address = owner._conninfo  # type: ignore[attr-defined]
        with psycopg.connect(address, autocommit=True) as connection:
            dead = [owner.worker]
            connection.execute("UPDATE session SET owner = NULL, epoch = epoch + 1 WHERE owner = %s", dead)
        one.line.release()
        assert len(await one.replies(1)) == 1
        await one.idle()
        assert len(one.feishu.messages) == 1
        await other.until(lambda: other.counted("clawgate_fenced_total 1.0"))
        assert len(one.feishu.messages) == 1


async def test_replicas_share_web_sessions(tmp_path: Path, postgres_url: str) -> None:
    token = "canary-admin-token-91827"
    more = f"server: {{ host: 0.0.0.0, adminToken: {token} }}"
    page = {"x-clawgate": "1"}
    both = two(tmp_path, postgres_url, [], more, feishu=WEB)
    async with both as (one, other), client(headers=page) as http:
        signed_in = await http.post(f"{one.url}/api/session", json={"token": token})
        http.cookies.clear()
        http.headers["cookie"] = signed_in.headers["set-cookie"].partition(";")[0]
        assert [(await http.get(f"{it.url}/api/chats")).status_code for it in (one, other)] == [200, 200]
        assert (await http.delete(f"{other.url}/api/session")).status_code == 204
        assert [(await http.get(f"{it.url}/api/chats")).status_code for it in (one, other)] == [401, 401]


async def test_replicas_stream_a_turn_to_each_others_pages(tmp_path: Path, postgres_url: str) -> None:
    """The text is longer than one notice, and does not pack."""
    text = "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyzäöü你好", k=20_000))
    script = [calls(("ls", {})), says(f"{text}\n\nthe end"), says("another end")]
    agents = AGENTS.replace(
        "[read, write, edit, ls, exec, message]", "[ls]"
    )  # so that the page is open to this machine
    both = two(tmp_path, postgres_url, script, feishu=WEB, agents=agents)
    async with both as (one, other), opened(one.url) as here, opened(other.url) as there:
        one.line.hold(after_pieces=1_500)
        await here.say("tell me", message="m_first_of_all")
        await there.until(lambda: text[:17_000] in "".join(there.drafts()[-1:]))
        assert [(it["name"], it["state"]) for it in there.named("turn")[-1]["tools"]] == [("ls", "done")]
        assert [it["running"] for it in await there.chats()] == [True]
        async with opened(other.url) as late:
            await late.until(lambda: text[:17_000] in "".join(late.drafts()[-1:]))
        one.line.release()
        (answer,) = await there.answers(1)
        assert answer == f"{text}\n\nthe end"
        await there.until(lambda: not there.named("turn")[-1]["running"])
        assert [it["running"] for it in await there.chats()] == [False]
        assert there.named("turn")[-1]["outcome"] == "replied"
        assert {it["chat"] for it in there.named("draft")} == {CHAT}
        # It is edited at the other one, and this one's page turns back to the first version.
        posted = {"id": "m_second_one", "chat": CHAT, "agent": "helper", "text": "again", "instead": "m_first_of_all"}
        assert (await there.http.post("/webhooks/web/default", json=posted)).status_code == 200
        assert (await here.answers(2))[1] == "another end"
        assert here.written("you")[-1]["instead"] == "m_first_of_all"
        for page in (here, there):
            assert [it["text"] for it in (await page.conversation())["messages"]] == ["again", "another end"]
        shown = (await here.conversation())["chat"]["branch"]
        first = here.written("you")[0]["id"]
        assert (await here.http.patch(f"/api/chats/{CHAT}", json={"branch": first})).status_code == 200
        await there.until(lambda: there.named("chat")[-1]["branch"] not in (0, shown))
        assert [it["text"] for it in (await there.conversation())["messages"]] == ["tell me", answer]


async def test_replicas_stream_only_to_the_person_and_no_secrets(tmp_path: Path, postgres_url: str) -> None:
    """Neither on a page nor on the way, which is the database."""
    secret, ann, bob = SECRETS["ANTHROPIC_API_KEY"], "a" * 40, "b" * 40
    server = f"server: {{ users: {{ ann: {ann}, bob: {bob} }} }}"
    both = two(tmp_path, postgres_url, [says(f"one {secret} two\n\nthree " * 9)], server, feishu=WEB)
    async with (
        both as (one, other),
        await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as listening,
        opened(one.url, authorization=f"Bearer {ann}") as here,
        opened(other.url, authorization=f"Bearer {ann}") as there,
        opened(other.url, authorization=f"Bearer {bob}") as elsewhere,
    ):
        await listening.execute(f"LISTEN {NOTIFY_CHANNEL}")
        one.line.hold(after_pieces=20)
        await here.say("tell me")
        await there.until(lambda: "three" in "".join(there.drafts()[-1:]))
        one.line.release()
        await there.answers(1)
        notices = [it.payload async for it in listening.notifies(timeout=0)]
    shown = [
        zlib.decompress(b64decode(it.split(" ")[3])).decode()
        for it in notices
        if it.startswith("live ") and it[-1] != " "
    ]
    assert any("three" in it for it in shown)
    assert secret not in str([shown, there.events, here.events])
    assert all(orjson.loads(it)[2] == "ann" for it in shown)
    assert elsewhere.named("draft") == elsewhere.named("turn") == elsewhere.named("message") == []


async def test_replicas_end_the_stream_of_a_dead_one(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.app.worker_notices.ASK_SECONDS", 0.02)
    monkeypatch.setattr("gateway.app.worker_notices.ASKED_SECONDS", 0.5)
    monkeypatch.setattr("channels.web.channel.ALIVE_SECONDS", 0.05)
    both = two(tmp_path, postgres_url, [NEVER], feishu=WEB, agents=AGENTS.replace("exec, ", ""))
    async with both as (one, other), opened(other.url) as there:
        async with opened(one.url, watching=False) as here:
            await here.say("tell me")
        await there.until(lambda: there.named("turn"))
        assert there.named("turn")[-1]["running"]
        replicas = one.gateway.others.replicas
        assert replicas is not None
        monkeypatch.setattr(replicas, "_send", lambda *_: None)  # as one that is gone
        await there.until(lambda: there.named("turn")[-1]["outcome"] == "interrupted")
        monkeypatch.undo()
        there.events.clear()
        await there.until(lambda: there.named("turn"))  # it was not gone: it is heard again
        assert there.named("turn")[-1]["running"]
