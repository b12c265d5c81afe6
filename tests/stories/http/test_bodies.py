"""Bodies that a sender begins and does not end: what they may hold in memory, and who is answered meanwhile."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from channels.feishu import signature
from gateway.http.bodies import Bodies
from tests.emulators.models.script import says
from tests.running import ALICE, ALICE_CHAT, FEISHU, client, running
from tests.stories.http.test_door import HOST, Line, held, line
from tests.waiting import PATIENCE_SECONDS

MIB = 1_048_576
BUDGET = 2 * MIB
COUNT = 20
SECRET = "canary-webhook-secret-91827"
TELEGRAM = f"""  telegram:
    mode: webhook
    botToken: "7100000001:AAEmulatorBotTokenForTestsOnly000000"
    webhookSecret: {SECRET}
    apiRoot: http://127.0.0.1:9
"""
WEB = "  web: {}\n"
LIMITED = f"server: {{ maxUnverifiedBytes: {BUDGET} }}"


def signed(age_seconds: int = 0) -> bytes:
    """Headers as Feishu's, which nobody can judge without the body."""
    at = int(time.time()) - age_seconds
    return b"x-lark-request-timestamp: %d\r\nx-lark-request-nonce: n\r\nx-lark-signature: %b\r\n" % (at, b"0" * 64)


def begun(path: str, size: int, headers: bytes = b"") -> bytes:
    length = b"transfer-encoding: chunked\r\n" if size < 0 else b"content-length: %d\r\n" % size
    return b"POST %b HTTP/1.1\r\n%b%b%b\r\n" % (path.encode(), HOST, length, headers)


DOORS = {
    "feishu": ("/webhooks/feishu/default", signed(), MIB - 1),
    "feishu in chunks": ("/webhooks/feishu/default", signed(), -1),
    "telegram": ("/webhooks/telegram/default", b"x-telegram-bot-api-secret-token: %b\r\n" % SECRET.encode(), MIB - 1),
    "the page": ("/webhooks/web/default", b"x-clawgate: 1\r\n", MIB - 1),
}


async def flood(lines: list[Line], path: str, headers: bytes, size: int) -> None:
    """Half of each body, as far as the door takes it."""
    half = b"A" * (MIB // 2)
    piece = b"%x\r\n%b\r\n" % (len(half), half) if size < 0 else half

    async def pour(it: Line) -> None:
        with suppress(ConnectionError):
            await it.send(begun(path, size, headers))
            for at in range(0, len(piece), 65_536):
                await it.send(piece[at : at + 65_536])

    pouring = [asyncio.create_task(pour(it)) for it in lines]
    await asyncio.wait(pouring, timeout=2)
    for task in pouring:
        task.cancel()
    await asyncio.gather(*pouring, return_exceptions=True)


def weighed(bodies: Bodies) -> list[int]:
    """Every number of bytes that is held from now on."""
    seen: list[int] = []

    class Weighed(Bodies):
        def __setattr__(self, name: str, value: Any) -> None:
            if name == "held":
                seen.append(value)
            super().__setattr__(name, value)

    bodies.__class__ = Weighed
    return seen


@pytest.mark.parametrize("door", DOORS)
async def test_body_budget_of_slow_uploads_evicts_the_slowest(tmp_path: Path, door: str) -> None:
    path, headers, size = DOORS[door]
    more, channels = LIMITED, FEISHU + TELEGRAM + WEB
    async with running(tmp_path, feishu=channels, more=more, script=[says("here")] * 3) as house, AsyncExitStack() as s:
        lines = await held(s, house.url, COUNT, "127.0.0.1")
        held_bytes = weighed(house.gateway.doors.bodies)
        flooding = asyncio.create_task(flood(lines, path, headers, size))
        for number in range(3):
            await house.until(lambda: house.gateway.doors.bodies.held > 0)
            assert (await house.say(f"hello {number}")).status_code == 200
        await flooding
        assert await cut_off(lines) >= COUNT - BUDGET // (MIB // 2)
        assert BUDGET // 2 < max(held_bytes) <= 2 * BUDGET + MIB
        assert house.gateway.doors.bodies.held <= BUDGET
        await house.replies(1)
        await house.idle()
    assert house.gateway.doors.bodies.held == 0


async def cut_off(lines: list[Line]) -> int:
    """How many connections have been told that there is no room for their bodies."""

    async def told(it: Line) -> bool:
        try:
            async with asyncio.timeout(3):
                head = await it.reader.readuntil(b"\r\n\r\n")
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError):
            return False
        assert b" 503 " in head
        assert b"retry-after" in head.lower()
        return True

    return sum(await asyncio.gather(*map(told, lines)))


async def test_body_in_two_halves_is_not_evicted_for_stalled_ones(tmp_path: Path) -> None:
    """It is the youngest, however full the budget is."""
    async with running(tmp_path, more=LIMITED, script=[says("here")]) as house, AsyncExitStack() as stack:
        lines = await held(stack, house.url, COUNT, "127.0.0.1")
        pouring = asyncio.create_task(flood(lines, *DOORS["feishu"]))
        await house.until(lambda: house.gateway.doors.bodies.held > BUDGET // 2)
        headers, body = house.feishu.encode(house.feishu.text_event("hello", sender=ALICE, chat=ALICE_CHAT))
        fields = b"".join(f"{name}: {value}\r\n".encode() for name, value in headers.items())
        async with line(house.url) as genuine:
            await genuine.send(begun("/webhooks/feishu/default", len(body), fields), body[:100])
            await genuine.send(body[100:])
            assert (await genuine.answer())[0] == 200
        await pouring
        assert await house.replies(1) == ["here"]


async def test_body_burst_of_whole_deliveries_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of genuine deliveries, larger than the budget in all, loses none."""
    # A busy machine takes seconds over it, and then the oldest body were no longer young.
    monkeypatch.setattr("gateway.http.bodies.YOUNG_SECONDS", PATIENCE_SECONDS)
    async with running(tmp_path, more=LIMITED, script=[says("here")] * 40) as house:
        together = asyncio.Event()

        async def halting(body: bytes) -> AsyncIterator[bytes]:
            yield body[:-1]
            await together.wait()
            yield body[-1:]

        async def say(number: int) -> int:
            text = "long " * 40_000 + str(number)
            headers, body = house.feishu.encode(house.feishu.text_event(text, sender=ALICE, chat=ALICE_CHAT))
            headers = {**headers, "content-length": str(len(body))}
            async with client(house.url) as http:
                answer = await http.post("/webhooks/feishu/default", content=halting(body), headers=headers)
            return answer.status_code

        bodies = house.gateway.doors.bodies

        def holds(at_least: int) -> bool:
            return bodies.held > at_least

        answers: list[asyncio.Task[int]] = []
        async with asyncio.TaskGroup() as group:
            for number in range(12):  # each but for its last byte, until there is no room for the next one
                answers.append(group.create_task(say(number)))
                at_least = min((number + 1) * 200_000, bodies.bytes_max)
                await house.until(partial(holds, at_least))
            together.set()
        assert {it.result() for it in answers} == {200}


def refused_by_headers() -> Iterator[tuple[str, str, bytes, int]]:
    feishu, telegram = "/webhooks/feishu/default", "/webhooks/telegram/default"
    yield "no secret", telegram, b"", MIB - 1
    yield "a wrong secret", telegram, b"x-telegram-bot-api-secret-token: wrong\r\n", MIB - 1
    twice = b"x-telegram-bot-api-secret-token: %b\r\n" % SECRET.encode() * 2
    yield "the secret twice", telegram, twice, MIB - 1
    yield "no signature", feishu, b"", MIB - 1
    yield "an old signature", feishu, signed(4_000), MIB - 1
    yield "a signature from the future", feishu, signed(-4_000_000), MIB - 1
    yield "half a signature", feishu, b"x-lark-signature: %b\r\n" % (b"0" * 64), MIB - 1
    yield "a malformed one", feishu, signed().replace(b"nonce: n", b"nonce: \xff"), -1
    yield "no page header", "/webhooks/web/default", b"", MIB - 1


async def test_webhook_signature_headers_are_checked_before_the_body(tmp_path: Path) -> None:
    channels, patient = FEISHU + TELEGRAM + WEB, "server: { bodyTimeoutSeconds: 60 }"
    async with running(tmp_path, feishu=channels, more=patient) as house:
        for case, path, headers, size in refused_by_headers():
            async with line(house.url) as it:
                await it.send(begun(path, size, headers))
                assert (await it.answer())[0] in (401, 403), case


async def test_webhook_without_a_signature_reads_only_a_short_challenge(tmp_path: Path) -> None:
    async with running(tmp_path) as house, line(house.url) as it:
        await it.send(
            begun("/webhooks/feishu/default", -1), b"%x\r\n" % MIB, b"A" * (signature.CHALLENGE_BYTES_MAX + 1)
        )
        assert (await it.answer())[0] == 413


async def test_body_timeout_answer_says_what_to_do(tmp_path: Path) -> None:
    async with running(tmp_path, more="server: { maxUnverifiedBytes: 65536 }") as house, AsyncExitStack() as stack:
        lines = await held(stack, house.url, 4, "127.0.0.1")
        for it in lines:
            await it.send(begun("/webhooks/feishu/default", MIB - 1, signed()), b"A" * 60_000)
        answering = [asyncio.create_task(it.answer()) for it in lines]
        done, waiting = await asyncio.wait(answering, return_when=asyncio.FIRST_COMPLETED)
        status, text = done.pop().result()
        assert (status, "server.maxUnverifiedBytes" in text) == (503, True)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        assert house.counted("too many unfinished bodies")


async def test_api_call_left_unfinished_blocks_no_other_call(tmp_path: Path) -> None:
    """Programs are known before their bodies are read: each has its room reserved, and nobody is cut off for another."""
    token = "canary-api-token-9182736455"
    more = f"server: {{ api: {{ tokens: {{ ui: {token} }} }} }}\nlimits: {{ fileBytes: 65536 }}"
    own = f"authorization: Bearer {token}\r\n".encode()
    async with running(tmp_path, more=more, script=[says("here")]) as house, AsyncExitStack() as stack:
        lines = await held(stack, house.url, COUNT, "127.0.0.1")
        await flood(lines, "/v1/chat/completions", own, MIB - 1)
        async with client(house.url) as http:
            call = {"model": "helper", "messages": [{"role": "user", "content": "hello"}]}
            answer = await http.post("/v1/chat/completions", json=call, headers={"authorization": f"Bearer {token}"})
            assert (answer.status_code, "here" in answer.text) == (200, True)
        assert house.gateway.doors.bodies.held == 0
