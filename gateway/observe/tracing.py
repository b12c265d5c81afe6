"""OpenTelemetry traces of turns, model requests and tool calls, by the GenAI semantic conventions. Attributes are names, ids
and counts, never message text or arguments. The SDK, an optional extra, is imported only if `tracing.endpoint` is set."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr, field_validator

from agents import turn
from agents.messages import AssistantMessage
from agents.turn import Emit, TurnEvent
from channels.section import Section

if TYPE_CHECKING:
    from opentelemetry.trace import Span

PROVIDERS = {"google": "gcp.gemini", "gemini": "gcp.gemini", "mistral": "mistral_ai", "moonshot": "moonshot_ai"}
"""The conventions' name of a provider, if it differs from ours."""
EXPORTER = "opentelemetry.exporter.otlp.proto.http"


class TracingConfig(Section):
    """OpenTelemetry tracing; see docs/operate.md. Changes take effect at the next start."""

    endpoint: str | None = None
    """The OTLP collector's URL for traces over HTTP, such as `http://localhost:4318/v1/traces`. Unset: no traces."""
    headers: dict[str, SecretStr] = {}
    """HTTP headers for the collector, such as a token."""

    @field_validator("endpoint")
    @classmethod
    def _installed(cls, value: str | None) -> str | None:
        try:
            if value and find_spec(EXPORTER) is None:
                raise ModuleNotFoundError
        except ModuleNotFoundError:
            raise ValueError(
                "needs opentelemetry-sdk, opentelemetry-exporter-otlp-proto-http — install the extra otel (docs/operate.md)"
            ) from None
        return value or None


class Tracing:
    def __init__(self, config: TracingConfig, version: str) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        headers = {name: value.get_secret_value() for name, value in config.headers.items()}
        resource = Resource.create({"service.name": "clawgate", "service.version": version})
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(config.endpoint, headers=headers)))
        self._tracer = self._provider.get_tracer("clawgate", version)
        self._turns: dict[int, Span] = {}

    @contextmanager
    def turn(self, agent: str, session: str, number: int, emit: Emit) -> Iterator[Emit]:
        """Trace a turn: yield an `Emit` that records every event and forwards it to `emit`."""
        facts = {"gen_ai.agent.id": agent, "gen_ai.conversation.id": session, "clawgate.turn": number}
        root = self._start("invoke_agent", agent, None, facts)
        self._turns[number] = root
        open_: dict[str, Span] = {}

        def follow(event: TurnEvent) -> None:
            emit(event)
            match event:
                case turn.ModelCalled(provider=provider, request=request):
                    facts = {"gen_ai.provider.name": PROVIDERS.get(provider, provider)}
                    _end(open_, "")
                    open_[""] = self._start(
                        "chat", request.model, root, facts | {"gen_ai.request.model": request.model}
                    )
                case turn.ModelRetried(error=error) if "" in open_:
                    open_[""].add_event("retry", {"error.type": error.kind})
                case turn.ModelAnswered(message=message) if "" in open_:
                    open_[""].set_attributes(_answer(message))
                    _end(open_, "", error=message.error.kind if message.error else "")
                case turn.ToolStarted(call=call):
                    facts = {"gen_ai.tool.name": call.name[:64], "gen_ai.tool.call.id": call.id}
                    open_[call.id] = self._start("execute_tool", call.name[:64], root, facts)
                case turn.ToolFinished(result=result):
                    _end(open_, result.call_id, error="tool_error" if result.is_error else "")

        try:
            yield follow
        finally:
            for key in list(open_):
                _end(open_, key)
            root.end()
            self._turns.pop(number, None)

    def ended(self, number: int, outcome: str, reason: str) -> None:
        """Record a turn's outcome; a turn that was handed over has none."""
        if span := self._turns.get(number):
            span.set_attribute("clawgate.outcome", outcome)
            if outcome == "failed":
                _fail(span, reason)

    async def close(self) -> None:
        await asyncio.to_thread(self._provider.shutdown)

    def _start(self, operation: str, of: str, parent: "Span | None", facts: dict[str, Any]) -> "Span":
        from opentelemetry.trace import SpanKind, set_span_in_context

        context = set_span_in_context(parent) if parent else None
        kind = SpanKind.CLIENT if operation == "chat" else SpanKind.INTERNAL
        named = {"gen_ai.operation.name": operation, **facts}
        return self._tracer.start_span(f"{operation} {of}", context, kind, named)


def _end(spans: "dict[str, Span]", key: str, *, error: str = "") -> None:
    if span := spans.pop(key, None):
        if error:
            _fail(span, error)
        span.end()


def _fail(span: "Span", error: str) -> None:
    from opentelemetry.trace import StatusCode

    span.set_attribute("error.type", error)
    span.set_status(StatusCode.ERROR)


def _answer(message: AssistantMessage) -> dict[str, Any]:
    usage = message.usage
    facts = {
        "gen_ai.response.model": message.model,
        "gen_ai.response.id": message.response_id,
        "gen_ai.response.finish_reasons": (message.stop_reason,),
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }
    return {name: value for name, value in facts.items() if value is not None}
