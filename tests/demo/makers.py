"""Who makes the model that plays in the demo: for each wire an emulated maker, and the lines of config that name it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tests.emulators.models.anthropic.emulator import AnthropicEmulator
from tests.emulators.models.chat.emulator import ChatEmulator
from tests.emulators.models.gemini.emulator import GeminiEmulator
from tests.emulators.models.mistral.emulator import MistralEmulator
from tests.emulators.models.responses.emulator import ResponsesEmulator
from tests.emulators.models.script import Call, Say, Think, Turn
from tests.emulators.models.server import ModelEmulator


@dataclass(frozen=True, kw_only=True, slots=True)
class Maker:
    """`model` is what the agent names; `settings` are further keys of the provider's block, `path` stands behind the
    emulator's address."""

    model: str
    build: Callable[[Sequence[Turn], str], ModelEmulator]
    settings: str = ""
    path: str = ""

    def provider_line(self, url: str, key: str) -> str:
        """The provider's block, on one line of YAML."""
        name = self.model.partition("/")[0]
        return f'{name}: {{ apiKey: {key}, baseUrl: "{url}{self.path}"{self.settings} }}'


def by_prompt(turn: Turn) -> Turn:
    """The same answer from a model without tools: its calls are text."""
    return replace(turn, parts=(Say(text="\n".join(_words(part) for part in turn.parts)),))


def _words(part: Say | Think | Call) -> str:
    if not isinstance(part, Call):
        return part.text
    call = json.dumps({"name": part.name, "arguments": dict(part.arguments)}, ensure_ascii=False)
    return f"<tool_call>{call}</tool_call>"


MAKERS: dict[str, Maker] = {
    "anthropic-messages": Maker(
        model="anthropic/claude-sonnet-4-6", build=lambda script, key: AnthropicEmulator(script, api_key=key)
    ),
    "openai-responses": Maker(
        model="openai/gpt-5.5", path="/v1", build=lambda script, key: ResponsesEmulator(script, api_key=key)
    ),
    "openai-chat": Maker(
        model="deepseek/deepseek-v4-pro",
        path="/v1",
        build=lambda script, key: ChatEmulator(script, vendor="deepseek", api_key=key),
    ),
    "google-gemini": Maker(
        model="google/gemini-3-flash", build=lambda script, key: GeminiEmulator(script, api_key=key)
    ),
    "mistral": Maker(
        model="mistral/mistral-large-latest", build=lambda script, key: MistralEmulator(script, api_key=key)
    ),
    "prompt": Maker(
        model="local/gemma-3",
        path="/v1",
        settings=", api: openai-chat, toolCalling: prompt",
        build=lambda script, key: ChatEmulator([by_prompt(turn) for turn in script], vendor="generic", api_key=key),
    ),
}
"""By api; `prompt` is a model without tools."""
