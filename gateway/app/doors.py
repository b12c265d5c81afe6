"""The doors of one gateway: all its routes behind one edge, built again with each config."""

from collections.abc import Callable

from fastapi import FastAPI
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from channels.web.channel import WebChannel
from gateway.api.door import ApiDoor, bytes_max
from gateway.approvals.approvals import Approvals
from gateway.config.server import ServerConfig
from gateway.http.bodies import Bodies
from gateway.http.door import Door, Readiness, Webhooks
from gateway.http.edge import Edge
from gateway.http.hooks import Hooks
from gateway.http.refusals import with_retry
from gateway.http.request import Guesses, Peers, served
from gateway.inbox.intake import Intake
from gateway.state.runtime import Runtime
from gateway.turns.tasks import Tasks
from gateway.web.book import Book
from gateway.web.console import Console
from gateway.web.door import WebDoor
from gateway.web.plans import Plans

CALLS_AT_ONCE = 2
"""Bodies of `/v1` in memory: together no larger than this many of the longest."""


class Doors:
    """`web` is the web chat of the config that holds; None if it has none."""

    def __init__(
        self,
        runtime: Runtime,
        intake: Intake,
        approvals: Approvals,
        tasks: Tasks,
        readiness: Readiness,
        wake: Callable[[], None],
    ) -> None:
        self._runtime = runtime
        self._intake = intake
        self._approvals = approvals
        self._tasks = tasks
        self._readiness = readiness
        self._wake = wake
        self.adopt(runtime.setup.config.server)
        self.build()

    def adopt(self, config: ServerConfig) -> None:
        """Restarts the counters of what the server's config limits."""
        self.peers = Peers(config.trusted_proxies)
        self.bodies = Bodies(config.max_unverified_bytes)
        self._guesses = Guesses(self.peers, per_minute=config.wrong_tokens_per_minute, now=self._runtime.now)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers with the doors of the config that holds when a request arrives."""
        await self._app(scope, receive, with_retry(send))

    def build(self) -> None:
        """No documentation pages: what is served is in docs/http.md."""
        setup = self._runtime.setup
        found = setup.channels.get((WebChannel.name, WebChannel.account))
        self.web = found if isinstance(found, WebChannel) else None
        door = Door(self._runtime, self._intake, self._guesses, self.bodies, self._readiness, self._wake)
        routes: list[BaseRoute] = [
            served("/healthz", door.healthz, "GET"),
            served("/readyz", door.readyz, "GET"),
            served("/wake", door.wake, "POST"),
            served("/metrics", door.metrics, "GET"),
            served("/hooks/{name}", Hooks(self._runtime, self._guesses, self.bodies).post, "POST"),
        ]
        if self.web is not None:
            routes += self._web_door(self.web).routes()
        if setup.config.server.api.open:
            calls = Bodies(CALLS_AT_ONCE * bytes_max(setup.config))
            api = ApiDoor(runtime=self._runtime, intake=self._intake, guesses=self._guesses, bodies=calls)
            routes += api.routes()
        app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, routes=routes)
        self._app: ASGIApp = Edge(Webhooks(app, door), setup.config.server, self.peers)

    def _web_door(self, channel: WebChannel) -> WebDoor:
        console = Console(self._runtime, channel, self._approvals, self._readiness, self.bodies)
        rooms = console, Plans(self._runtime, self._tasks, self.bodies), Book(self._runtime)
        return WebDoor(self._runtime, channel, self.peers, self._guesses, self.bodies, rooms)
