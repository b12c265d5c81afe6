"""Logins with two replicas on one PostgreSQL: one poll at a time, one refresh, no login lost."""

import asyncio
from pathlib import Path

from tests.acting import SCOPE, folder
from tests.emulators.models.script import calls, says
from tests.running import ALICE, BOB, BOB_CHAT
from tests.stories.at_work import results
from tests.stories.login.test_login import AGENTS, ANYTIME, asked, texts
from tests.stories.login.test_whose import keep_login
from tests.stories.store.test_replicas import two
from tests.waiting import until


async def test_refresh_is_made_once_by_two_replicas(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, (), folder(tmp_path), feishu=ANYTIME, agents=AGENTS) as (one, other):
        await keep_login(one)
        logins = one.feishu.logins
        logins.pairs[-1].access_ends = 0
        held = asyncio.Event()

        async def wait(name: str) -> bool:
            return name == "refresh_token" and not await held.wait()

        logins.before = wait
        one.anthropic.script = lambda request: says("done") if results(request) else calls(("act_as", {}))
        await one.say("here")
        await other.say("there", chat="oc_7e500000000000000000000000000000", chat_type="p2p")
        await until(lambda: "refresh_token" in logins.asked)
        held.set()
        await until(lambda: texts(one).count("done") == 2)
        given = [it for request in one.anthropic.requests for it in results(request.body)]
        assert given == ["acted as Alice"] * 2
        assert logins.asked.count("refresh_token") == 1
        assert (await one.gateway.runtime.store.logins.get("feishu", "default", ALICE)).scopes.startswith(SCOPE)  # type: ignore[union-attr]


async def test_login_begun_on_one_replica_continues_on_another(tmp_path: Path, postgres_url: str) -> None:
    async with two(tmp_path, postgres_url, (), folder(tmp_path), feishu=ANYTIME, agents=AGENTS) as (one, other):
        one.feishu.logins.interval = 0.05
        code = await asked(one, sender=BOB, chat=BOB_CHAT)
        await one.gateway.drain()
        one.feishu.logins.approve(code, BOB)
        await until(lambda: texts(other).count("done") == 1)
        await other.idle()
        assert results(other.anthropic.requests[-1].body)[-1] == "acted as Bob"
