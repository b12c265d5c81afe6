"""All the routes of one gateway, behind one edge."""

from fastapi import FastAPI
from starlette.types import ASGIApp

from gateway.api.door import ApiDoor
from gateway.config.server import ServerConfig
from gateway.http.door import Door, Webhooks
from gateway.http.edge import Edge
from gateway.http.hooks import Hooks
from gateway.http.request import Peers
from gateway.web.door import WebDoor


def build_app(
    door: Door, hooks: Hooks, web: WebDoor | None, api: ApiDoor, config: ServerConfig, peers: Peers
) -> ASGIApp:
    """The routes of one gateway. No documentation pages: what is served is in docs/http.md."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_api_route("/healthz", door.healthz, methods=["GET"])
    app.add_api_route("/readyz", door.readyz, methods=["GET"])
    app.add_api_route("/wake", door.wake, methods=["POST"])
    app.add_api_route("/metrics", door.metrics, methods=["GET"])
    app.add_api_route("/hooks/{name}", hooks.post, methods=["POST"])
    if web is not None:
        app.include_router(web.router())
    if config.api.open:
        app.include_router(api.router())
    return Edge(Webhooks(app, door), config, peers)
