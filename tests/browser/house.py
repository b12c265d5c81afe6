"""A running gateway with the web chat and an emulated model, which can go down and come back at the same address.

No other channel is configured: the web chat alone is a complete product. `tests.running` has the one with Feishu.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from gateway.config.load import load
from gateway.gateway import Gateway
from gateway.store.opening import open_store
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.server import Script
from tests.line import Line
from tests.loopback import serve_on_loopback
from tests.waiting import until

KEY = "canary-anthropic-key-91827"
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

    def __init__(
        self, folder: Path, config: Path, anthropic: AnthropicEmulator, line: Line, now: Callable[[], float]
    ) -> None:
        self.folder = folder
        self.anthropic = anthropic
        self.line = line
        self.url = ""
        self._config = config
        self._now = now
        self._up = AsyncExitStack()

    async def up(self) -> None:
        secrets = {"ANTHROPIC_API_KEY": KEY}
        loaded = load(self._config, secrets).config
        gateway = self._gateway = Gateway(loaded, secrets, store=open_store(loaded.database), now=self._now)
        await gateway.start()
        self._up.push_async_callback(gateway.close)
        port = int(self.url.rpartition(":")[2] or 0)
        self.url = await self._up.enter_async_context(serve_on_loopback(gateway.app, port=port))
        self._up.push_async_callback(gateway.drain)

    def link(self) -> str:
        """What the start would print: the address that signs a browser in, or that of the page where it is open."""
        code = self._gateway.offer_link()
        return f"{self.url}/#sign-in={code}" if code else self.url

    async def down(self) -> None:
        await self._up.aclose()

    def workspace(self, agent: str = "helper") -> Path:
        return self.folder / "data" / "workspaces" / agent

    def uploads(self) -> dict[str, bytes]:
        """What people have sent, by the path that the model is told."""
        found = (self.folder / "data" / "uploads").glob("*/*/*")
        return {f"./uploads/{path.parent.name}/{path.name}": path.read_bytes() for path in found}

    until = staticmethod(until)

    def told(self) -> list[Any]:
        """The last user message of each request to the model, as it was sent."""
        users = ([m for m in received.body["messages"] if m["role"] == "user"] for received in self.anthropic.requests)
        return [messages[-1]["content"] for messages in users]


@asynccontextmanager
async def house(
    folder: Path, *, script: Script = (), agents: str = AGENTS, more: str = "", now: Callable[[], float] = time.time
) -> AsyncIterator[House]:
    anthropic = AnthropicEmulator(script, api_key=KEY)
    line = Line(anthropic.app)
    async with serve_on_loopback(line) as model_url:
        config = folder / "config.yaml"
        config.write_text(
            f"""
logging: {{ level: warning }}
providers:
  anthropic: {{ apiKey: "${{ANTHROPIC_API_KEY}}", baseUrl: "{model_url}" }}
channels: {{ web: {{ enabled: true }} }}
{agents}
{more}
""",
            encoding="utf-8",
        )
        made = House(folder, config, anthropic, line, now)
        try:
            await made.up()
            yield made
        finally:
            line.release()
            await made.down()
