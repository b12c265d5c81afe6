"""A running gateway between the emulators, for tests that go through the door.

The config is a real file, read by the real loader; the gateway listens on a real port; the model SDK talks over a socket.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from agents.events import TurnEvent
from gateway.config.load import load
from gateway.config.root import Config
from gateway.gateway import Gateway
from tests.empty_database import open_store
from tests.emulators.feishu.emulator import FeishuEmulator
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.server import Script
from tests.loopback import serve_on_loopback

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
FEISHU = f"""
    appId: {APP_ID}
    appSecret: ${{FEISHU_APP_SECRET}}
    encryptKey: ${{FEISHU_ENCRYPT_KEY}}
    verificationToken: ${{FEISHU_VERIFICATION_TOKEN}}
    dmPolicy: open
    groupPolicy: open
"""
REPLY_SECONDS = 20.0


@dataclass
class Running:
    """One gateway and the emulators around it."""

    folder: Path
    feishu: FeishuEmulator
    anthropic: AnthropicEmulator
    gateway: Gateway
    url: str
    events: list[TurnEvent] = field(default_factory=list)

    async def say(self, text: str, *, sender: str = ALICE, chat: str = ALICE_CHAT, **more: Any) -> httpx.Response:
        """Somebody writes to the bot; the answer of the webhook."""
        return await self.push(self.feishu.text_event(text, sender=sender, chat=chat, **more))

    async def push(self, event: dict[str, Any], *, account: str = "default") -> httpx.Response:
        return await self.feishu.push(f"{self.url}/webhooks/feishu/{account}", event)

    async def replies(self, count: int) -> list[str]:
        """Wait until the emulated Feishu has so many messages; what they say, in order."""
        await self.until(lambda: len(self.feishu.messages) >= count)
        return [message.text for message in self.feishu.messages]

    async def idle(self) -> None:
        """Wait until no lane has anything left to do."""
        await self.until(lambda: not self.gateway.runtime.control.lanes)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(REPLY_SECONDS):
            while not condition():
                await asyncio.sleep(0.005)

    def workspace(self, agent: str = "helper") -> Path:
        return self.folder / "data" / "workspaces" / agent

    def uploads(self) -> dict[str, bytes]:
        """What people have sent, in whatever chat, by the path that the model is told."""
        found = (self.folder / "data" / "uploads").glob("*/*/*")
        return {f"./uploads/{path.parent.name}/{path.name}": path.read_bytes() for path in found}


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


@asynccontextmanager
async def running(
    folder: Path,
    *,
    script: Script = (),
    emulator: FeishuEmulator | None = None,
    agents: str = AGENTS,
    feishu: str = FEISHU,
    providers: str = "",
    more: str = "",
    root: type[Config] = Config,
    now: Callable[[], float] = time.time,
) -> AsyncIterator[Running]:
    """A gateway in `folder`; with the same folder again it finds what it left there."""
    emulator = emulator or feishu_emulator()
    anthropic = AnthropicEmulator(script, api_key=SECRETS["ANTHROPIC_API_KEY"])
    events: list[TurnEvent] = []
    async with serve_on_loopback(emulator.app) as feishu_url, serve_on_loopback(anthropic.app) as anthropic_url:
        config = folder / "config.yaml"
        text = config_text(
            feishu_url=feishu_url,
            anthropic_url=anthropic_url,
            agents=agents,
            feishu=feishu,
            providers=providers,
            more=more,
        )
        config.write_text(text, encoding="utf-8")
        loaded = load(config, SECRETS, root=root).config
        gateway = Gateway(loaded, SECRETS, store=open_store(loaded.database), emit=events.append, now=now)
        await gateway.start()
        try:
            async with serve_on_loopback(gateway.app, http=gateway.connections.protocol) as url:
                yield Running(folder, emulator, anthropic, gateway, url, events)
                await gateway.drain()
        finally:
            await gateway.close()
