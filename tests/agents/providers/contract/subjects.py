"""Every wire with its emulator, as the contract suite sees it: one line a vendor, the vendors of one wire included."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from agents.providers.catalog import build_provider
from agents.providers.config import ProviderConfig
from agents.providers.provider import Provider
from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.server import ModelEmulator, Reply
from tests.loopback import serve_on_loopback

KEY = "sk-contract"
NOW = 1_790_000_000.0


@dataclass(frozen=True, kw_only=True)
class Subject:
    """`name` is the provider's in the config, so it chooses the vendor's record too. `thinks` and `sees` are of
    `model`."""

    name: str
    model: str
    emulator: Callable[..., ModelEmulator]
    path: str = ""
    api: str | None = None
    thinks: bool = True
    sees: bool = True
    busy_status: int = 503

    def config(self, url: str, more: dict[str, Any]) -> ProviderConfig:
        settings = {"apiKey": KEY, "baseUrl": f"{url}{self.path}"} | ({"api": self.api} if self.api else {})
        return ProviderConfig.model_validate(settings | more)

    @asynccontextmanager
    async def connected(
        self, *script: Reply, config: dict[str, Any] | None = None, **options: Any
    ) -> AsyncIterator[tuple[ModelEmulator, Provider]]:
        emulator = self.emulator(list(script), api_key=KEY, **options)
        async with serve_on_loopback(emulator.app) as url:
            provider = build_provider(self.name, self.config(url, config or {}), now=lambda: NOW)
            try:
                yield emulator, provider
            finally:
                await provider.close()


def _chat(vendor: str) -> Callable[..., ModelEmulator]:
    return lambda script, **options: ChatEmulator(script, vendor=vendor, **options)


SUBJECTS = {
    "anthropic": Subject(name="anthropic", model="claude-sonnet-4-6", emulator=AnthropicEmulator, busy_status=529),
    "claude with a budget": Subject(name="anthropic", model="claude-haiku-4-5", emulator=AnthropicEmulator),
    "responses": Subject(name="openai", model="gpt-5.5", emulator=ResponsesEmulator, path="/v1"),
    "gemini": Subject(name="google", model="gemini-3-flash", emulator=GeminiEmulator),
    "gemini 2.5": Subject(name="google", model="gemini-2.5-pro", emulator=GeminiEmulator),
    "mistral": Subject(name="mistral", model="mistral-large-latest", emulator=MistralEmulator),
    "openai chat": Subject(
        name="openai", api="openai-chat", model="gpt-4.1", emulator=_chat("openai"), path="/v1", thinks=False
    ),
    "deepseek": Subject(name="deepseek", model="deepseek-v4-pro", emulator=_chat("deepseek"), path="/v1", sees=False),
    "moonshot": Subject(name="moonshot", model="kimi-k2.6", emulator=_chat("moonshot"), path="/v1"),
    "zhipu": Subject(name="zhipu", model="glm-4.7", emulator=_chat("zhipu"), path="/v1", sees=False),
    "qwen": Subject(name="qwen", model="qwen3-max", emulator=_chat("qwen"), path="/v1", sees=False),
    "openrouter": Subject(name="openrouter", model="openai/gpt-4.1", emulator=_chat("openrouter"), path="/v1"),
    "ollama": Subject(name="ollama", model="qwen3", emulator=_chat("ollama"), path="/v1", sees=False),
    "vllm": Subject(name="vllm", model="qwen3", emulator=_chat("vllm"), path="/v1", sees=False),
    "clawdbot": Subject(
        name="clawdbot", model="clawdbot-3.5-tools", emulator=_chat("clawdbot"), path="/v1", thinks=False, sees=False
    ),
    "generic": Subject(
        name="somebody",
        api="openai-chat",
        model="some-model",
        emulator=_chat("generic"),
        path="/v1",
        thinks=False,
        sees=False,
    ),
}

WIRES = {name: SUBJECTS[name] for name in ("anthropic", "responses", "gemini", "mistral", "openai chat", "clawdbot")}
"""One a wire, and one whose calls are in its prose: for what no vendor's record can change."""
