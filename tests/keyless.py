"""A gateway with the web chat alone whose model has no key yet, its config watched as `serve` does, and a vendor that
knows one key."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.app.gateway import Gateway
from gateway.app.serve import Reload
from gateway.config.load import load
from tests.empty_database import open_store
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.script import says
from tests.loopback import serve_on_loopback

KEY = "canary-first-key-91827"
MODEL = "deepseek/deepseek-v4-pro"
AGENTS = "agents: { list: [ { id: helper, name: Helper, tools: { allow: [read] } } ] }"


@dataclass(frozen=True)
class Keyless:
    folder: Path
    gateway: Gateway
    vendor: ChatEmulator
    url: str

    @property
    def dotenv(self) -> Path:
        return self.folder / ".env"

    def link(self) -> str:
        return self.url


@asynccontextmanager
async def keyless(
    folder: Path,
    *,
    more: str = "",
    agents: str = AGENTS,
    env: Mapping[str, str] | None = None,
    channels: str = "web: {}",
) -> AsyncIterator[Keyless]:
    vendor = ChatEmulator(lambda body: says("I am real."), vendor="deepseek", api_key=KEY)
    env, file = env or {}, folder / "config.yaml"
    async with serve_on_loopback(vendor.app) as vendor_url:
        providers = f'providers: {{ deepseek: {{ baseUrl: "{vendor_url}/v1" }} }}'
        text = f"logging: {{ level: warning }}\n{providers}\nchannels: {{ {channels} }}\n{agents}\n{more}\n"
        file.write_text(text, encoding="utf-8")
        loaded = load(file, env)
        gateway = Gateway(loaded.config, loaded.environment, store=open_store(loaded.config.database))
        await gateway.start()
        try:
            gateway.spawn(Reload(gateway, file, env, loaded, applied=lambda config: None).run())
            async with serve_on_loopback(gateway.app) as url:
                yield Keyless(folder, gateway, vendor, url)
                await gateway.drain()
        finally:
            await gateway.close()
