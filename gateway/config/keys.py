"""Settings from the environment: the API keys of well-known providers, and the model for `auto`.

They are resolved once, when the config is loaded. A provider's variable is used only if the file sets no key, and only for a
provider that the file or an agent names.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import SecretStr

from agents.config import AUTO
from agents.providers.config import WELL_KNOWN, ProviderConfig, fault_of_key, well_known
from channels.bilingual import Bilingual
from gateway.config.problems import Findings, Key
from gateway.config.root import Config

DEMO = "demo/guide"
OFFERED = ("anthropic", "openai", "deepseek")
"""The vendors suggested to a new user; docs/providers.md lists all."""

_NO_KEY = Bilingual("no key is set", "没有设置密钥")
_TELLS_NO_MODEL = Bilingual("the key that is set tells no model", "已设置的密钥无法说明用哪个模型")
_ALONE = "auto is one model, chosen at the start, and has no fallbacks — a fallback list names its models"


@dataclass(frozen=True, kw_only=True, slots=True)
class Auto:
    """The model chosen for `auto`, the reason, and the agents that use it."""

    model: str
    because: Bilingual
    agents: frozenset[str]
    settable: tuple[str, ...]
    """Variables that would each choose a model."""
    passed_over: tuple[tuple[Bilingual, str], ...]
    """The providers with a key but no default model, each after the reason to show."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """The config with keys and models filled in. `variables` maps providers to the variable that their key came from, and
    `names` maps config keys, even those not in the file, to their variables."""

    config: Config
    auto: Auto
    variables: Mapping[str, str]
    names: Mapping[Key, tuple[str, ...]]


def resolve_models(
    config: Config, names: Mapping[Key, tuple[str, ...]], env: Mapping[str, str], findings: Findings
) -> Resolved:
    """Fill in keys and models, and report unusable keys. `names` are the variables that the file refers to."""
    keys = _Keys(env, findings, dict(names))
    blocks = {name: keys.with_key(name, block, ("providers", name)) for name, block in config.providers.items()}
    auto = _auto(config, blocks, keys)
    for number, agent in enumerate(config.agents.list):
        if AUTO in agent.model and len(agent.model) > 1:
            findings.add(("agents", "list", number, "model", agent.model.index(AUTO)), _ALONE)
    defaults, *agents = (
        agent.but(model=tuple(auto.model if name == AUTO else name for name in agent.model))
        for agent in (config.agents.defaults, *config.agents.list)
    )
    for number, resolved in enumerate(agents):
        for place, model in resolved.named_models.items():  # a well-known provider needs no block if there is a key
            name = model.partition("/")[0]
            block = blocks.get(name) or keys.with_key(name, ProviderConfig(), ("agents", "list", number, *place))
            blocks |= {name: block} if block.keys else {}
    config = config.but(agents=config.agents.but(defaults=defaults, list=tuple(agents)), providers=blocks)
    return Resolved(config=config, auto=auto, variables=keys.variables, names=keys.names)


@dataclass(slots=True)
class _Keys:
    env: Mapping[str, str]
    findings: Findings
    names: dict[Key, tuple[str, ...]]
    variables: dict[str, str] = field(default_factory=dict)

    def with_key(self, name: str, block: ProviderConfig, place: Key) -> ProviderConfig:
        """Add the key from the vendor's variable, unless the block sets a key or an empty one."""
        vendor = well_known(name)
        if vendor is None or block.model_fields_set & {"api_key", "api_keys"}:
            return block
        self.names["providers", name, "apiKey"] = vendor.variables[:1]
        variable = _set(vendor.variables, self.env)
        if variable is None:
            return block
        key = self.env[variable].strip()
        self.findings.hide(key)
        if fault := fault_of_key(key):
            self.findings.add(place, f"{variable} in the environment: {fault}")
            return block
        self.variables[name] = variable
        return block.but(api_key=SecretStr(key))


def _auto(config: Config, blocks: Mapping[str, ProviderConfig], keys: _Keys) -> Auto:
    # The first provider with a key wins: in file order, then in the order of WELL_KNOWN.
    reasons = {
        name: Bilingual(f"providers.{name} has a key", f"providers.{name} 有密钥")
        for name, block in blocks.items()
        if block.keys
    }
    reasons |= {name: _is_set(variable) for name, variable in keys.variables.items()}
    for vendor in WELL_KNOWN:
        variable = _set(vendor.variables, keys.env)
        if variable and not blocks.keys() & {*vendor.names}:
            reasons[vendor.names[0]] = _is_set(variable)
    models = {name: it.model_of(name) for name in reasons if (it := well_known(name)) and it.default_model}
    explained = {reasons[name] for name in models}
    passed_over = tuple((why, name) for name, why in reasons.items() if name not in models and why not in explained)
    name = next(iter(models), "")
    return Auto(
        model=models.get(name, DEMO),
        because=reasons.get(name, _TELLS_NO_MODEL if passed_over else _NO_KEY),
        agents=frozenset(agent.id for agent in config.agents.list if AUTO in agent.model),
        settable=tuple(_settable(blocks, keys.names)),
        passed_over=passed_over,
    )


def _is_set(variable: str) -> Bilingual:
    return Bilingual(f"{variable} is set", f"已设置 {variable}")


def _settable(blocks: Mapping[str, ProviderConfig], names: Mapping[Key, tuple[str, ...]]) -> Iterator[str]:
    for vendor in WELL_KNOWN:
        if vendor.names[0] in OFFERED:
            block = next((name for name in vendor.names if name in blocks), None)
            usual = vendor.variables[:1]
            yield from (names.get(("providers", block, "apiKey"), ()) if block else usual)[:1]


def _set(variables: tuple[str, ...], env: Mapping[str, str]) -> str | None:
    # docker compose passes unset variables as empty.
    return next((variable for variable in variables if env.get(variable, "").strip()), None)
