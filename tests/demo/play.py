"""Play the reference case through the real gateway and note what every layer saw.

The Feishu event is really encrypted, signed and posted; the official SDK really talks to the emulated model over a
socket; the tools work in a real folder; the reply is what the emulated Feishu received. Nothing leaves loopback.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agents.messages import Text, message_json
from agents.prompt.fences import BOUNDARY
from agents.turn import ModelAnswered, ToolFinished, ToolStarted, TurnEvent, TurnStarted
from gateway.app.gateway import Gateway
from gateway.config.load import load
from gateway.store.opening import open_store
from tests.demo import story
from tests.demo.makers import MAKERS, Maker
from tests.demo.platforms import FeishuStage, Platform
from tests.emulators.models.server import ModelEmulator
from tests.loopback import serve_on_loopback


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """What one layer saw. `name` is one of: event, context, system_prompt, user_message, request, response, tool_call,
    tool_result, reply; `round` counts the model's requests."""

    name: str
    data: Any
    round: int | None = None


async def play(maker: Maker = MAKERS["anthropic-messages"], platform: Platform | None = None) -> list[Layer]:
    """The layers of the reference case, in the order in which the message passes them."""
    layers: list[Layer] = []
    platform = platform or FeishuStage()
    with tempfile.TemporaryDirectory(prefix="clawgate-demo-") as folder:
        async with stage(Path(folder), layers, maker, platform) as (url, _, model):
            layers.append(Layer(name="event", data=platform.event()))
            await platform.push(url)
            layers.append(Layer(name="reply", data=await platform.reply()))
        _insert_requests(layers, model)
    return layers


@asynccontextmanager
async def stage(
    folder: Path,
    layers: list[Layer],
    maker: Maker = MAKERS["anthropic-messages"],
    platform: Platform | None = None,
) -> AsyncIterator[tuple[str, Any, ModelEmulator]]:
    """The emulators and the gateway, up and connected; yields the gateway's URL, the platform's and the model's."""
    platform = platform or FeishuStage()
    model = maker.build(story.model_script(), story.API_KEY)
    story.lay_out(folder / "data" / "workspaces" / "coder")
    async with serve_on_loopback(platform.emulator.app) as platform_url, serve_on_loopback(model.app) as model_url:
        config = folder / "config.yaml"
        provider = maker.provider_line(model_url, story.API_KEY)
        text = story.config_yaml(channel=platform.section(platform_url), model=maker.model, provider=provider)
        config.write_text(text, encoding="utf-8")
        loaded = load(config, {}).config
        store = open_store(loaded.database)
        gateway = Gateway(loaded, {}, store=store, emit=lambda event: note(event, layers))
        await gateway.start()
        try:
            async with serve_on_loopback(gateway.app, http=gateway.connections.protocol) as url:
                yield url, platform.emulator, model
                await gateway.drain()
        finally:
            await gateway.close()


def note(event: TurnEvent, layers: list[Layer]) -> None:
    """What a turn's event adds to the layers."""
    match event:
        case TurnStarted(turn=turn, system=system):
            body = "".join(part.text for part in turn.user.content if isinstance(part, Text))
            layers.append(Layer(name="context", data=asdict(turn.context)))
            layers.append(Layer(name="system_prompt", data=f"{system.stable}\n\n{BOUNDARY}\n\n{system.volatile}"))
            layers.append(Layer(name="user_message", data=f"{turn.user.metadata}\n\n{body}"))
        case ModelAnswered(round=number, message=message):
            layers.append(Layer(name="response", round=number, data=message_json.dump_python(message, mode="json")))
        case ToolStarted(call=call):
            layers.append(Layer(name="tool_call", data={"name": call.name, "arguments": call.arguments}))
        case ToolFinished(result=result):
            layers.append(Layer(name="tool_result", data=message_json.dump_python(result, mode="json")))
        case _:
            return


def _insert_requests(layers: list[Layer], model: ModelEmulator) -> None:
    """Each request as the emulated provider received it, before its response."""
    for number, received in enumerate(model.requests, start=1):
        at = next(index for index, layer in enumerate(layers) if layer.name == "response" and layer.round == number)
        layers.insert(at, Layer(name="request", round=number, data=received.body))
