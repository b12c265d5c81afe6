"""What a file leaves to the environment: the keys of well-known providers, and which model `auto` is.

Settled once, while the config is loaded: everywhere else a provider has its key, and a model is `provider/model`. A
variable is read only where the file says nothing of a key, and only for a provider that the file or an agent names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from pydantic import SecretStr

from agents.config import AUTO
from agents.providers.config import NOT_A_KEY, WELL_KNOWN, ProviderConfig, can_be_sent, well_known
from gateway.config.problems import Findings, Key
from gateway.config.sections import Agent, Sections

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
    """The sections with their keys and models. `variables` has the providers whose key came from the environment, each
    with the variable; `names` the names behind a value, those of keys that nobody wrote included."""

    sections: Sections
    auto: Auto
    variables: Mapping[str, str]
    names: Mapping[Key, tuple[str, ...]]


def settle(
    sections: Sections, names: Mapping[Key, tuple[str, ...]], env: Mapping[str, str], findings: Findings
) -> Settled:
    """`names` are those the file mentions. What cannot be used goes to `findings`."""
    settling = _Settling(env, findings, dict(names))
    blocks = {
        name: settling.with_key(name, block, ("providers", name)) for name, block in sections.config.providers.items()
    }
    model = _first(blocks, env) or DEMO
    agents = tuple(_chosen(agent, model, findings) for agent in sections.agents)
    passed_over = tuple(_passed_over(blocks, env))
    found = model != DEMO
    none = "the key that is set tells no model" if passed_over else "no key is set"
    auto = Auto(
        model=model,
        because=_because(model.partition("/")[0], blocks, settling.variables, env) if found else none,
        agents=frozenset(agent.config.id for agent in sections.agents if AUTO in agent.config.model),
        settable=tuple(_settable(blocks, settling.names)),
        passed_over=passed_over,
    )
    providers = blocks | settling.without_block(agents, blocks)
    defaults = sections.defaults.model_copy(update={"model": _without_auto(sections.defaults.model, model)})
    config = sections.config.model_copy(update={"providers": providers})
    settled = replace(sections, config=config, agents=agents, defaults=defaults)
    return Settled(sections=settled, auto=auto, variables=settling.variables, names=settling.names)


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
        self, agents: tuple[Agent, ...], blocks: Mapping[str, ProviderConfig]
    ) -> dict[str, ProviderConfig]:
        """The well-known providers that agents name although the file does not, where there is a key for them."""
        found: dict[str, ProviderConfig] = {}
        for agent in agents:
            for index, model in enumerate(agent.config.model):
                name = model.partition("/")[0]
                if name not in blocks and name not in found:
                    block = self.with_key(name, ProviderConfig(), agent.origin(("model", index)))
                    found |= {name: block} if block.keys else {}
        return found


def _first(blocks: Mapping[str, ProviderConfig], env: Mapping[str, str]) -> str | None:
    """The default model of the first provider with a key: as the file is written, then in our own order."""
    for name, block in blocks.items():
        vendor = well_known(name)
        if vendor is not None and vendor.default_model and block.keys:
            return vendor.model_of(name)
    for vendor in WELL_KNOWN:
        if vendor.default_model and not blocks.keys() & set(vendor.names) and _set(vendor.variables, env):
            return vendor.model_of(vendor.names[0])
    return None


def _chosen(agent: Agent, model: str, findings: Findings) -> Agent:
    listed = agent.config.model
    for index, name in enumerate(listed):
        if name == AUTO and len(listed) > 1:
            findings.add(agent.origin(("model", index)), _ALONE)
    return replace(agent, config=agent.config.model_copy(update={"model": _without_auto(listed, model)}))


def _without_auto(listed: tuple[str, ...], model: str) -> tuple[str, ...]:
    return tuple(model if name == AUTO else name for name in listed)


def _because(
    name: str, blocks: Mapping[str, ProviderConfig], variables: Mapping[str, str], env: Mapping[str, str]
) -> str:
    vendor = well_known(name)
    if vendor is None:
        return "no key is set"
    variable = variables.get(name) if name in blocks else _set(vendor.variables, env)
    return f"{variable} is set" if variable else f"providers.{name} has a key"


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
