"""A chat of many turns with tools, over one provider's wire, in which people plant identifiers and ask for them later.

    python -m tests.long_chat [--turns 500] [--window 16000] [--api NAME]

The model knows only what stands in its request, and the emulator refuses a request that its vendor would refuse or that
is longer than the window. One line an api: requests and refusals, compactions, what was asked for and not known, tokens,
and what a turn costs at the beginning and at the end. Exit code 1 where anything was refused or forgotten.
"""

import argparse
import asyncio
import json
import logging
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import structlog

from tests.agents.providers.contract.subjects import KEY, SUBJECTS
from tests.emulators.models.dialogue import summary_names
from tests.emulators.models.script import calls, says
from tests.emulators.models.server import ModelEmulator, Reply
from tests.loopback import serve_on_loopback
from tests.running import Running, running

APIS = {
    "anthropic-messages": "anthropic",
    "openai-responses": "responses",
    "openai-chat": "openai chat",
    "google-gemini": "gemini",
    "mistral": "mistral",
}
PLANT_EVERY, ASK_EVERY = 9, 7
"""Turns."""
FILE_LINES = 120
ANSWER_TOKENS = 1_024
SAMPLE = 20
"""Turns at either end that are compared."""
_SERIAL = re.compile(r"#(\d+)#")
_ASKED = re.compile(r"What is the order of (client-\d+)\?")


def order_of(client: str) -> str:
    return f"{71_000_000 + int(client.partition('-')[2]) * 1_117}"


@dataclass
class LongModel:
    """The emulator's script, the same for each wire: it reads the JSON of a request as text."""

    summaries: int = 0
    lazy: Callable[[int], bool] = lambda number: False
    """Whether that summary leaves its identifiers out."""
    _takes: Counter[str] = field(default_factory=Counter)

    def __call__(self, body: dict[str, Any]) -> Reply:
        text = json.dumps(body, ensure_ascii=False)
        if (names := summary_names(body)) is not None:
            self.summaries += 1
            return says(self._summary(text, names))
        serial = _SERIAL.findall(text)[-1]
        self._takes[serial] += 1
        if self._takes[serial] == 1:
            return calls(("read", {"file_path": "log.txt"}), ("ls", {}))
        if asked := _ASKED.findall(text.rpartition(f"#{serial}#")[2]):
            known = re.search(rf"order of {asked[0]} is (\d+)", text)
            return says(f"#{serial}# {known[1] if known else 'unknown'}")
        return says(f"#{serial}# Noted. " + "I looked at the log and it is as it was. " * 8)

    def _summary(self, text: str, names: Sequence[str]) -> str:
        if self.lazy(self.summaries):
            return "## Decisions\n- we talked\n## Exact identifiers\n- none"
        facts = dict.fromkeys(re.findall(r"order of client-\d+ is \d+", text))
        lines = ["## Decisions", "- the log is read in each turn", "## Open tasks", "-", "## Constraints", "-"]
        lines += ["## Pending asks", "-", "## Exact identifiers", *(f"- {fact}" for fact in facts)]
        return "\n".join([*lines, " ".join(names)])


@dataclass(kw_only=True)
class Played:
    api: str
    turns: int
    seconds: float
    costs: list[float]
    """Of each turn, in seconds of the gateway's process, the emulator's included."""
    sizes: list[int]
    """Of each request's body, in bytes."""
    summaries: int
    noticed: int
    """Answers with the line that says so."""
    refused: list[str]
    asked: int
    wrong: list[str]

    @property
    def clean(self) -> bool:
        return not self.refused and not self.wrong

    def __str__(self) -> str:
        early, late = median(self.costs[SAMPLE : 2 * SAMPLE] or self.costs), median(self.costs[-SAMPLE:])
        return (
            f"{self.api:20} {self.turns} turns in {self.seconds:.0f} s · "
            f"{len(self.sizes)} requests, {len(self.refused)} refused"
            f" · {self.summaries} summaries, {self.noticed} noticed · {len(self.wrong)} of {self.asked} forgotten"
            f" · {sum(self.sizes) // 4 // self.turns:,} tokens a turn, at most {max(self.sizes) // 4:,} a request"
            f" · {early * 1000:.0f} ms a turn at first, {late * 1000:.0f} ms at the end"
        )


async def play(folder: Path, api: str, *, turns: int, window: int, model: LongModel | None = None) -> Played:
    subject, model = SUBJECTS[APIS[api]], model or LongModel()
    emulator: ModelEmulator = subject.emulator(model, api_key=KEY, window_tokens=window)
    agents = f"""
agents:
  defaults: {{ contextWindow: {window}, maxTokens: {ANSWER_TOKENS} }}
  list:
    - id: helper
      model: long/{subject.model}
      tools: {{ allow: [read, ls] }}
"""
    async with serve_on_loopback(emulator.app) as url:
        more = f", dialect: {subject.dialect}" if subject.dialect else ""
        providers = f'  long: {{ api: {subject.wire}, apiKey: {KEY}, baseUrl: "{url}{subject.path}"{more} }}'
        async with running(folder, agents=agents, providers=providers) as house:
            began = time.monotonic()
            costs, wrong, asked = await _chat(house, turns)
            noticed = sum("have summarised the older" in message.text for message in house.feishu.messages)
            return Played(
                api=api,
                turns=turns,
                seconds=time.monotonic() - began,
                costs=costs,
                sizes=[len(json.dumps(received.body, ensure_ascii=False).encode()) for received in emulator.requests],
                summaries=model.summaries,
                noticed=noticed,
                refused=[str(received.refusal) for received in emulator.requests if received.refusal],
                asked=asked,
                wrong=wrong,
            )


async def _chat(house: Running, turns: int) -> tuple[list[float], list[str], int]:
    workspace = house.workspace()
    (workspace / "log.txt").write_text("\n".join(f"{n:03} nothing happened here" for n in range(FILE_LINES)))
    costs, wrong, asked, planted = [], [], 0, list[str]()
    for number in range(1, turns + 1):
        text, expected = f"#{number}# Please look at the log again and tell me what you think of it.", ""
        if number % PLANT_EVERY == 1:
            planted.append(f"client-{number}")
            text = f"#{number}# Remember that the order of {planted[-1]} is {order_of(planted[-1])}."
        elif number % ASK_EVERY == 0:
            client = planted[(number * 31) % len(planted)]
            text, expected = f"#{number}# What is the order of {client}?", order_of(client)
        before = time.process_time()
        await house.say(text)
        reply = (await house.replies(number))[-1]
        await house.idle()
        costs.append(time.process_time() - before)
        asked += bool(expected)
        if not reply.startswith(f"#{number}#") or expected not in reply:
            wrong.append(f"turn {number}: {reply[:80]}")
    return costs, wrong, asked


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.long_chat", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--turns", type=int, default=500)
    parser.add_argument("--window", type=int, default=16_000, help="of the model, in tokens")
    parser.add_argument("--api", choices=APIS, help="only this")
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    clean = True
    for api in [arguments.api] if arguments.api else APIS:
        with tempfile.TemporaryDirectory() as folder:
            played = asyncio.run(play(Path(folder), api, turns=arguments.turns, window=arguments.window))
        clean = clean and played.clean
        sys.stdout.write(
            "\n".join((str(played), *(f"    {line}" for line in (played.refused + played.wrong)[:10]), ""))
        )
        sys.stdout.flush()
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
