"""What a file leaves to the environment: the keys of well-known providers, and which model `auto` is.

Settled once, while the config is loaded: everywhere else a provider has its key, and a model is `provider/model`. A
variable is read only where the file says nothing of a key, and only for a provider that the file or an agent names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import SecretStr

from agents.config import AUTO, AgentDefaults
from agents.providers.config import NOT_A_KEY, WELL_KNOWN, ProviderConfig, can_be_sent, well_known
from gateway.config.problems import Findings, Key
from gateway.config.root import Config

DEMO = "demo/guide"
OFFERED = ("anthropic", "openai", "deepseek")
"""Whose variables a newcomer is offered; all of them stand in docs/providers.md."""

_ALONE = "auto is one model, chosen at the start, and stands alone — a fallback list names its models"


@dataclass(frozen=True, kw_only=True, slots=True)
class Auto:
    """The model that `auto` is, and why. `agents` are those that have it."""

    model: str
    because: str
    agents: frozenset[str]
    settable: tuple[str, ...]
    """Variables any of which would have been a choice."""
    passed_over: tuple[tuple[str, str], ...]
    """Providers with a key but no default model: the reason to show, and the provider."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settled:
    """The config with its keys and models. `variables` has the providers whose key came from the environment, each with
    the variable; `names` the names behind a value, those of keys that nobody wrote included."""

    config: Config
    auto: Auto
    variables: Mapping[str, str]
    names: Mapping[Key, tuple[str, ...]]


def settle(config: Config, names: Mapping[Key, tuple[str, ...]], env: Mapping[str, str], findings: Findings) -> Settled:
    """`names` are those the file mentions. What cannot be used goes to `findings`."""
    settling = _Settling(env, findings, dict(names))
    blocks = {name: settling.with_key(name, block, ("providers", name)) for name, block in config.providers.items()}
    passed_over = tuple(_passed_over(blocks, env))
    none = "the key that is set tells no model" if passed_over else "no key is set"
    model, because = _first(blocks, settling.variables, env) or (DEMO, none)
    auto = Auto(
        model=model,
        because=because,
        agents=frozenset(agent.id for agent in config.agents.list if AUTO in agent.model),
        settable=tuple(_settable(blocks, settling.names)),
        passed_over=passed_over,
    )
    for number, agent in enumerate(config.agents.list):
        if AUTO in agent.model and len(agent.model) > 1:
            findings.add(("agents", "list", number, "model", agent.model.index(AUTO)), _ALONE)
    defaults, *agents = (
        agent.model_copy(update={"model": tuple(model if name == AUTO else name for name in agent.model)})
        for agent in (config.agents.defaults, *config.agents.list)
    )
    changes = {
        "agents": config.agents.model_copy(update={"defaults": defaults, "list": tuple(agents)}),
        "providers": blocks | settling.without_block(agents, blocks),
    }
    return Settled(
        config=config.model_copy(update=changes), auto=auto, variables=settling.variables, names=settling.names
    )


@dataclass(slots=True)
class _Settling:
    env: Mapping[str, str]
    findings: Findings
    names: dict[Key, tuple[str, ...]]
    variables: dict[str, str] = field(default_factory=dict)

    def with_key(self, name: str, block: ProviderConfig, place: Key) -> ProviderConfig:
        """With the key of the usual variable, where the block has none and does not say that it has none."""
        vendor = well_known(name)
        if vendor is None or block.model_fields_set & {"api_key", "api_keys"}:
            return block
        self.names["providers", name, "apiKey"] = vendor.variables[:1]
        variable = _set(vendor.variables, self.env)
        if variable is None:
            return block
        key = self.env[variable].strip()
        self.findings.hide(key)
        if not can_be_sent(key):
            self.findings.add(place, f"{variable} in the environment: {NOT_A_KEY}")
            return block
        self.variables[name] = variable
        return block.model_copy(update={"api_key": SecretStr(key)})

    def without_block(
        self, agents: Sequence[AgentDefaults], blocks: Mapping[str, ProviderConfig]
    ) -> dict[str, ProviderConfig]:
        """The well-known providers that agents name although the file does not, where there is a key for them."""
        found: dict[str, ProviderConfig] = {}
        for number, agent in enumerate(agents):
            for place, model in agent.named_models.items():
                name = model.partition("/")[0]
                if name not in blocks and name not in found:
                    block = self.with_key(name, ProviderConfig(), ("agents", "list", number, *place))
                    found |= {name: block} if block.keys else {}
        return found


def _first(
    blocks: Mapping[str, ProviderConfig], variables: Mapping[str, str], env: Mapping[str, str]
) -> tuple[str, str] | None:
    """The default model of the first provider with a key, and why: as the file is written, then in our own order."""
    for name, block in blocks.items():
        vendor = well_known(name)
        if vendor is not None and vendor.default_model and block.keys:
            because = f"{variables[name]} is set" if name in variables else f"providers.{name} has a key"
            return vendor.model_of(name), because
    for vendor in WELL_KNOWN:
        variable = _set(vendor.variables, env)
        if vendor.default_model and variable and not blocks.keys() & set(vendor.names):
            return vendor.model_of(vendor.names[0]), f"{variable} is set"
    return None


def _settable(blocks: Mapping[str, ProviderConfig], names: Mapping[Key, tuple[str, ...]]) -> Iterator[str]:
    for vendor in WELL_KNOWN:
        if vendor.names[0] in OFFERED:
            block = next((name for name in vendor.names if name in blocks), None)
            usual = vendor.variables[:1]
            yield from (names.get(("providers", block, "apiKey"), ()) if block else usual)[:1]


def _passed_over(blocks: Mapping[str, ProviderConfig], env: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, block in blocks.items():
        vendor = well_known(name)
        if block.keys and (vendor is None or not vendor.default_model):
            yield f"providers.{name} has a key", name
    chosen_of = {variable for vendor in WELL_KNOWN if vendor.default_model for variable in vendor.variables}
    for vendor in WELL_KNOWN:
        variable = _set(vendor.variables, env)
        if variable and not vendor.default_model and variable not in chosen_of and vendor.names[0] not in blocks:
            yield f"{variable} is set", vendor.names[0]


def _set(variables: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    """The first that holds something; docker compose hands on what is not set as empty."""
    return next((variable for variable in variables if env.get(variable, "").strip()), None)
