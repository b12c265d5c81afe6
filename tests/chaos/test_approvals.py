"""Killed at each step of an approval: K17, while a request is stored or settled, and K18, at its decision and its spawn.

What was approved runs at most once, and nobody is left without a word of it.
"""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.emulated import OnFeishu
from tests.chaos.replica import Replica
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import Reply
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, SECRETS, client
from tests.stories.at_work import results
from tests.waiting import until

ASK = ("ask", {"question": "Which fruit?", "options": ["Apple", "Banana"]})
RUN = ("exec", {"command": "echo ran >> ran.txt"})
POINTS = {
    "K17:1": "before the request is stored",
    "K17:2": "after that",
    "K18:2": "after the decision",
    "K18:3": "before it is marked as spawned",
    "K18:4": "after that",
    "K18:5": "before it is marked as finished",
    "K17:3": "before it is marked as settled",
}
"""The ones between leave the database as one of these does."""
SHARED = ["K18:2", "K18:4"]
"""The two on PostgreSQL at which another process has to know what this one has decided and begun."""
FEW = ("K17:2", "K17:3", "K18:5")
"""What `make test` plays on SQLite; the others in `make test-all`."""


async def played(point: str, folder: Path, database: str, *, call: Any = RUN) -> None:
    is_question = call is ASK

    def model(body: dict[str, Any]) -> Reply:
        return says("heard") if results(body) else calls(call)

    chat, anthropic = OnFeishu(), AnthropicEmulator(model, api_key=SECRETS["ANTHROPIC_API_KEY"])
    async with serve_on_loopback(chat.app) as feishu_url, serve_on_loopback(anthropic.app) as model_url:
        replica = Replica(
            0, folder, chat=chat, chat_url=feishu_url, model_url=model_url, database=database, agent="historyTurns: 8"
        )
        text = replica.config.read_text(encoding="utf-8").replace(f"{feishu_url}/0", feishu_url)
        text = (
            text.replace(f"{model_url}/0", model_url)
            .replace("mode: allow,", "mode: ask,")
            .replace("task]", "task, ask]")
        )
        replica.config.write_text(f'owners: ["feishu:{ALICE}"]\n{text}', encoding="utf-8")

        def sent() -> list[str]:
            return chat.emulator.shown(ALICE_CHAT)

        async def write(words: str) -> None:
            event = chat.emulator.text_event(words, sender=ALICE, chat=ALICE_CHAT)

            async def taken() -> bool:
                if replica.dead:
                    await replica.ended()
                    await replica.start()
                try:
                    async with client() as http:
                        return await chat.deliver(http, replica.url, event)
                except httpx.TransportError:
                    return False

            await until(taken)

        async def alive() -> bool:
            if replica.dead:
                await replica.ended()
                await replica.start()
            return "heard" in sent()

        try:
            await replica.start(point)
            await write("run it")
            await until(alive)

            def asked() -> list[str]:
                if is_question:
                    return [it for it in sent() if "1. Apple" in it or "✓" in it]
                return [id_ for it in sent() for id_ in re.findall(r"/approve (\S+) deny", it)]

            if (
                point == "K17:1" and not is_question
            ):  # nothing was stored: the model has been told that it may have run, and nobody is asked
                assert not (folder / "data/workspaces/helper/ran.txt").exists()
                return
            await until(asked)
            await write("2" if is_question else f"/approve {asked()[0]} allow-once")

            async def told() -> bool:
                await alive()
                return sent().count("heard") >= 2

            await until(told)
            if is_question:
                assert json.loads(results(anthropic.requests[-1].body)[-1])["chosen"] == ["Banana"]
                await until(lambda: len([it for it in sent() if "✓" in it]) == 1)
                return
            file = folder / "data/workspaces/helper/ran.txt"
            runs = len(file.read_text().splitlines()) if file.exists() else 0
            last = results(anthropic.requests[-1].body)[-1]
            assert runs <= 1
            assert runs == 1 or "INTERRUPTED" in last or "BINDING" in last, last
        finally:
            await replica.close()


@pytest.mark.parametrize("point", [pytest.param(it, marks=() if it in FEW else pytest.mark.long) for it in POINTS])
async def test_what_is_approved_runs_at_most_once_and_everybody_is_told(point: str, tmp_path: Path) -> None:
    await played(point, tmp_path, f"sqlite:///{tmp_path}/data/clawgate.db")


@pytest.mark.parametrize("point", SHARED)
async def test_what_is_approved_runs_at_most_once_on_postgresql(point: str, tmp_path: Path, postgres_url: str) -> None:
    await played(point, tmp_path, postgres_url)


@pytest.mark.parametrize("point", [pytest.param(it, marks=() if it in FEW else pytest.mark.long) for it in POINTS])
async def test_question_is_asked_and_its_answer_used_over_a_kill(point: str, tmp_path: Path) -> None:
    await played(point, tmp_path, f"sqlite:///{tmp_path}/data/clawgate.db", call=ASK)


@pytest.mark.parametrize("point", SHARED)
async def test_question_is_answered_over_a_kill_on_postgresql(point: str, tmp_path: Path, postgres_url: str) -> None:
    await played(point, tmp_path, postgres_url, call=ASK)
