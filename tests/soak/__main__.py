"""`python -m tests.soak --minutes 30`: mixed traffic for a while, and what it leaves: nothing lost or twice, memory flat.

The real gateway in a process of its own between strict emulators: Feishu by webhook and by long connection, Telegram
polled, and the web chat, all with answers that grow. People write alone and in groups, send and get files, edit, recall,
press, quote and give commands. Each text carries a serial that the one answer to it repeats at its end.
"""

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.bench.sides import Web as WebSide
from tests.bench.subject import Command, started
from tests.emulators.feishu.emulator import FeishuEmulator, Sent
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.dialogue import summary_names
from tests.emulators.models.script import Turn, calls, says
from tests.emulators.telegram.emulator import TelegramEmulator
from tests.loopback import serve_on_loopback
from tests.running import SECRETS, feishu_emulator
from tests.soak.console import console_open
from tests.soak.places import OnFeishu, OnTelegram, OnWeb, Place
from tests.soak.samples import Sample, growth, observed, sampled, stored
from tests.web_page import Page, opened

PATIENCE_SECONDS = 90.0
GROWTH_MAX = 1.05
"""Of the median of the last quarter to that of the second."""
RESIDENT_MB_MAX = 200.0
RECENT = 300
WISH = re.compile(r"\b(S\d{6}) (plain|long|tools|file|buttons)\b")
END = re.compile(r"\bE (S\d{6})\b")
DROPPED = re.compile(r"(?:ends here: |^- )“(S\d{6})", re.MULTILINE)
"""What `/new` says it has ended or dropped."""
BEGUN = re.compile(r"\bR S\d{6}\b|⏳")
OTHER_APP, OTHER_SECRET = "cli_test000000000002", "canary-app-secret-of-the-other"
WISHES = {"plain": 8, "long": 6, "tools": 4, "file": 2, "buttons": 2, "upload": 2, "edit": 2, "recall": 2, "command": 3}
ADMIN_TOKEN = "soak-looks-at-the-web-chat-0123456789"
DIRECT = 5
"""Direct chats on each platform, beside a group of two people."""
COMMANDS = ("/status", "/new", "/usage", "/help", "/undo")


def config(feishu: FeishuEmulator, urls: dict[str, str], telegram: TelegramEmulator) -> str:
    return f"""
logging: {{ level: warning }}
providers: {{ anthropic: {{ apiKey: "${{ANTHROPIC_API_KEY}}", baseUrl: "{urls["anthropic"]}" }} }}
tools: {{ exec: {{ mode: allow, sandbox: "off" }} }}
server: {{ adminToken: {ADMIN_TOKEN} }}
channels:
  feishu:
    baseUrl: "{urls["feishu"]}"
    mode: webhook
    appId: {feishu.app_id}
    appSecret: ${{FEISHU_APP_SECRET}}
    encryptKey: ${{FEISHU_ENCRYPT_KEY}}
    verificationToken: ${{FEISHU_VERIFICATION_TOKEN}}
    dmPolicy: open
    groupPolicy: open
    history: 10
    accounts:
      long:
        baseUrl: "{urls["long"]}"
        mode: websocket
        appId: {OTHER_APP}
        appSecret: {OTHER_SECRET}
        dmPolicy: open
        groupPolicy: open
        history: 10
  telegram:
    botToken: "{telegram.token}"
    apiRoot: "{urls["telegram"]}"
    mode: polling
    dmPolicy: open
    groupPolicy: open
    history: 10
  web: {{}}
agents:
  list:
    - {{ id: helper, model: anthropic/claude-sonnet-4-6, tools: {{ allow: [read, write, ls, exec, message] }} }}
"""


class Model:
    """Answers every text that has no answer yet, after doing what the newest of them wishes."""

    def __call__(self, body: dict[str, object]) -> Turn:
        if (names := summary_names(body)) is not None:
            return says("\n".join(("## Decisions", "-", "## Exact identifiers", *names)))
        open_, done, called = dict[str, str](), set[str](), False
        for message in body["messages"]:  # type: ignore[attr-defined]
            content = message["content"]
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            words = "\n".join(it["text"] for it in blocks if it["type"] == "text")
            if message["role"] == "assistant":
                called |= any(it["type"] == "tool_use" for it in blocks)
                done.update(END.findall(words))
            elif words:
                called = False
                open_ |= dict(WISH.findall(words))
        open_ = {serial: wish for serial, wish in open_.items() if serial not in done}
        if not open_:
            return says("Thanks.")
        serial, wish = list(open_.items())[-1]
        if not called and wish in ("tools", "file"):
            shell = ("exec", {"command": f"echo {serial}; sleep 0.2"})
            return calls(("write", {"file_path": f"{wish}.txt", "content": f"{serial}\n" * 50}), shell, ("ls", {}))
        if not called and wish == "buttons":
            offer = {"action": "buttons", "message": "Go on?", "buttons": [f"S9{serial[2:]} plain", "No"]}
            return calls(("message", offer))
        text = "and so on, " * (150 if wish == "long" else 4)
        media = "\n\nMEDIA: ./file.txt" if wish == "file" else ""
        ends = " ".join(f"E {it}" for it in open_)
        pause = 0.15 if wish == "long" else 0.0
        return says(f"R {serial} {text}{ends}{media}", chunk_bytes=1_200, pause_seconds=pause)


@dataclass
class Soak:
    """Who writes what, and what of it was answered."""

    chance: random.Random
    until: float
    pause_seconds: float
    lost: list[str] = field(default_factory=list)
    ends: dict[str, set[str]] = field(default_factory=dict)
    """By serial the messages that end with it."""
    acts: Counter[str] = field(default_factory=Counter)
    _serials: "count[int]" = field(default_factory=lambda: count(1))

    def scan(self, place: Place, recent: int | None) -> list[str]:
        """Look at what is shown; what of it has begun and not ended."""
        begun = []
        for key, text in place.shown(recent):
            found = END.findall(text)
            for serial in (*found, *DROPPED.findall(text)):
                self.ends.setdefault(serial, set()).add(key)
            if not found and BEGUN.search(text):
                begun.append(f"{place.name}: {text[:80]!r}")
        return begun

    async def person(self, place: Place, chat: str) -> None:
        wishes = {wish: weight for wish, weight in WISHES.items() if wish in place.can}
        while time.monotonic() < self.until:
            await asyncio.sleep(self.chance.expovariate(1 / self.pause_seconds))
            (act,) = self.chance.choices(list(wishes), list(wishes.values()))
            self.acts[f"{place.name} {act}"] += 1
            await self._act(place, chat, act)

    async def _act(self, place: Place, chat: str, act: str) -> None:
        if act == "command":
            await self._command(place, chat)
            return
        serial, wish = f"S{next(self._serials):06d}", act if WISH.match(f"S000000 {act}") else "plain"
        if act == "upload":
            await place.upload(chat, f"{serial}\n".encode() * 500)
        if self.chance.random() < 0.3:
            await place.write("some chatter", chat, to_bot=False)
        message = await place.write(f"{serial} {'long' if act in ('edit', 'recall') else wish}", chat)
        if act in ("edit", "recall"):
            await asyncio.sleep(self.chance.uniform(0.0, 3.0))
            await (place.recall(message) if act == "recall" else place.edit(message, f"{serial} long, or so", chat))
        if act != "recall":
            await self._answered(serial, f"{place.name} {chat} {act}")
        if act == "buttons" and (pressed := f"S9{serial[2:]}") and await place.press(chat, f"{pressed} plain"):
            await self._answered(pressed, f"{place.name} {chat} press")

    async def _answered(self, serial: str, what: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while serial not in self.ends:
                    await asyncio.sleep(0.5)
            return
        self.lost.append(f"{serial} {what}")

    async def _command(self, place: Place, chat: str) -> None:
        command, before = self.chance.choice(COMMANDS), place.count(chat)
        await place.write(command, chat)
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while place.count(chat) <= before:
                    await asyncio.sleep(0.5)
            return
        self.lost.append(f"{place.name}: {command}")


async def _watch(page: Page) -> None:
    while True:
        await page._read(page.seen)
        page.events = [it for it in page.events if it.name == "message"]


async def soak(folder: Path, minutes: float, pause_seconds: float, seed: int, *, watched: bool = False) -> bool:
    """Whether it went well; a line a minute, and what was found. If it is `watched`, a browser has the console open."""
    found = await _played(folder, minutes, pause_seconds, seed, watched)
    sys.stdout.write(stored(folder) + "\n")
    return not any(found.values())


async def _played(
    folder: Path, minutes: float, pause_seconds: float, seed: int, watched: bool
) -> Mapping[str, Sequence[object]]:
    """What was found that should not be, by its kind."""
    feishu, long, telegram = feishu_emulator(), feishu_emulator(), TelegramEmulator()
    long.app_id = long.socket.app_id = OTHER_APP
    long.app_secret = long.socket.app_secret = OTHER_SECRET
    anthropic = AnthropicEmulator(Model(), api_key=SECRETS["ANTHROPIC_API_KEY"])
    apps = {"feishu": feishu.app, "long": long.app, "telegram": telegram.app, "anthropic": anthropic.app}
    began = time.monotonic()
    played = Soak(random.Random(seed), began + minutes * 60, pause_seconds)
    async with AsyncExitStack() as stack:
        urls = {name: await stack.enter_async_context(serve_on_loopback(app)) for name, app in apps.items()}
        file = folder / "config.yaml"
        file.write_text(config(feishu, urls, telegram), encoding="utf-8")
        command = Command("gateway", ("tests.soak", "--gateway", str(file)), folder, WebSide())
        gateway = await stack.enter_async_context(started(command))
        page = await stack.enter_async_context(opened(gateway.url, watching=False, link=ADMIN_TOKEN))
        watching = asyncio.create_task(_watch(page))
        await long.socket.connected()
        webhook = f"{gateway.url}/webhooks/feishu/default"
        places: Sequence[OnFeishu | OnTelegram | OnWeb] = (
            OnFeishu("feishu", feishu, lambda event: feishu.push(webhook, event)),
            OnFeishu("long", long, long.socket.push),
            OnTelegram(telegram),
            OnWeb(page),
        )
        console = await stack.enter_async_context(console_open(gateway.url, ADMIN_TOKEN)) if watched else None
        people = asyncio.gather(*(played.person(it, chat) for it in places for chat in it.chats(DIRECT)))
        samples: list[Sample] = []
        refused: list[str] = []
        due = began
        while not people.done():
            for place in places:
                played.scan(place, RECENT)
            if time.monotonic() >= due:
                due += 60.0
                samples.append(await sampled(gateway, folder, began, samples[-1] if samples else None))
                acts = f"{sum(played.acts.values())} acts, {len(played.lost)} lost"
                seen = f"  {console.samples[-1]}" if console and console.samples else ""
                sys.stdout.write(f"{samples[-1]}  {acts}{seen}\n")
                sys.stdout.flush()
                refused += [str(it.refusal) for it in anthropic.requests if it.refusal]
                for requests in (feishu.requests, long.requests, telegram.requests, anthropic.requests):
                    requests.clear()
            await asyncio.sleep(0.5)
        if error := people.exception():
            await asyncio.sleep(1.0)
            sys.stdout.writelines([*gateway.output, f"the gateway's exit code: {gateway.exit_code}\n"])
            raise error
        await asyncio.sleep(5.0)
        begun = [it for place in places for it in played.scan(place, None)]
        watching.cancel()
        shown = {key: text for place in places for key, text in place.shown(None)}
        doubled = [
            f"{serial}: {[(key, shown.get(key, '')[-80:]) for key in sorted(keys)]}"
            for serial, keys in played.ends.items()
            if len(keys) > 1
        ]
        lost = [it for it in played.lost if it.split()[0] not in played.ends]
        late = [it for it in played.lost if it.split()[0] in played.ends]
        left = [str(it) for one in (feishu, long) for it in one.reactions.values()]
        left += [f"card {it.text} streams" for one in (feishu, long) for it in one.messages if _streams(one, it)]
        found = {"lost": lost, "doubled": doubled, "late": late, "unfinished": begun, "left": left, "refused": refused}
        measured = {"MB resident": [it.resident_mb for it in samples]}
        if console:
            found["page"] = console.watch.complaints
            measured["MB of the page"] = [it.heap_mb for it in console.samples]
            measured["nodes of the page"] = [float(it.nodes) for it in console.samples]
        found |= {"faults": long.socket.faults, "grown": _grown(measured)}
        sys.stdout.write(f"{len(played.ends)} answers to {dict(played.acts)}\n")
        sys.stdout.write(" ".join(f"{kind}={len(words)}" for kind, words in found.items()) + "\n")
        for kind, words in found.items():
            sys.stdout.writelines(f"    {kind}: {it}\n" for it in words[:10])
        sys.stdout.writelines(gateway.output[:40])
        return found


def _grown(measured: Mapping[str, Sequence[float]]) -> list[str]:
    """Says each figure's quarters; those that grew too much, and too much memory."""
    wrong = []
    for name, values in measured.items():
        second, last, ratio = growth(values)
        sys.stdout.write(f"{name}: {second:,.2f} in the second quarter, {last:,.2f} in the last: {ratio:.3f}\n")
        if ratio > GROWTH_MAX or (name == "MB resident" and last > RESIDENT_MB_MAX):
            wrong.append(f"{name}: {last:,.2f}")
    return wrong


def _streams(feishu: FeishuEmulator, sent: Sent) -> bool:
    return sent.card and feishu.cardkit.cards[sent.text].streams and not feishu.known[sent.message_id].recalled


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--pause-seconds", type=float, default=12.0, help="of each person before an act")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--console", action="store_true", help="a browser keeps the console open meanwhile")
    parser.add_argument("--gateway", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.gateway:
        observed(options.gateway)
        return
    with tempfile.TemporaryDirectory(prefix="clawgate-soak-") as name:
        run = soak(Path(name), options.minutes, options.pause_seconds, options.seed, watched=options.console)
        sys.exit(0 if asyncio.run(run) else 1)


if __name__ == "__main__":
    main()
