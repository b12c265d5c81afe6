"""A running gateway with the web chat and an emulated model, which can go down and come back at the same address.

No other channel is configured: the web chat alone is a complete product. `tests.running` has the one with Feishu.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from channels.web.archive import MessageBody
from gateway.app.gateway import Gateway
from gateway.config.load import load
from tests.empty_database import open_store
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.server import Script
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.running import SECRETS
from tests.sandboxes import reported
from tests.waiting import until

TOKEN = "canary-admin-token-91827"
AGENTS = """
agents:
  list:
    - id: helper
      name: Helper
      model: anthropic/claude-sonnet-4-6
      tools: { allow: [read, write, ls, exec] }
tools: { exec: { mode: allow } }
"""


class House:
    """`folder` holds its config, its database and its workspaces; `url` stays the same from the first time it is up."""

    until = staticmethod(until)

    def __init__(self, folder: Path, script: Script, now: Callable[[], float]) -> None:
        self.folder = folder
        self.anthropic = AnthropicEmulator(script, api_key=SECRETS["ANTHROPIC_API_KEY"])
        self.line = Line(self.anthropic.app)
        self.url = ""
        self._now = now
        self._up = AsyncExitStack()

    async def up(self) -> None:
        config = load(self.folder / "config.yaml", SECRETS).config
        gateway = self._gateway = Gateway(config, SECRETS, store=open_store(config.database), now=self._now)
        reported(gateway.runtime.sandbox)
        await gateway.start()
        self._up.push_async_callback(gateway.close)
        port = int(self.url.rpartition(":")[2] or 0)
        self.url = await self._up.enter_async_context(serve_on_loopback(gateway.app, port=port))
        self._up.push_async_callback(gateway.drain)

    @property
    def gateway(self) -> Gateway:
        return self._gateway

    async def down(self) -> None:
        await self._up.aclose()

    def link(self) -> str:
        """What the start would print: the address that signs a browser in, or that of the page where it is open."""
        code = self._gateway.offer_link()
        return f"{self.url}/#sign-in={code}" if code else self.url

    def workspace(self, agent: str = "helper") -> Path:
        return self.folder / "data" / "workspaces" / agent

    def last_sent(self) -> Any:
        """The last user message of the last request to the model."""
        return [it["content"] for it in self.anthropic.requests[-1].body["messages"] if it["role"] == "user"][-1]


@asynccontextmanager
async def house(
    folder: Path,
    *,
    script: Script = (),
    agents: str = AGENTS,
    more: str = "",
    channels: str = "",
    now: Callable[[], float] = time.time,
) -> AsyncIterator[House]:
    """`channels` stand beside the web chat, each in one line of YAML behind a comma."""
    home = House(folder, script, now)
    async with serve_on_loopback(home.line) as model_url:
        text = f"""
logging: {{ level: warning }}
providers:
  anthropic: {{ apiKey: "${{ANTHROPIC_API_KEY}}", baseUrl: "{model_url}" }}
channels: {{ web: {{ enabled: true }}{channels} }}
{agents}
{more}
"""
        (folder / "config.yaml").write_text(text, encoding="utf-8")
        try:
            await home.up()
            yield home
        finally:
            home.line.release()
            await home.down()


async def remembered(home: House, count: int, *, chat: str = "", text: str = "Question {}.") -> None:
    """So many chats, or messages of one chat, as they were kept some time ago."""
    archive = home.gateway.runtime.store.archive
    for number in range(count):
        words = MessageBody(text=text.format(number), agent="helper")
        await archive.keep(chat or f"c_seeded_{number:04}", f"m_seeded_{number:04}", words, 1e9 + number)
