"""One model that agents name as `provider/model`: what is known of it, and how its tools are offered.

Built once for the whole process. A model that turns out to take no tools is offered them by prompt from then on; which
models rest and how far estimates are off is shared here too, because that is the model's business, not an agent's.
"""

from collections.abc import Mapping
from dataclasses import replace

import structlog

from agents.messages import Usage
from agents.providers.chat.vendors import for_model, vendor_for
from agents.providers.config import ModelConfig, ProviderConfig, api_of
from agents.providers.health import Health
from agents.providers.models import ModelFacts, Prices, facts_of, family_of
from agents.providers.provider import Provider
from agents.providers.retry import RetryConfig
from agents.providers.textcalls.prompted import PromptedTools
from agents.providers.textcalls.repaired import RepairedCalls
from agents.tokens import Calibration

log = structlog.get_logger()


class Model:
    def __init__(
        self, provider: Provider, name: str, facts: ModelFacts, *, by_prompt: bool, may_ignore_tools: bool = False
    ) -> None:
        self.name = name
        self.facts = facts
        self.may_ignore_tools = may_ignore_tools
        """Its server may drop tools without a word, and no call has proved the contrary yet."""
        self._provider = provider
        self._asked: Provider = PromptedTools(provider) if by_prompt else RepairedCalls(provider)

    @property
    def reference(self) -> str:
        return f"{self._provider.name}/{self.name}"

    @property
    def family(self) -> str:
        return family_of(self.name)

    @property
    def provider(self) -> Provider:
        """To be asked, with its tools offered in the way this model takes them."""
        return self._asked

    def takes_no_tools(self, reason: str) -> bool:
        """True where they can be offered by prompt instead, which is what happens from now on."""
        if isinstance(self._asked, PromptedTools):
            return False
        hint = "set toolCalling: prompt to spare the first request"
        log.warning("tools_by_prompt", model=self.reference, reason=reason, hint=hint)
        self._asked = PromptedTools(self._provider)
        return True

    def cost(self, usage: Usage) -> float | None:
        """What it costs at the configured prices; None where there are none."""
        return _cost(usage, self.facts.prices) if self.facts.prices else None


class Models:
    """Every model by its reference. `providers` are the built ones, `written` what the config says of each."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        provider_configs: Mapping[str, ProviderConfig],
        model_configs: Mapping[str, ModelConfig],
        retry: RetryConfig = RetryConfig(),  # noqa: B008 - frozen
    ) -> None:
        self.retry = retry
        self.health = Health()
        self.calibration = Calibration()
        self._providers = providers
        self._provider_configs = provider_configs
        self._model_configs = model_configs
        self._models: dict[str, Model] = {}

    def get(self, reference: str) -> Model:
        """Raises KeyError for an unknown provider."""
        if reference not in self._models:
            self._models[reference] = self._model(reference)
        return self._models[reference]

    def _model(self, reference: str) -> Model:
        provider, _, name = reference.partition("/")
        told = self._model_configs.get(reference) or self._model_configs.get(name) or ModelConfig()
        facts = _over(facts_of(name), told)
        if not facts.known:
            hint = f'tell it under models: in the config: {{ "{reference}": {{ window: …, maxOutput: … }} }}'
            log.warning("model_unknown", model=reference, window=facts.window, max_output=facts.max_output, hint=hint)
        written = self._provider_configs.get(provider) or ProviderConfig()
        by_prompt = written.tool_calling == "prompt" or not facts.tools
        if told.tool_calling is not None:
            by_prompt = told.tool_calling == "prompt"
        return Model(
            self._providers[provider],
            name,
            facts,
            by_prompt=by_prompt,
            may_ignore_tools=facts.forced_tool and _may_ignore_tools(provider, written, name),
        )


def _may_ignore_tools(provider: str, config: ProviderConfig, model: str) -> bool:
    if api_of(provider, config) != "openai-chat":
        return False
    return for_model(vendor_for(provider, config.base_url, config.dialect), model).may_ignore_tools


def _over(facts: ModelFacts, told: ModelConfig) -> ModelFacts:
    """What the shipped table knows, under what the config says."""
    changes = {
        "window": told.window,
        "max_output": told.max_output,
        "vision": told.vision,
        "thinking": told.thinking,
        "thinking_style": told.thinking_style,
        "forced_tool": told.forced_tool,
    }
    prices = told.prices and Prices(
        input=told.prices.input,
        cache_read=told.prices.cache_read,
        cache_write=told.prices.cache_write,
        output=told.prices.output,
    )
    known = facts.known or (told.window is not None and told.max_output is not None)
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(facts, **given, prices=prices, known=known)  # type: ignore[arg-type]  # each has its member's type


def _cost(usage: Usage, prices: Prices) -> float:
    return (
        usage.input * prices.input
        + usage.cache_read * prices.cache_read
        + usage.cache_write * prices.cache_write
        + usage.output * prices.output
    ) / 1_000_000
