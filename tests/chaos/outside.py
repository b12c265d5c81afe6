"""What begins outside of every chat: hooks that are called, messages that a program or the command line has sent.

Each carries a serial, as if a person had written it, and is delivered until it is taken, and now and then once more. The
command line can die, too: `told` runs it in a process that kills itself at a named moment.
"""

import asyncio
import os
import time
from asyncio.subprocess import PIPE
from collections.abc import Awaitable, Callable
from signal import SIGKILL

import httpx
import orjson

from tests import warm
from tests.chaos.ledger import Message
from tests.chaos.replica import API_TOKEN, HOOK_SECRET
from tests.chaos.scene import HOOKED, Scene
from tests.running import SECRETS
from tests.stories.inbox.test_hooks import signed

EVENTS = 4
SENT = 3
PATIENCE_SECONDS = 40.0
RETRY_SECONDS = (0.05, 0.2)
AGAIN_CHANCE = 0.3


async def hooks(scene: Scene) -> None:
    """Events of another system: half of them are said, half of them are work for the agent."""
    async with _client() as client, asyncio.TaskGroup() as group:
        for number in range(EVENTS):
            at = scene.chance.randrange(HOOKED)
            message = scene.platform.expect("say" if number % 2 else "plain", scene.hooked[at])
            name = f"{'say' if number % 2 else 'task'}{at}"

            def called(message: Message = message, name: str = name) -> Awaitable[httpx.Response]:
                body = orjson.dumps({"serial": message.serial, "words": f"{message.serial} {message.wish}"})
                headers = signed(body, HOOK_SECRET, at=time.time(), key=message.serial)
                return client.post(f"{scene.url()}/hooks/{name}", content=body, headers=headers)

            group.create_task(_delivered(scene, message, called))


async def sends(scene: Scene) -> None:
    """Messages of a program, by `POST /v1/send`."""
    async with _client() as client, asyncio.TaskGroup() as group:
        for _ in range(SENT):
            message = scene.platform.expect("say", scene.chance.choice(scene.hooked))

            def called(message: Message = message) -> Awaitable[httpx.Response]:
                headers = {"authorization": f"Bearer {API_TOKEN}", "idempotency-key": message.serial}
                return client.post(f"{scene.url()}/v1/send", json=_sent(scene, message), headers=headers)

            group.create_task(_delivered(scene, message, called))


async def told(scene: Scene, message: Message, kill: str = "") -> bool:
    """Sends it from the command line, and returns True if that died. It is taken once the command has said so."""
    env = {"PATH": os.environ["PATH"], "HOME": str(scene.folder), "CLAWGATE_KILL": kill, **SECRETS}
    sent, config = _sent(scene, message), str(scene.replicas[0].config)
    words = ("send", "--config", config, "--to", sent["to"], sent["text"])
    process = await warm.start("tests.chaos.told", *words, env=env, stdout=PIPE, stderr=PIPE)
    output, errors = await process.communicate()
    if output.startswith(b"stored\n"):
        message.acked = -1
    if process.returncode == -SIGKILL:
        scene.ledger.kills += 1
        return True
    if process.returncode != 0:
        scene.ledger.refused.append(f"`send` ended with {process.returncode}: {errors.decode()}")
    return False


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=PATIENCE_SECONDS, trust_env=False)


def _sent(scene: Scene, message: Message) -> dict[str, str]:
    return {"to": f"{scene.platform.chat.channel}:{message.chat}", "text": f"R {message.serial} n1 p1/1"}


async def _delivered(scene: Scene, message: Message, called: Callable[[], Awaitable[httpx.Response]]) -> None:
    while not await _taken(scene, called):
        await asyncio.sleep(scene.chance.uniform(*RETRY_SECONDS))
    message.acked = -1
    if scene.chance.random() < AGAIN_CHANCE:
        await asyncio.sleep(scene.chance.uniform(0, 0.5))
        await _taken(scene, called)


async def _taken(scene: Scene, called: Callable[[], Awaitable[httpx.Response]]) -> bool:
    try:
        response = await called()
    except httpx.TransportError:
        return False
    if not response.is_success and response.status_code != 503:
        scene.ledger.refused.append(f"{response.request.url.path}: {response.status_code} {response.text}")
    return response.is_success
