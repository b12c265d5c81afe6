"""What the console asks, over HTTP: an act on what is not there, the config without its secrets, tools and their reasons."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from gateway.operate.sessions import listed, summary
from gateway.store import conversations
from gateway.store.conversations import Session
from gateway.store.records import SessionMark
from gateway.store.sessions import chat_session
from gateway.web.console import ROWS_MAX
from tests.case import case
from tests.running import SECRETS, client, running
from tests.stories.tools.test_mcp import agents, behave, evil, ready, servers
from tests.web_page import WEB
from tools.mcp.server import Review

ADMIN, ANN = "canary-admin-token-9182736455", "canary-ann-token-9182736455"
SERVER = f"server: {{ adminToken: {ADMIN}, users: {{ ann: {ANN} }} }}"


@pytest.mark.parametrize(
    ("path", "body", "refusal"),
    [
        ("approvals/AAAA-BBBB-CCCC", {"decision": "deny"}, (404, "no-such-approval")),
        ("approvals/AAAA-BBBB-CCCC", {"decision": "allow-everything"}, (400, "unreadable")),
        ("people", {"request": 7}, (409, "not-waiting")),
        ("people", {"request": "7"}, (400, "unreadable")),
        ("dead-letters", {"names": ["part-9"]}, (409, "no-dead-letter")),
        ("dead-letters", {"names": []}, (400, "unreadable")),
    ],
)
async def test_console_act_on_a_missing_object_changes_nothing(
    tmp_path: Path, path: str, body: dict[str, object], refusal: tuple[int, str]
) -> None:
    async with running(tmp_path, feishu=WEB, more=SERVER) as house:
        headers = {"authorization": f"Bearer {ADMIN}", "x-clawgate": "1"}
        async with client(house.url, headers=headers) as http:
            answer = await http.post(f"/api/console/{path}", json=body)
        assert (answer.status_code, answer.json()["code"]) == refusal


async def test_console_config_shows_no_secret(tmp_path: Path) -> None:
    key, word, team = "sk-canary-of-the-config-1234", "pass-word", "blue-team-canary"
    url = f"https://carl:{word}@models.example/v1"
    proxied = f'  proxied: {{ api: openai-chat, baseUrl: "{url}", apiKey: {key}, headers: {{ x-team: {team} }} }}'
    operator = {"authorization": f"Bearer {ADMIN}"}
    async with (
        running(tmp_path, feishu=WEB, more=SERVER, providers=proxied) as house,
        client(house.url, headers=operator) as http,
    ):
        shown = (await http.get("/api/console/config")).json()
    assert shown["problems"] == []
    for text in (shown["written"], shown["whole"]):
        assert "https://***@models.example/v1" in text
        assert not [it for it in (ADMIN, ANN, key, word, team, *SECRETS.values()) if it in text]


async def test_console_usage_covers_a_month_and_at_most_a_year(tmp_path: Path) -> None:
    operator = {"authorization": f"Bearer {ADMIN}"}
    async with running(tmp_path, feishu=WEB, more=SERVER) as house, client(house.url, headers=operator) as http:
        for asked, days in (("", 30), ("?days=7", 7), ("?days=9999", 366), ("?days=soon", 30)):
            answer = await http.get(f"/api/console/usage{asked}")
            assert len(answer.json()["days"]) == days, asked


async def test_console_sessions_page_reads_only_its_rows(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = f'{SERVER}\ndatabase: {{ url: "{database_url}" }}'
    operator = {"authorization": f"Bearer {ADMIN}"}
    async with running(tmp_path, feishu=WEB, more=more) as house, client(house.url, headers=operator) as http:
        store, chats = house.gateway.runtime.store, [f"oc_{number:032d}" for number in range(ROWS_MAX + 3)]
        for number, chat in enumerate(chats):
            await house.say(f"hello {number}", chat=chat)
            await house.replies(number + 1)
        await house.say("again", chat=chats[1])
        await house.replies(len(chats) + 1)
        await house.idle()
        again = chat_session("helper", "feishu", "default", chats[1])
        await store.mark(again, SessionMark(turn=len(chats) + 1, kind="new", at=1.0))
        await house.say("anew", chat=chats[1])
        await house.replies(len(chats) + 2)
        await house.idle()
        whole = {it.id: it for it in listed(house.gateway.config)}
        assert len(whole) == len(chats) + 1

        rows_read, read = list[str](), conversations.read

        def counted(connection: Connection, session: Session) -> Session:
            rows_read.append(session.id)
            return read(connection, session)

        monkeypatch.setattr(conversations, "read", counted)
        newest = [chats[1], chats[1], *chats[:1:-1], chats[0]]
        for query, shown in (
            ("", newest[:ROWS_MAX]),
            (f"?from={ROWS_MAX}", newest[ROWS_MAX:]),
            (f"?words={chats[0]}", [chats[0]]),
            ("?channel=telegram", []),
        ):
            rows_read.clear()
            found = (await http.get(f"/api/sessions{query}")).json()["sessions"]
            with case(query):
                assert [it["chat"] for it in found] == shown
                assert rows_read == [it["id"] for it in found]
                zone = house.gateway.config.server.zone
                assert [{**it, **summary(whole[it["id"]], zone)} for it in found] == found
                assert all(it["started"] <= it["last"] and it["tokens"] for it in found)


@pytest.mark.slow
async def test_console_shows_why_a_changed_mcp_tool_is_withheld(tmp_path: Path) -> None:
    behave(tmp_path, tools={"look": "Looks."})
    config = f"{SERVER}\n{servers(evil=evil())}"
    async with (
        running(tmp_path, feishu=WEB, agents=agents("mcp:evil"), more=config) as house,
        client(house.url, headers={"authorization": f"Bearer {ADMIN}"}) as http,
    ):
        await ready(house)

        async def look() -> dict[str, Any]:
            (agent,) = (await http.get("/api/console/agents")).json()["agents"]
            return next((it for it in agent["tools"] if it["name"] == "evil__look"), {})

        assert (await look())["state"] == "on"
        server = house.gateway.runtime.setup.mcp.servers["evil"]
        server.known = {"look": Review(accepted="other words")}
        assert (await look())["state"] == "off"
        assert "an owner has yet to see" in (await look())["reasons"][0]["en"]


async def test_console_schedules_are_paged_and_searched(tmp_path: Path) -> None:
    operator, many = {"authorization": f"Bearer {ADMIN}"}, 120
    rows = (f'{{ id: s{it}, to: "telegram:5000{it}", at: "0 9 * * *", say: "Text {it}." }}' for it in range(many))
    telegram = (
        '\n  telegram: { botToken: "7000000001:AAAnotherAnotherAnotherAnotherAnot1", apiRoot: "http://127.0.0.1:9" }'
    )
    more = f"{SERVER}\nschedules: [ {', '.join(rows)} ]"
    async with (
        running(tmp_path, feishu=WEB + telegram, more=more) as house,
        client(house.url, headers=operator) as http,
    ):
        await house.until(lambda: house.gateway.runtime.store.later.next_due())
        seen = set()
        for first, length in ((0, 50), (50, 50), (100, 20), (150, 0)):
            shown = (await http.get(f"/api/console/schedules?from={first}")).json()
            assert (len(shown["schedules"]), shown["from"], shown["count"]) == (length, first, many)
            seen |= {it["id"] for it in shown["schedules"]}
        assert len(seen) == many
        for asked, count in (("words=Text+77.", 1), ("agent=helper", many), ("agent=other", 0)):
            shown = (await http.get(f"/api/console/schedules?{asked}")).json()
            assert (len(shown["schedules"]), shown["count"]) == (min(count, 50), count), asked
