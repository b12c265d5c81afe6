"""HTTP routes for webhooks, health and metrics. FastAPI is used here and nowhere else.

The channel checks a delivery's headers first. The body is then read within a size limit and a timeout, verified by the
channel, and stored before the 200 is sent; the lane runs separately. A refusal is a 4xx and stores nothing; a 503 makes the
platform redeliver.
"""

import asyncio
import hmac
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from typing import Any

import orjson
import structlog
from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from agents.providers.config import model_outage
from channels.abilities import AnswersGet, ChecksHeaders, HasCondition, OwnPlatform, can
from channels.bilingual import NO_WORDS, Bilingual, Outage
from channels.channel import (
    AnsweredAtOnce,
    Arrived,
    Channel,
    DeliveryError,
    NotReady,
    Receipt,
    Rejected,
    WebhookRequest,
)
from channels.condition import ChannelState
from gateway.config.exposure import operator_proof, sandboxed
from gateway.http.bodies import Bodies, Unreadable
from gateway.http.reach import recognised
from gateway.http.request import ACCEPT_SECONDS, Guesses, problem, too_many, unavailable, unread
from gateway.inbox.intake import Intake
from gateway.later.watched import seen, watch_view
from gateway.program import VERSION
from gateway.state.runtime import Runtime
from gateway.store.errors import DatabaseFault, StoreUnavailable, outage_of
from gateway.turns.lanes import Sweep

IDENTITY_SECONDS = 0.8
PROBE_SECONDS = 0.5
PROBE_EVERY_SECONDS = 0.25

_STARTING = Outage(
    "not started", Bilingual("it is still starting", "正在启动"), Bilingual("ask again in a moment", "请稍后再查询")
)
_STOPPING = Outage(
    "stopping",
    Bilingual("it is stopping", "正在停止"),
    Bilingual("start it again to serve", "如需服务，请重新启动"),
)
_SEE_LOG = Bilingual("see its log", "请查看它的日志")
_LEASE = Outage("not renewed in time", Bilingual("its lease was not renewed in time", "租约未能及时续期"), _SEE_LOG)

log = structlog.get_logger()


class Readiness:
    """Readiness of this worker, for a load balancer. `started` is set after the work of earlier processes is recovered."""

    def __init__(self, runtime: Runtime, sweep: Sweep) -> None:
        self.started = False
        self._runtime = runtime
        self._sweep = sweep
        self._probed = float("-inf")
        self._fault: DatabaseFault | None = "slow"
        self._probing = asyncio.Lock()

    async def failing(self) -> Mapping[str, Outage]:
        """Return the failing checks with their outages; empty if ready."""
        if not self.started:
            return {"start": _STARTING}
        if self._runtime.control.draining:
            return {"drain": _STOPPING}
        if fault := await self._database_fault():
            return {"database": outage_of(fault, self._runtime.setup.config.database.shown)}
        if not self._runtime.store.lease_valid():
            return {"lease": _LEASE}
        if (waited := self._sweep.oldest_seconds) > self._runtime.setup.limits.unanswered_seconds:
            return {"unanswered": _unanswered(waited)}
        return {}

    @property
    def queue(self) -> Mapping[str, float]:
        backlog = self._sweep.backlog
        # PostgreSQL returns decimals, which JSON does not have.
        counts = {"messages": int(backlog.messages), "parts": int(backlog.parts)}
        return {**counts, "oldestSeconds": float(self._sweep.oldest_seconds)}

    async def view(self, *, tells: bool) -> dict[str, Any]:
        """Return the worker's state as JSON; `tells` adds what only the operator may read."""
        failing, state, setup = await self.failing(), self._runtime.config_state, self._runtime.setup
        zone, states = setup.config.server.zone, self._runtime.channel_states()
        content: dict[str, Any] = {
            "ready": not failing,
            "failing": {check: it.kind for check, it in failing.items()},
            "config": {
                "version": state.version,
                "error": state.error if tells else bool(state.problems) or None,
                "restart": state.restart,
            },
            "channels": {":".join(key): channel_view(it, zone, tells=tells) for key, it in states.items()},
        }
        if sandboxed(setup.config):
            content["sandbox"] = self._runtime.sandbox.status
        if tells:
            models = setup.failing_models
            outages = {**failing, **{model: model_outage(kind, model) for model, kind in models.items()}}
            content |= {"version": VERSION, "queue": self.queue, "failingModels": models}
            content |= {"watch": await watch_view(self._runtime), "answers": self._answers()}
            content["outages"] = {name: it.view for name, it in outages.items()}
        return content

    def _answers(self) -> Mapping[str, float]:
        metrics = self._runtime.metrics
        return {**metrics.answer_seconds(self._runtime.now()), "lost": metrics.lost}

    async def _database_fault(self) -> DatabaseFault | None:
        async with self._probing:  # concurrent requests share one probe
            if (now := time.monotonic()) - self._probed >= PROBE_EVERY_SECONDS:
                self._probed = now
                try:
                    async with asyncio.timeout(PROBE_SECONDS):
                        await self._runtime.store.probe()
                    self._fault = None
                except StoreUnavailable as error:
                    self._fault = error.fault
                except TimeoutError:
                    self._fault = self._runtime.store.failing or "slow"
            return self._fault


def _unanswered(seconds: float) -> Outage:
    en, zh = f"the oldest message has waited {seconds:.0f} s", f"最早的一条消息已等待 {seconds:.0f} 秒"
    return Outage(en, Bilingual(en, zh), _SEE_LOG)


class Door:
    def __init__(
        self,
        runtime: Runtime,
        intake: Intake,
        guesses: Guesses,
        bodies: Bodies,
        readiness: Readiness,
        wake: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._config = runtime.setup.config.server
        self._channels = runtime.setup.channels
        self._intake = intake
        self._metrics = runtime.metrics
        self._guesses = guesses
        self._bodies = bodies
        self._readiness = readiness
        self._wake = wake
        self._now = runtime.now
        self._proof = operator_proof(runtime.setup.config)

    def answers_get(self, channel: str, account: str) -> bool:
        return can(self._channels.get((channel, account)), AnswersGet)

    async def webhook(self, request: Request, channel: str, account: str) -> Response:
        target = self._channels.get((channel, account))
        if target is None:
            return Response(status_code=404)
        try:
            delivery = await self._read(target, request)
            if request.method == "GET" and can(target, AnswersGet):
                receipt: Receipt = target.answer_get(delivery, self._clock())
            else:
                receipt = await self._receipt(target, delivery)
            own = recognised(self._proof, receipt.body) if isinstance(receipt, AnsweredAtOnce) else None
            if own is not None:  # the self-watch: nothing was heard from the platform
                return Response(own, media_type="text/plain")
            if can(target, HasCondition):
                target.condition.genuine()
            async with asyncio.timeout(ACCEPT_SECONDS):
                outcome = await self._intake.receive(target, receipt)
            body, type_ = _answer(receipt, outcome)
            response = Response(body, media_type=type_)
        except Unreadable as unreadable:
            response, outcome = unread(unreadable), f"rejected: {unreadable.reason}"
        except Rejected as rejected:
            fix = target.condition.rejected(rejected) if can(target, HasCondition) else ""
            if rejected.guess and (wait := self._guesses.wait(request.scope)):
                response, outcome = too_many(wait), "rejected: too many wrong secrets"
            else:
                facts = {"reason": rejected.reason, **({"fix": fix} if fix else {})}
                log.warning("webhook_rejected", channel=channel, account=account, **facts)
                response, outcome = Response(status_code=rejected.status), f"rejected: {rejected.reason}"
                if rejected.sentence:
                    response = problem(rejected.status, rejected.code, rejected.sentence)
        except (NotReady, StoreUnavailable, TimeoutError) as error:
            log.error("webhook_unavailable", channel=channel, account=account, error=repr(error))
            response, outcome = Response(status_code=503), "unavailable"
            if not isinstance(error, NotReady):
                response = unavailable(getattr(error, "fault", None) or self._runtime.store.failing or "slow")
        self._metrics.deliveries.labels(channel, outcome).inc()
        return response

    async def _read(self, channel: Channel, request: Request) -> WebhookRequest:
        # Check headers before buffering the body, so forged deliveries cost no memory.
        query = request.query_params.multi_items() if request.scope["query_string"] else ()
        delivery = WebhookRequest(headers=request.headers.items(), body=b"", query=query)
        limit, seconds = self._config.max_body_bytes, self._config.body_timeout_seconds
        if can(channel, OwnPlatform):
            delivery = replace(delivery, person=await channel.admit(delivery.headers))
        if can(channel, ChecksHeaders):
            limit = min(limit, channel.check_headers(delivery, self._clock()) or limit)
        return replace(delivery, body=await self._bodies.read(request, bytes_max=limit, seconds=seconds))

    async def _receipt(self, channel: Channel, request: WebhookRequest) -> Receipt:
        now = self._clock()
        try:
            return channel.receive(request, now)
        except NotReady:
            try:
                await channel.learn_identity(IDENTITY_SECONDS)
            except DeliveryError as error:
                raise NotReady(str(error)) from error
            return channel.receive(request, now)

    def _clock(self) -> datetime:
        return datetime.fromtimestamp(self._now(), tz=UTC)

    async def healthz(self, request: Request) -> Response:
        """Liveness: the event loop answers. Touch nothing else."""
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def readyz(self, request: Request) -> Response:
        """Return 200 if ready, else 503 with the failing checks.

        The operator also sees why an edited config is refused and why a channel fails; others do not, since these texts
        name files, keys and addresses."""
        tells = self._is_operator(request) or self._proves(request)
        content = await self._readiness.view(tells=tells)
        return Response(
            orjson.dumps(content), status_code=200 if content["ready"] else 503, media_type="application/json"
        )

    async def wake(self, request: Request) -> Response:
        """Look for new work immediately: the command line has written to the database."""
        if not (self._proves(request) or self._is_operator(request)):
            return Response(status_code=404)
        self._wake()
        return Response(status_code=204)

    async def metrics(self, request: Request) -> Response:
        """Return Prometheus metrics to the holder of the admin token; 404 if none is configured."""
        if not self._config.admin_token.get_secret_value():
            return Response(status_code=404)
        if not self._is_operator(request):
            header = request.headers.get("authorization", "")
            if header and (wait := self._guesses.wait(request.scope)):
                return too_many(wait)
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        self._metrics.answer_seconds(self._now())
        with suppress(StoreUnavailable):
            await seen(self._runtime)
        return Response(self._metrics.render(), media_type="text/plain; version=0.0.4")

    def _proves(self, request: Request) -> bool:
        header = request.headers.get("authorization", "").encode()
        return bool(self._proof) and hmac.compare_digest(header, f"Proof {self._proof}".encode())

    def _is_operator(self, request: Request) -> bool:
        token = self._config.admin_token.get_secret_value()
        header = request.headers.get("authorization", "").encode()
        return bool(token) and hmac.compare_digest(header, f"Bearer {token}".encode())


class Webhooks:
    """Serve `/webhooks/{channel}/{account}` before the router, which costs more than storing the message."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/webhooks/"):
            return await self._app(scope, receive, send)
        match scope["path"].split("/")[2:]:
            case [channel, account] if scope["method"] == "POST" or (
                scope["method"] == "GET" and self._door.answers_get(channel, account)
            ):
                response = await self._door.webhook(Request(scope, receive), channel, account)
            case [_, _]:
                response = Response(status_code=405, headers={"allow": "POST"})
            case _:
                response = Response(status_code=404)
        return await response(scope, receive, send)


def channel_view(state: ChannelState, zone: tzinfo, *, tells: bool) -> dict[str, Any]:
    """Return a channel's state as JSON, with reason and fix if `tells`; `zh` has both in Chinese."""
    since = datetime.fromtimestamp(state.since, zone).isoformat(timespec="seconds")
    reason, fix = (state.reason, state.fix) if tells else (NO_WORDS, NO_WORDS)
    view = {"state": state.state, "since": since, "reason": reason.en, "fix": fix.en}
    return view | {"zh": {"reason": reason.zh, "fix": fix.zh}} if reason else view


def _answer(receipt: Receipt, outcome: str) -> tuple[bytes, str]:
    match receipt:
        case AnsweredAtOnce(body=body, type=type_):
            return body, type_
        case Arrived(answer=answer) if outcome in ("accepted", "duplicate"):
            return answer, "application/json"
        case _:
            return b"{}", "application/json"
