"""`python -m tests.bench.live`: what it costs that people see an answer grow, and whether a short one costs more for it.

Three gateways take turns in blocks: one that shows nothing before the answer is whole, one that lets it grow, and one that
marks the message besides. A slow answer takes two seconds, from the model's first piece to its last.
"""

import argparse
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import median

import uvloop

from tests.bench import subject
from tests.bench.load import Measured, crowd, serial
from tests.bench.peers import peers
from tests.bench.sides import Feishu, Side, Telegram
from tests.bench.subject import Subject, started

CHATS = 20


def ways(side: type[Side]) -> dict[str, Side]:
    """By name the same side as three configs have it."""

    def way(streaming: str, *, marks: bool) -> Side:
        class Way(side):  # type: ignore[misc, valid-type]
            def channels(self, platform: str) -> str:
                return configured(super().channels(platform), streaming, marks=marks)

        return Way()

    found = {"whole": way("off", marks=False), "grows": way("partial", marks=False)}
    return found | ({"grows, marked": way("partial", marks=True)} if side is Feishu else {})


def configured(text: str, streaming: str, *, marks: bool) -> str:
    text = text.replace("dmPolicy: open,", f'dmPolicy: open, streaming: "{streaming}",')
    text = text.replace("streaming: off", f'streaming: "{streaming}"')
    text = text.replace('    reaction: ""\n', "") if marks else text
    if f'streaming: "{streaming}"' not in text or (marks and "reaction:" in text):
        raise ValueError("the side's config has changed, so that nothing here would differ")
    return text


async def measure(folder: Path, side: type[Side], blocks: int) -> str:
    found: dict[str, tuple[Measured, Measured]] = {}
    async with peers() as around, AsyncExitStack() as stack:
        bots: dict[str, Subject] = {}
        for name, way in ways(side).items():
            bots[name] = await stack.enter_async_context(started(subject.gateway(folder / name, way, around.urls)))
            found[name] = Measured(), Measured()
            await serial(bots[name], around, chats=10, turns=3)
        for _ in range(blocks):
            for name, bot in bots.items():
                found[name][0].add(await serial(bot, around, chats=10, turns=5))
            await around.set(scenario="slow")
            for name, bot in bots.items():
                found[name][1].add(await crowd(bot, around, chats=CHATS, turns=2))
            await around.set()
    lines = [f"{side.name}: CPU of a turn in ms; in brackets, of the one that shows nothing"]
    for name, (short, slow) in found.items():
        first = found["whole"]
        lines.append(
            f"{name:<14} short {short.cpu_ms_per_turn:6.2f} ({short.cpu_ms_per_turn / first[0].cpu_ms_per_turn:.2f} x), "
            f"p50 {median(short.turns):6.1f} ms ({median(short.turns) / median(first[0].turns):.2f} x);  "
            f"slow {slow.cpu_ms_per_turn:6.2f} ({slow.cpu_ms_per_turn / first[1].cpu_ms_per_turn:.2f} x), "
            f"p50 {median(slow.turns):6.0f} ms;  lost {short.lost + slow.lost}, doubled {short.doubled + slow.doubled}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.live", description=__doc__)
    parser.add_argument("--blocks", type=int, default=6)
    options = parser.parse_args()
    sides: list[type[Side]] = [Feishu, Telegram]
    for side in sides:
        with tempfile.TemporaryDirectory(prefix="clawgate-live-") as folder:
            sys.stdout.write(uvloop.run(measure(Path(folder), side, options.blocks)) + "\n")


if __name__ == "__main__":
    main()
