"""What an operator sees of a gateway at work: refusals in the vendor's words, counters, traces, and texts if he says so."""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import structlog
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from structlog.testing import capture_logs

from tests.emulators.models.script import Fault, calls, says
from tests.emulators.models.server import Script
from tests.loopback import serve_on_loopback
from tests.running import ALICE, running
from tests.web_page import WEB, opened

WORDS = "Unsupported parameter: max_tokens. Your key sk-proj-Ab12Cd34Ef56Gh78Ij90 is fine."
SHOWN = "Unsupported parameter: max_tokens. Your key *** is fine."


async def test_refusal_of_a_model_names_the_fix_for_the_operator(tmp_path: Path) -> None:
    """In the log and to whoever sits at this machine; a person elsewhere is not told to say it differently."""
    script = [Fault(status=400, message=WORDS), Fault(status=401, message="invalid x-api-key"), Fault(status=400)]
    with capture_logs() as logged:
        async with running(tmp_path, feishu=WEB, script=script) as house, opened(house.url) as page:
            await page.say("one")
            await page.say("two", chat="c_another_one")
            first, second = await page.answers(2)
            await house.say("一")
            (elsewhere,) = await house.replies(1)
    reference = "anthropic/claude-sonnet-4-6"
    assert f"({reference}: the vendor does not accept the request" in first
    assert f'{SHOWN} — check models."{reference}", and providers.anthropic.dialect' in first
    assert f"({reference}: the vendor refuses the key" in second
    assert "invalid x-api-key" in second
    assert "providers.anthropic.apiKey (ANTHROPIC_API_KEY)" in second
    assert elsewhere == "模型没有接受这次请求，请稍后再试，或联系机器人的所有者。"
    failed = [it for it in logged if it["event"] == "model_failed"]
    assert [it["kind"] for it in failed] == ["invalid", "auth", "invalid"]
    assert {it["model"] for it in failed} == {reference}
    assert failed[0]["words"] == SHOWN
    assert failed[1]["look_at"] == "providers.anthropic.apiKey (ANTHROPIC_API_KEY)"


@pytest.mark.parametrize("content", [False, True])
async def test_log_names_the_model_and_the_tools(tmp_path: Path, content: bool) -> None:
    script = [calls(("ls", {"path": "."}), ("no-such-tool", {})), says("words of the answer")]
    with capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logged:
        async with running(tmp_path, script=script) as house:
            config = house.gateway.runtime.setup.config
            assert config.logging.content is False
            if content:
                logging = config.logging.model_copy(update={"content": True})
                changed = config.model_copy(update={"logging": logging})
                await house.gateway.apply(changed, {}, house.gateway.runtime.config_state)
            await house.say("words of the question")
            await house.replies(1)
            await house.idle()
            await house.gateway.sweep._audit()
            metrics = house.gateway.runtime.metrics.render().decode()
    (finished,) = [it for it in logged if it["event"] == "turn_finished"]
    assert finished["models"] == ["anthropic/claude-sonnet-4-6"]
    assert finished["tools"] == ["ls", "no-such-tool failed"]
    assert (finished.get("reply") == "words of the answer") == content
    assert ("words of the" in str(logged)) == content
    for line in (
        'clawgate_tool_calls_total{outcome="ok",tool="ls"} 1.0',
        'clawgate_tool_calls_total{outcome="failed",tool="other"} 1.0',
        "clawgate_inbox_messages 0.0",
        "clawgate_outbox_parts 0.0",
        'clawgate_model_tokens_total{kind="output",model="anthropic/claude-sonnet-4-6"}',
        "clawgate_loop_lag_seconds_count",
    ):
        assert line in metrics


@asynccontextmanager
async def collector() -> AsyncIterator[tuple[str, list[Any]]]:
    """The address of an OTLP collector, and the spans that it was sent."""
    spans: list[Any] = []

    async def take(request: Request) -> Response:
        assert request.headers["authorization"] == "Bearer of-the-collector"
        sent = ExportTraceServiceRequest.FromString(await request.body())
        spans.extend(span for it in sent.resource_spans for scope in it.scope_spans for span in scope.spans)
        return Response(b"", media_type="application/x-protobuf")

    async with serve_on_loopback(Starlette(routes=[Route("/v1/traces", take, methods=["POST"])])) as url:
        yield f"{url}/v1/traces", spans


async def test_otel_traces_follow_conventions_and_hold_no_text(tmp_path: Path) -> None:
    write = ("write", {"file_path": "secret.txt", "content": "secret"})
    script: Script = [calls(write), says("secret words"), Fault(status=400)]
    async with collector() as (endpoint, spans):
        more = f'tracing: {{ endpoint: "{endpoint}", headers: {{ authorization: Bearer of-the-collector }} }}'
        async with running(tmp_path, script=script, more=more) as house:
            await house.say("secret question")
            await house.replies(1)
            await house.say("another")
            await house.replies(2)
            await house.idle()
    named = {span.name: span for span in spans if not span.status.code}
    root, chat, tool = (named[it] for it in ("invoke_agent helper", "chat claude-sonnet-4-6", "execute_tool write"))
    assert chat.parent_span_id == root.span_id
    assert chat.trace_id == tool.trace_id == root.trace_id
    facts = {it.key: it.value for it in chat.attributes}
    assert facts["gen_ai.operation.name"].string_value == "chat"
    assert facts["gen_ai.provider.name"].string_value == "anthropic"
    assert facts["gen_ai.usage.input_tokens"].int_value > 0
    failures = [span for span in spans if span.status.code == 2 and span.name.startswith("invoke_agent")]
    assert [it.value.string_value for span in failures for it in span.attributes if it.key == "error.type"] == [
        "invalid"
    ]
    assert "secret" not in str(spans).replace(ALICE, "")


async def test_otel_is_not_imported_without_an_endpoint() -> None:
    code = (
        "import sys, gateway.cli, gateway.app.gateway; print([it for it in sys.modules if 'opentelemetry.sdk' in it])"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output == b"[]\n"


async def test_log_of_a_background_task_has_no_turn_context(tmp_path: Path) -> None:
    """A /claim connects the channels again: their log lines must not carry the claiming person's turn and session."""
    seen: dict[str, object] = {}

    async def look() -> None:
        seen["context"] = structlog.contextvars.get_contextvars()

    async with running(tmp_path) as house:
        with structlog.contextvars.bound_contextvars(turn=22, session="aside:web"):
            task = house.gateway.spawn(look())
        await task
    assert seen == {"context": {}}
