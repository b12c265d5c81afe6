"""One model, named `provider/model`: its facts, and how it is offered tools.

Built once per process. A model that turns out to refuse tools is offered them by prompt from then on. Cooldowns and
token calibration are shared here too, because they belong to the model, not to an agent.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import structlog

from agents.messages import AssistantMessage, Usage
from agents.providers.config import NATIVE_DOCUMENTS, ModelConfig, ProviderConfig, api_of
from agents.providers.models import SHIPPED_CURRENCY, ModelFacts, facts_of, family_of, shipped_prices
from agents.providers.prompted import PromptedTools
from agents.providers.provider import ModelRequest, Provider
from agents.providers.retry import Health, RetryConfig, RetryEvent, complete
from agents.providers.textcalls import RepairedCalls
from agents.providers.vendors import for_model, vendor_for
from agents.tokens import Calibration, request_tokens, tokens

log = structlog.get_logger()


class Model:
    def __init__(
        self, provider: Provider, name: str, facts: ModelFacts, *, by_prompt: bool, may_ignore_tools: bool = False
    ) -> None:
        self.name = name
        self.reference = f"{provider.name}/{name}"
        self.family = family_of(name)
        self.facts = facts
        self.may_ignore_tools = may_ignore_tools
        """Its server may silently ignore tools; no call has proved otherwise yet."""
        self.provider: Provider = PromptedTools(provider) if by_prompt else RepairedCalls(provider)
        """The provider, wrapped for native or prompted tool calls."""
        self._native = provider

    def takes_no_tools(self, reason: str) -> bool:
        """Offer tools by prompt from now on; return False if that was so already."""
        if isinstance(self.provider, PromptedTools):
            return False
        hint = "set toolCalling: prompt to spare the first request"
        log.warning("tools_by_prompt", model=self.reference, reason=reason, hint=hint)
        self.provider = PromptedTools(self._native)
        return True

    def cost(self, usage: Usage) -> float | None:
        """Return the cost at the configured prices, or None if there are none."""
        if (prices := self.facts.prices) is None:
            return None
        cached = usage.cache_read * prices.cache_read + usage.cache_write * prices.cache_write
        return (usage.input * prices.input + cached + usage.output * prices.output) / 1_000_000


@dataclass
class Models:
    """All models, by reference."""

    providers: Mapping[str, Provider]
    provider_configs: Mapping[str, ProviderConfig]
    model_configs: Mapping[str, ModelConfig]
    retry: RetryConfig = field(default_factory=RetryConfig)
    currency: str = SHIPPED_CURRENCY
    health: Health = field(default_factory=Health)
    calibration: Calibration = field(default_factory=Calibration)
    _models: dict[str, Model] = field(default_factory=dict)

    def get(self, reference: str) -> Model:
        """Return the model. Raises KeyError for an unknown provider."""
        if reference not in self._models:
            self._models[reference] = self._model(reference)
        return self._models[reference]

    async def complete(
        self,
        models: Sequence[Model],
        requests: Mapping[str, ModelRequest],
        *,
        deadline: float,
        emit: Callable[[RetryEvent], None],
    ) -> AssistantMessage:
        """Return the answer of the first model that succeeds, with retries. `requests` are keyed by reference."""
        (provider, request), *fallbacks = [(it.provider, requests[it.reference]) for it in models]
        policy, health = self.retry, self.health
        return await complete(
            provider, request, deadline=deadline, config=policy, fallbacks=fallbacks, health=health, emit=emit
        )

    def priced(self, answer: AssistantMessage, request: ModelRequest) -> AssistantMessage:
        """Return the answer with its cost. A good answer without reported usage gets an estimate."""
        usage = answer.usage
        if answer.error is None and not usage.is_reported:
            estimated = request_tokens(request.system, request.tools, request.messages)
            guess = self.calibration.corrected(answer.model, estimated)
            usage = Usage(input=guess, output=tokens(answer), estimated=True)
        cost = self.get(answer.reference).cost(usage)
        return answer if usage is answer.usage and cost is None else replace(answer, usage=usage, cost=cost)

    def _model(self, reference: str) -> Model:
        provider, _, name = reference.partition("/")
        override = self.model_configs.get(reference) or self.model_configs.get(name) or ModelConfig()
        settings = {key: value for key, value in override if value is not None and key != "tool_calling"}
        written = self.provider_configs.get(provider) or ProviderConfig()
        if api_of(provider, written) not in NATIVE_DOCUMENTS:
            settings["documents"] = "text"
        settings.setdefault("documents", written.documents)
        shipped = replace(facts_of(name), prices=shipped_prices(name, self.currency))
        facts = replace(shipped, **settings, known=shipped.known or {"window", "max_output"} <= settings.keys())
        if not facts.known:
            hint = f'tell it under models: in the config: {{ "{reference}": {{ window: …, maxOutput: … }} }}'
            log.warning("model_unknown", model=reference, window=facts.window, max_output=facts.max_output, hint=hint)
        by_prompt = written.tool_calling == "prompt" or not facts.tools
        if override.tool_calling is not None:
            by_prompt = override.tool_calling == "prompt"
        return Model(
            self.providers[provider],
            name,
            facts,
            by_prompt=by_prompt,
            may_ignore_tools=facts.forced_tool
            and api_of(provider, written) == "openai-chat"
            and for_model(vendor_for(provider, written.base_url, written.dialect), name).may_ignore_tools,
        )


def conversation_of(session: str) -> str:
    """Return the session's pseudonym for providers."""
    return hashlib.sha256(session.encode(errors="replace")).hexdigest()
