"""A runtime for what runs below the gateway: on a given store, with a config of one agent and the given limits."""

import time
from collections.abc import Callable
from typing import Any

from agents.acp.agent import AcpAgents
from agents.config import AgentConfig
from agents.turn import silent
from gateway.config.root import AgentsConfig, Config, LimitsConfig
from gateway.observe.metrics import Metrics
from gateway.observe.secrets import Scrubber
from gateway.state.owners import Claimed, Owners
from gateway.state.queues import Queues
from gateway.state.reasons import ToolLayers
from gateway.state.runtime import ConfigState, Control, Runtime, Setup
from gateway.store.store import Store
from tests.sandboxes import shared
from tools.mcp.server import McpServers
from tools.process import Processes

NO_SERVERS: Any = None


def runtime(
    store: Store, *, now: Callable[[], float], limits: LimitsConfig, channels: dict[tuple[str, str], Any]
) -> Runtime:
    config = Config(agents=AgentsConfig(list=(AgentConfig(id="helper"),)), limits=limits)
    stored: Any = getattr(store, "owners", None)  # some tests have no store
    owners = Owners(config.owners, Claimed(stored))
    queues = Queues(config.queue, channels, config.agents.list)
    return Runtime(
        setup=Setup(
            config=config,
            channels=channels,
            providers={},
            runners={},
            queues=queues,
            layers=ToolLayers(config, owners),
            owners=owners,
            processes=Processes(config.tools.process, time.time),
            acp=AcpAgents(NO_SERVERS),
            mcp=McpServers(config.mcp, NO_SERVERS, str),
        ),
        config_state=ConfigState(version=""),
        store=store,
        sandbox=shared(),
        control=Control(store),
        metrics=Metrics(),
        emit=silent,
        scrubber=Scrubber(),
        now=now,
    )
