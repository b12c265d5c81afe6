"""Every wire with its emulator, as the contract suite sees it: one line a vendor, the vendors of one wire included."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from agents.messages import Usage
from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig, api_of
from agents.providers.provider import ModelRequest, Provider
from tests.agents.providers.contract import bodies
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.server import ModelEmulator, Reply
from tests.loopback import serve_on_loopback

KEY = "sk-contract"
NOW = 1_790_000_000.0
_USAGE = Usage(input=12, cache_read=2100, output=57, reasoning=20)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """`name` is the provider's in the config, so it chooses the vendor's record too. `thinks` and `sees` are of
    `model`."""

    name: str
    model: str
    emulator: Callable[..., ModelEmulator]
    body: Callable[[ModelRequest], bodies.Body]
    path: str = ""
    api: str | None = None
    dialect: str | None = None
    thinks: bool = True
    sees: bool = True
    busy_status: int = 503
    usage: Usage = _USAGE
    """All that it can tell of what an answer cost."""

    @property
    def wire(self) -> str:
        return api_of(self.name, self.config("http://127.0.0.1:9", {}))

    def config(self, url: str, more: dict[str, Any]) -> ProviderConfig:
        settings = {"apiKey": KEY, "baseUrl": f"{url}{self.path}", "dialect": self.dialect}
        return ProviderConfig.model_validate(settings | ({"api": self.api} if self.api else {}) | more)

    @asynccontextmanager
    async def connected(
        self, *script: Reply, config: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[ModelEmulator, Provider]]:
        emulator = self.emulator(list(script), **{"api_key": KEY} | options)
        async with serve_on_loopback(emulator.app) as url:
            provider = build_provider(self.name, self.config(url, config or {}), now=lambda: NOW)
            try:
                yield emulator, provider
            finally:
                await provider.close()


def _chat(name: str, model: str, vendor: str = "", **members: Any) -> Subject:
    """A vendor of the chat wire; `vendor` is its record's name where that is not the provider's."""
    vendor = vendor or name

    def emulator(script: list[Reply], **options: Any) -> ModelEmulator:
        return ChatEmulator(script, vendor=vendor, **options)

    return Subject(name=name, model=model, emulator=emulator, body=bodies.chat(vendor), path="/v1", **members)


_CLAUDE: dict[str, Any] = {
    "name": "anthropic",
    "emulator": AnthropicEmulator,
    "body": bodies.anthropic,
    "busy_status": 529,
    "usage": replace(_USAGE, cache_write=30, reasoning=0),
}
_GEMINI: dict[str, Any] = {"name": "google", "emulator": GeminiEmulator, "body": bodies.gemini}
_PLAIN: dict[str, Any] = {"api": "openai-chat", "thinks": False}

SUBJECTS = {
    "anthropic": Subject(model="claude-sonnet-4-6", **_CLAUDE),
    "claude with a budget": Subject(model="claude-haiku-4-5", **_CLAUDE),
    "responses": Subject(
        name="openai",
        model="gpt-5.5",
        emulator=ResponsesEmulator,
        body=bodies.responses,
        path="/v1",
        usage=replace(_USAGE, cache_write=30),
    ),
    "gemini": Subject(model="gemini-3-flash", **_GEMINI),
    "gemini 2.5": Subject(model="gemini-2.5-pro", **_GEMINI),
    "mistral": Subject(
        name="mistral",
        model="mistral-large-latest",
        emulator=MistralEmulator,
        body=bodies.mistral,
        usage=replace(_USAGE, reasoning=0),
    ),
    "openai chat": _chat("openai", "gpt-4.1", usage=replace(_USAGE, cache_write=30), **_PLAIN),
    "azure": _chat("work", "gpt-5.5", "azure", dialect="azure", **_PLAIN),
    "deepseek": _chat("deepseek", "deepseek-v4-pro", sees=False),
    "deepseek r1": _chat("deepseek", "deepseek-reasoner", "deepseek-r1", sees=False),
    "moonshot": _chat("moonshot", "kimi-k2.6"),
    "zhipu": _chat("zhipu", "glm-4.7", sees=False),
    "qwen": _chat("qwen", "qwen3-max", sees=False),
    "openrouter": _chat("openrouter", "openai/gpt-4.1"),
    "ollama": _chat("ollama", "qwen3", sees=False),
    "vllm": _chat("vllm", "qwen3", sees=False),
    "lmstudio": _chat("lmstudio", "some-model", sees=False),
    "clawdbot": _chat("clawdbot", "clawdbot-3.5-tools", thinks=False, sees=False),
    "generic": _chat("somebody", "some-model", "generic", sees=False, **_PLAIN),
}

WIRES = {name: SUBJECTS[name] for name in ("anthropic", "responses", "gemini", "mistral", "openai chat", "clawdbot")}
"""One a wire, and one whose calls are in its prose: for what no vendor's record can change."""
NATIVE = {name: SUBJECTS[name] for name in ("anthropic", "responses", "gemini", "mistral")}
"""Those that keep a vendor's own payloads."""
