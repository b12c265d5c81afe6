"""What the parts of a running gateway share: the store, the control of turns, the clock, and what one config builds."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agents.events import Emit
from agents.providers.provider import Provider
from agents.runner import AgentRunner
from channels.channel import Channel
from gateway.config.root import Config
from gateway.control import Control
from gateway.limits import LimitsConfig
from gateway.metrics import Metrics
from gateway.queue import Queues
from gateway.store.store import Store


@dataclass(frozen=True, kw_only=True, slots=True)
class Setup:
    """What one config builds. It is replaced as a whole, never in part; whoever needs two things of it takes it once."""

    config: Config
    channels: Mapping[tuple[str, str], Channel]
    providers: Mapping[str, Provider]
    runners: Mapping[str, AgentRunner]
    queues: Queues

    @property
    def limits(self) -> LimitsConfig:
        return self.config.limits


@dataclass(kw_only=True, slots=True)
class Runtime:
    """One running gateway. Only `setup` ever changes."""

    setup: Setup
    store: Store
    control: Control
    metrics: Metrics
    emit: Emit
    now: Callable[[], float]
