"""Killed at each step of a chat that a colleague answers: K35, before and after the commit of each step, K7 and K12, at the
end of a turn that relays, and K36, while the gateway's own messages about it are made and sent.

Nobody reads anything twice, nothing is missing, and the agent knows what was said.
"""

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.chaos.emulated import OnFeishu
from tests.chaos.replica import Replica
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import says
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, BOB, GROUP, SECRETS, client
from tests.waiting import until

POINTS = {
    "K35:1": "before it is asked for",
    "K35:2": "after that",
    "K35:3": "before it is taken over",
    "K35:4": "after that",
    "K35:7": "before a message is relayed to the colleague",
    "K35:8": "after that, before it is kept",
    "K7:1": "after that, before its turn ends",
    "K12:1": "after that",
    "K35:9": "before an answer is relayed to the person",
    "K35:10": "after that",
    "K7:2": "before its turn ends",
    "K12:2": "after that, before it is sent",
    "K35:11": "before it is given back",
    "K35:12": "after that",
    "K36:2": "before the notice is kept",
    "K36:3": "after that, before it is sent",
    "K36:5": "after that",
}
SHARED = ["K35:4", "K35:8", "K35:10"]
FEW = ("K35:2", "K35:4", "K35:8", "K35:10", "K35:12", "K36:3")


async def played(point: str, folder: Path, database: str) -> None:
    chat = OnFeishu()
    feishu, anthropic = (
        chat.emulator,
        AnthropicEmulator(lambda _: says("me again"), api_key=SECRETS["ANTHROPIC_API_KEY"]),
    )
    async with serve_on_loopback(chat.app) as feishu_url, serve_on_loopback(anthropic.app) as model_url:
        replica = Replica(
            0, folder, chat=chat, chat_url=feishu_url, model_url=model_url, database=database, agent="historyTurns: 8"
        )
        text = replica.config.read_text(encoding="utf-8").replace(f"{feishu_url}/0", feishu_url)
        text = text.replace(f"{model_url}/0", model_url)
        replica.config.write_text(f'handover: {{ to: "feishu:{GROUP}" }}\n{text}', encoding="utf-8")

        async def alive() -> None:
            if replica.dead:
                await replica.ended()
                await replica.start()

        async def write(event: dict[str, Any]) -> None:
            async def taken() -> bool:
                await alive()
                try:
                    async with client() as http:
                        return await chat.deliver(http, replica.url, event)
                except httpx.TransportError:
                    return False

            await until(taken)

        def read(where: str) -> list[str]:
            return [html.unescape(it).replace("**", "") for it in feishu.shown(where)]

        async def shown(where: str, said: Callable[[str], bool]) -> None:
            async def so() -> bool:
                await alive()
                return any(map(said, read(where)))

            await until(so)

        def says_of(text: str, **where: Any) -> dict[str, Any]:
            return feishu.text_event(text, **({"sender": ALICE, "chat": ALICE_CHAT} | where))

        try:
            await replica.start(point)
            await write(says_of("/human help me"))
            await shown(GROUP, lambda it: "needs a person" in it)
            await shown(ALICE_CHAT, lambda it: "I have called a colleague" in it)
            notice = next(it.message_id for it in feishu.messages if it.chat_id == GROUP)
            await write(feishu.press_event(notice, "Take over", sender=BOB))
            await shown(ALICE_CHAT, lambda it: "Bob has taken over" in it)
            await shown(GROUP, lambda it: "Bob has taken over" in it)
            await write(says_of("my question"))
            await shown(GROUP, lambda it: it == "Alice: my question")
            there = {"sender": BOB, "chat": GROUP, "chat_type": "group", "parent_id": notice, "root_id": notice}
            await write(says_of("my answer", **there))
            await shown(ALICE_CHAT, lambda it: it == "Bob: my answer")
            await write(says_of("/back"))
            await shown(ALICE_CHAT, lambda it: "Alice has ended it." in it)
            await shown(GROUP, lambda it: it.startswith("Alice has ended it."))
            await write(says_of("hello again"))
            await shown(ALICE_CHAT, lambda it: it == "me again")
            assert len(replica.restarts) == 2, "it was never killed"
            assert [it.partition(".")[0] for it in read(ALICE_CHAT)] == [
                "I have called a colleague",
                "Bob has taken over and answers you here",
                "Bob: my answer",
                "Alice has ended it",
                "me again",
            ]
            assert [it.partition("\n")[0].partition(".")[0] for it in read(GROUP)] == [
                f"Alice needs a person in `feishu:default:{ALICE_CHAT}`",
                "Alice: my question",
                "Alice has ended it",
            ]
            (request,) = anthropic.requests
            for said in ("Alice: my question", "Bob: my answer", "Alice: hello again"):
                assert str(request.body["messages"]).count(said) == 1
        finally:
            await replica.close()


@pytest.mark.parametrize("point", [pytest.param(it, marks=() if it in FEW else pytest.mark.long) for it in POINTS])
async def test_handover_loses_and_doubles_nothing_over_a_kill(point: str, tmp_path: Path) -> None:
    await played(point, tmp_path, f"sqlite:///{tmp_path}/data/clawgate.db")


@pytest.mark.parametrize("point", SHARED)
async def test_handover_loses_nothing_over_a_kill_on_postgresql(point: str, tmp_path: Path, postgres_url: str) -> None:
    await played(point, tmp_path, postgres_url)
