"""Mutated webhook bodies of both platforms against a running gateway: `python -m tests.fuzz_webhooks --count 100000`.

Two kinds. What is bent on the way (bytes, signature, secret, base64) is not genuine: it is refused with a 4xx and nothing
of it is stored. What is bent before it is signed is genuine, however odd: never a 5xx, whatever it holds.
"""

import argparse
import asyncio
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import orjson

from channels.feishu.signature import NONCE_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, sign
from tests.emulators.feishu.events import encrypt
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, GROUP, SECRETS, Running
from tests.stories.channels.test_telegram import SECRET, Bot, bot

FORGED = "this-was-forged-on-the-way"
WORKERS = 8
BODY_BYTES_MAX = 65_536
MORE = f"""
server: {{ publicUrl: https://bot.example.com, wrongTokensPerMinute: 1000000, maxBodyBytes: {BODY_BYTES_MAX} }}
rates: {{ sender: 3/1h, chat: 3/1h }}
"""
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 2**31, 2**53 + 1, 10**30, 1e308, 0.1, "", " ", "\0", "\ud800", "x" * 9_000, "‮\u200b﷽",
    "../../etc/passwd", "{}", "[]", [], {}, [[]], [None], {"": ""}, {"\0": None}, "@_all", "-0", "null", "1" * 5_000,
    [{}] * 300,
)  # fmt: skip
RAW = (
    b"", b"{", b"[" * 30_000, b"{\"a\":" * 5_000, b"9" * 6_000, b"NaN", b"1e999", b"\xff\xfe{\0}\0",
    b"\xef\xbb\xbf{}", b"{}{}",
    b"{\"a\": 1, \"a\": 2}", b"x" * BODY_BYTES_MAX, b"x" * (BODY_BYTES_MAX + 1), b"\0" * 99, b"\"\\ud800\"",
)  # fmt: skip


@dataclass
class Found:
    """What came of it. `wrong` is what must not have happened."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest_seconds: float = 0.0


@dataclass
class Fuzzer:
    bot: Bot
    chance: random.Random
    found: Found = field(default_factory=Found)

    @property
    def house(self) -> Running:
        return self.bot.house

    async def one(self, http: httpx.AsyncClient) -> None:
        genuine = self.chance.random() < 0.5
        make = self._feishu if self.chance.random() < 0.5 else self._telegram
        path, headers, body = make(genuine)
        raw = [(name.encode(), value.strip().encode("latin-1")) for name, value in headers.items()]
        began = time.monotonic()
        answer = await http.post(path, content=body, headers=raw)
        self.found.slowest_seconds = max(self.found.slowest_seconds, time.monotonic() - began)
        kind = f"{path.split('/')[2]} {'odd' if genuine else 'forged'}"
        self.found.statuses[kind, answer.status_code] += 1
        if answer.status_code >= 500 or not (genuine or 400 <= answer.status_code < 500):
            self.found.wrong.append(f"{kind}: {answer.status_code} for {headers} {body[:300]!r}")

    def _feishu(self, genuine: bool) -> tuple[str, Mapping[str, str], bytes]:
        emulator, chance = self.house.feishu, self.chance
        chat = chance.choice([ALICE_CHAT, GROUP])
        event: Any = emulator.text_event("hello" if genuine else FORGED, sender=ALICE, chat=chat)
        path = "/webhooks/feishu/default"
        if genuine:
            with suppress(KeyError, TypeError, ValueError):
                message = event["event"]["message"]
                if chance.random() < 0.3:
                    message["message_type"] = chance.choice(
                        ["post", "image", "interactive", "share_chat", "merge_forward"]
                    )
                if chance.random() < 0.4:
                    message["content"] = json.dumps(self._bent(json.loads(message["content"])))
            plain = written(self._bent(event) if chance.random() < 0.8 else event)
            if chance.random() < 0.2:
                plain = self._cut(plain)
            outer = orjson.dumps({"encrypt": encrypt(plain, SECRETS["FEISHU_ENCRYPT_KEY"])})
            return path, signed(outer, SECRETS["FEISHU_ENCRYPT_KEY"]), outer
        headers, body = emulator.encode(event)
        match chance.randrange(5):
            case 0:
                return path, headers, self._cut(body)
            case 1:
                return path, headers, chance.choice(RAW)
            case 2:
                name = chance.choice([name for name in headers if name.startswith("X-Lark")])
                bent = {**headers, name: "".join(chance.sample(headers[name] * 2, len(headers[name])))}
                return path, bent if bent != headers else {}, body
            case 3:
                text = orjson.loads(body)["encrypt"]
                at = chance.randrange(len(text))
                mangled = text[:at] + chance.choice(["", "=", "\n", "é", "A", "-_"]) + text[at + chance.randrange(3) :]
                outer = orjson.dumps({"encrypt": mangled})
                wrong = signed(outer, "another key") if chance.random() < 0.5 else headers
                return path, wrong, outer if mangled != text else b"{}"
            case _:
                return path, {}, chance.choice([written(self._bent(event)), body])

    def _telegram(self, genuine: bool) -> tuple[str, Mapping[str, str], bytes]:
        chance, telegram = self.chance, self.bot.telegram
        update: Any = telegram.text_update("hello" if genuine else FORGED, chat=telegram.private())
        if chance.random() < 0.3:
            update["edited_message"] = update.pop("message")
        body = written(self._bent(update))
        body = self._cut(body) if chance.random() < 0.3 else chance.choice(RAW) if chance.random() < 0.1 else body
        secret = SECRET if genuine else chance.choice(["", SECRET[:-1], SECRET + " x", SECRET.upper(), "é", "x" * 300])
        headers = {"x-telegram-bot-api-secret-token": secret} if secret else {}
        return "/webhooks/telegram/default", headers, body

    def _bent(self, tree: Any) -> Any:
        """With one to three of its values, keys or texts replaced."""
        tree = json.loads(json.dumps(tree))
        for _ in range(self.chance.randint(1, 3)):
            holders = [it for it in walked(tree) if it]
            if not holders:
                break
            holder = self.chance.choice(holders)
            key: Any = self.chance.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            match self.chance.randrange(4):
                case 0:
                    del holder[key]
                case 1 if isinstance(holder[key], str):
                    at = self.chance.randint(0, len(holder[key]))
                    holder[key] = (
                        holder[key][:at] + self.chance.choice(["\0", "\ud83d", "\n", "‮", "&", "\\"]) + holder[key][at:]
                    )
                case 2 if isinstance(holder, dict):
                    holder[self.chance.choice(["", "schema", "type", "challenge", "encrypt", "id"])] = deepcopy(
                        self.chance.choice(ODD)
                    )
                case _:
                    holder[key] = deepcopy(self.chance.choice(ODD))
        return tree

    def _cut(self, body: bytes) -> bytes:
        at = self.chance.randrange(max(1, len(body)))
        insert = self.chance.choice([b"", b"\0", b"\xff", b'"', b"}", self.chance.randbytes(9)])
        return body[:at] + insert + (body[at + 1 :] if self.chance.random() < 0.6 else b"")


def signed(body: bytes, key: str) -> dict[str, str]:
    now = str(int(time.time()))
    return {TIMESTAMP_HEADER: now, NONCE_HEADER: "n", SIGNATURE_HEADER: sign(now, "n", key, body)}


def walked(tree: Any) -> list[Any]:
    inner = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [tree, *(found for it in inner for found in walked(it))] if isinstance(tree, dict | list) else []


def written(tree: Any) -> bytes:
    """Half characters only pass through the lenient writer."""
    return json.dumps(tree).encode()


async def fuzz(folder: Path, *, count: int, seed: int) -> Found:
    async with bot(folder, "webhook", script=lambda _: says("hi"), more=MORE) as made:
        fuzzer = Fuzzer(made, random.Random(seed))
        fuzzer.house.feishu.chats.setdefault(GROUP, "Team")
        left = iter(range(count))
        async with httpx.AsyncClient(base_url=fuzzer.house.url, trust_env=False, timeout=60) as http:

            async def work() -> None:
                for _ in left:
                    await fuzzer.one(http)

            await asyncio.gather(*(work() for _ in range(WORKERS)))
            health = await http.get("/readyz")
        if health.status_code != 200:
            fuzzer.found.wrong.append(f"not ready afterwards: {health.text}")
        await fuzzer.house.idle()
    with sqlite3.connect(folder / "data" / "clawgate.db") as database:
        if any(FORGED in line for line in database.iterdump()):
            fuzzer.found.wrong.append("something forged was stored")
    return fuzzer.found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = asyncio.run(fuzz(Path(folder), count=arguments.count, seed=arguments.seed))
    lines = [f"seed {arguments.seed}"]
    lines += [f"{kind:16} {status}  {number:7}" for (kind, status), number in sorted(found.statuses.items())]
    lines += [f"slowest {found.slowest_seconds:.2f} s, wrong {len(found.wrong)}", *found.wrong[:20]]
    sys.stdout.write("\n".join((*lines, "")))
    raise SystemExit(bool(found.wrong))


if __name__ == "__main__":
    main()
