"""A running gateway between the emulators, for tests that go through the door.

The config is a real file, read by the real loader; the gateway listens on a real port; the model SDK talks over a socket.
"""

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from agents.turn import TurnEvent
from channels.channel import DeliveryError
from gateway.app.gateway import Gateway
from gateway.config.load import load
from gateway.config.root import Config
from tests.empty_database import open_store
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.server import Script
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.sandboxes import reported
from tests.waiting import PATIENCE_SECONDS, until

APP_ID = "cli_test000000000001"
SECRETS = {
    "FEISHU_APP_SECRET": "canary-app-secret-91827",
    "FEISHU_ENCRYPT_KEY": "canary-encrypt-key-91827",
    "FEISHU_VERIFICATION_TOKEN": "canary-verification-91827",
    "ANTHROPIC_API_KEY": "canary-anthropic-key-91827",
}
BOT = "ou_b07000000000000000000000000000"
ALICE = "ou_a11ce0000000000000000000000000"
BOB = "ou_b0b000000000000000000000000000"
ALICE_CHAT = "oc_a11ce0000000000000000000000000"
BOB_CHAT = "oc_b0b000000000000000000000000000"
GROUP = "oc_960000000000000000000000000000"

AGENTS = """
agents:
  list:
    - id: helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, write, edit, ls, exec, message] }
"""
WITHOUT_EXEC = AGENTS.replace("exec, ", "")
"""No start of a process probes the sandbox for it, which takes a tenth of a second of processor time."""
FEISHU = f"""
    mode: webhook
    streaming: off
    reaction: ""
    appId: {APP_ID}
    appSecret: ${{FEISHU_APP_SECRET}}
    encryptKey: ${{FEISHU_ENCRYPT_KEY}}
    verificationToken: ${{FEISHU_VERIFICATION_TOKEN}}
    dmPolicy: open
    groupPolicy: open
"""


@dataclass
class Running:
    """One gateway and the emulators around it."""

    folder: Path
    feishu: FeishuEmulator
    anthropic: AnthropicEmulator
    line: Line
    gateway: Gateway
    url: str
    events: list[TurnEvent] = field(default_factory=list)

    async def say(self, text: str, *, sender: str = ALICE, chat: str = ALICE_CHAT, **more: Any) -> httpx.Response:
        """Somebody writes to the bot; the answer of the webhook."""
        return await self.push(self.feishu.text_event(text, sender=sender, chat=chat, **more))

    async def push(self, event: dict[str, Any], *, account: str = "default") -> httpx.Response:
        return await push(self.feishu, self.url, event, account=account)

    async def replies(self, count: int) -> list[str]:
        """Wait until the emulated Feishu has so many messages; what they say, in order."""
        await until(lambda: len(self.feishu.messages) >= count)
        return [message.text for message in self.feishu.messages]

    async def idle(self) -> None:
        """Wait until no lane has anything left to do."""
        await until(lambda: not self.gateway.runtime.control.lanes)

    until = staticmethod(until)

    async def requested(self, count: int) -> None:
        """Wait until the model has been asked so often."""
        await until(lambda: len(self.anthropic.requests) >= count)

    def counted(self, text: str) -> bool:
        """Whether the metrics say this."""
        return text in self.gateway.runtime.metrics.render().decode()

    def workspace(self, agent: str = "helper") -> Path:
        return self.folder / "data" / "workspaces" / agent

    def uploads(self) -> dict[str, bytes]:
        """What people have sent, in whatever chat, by the path that the model is told."""
        found = (self.folder / "data" / "uploads").glob("*/*/*")
        return {f"./uploads/{path.parent.name}/{path.name}": path.read_bytes() for path in found}


def client(url: str = "", **more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, trust_env=False, timeout=PATIENCE_SECONDS, **more)


async def push(
    feishu: FeishuEmulator, url: str, event: Mapping[str, Any], *, account: str = "default"
) -> httpx.Response:
    """As Feishu does, which is less patient."""
    headers, body = feishu.encode(event)
    async with client(url) as http:
        return await http.post(f"/webhooks/feishu/{account}", content=body, headers=headers)


def config_text(
    *,
    feishu_url: str,
    anthropic_url: str,
    agents: str = AGENTS,
    feishu: str = FEISHU,
    providers: str = "",
    more: str = "",
) -> str:
    return f"""
logging: {{ level: warning }}
providers:
  anthropic: {{ apiKey: "${{ANTHROPIC_API_KEY}}", baseUrl: "{anthropic_url}" }}
{providers}
channels:
  feishu:
    baseUrl: "{feishu_url}"
{feishu}
{agents}
{more}
"""


def feishu_emulator() -> FeishuEmulator:
    emulator = FeishuEmulator(
        app_id=APP_ID,
        app_secret=SECRETS["FEISHU_APP_SECRET"],
        encrypt_key=SECRETS["FEISHU_ENCRYPT_KEY"],
        verification_token=SECRETS["FEISHU_VERIFICATION_TOKEN"],
        bot_open_id=BOT,
        bot_name="Helper Bot",
    )
    emulator.users.update({ALICE: "Alice", BOB: "Bob"})
    emulator.chats.update({GROUP: "Team"})
    return emulator


async def started(gateway: Gateway) -> None:
    """Until its bots know who they are: a group message before that is refused after a moment, and comes again."""
    reported(gateway.runtime.sandbox)
    await gateway.start()
    for channel in gateway.runtime.setup.channels.values():
        with suppress(DeliveryError):
            await channel.learn_identity(PATIENCE_SECONDS)


@asynccontextmanager
async def running(
    folder: Path,
    *,
    script: Script = (),
    emulator: FeishuEmulator | None = None,
    root: type[Config] = Config,
    now: Callable[[], float] = time.time,
    write: Callable[..., str] = config_text,
    **config: str,
) -> AsyncIterator[Running]:
    """A gateway in `folder`; with the same folder again it finds what it left there. `write` makes the config of `config`
    and the addresses of the emulators."""
    emulator = emulator or feishu_emulator()
    anthropic = AnthropicEmulator(script, api_key=SECRETS["ANTHROPIC_API_KEY"])
    line = Line(anthropic.app)
    events: list[TurnEvent] = []
    async with serve_on_loopback(emulator.app) as feishu_url, serve_on_loopback(line) as anthropic_url:
        file = folder / "config.yaml"
        file.write_text(write(feishu_url=feishu_url, anthropic_url=anthropic_url, **config), encoding="utf-8")
        loaded = load(file, SECRETS, root=root).config
        gateway = Gateway(loaded, SECRETS, store=open_store(loaded.database), emit=events.append, now=now)
        try:
            await started(gateway)
            async with serve_on_loopback(gateway.app, http=gateway.connections.protocol) as url:
                yield Running(folder, emulator, anthropic, line, gateway, url, events)
                await gateway.drain()
        finally:
            line.release()
            await gateway.lanes.drain(0)  # what a test that fails leaves behind would go on for ever
            await gateway.close()
