"""A message that kills the process is given up after three attempts, wherever it kills it; all others are answered."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from agents.sentences import gave_up
from gateway.state.queues import ATTEMPTS_MAX
from tests import warm
from tests.chaos.poisoned import POISON, STAGES
from tests.chaos.replica import free_port
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.script import Turn, says
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.running import ALICE, ALICE_CHAT, BOB, BOB_CHAT, SECRETS, client, config_text, feishu_emulator, push
from tests.stories.at_work import users
from tests.waiting import until

pytestmark = pytest.mark.slow  # it starts processes

APOLOGY = str(gave_up("en"))
FEW = ("draft", "first row", "model")
"""The first, the last before anything is written down, and one behind it.
`test_poison_message_is_given_up_after_three_attempts` has all of them."""
TRANSCRIPT_ROWS = tuple(it for it in STAGES if it != "command")


def deaths(
    stages: Iterable[str], *, sqlite: Collection[str] = FEW, postgresql: Collection[str]
) -> pytest.MarkDecorator:
    """Each stage on each database. Of the stages that `make test` has, some die on both: what is counted is the same."""
    short = {"sqlite": sqlite, "postgresql": postgresql}
    rows = [
        pytest.param(database, stage, marks=() if stage in short[database] else pytest.mark.long)
        for stage in stages
        for database in short
    ]
    return pytest.mark.parametrize(("database_url", "stage"), rows, indirect=["database_url"])


def echo(body: Mapping[str, Any]) -> Turn:
    """Answers with the word of the newest message."""
    return says("re " + max(("almond", "mango", "papaya", "cherry", "walnut", POISON), key=users(body)[-1].rfind))


@dataclass
class House:
    feishu: FeishuEmulator
    anthropic: AnthropicEmulator
    line: Line
    url: str
    output: list[str]

    async def writes(self, text: str, *, sender: str = ALICE, chat: str = ALICE_CHAT) -> None:
        await push(self.feishu, self.url, self.feishu.text_event(text, sender=sender, chat=chat))

    async def sends_poison(self) -> None:
        """A gateway that dies before its 200 gets the message again, as from the platform."""
        event = self.feishu.file_event(b"x", name=f"{POISON}.bin", sender=ALICE, chat=ALICE_CHAT)

        async def delivered() -> bool:
            with suppress(httpx.TransportError):
                return (await push(self.feishu, self.url, event)).status_code == 200
            return False

        await until(delivered)

    @property
    def deaths(self) -> int:
        return self.output.count("killed")

    def shown(self, chat: str = ALICE_CHAT) -> list[str]:
        return self.feishu.shown(chat)


@asynccontextmanager
async def crashing(folder: Path, database: str, stage: str, more: str = "") -> AsyncIterator[House]:
    feishu, anthropic, line = feishu_emulator(), AnthropicEmulator(echo, api_key=SECRETS["ANTHROPIC_API_KEY"]), Line()
    async with serve_on_loopback(feishu.app) as feishu_url, serve_on_loopback(line.to(anthropic.app)) as model_url:
        config, port, output = folder / "config.yaml", free_port(), list[str]()
        more = f'{more}\ndatabase: {{ url: "{database}" }}'
        config.write_text(config_text(feishu_url=feishu_url, anthropic_url=model_url, more=more), encoding="utf-8")
        words = ("--config", str(config), "--port", str(port), "--stage", stage)
        env = {"PATH": os.environ["PATH"], "HOME": str(folder), **SECRETS}
        process = await warm.start("tests.chaos.poisoned", *words, env=env, stdout=asyncio.subprocess.PIPE)

        async def read() -> None:
            assert process.stdout is not None
            while text := (await process.stdout.readline()).decode():
                output.append(text.strip())

        reading = asyncio.create_task(read())
        url = f"http://127.0.0.1:{port}"

        async def is_ready() -> bool:
            assert process.returncode is None, output
            async with client(url) as http:
                with suppress(httpx.TransportError):
                    return (await http.get("/readyz")).status_code == 200
            return False

        try:
            await until(is_ready)
            yield House(feishu, anthropic, line, url, output)
        finally:
            line.release()
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            await reading


@deaths(STAGES, sqlite=STAGES, postgresql=FEW)
async def test_poison_message_is_given_up_after_three_attempts(tmp_path: Path, database_url: str, stage: str) -> None:
    async with crashing(tmp_path, database_url, stage) as house:
        if stage == "command":
            with suppress(httpx.TransportError):
                await house.writes(f"/compact {POISON}")
        else:
            await house.sends_poison()
        await until(lambda: house.shown() == [APOLOGY])
        await house.writes("walnut")
        await until(lambda: len(house.shown()) == 2)
        assert (house.shown()[1], house.deaths) == ("re walnut", ATTEMPTS_MAX)


@deaths(TRANSCRIPT_ROWS, postgresql=["first row"])
async def test_poison_message_among_three_collected_ones(tmp_path: Path, database_url: str, stage: str) -> None:
    """Whose fault it is shows on the last attempt. Once the turn has its first row they are mango turn for good."""
    async with crashing(tmp_path, database_url, stage, more="queue: { debounceSeconds: 0.3 }") as house:
        house.line.hold()
        await house.writes("almond")
        await until(lambda: house.line.holding)
        await house.writes("mango")
        await house.sends_poison()
        await house.writes("cherry")
        house.line.release()
        together = ["re almond", APOLOGY]
        apart = ["re almond", "re mango", APOLOGY, "re cherry"]
        await until(lambda: house.shown() == (together if stage == "model" else apart))
        assert house.deaths == ATTEMPTS_MAX


@deaths(TRANSCRIPT_ROWS, postgresql=["draft"])
async def test_poison_message_spares_others_queued_in_its_chat(tmp_path: Path, database_url: str, stage: str) -> None:
    async with crashing(tmp_path, database_url, stage, more="queue: { mode: followup }") as house:
        house.line.hold()
        await house.writes("almond")
        await until(lambda: house.line.holding)
        await house.sends_poison()
        await house.writes("papaya")
        await house.writes("cherry")
        house.line.release()
        await until(lambda: house.shown() == ["re almond", APOLOGY, "re papaya", "re cherry"])
        assert house.deaths == ATTEMPTS_MAX


@deaths(TRANSCRIPT_ROWS, postgresql=["model"])
async def test_poison_message_of_another_chat_costs_no_attempts(tmp_path: Path, database_url: str, stage: str) -> None:
    async with crashing(tmp_path, database_url, stage) as house:
        house.line.hold()
        await house.writes("walnut", sender=BOB, chat=BOB_CHAT)
        await until(lambda: house.line.holding)
        await house.sends_poison()
        await until(lambda: house.deaths >= ATTEMPTS_MAX - 1)
        house.line.release()
        await until(lambda: house.shown() == [APOLOGY] and house.shown(BOB_CHAT))
        assert (house.shown(BOB_CHAT), house.deaths) == (["re walnut"], ATTEMPTS_MAX)
