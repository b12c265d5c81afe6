"""The HTTP door: webhooks in, health out. FastAPI lives here and nowhere else.

A delivery is read under a cap and a deadline, verified by its channel, judged and stored; only then is it answered with
200. Nothing slow happens before the store and nothing at all after it: the lane runs at its own pace. A refusal is a
4xx and stores nothing; "try again" is a 503, which makes the platform deliver it anew.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime

import orjson
import structlog
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from channels.abilities import Guarded
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
from gateway.api.door import ApiDoor
from gateway.config.channels import sandboxed
from gateway.config.server import ServerConfig
from gateway.edge import Edge
from gateway.intake import Intake
from gateway.request import Guesses, Peers, Unreadable, read_body, too_many
from gateway.runtime import Runtime
from gateway.store.store import StoreUnavailable
from gateway.web import WebDoor

ACCEPT_SECONDS = 2.0
"""Feishu waits 3 s for its answer; what has not been stored by then is better delivered again."""
IDENTITY_SECONDS = 0.8

log = structlog.get_logger()


class Door:
    """Judges deliveries. `ready` returns what fails, by check."""

    def __init__(
        self, runtime: Runtime, intake: Intake, guesses: Guesses, *, ready: Callable[[], Awaitable[Mapping[str, str]]]
    ) -> None:
        self._runtime = runtime
        self._config = runtime.setup.config.server
        self._channels = runtime.setup.channels
        self._intake = intake
        self._metrics = runtime.metrics
        self._guesses = guesses
        self._guarded = {key: channel for key, channel in self._channels.items() if isinstance(channel, Guarded)}
        self._ready = ready
        self._now = runtime.now

    async def webhook(self, request: Request, channel: str, account: str) -> Response:
        """`POST /webhooks/{channel}/{account}`."""
        target = self._channels.get((channel, account))
        if target is None:
            return Response(status_code=404)
        limits = self._config
        try:
            guarded, person = self._guarded.get((channel, account)), ""
            if guarded:
                person = await guarded.admit(request.headers.items())
            body = await read_body(request, bytes_max=limits.max_body_bytes, seconds=limits.body_timeout_seconds)
            receipt = await self._judge(
                target, WebhookRequest(headers=request.headers.items(), body=body, person=person)
            )
            async with asyncio.timeout(ACCEPT_SECONDS):
                outcome = await self._intake.take(target, receipt)
            response = Response(_answer(receipt, outcome), media_type="application/json")
        except Unreadable as unreadable:
            response, outcome = Response(status_code=unreadable.status), f"rejected: {unreadable.reason}"
        except Rejected as rejected:
            if rejected.guess and (wait := self._guesses.wait(request.scope)):
                response, outcome = too_many(wait), "rejected: too many wrong secrets"
            else:
                log.warning("webhook_rejected", channel=channel, account=account, reason=rejected.reason)
                response, outcome = _refusal(rejected), f"rejected: {rejected.reason}"
        except (NotReady, StoreUnavailable, TimeoutError) as error:
            log.error("webhook_unavailable", channel=channel, account=account, error=repr(error))
            response, outcome = Response(status_code=503, headers={"retry-after": "5"}), "unavailable"
        self._metrics.deliveries.labels(channel, outcome).inc()
        return response

    async def _judge(self, channel: Channel, request: WebhookRequest) -> Receipt:
        now = datetime.fromtimestamp(self._now(), tz=UTC)
        try:
            return channel.receive(request, now)
        except NotReady:
            try:
                await channel.learn_identity(IDENTITY_SECONDS)
            except DeliveryError as error:
                raise NotReady(str(error)) from error
            return channel.receive(request, now)

    async def healthz(self) -> Response:
        """Alive: the event loop answers. Touches nothing else."""
        return Response(b'{"status":"ok"}', media_type="application/json")

    async def readyz(self) -> Response:
        """Can take work; 503 with the failing checks otherwise."""
        failing = await self._ready()
        content: dict[str, object] = {"ready": not failing, "amiss": dict(failing)}
        content["config"] = asdict(self._runtime.config_state)
        if sandboxed(self._runtime.setup.config):
            content["sandbox"] = self._runtime.sandbox.standing
        return Response(orjson.dumps(content), status_code=503 if failing else 200, media_type="application/json")

    async def metrics(self, request: Request) -> Response:
        """Prometheus, behind the admin token; not there at all where none is set."""
        token = self._config.admin_token.get_secret_value()
        if not token:
            return Response(status_code=404)
        given = request.headers.get("authorization", "").encode()
        if not hmac.compare_digest(given, f"Bearer {token}".encode()):
            if given and (wait := self._guesses.wait(request.scope)):
                return too_many(wait)
            return Response(status_code=401, headers={"www-authenticate": "Bearer"})
        return Response(self._metrics.render(), media_type="text/plain; version=0.0.4")


class Webhooks:
    """`POST /webhooks/{channel}/{account}`, answered ahead of the router, whose way to a route costs more than storing
    the message. Everything else goes on to `app`."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/webhooks/"):
            return await self._app(scope, receive, send)
        match scope["path"].split("/")[2:]:
            case [channel, account] if scope["method"] == "POST":
                response = await self._door.webhook(Request(scope, receive), channel, account)
            case [_, _]:
                response = Response(status_code=405, headers={"allow": "POST"})
            case _:
                response = Response(status_code=404)
        return await response(scope, receive, send)


def build_app(door: Door, web: WebDoor | None, api: ApiDoor, config: ServerConfig, peers: Peers) -> ASGIApp:
    """The routes of one gateway. No documentation pages: what is served is in docs/http.md."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route("/healthz", door.healthz, methods=["GET"])
    app.add_api_route("/readyz", door.readyz, methods=["GET"])
    app.add_api_route("/metrics", door.metrics, methods=["GET"])
    if web is not None:
        app.include_router(web.router())
    if config.api.open:
        app.include_router(api.router())
    return Edge(Webhooks(app, door), config, peers)


def _answer(receipt: Receipt, outcome: str) -> bytes:
    match receipt:
        case AnsweredAtOnce(body=body):
            return body
        case Arrived(answer=answer) if outcome in ("accepted", "duplicate"):
            return answer
        case _:
            return b"{}"


def _refusal(rejected: Rejected) -> Response:
    if not rejected.sentence:
        return Response(status_code=rejected.status)
    body = orjson.dumps({"error": rejected.sentence, "code": "refused"})
    return Response(body, rejected.status, media_type="application/json")
