"""The terminal chat is a client of the web chat, with the same API, inbox, commands and approvals.

It connects to the serving gateway. If there is none, it runs a private gateway for the conversation, which listens on
loopback with a random token, connects no platform and takes up no other work.
"""

import asyncio
import secrets
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import orjson
from pydantic import SecretStr

from channels.web.admission import PAGE_HEADER, SECURE_COOKIE, Admission
from channels.web.config import WebConfig
from gateway.app.gateway import Gateway
from gateway.app.serve import harden, listen, serve_one
from gateway.config.exposure import way_in
from gateway.config.load import Loaded
from gateway.config.root import Config, DatabaseConfig
from gateway.config.server import ApiConfig
from gateway.observe.secrets import Scrubber
from gateway.observe.terminal import print_text
from gateway.outbox.outbox import payload_json
from gateway.program import OperatorError
from gateway.store.archive import DatabaseSessions
from gateway.store.errors import FAULTS, StoreUnavailable
from gateway.store.migrate import refused
from gateway.store.opening import answer, connected, offline, open_store
from gateway.store.sqlite import DatabaseInUse
from gateway.store.store import Store

SILENT_SECONDS = 45.0
"""Read timeout of the event stream; the server sends a keepalive every 15 seconds."""
RECONNECT_SECONDS = 1.0
UPLOAD_SECONDS = 600.0
PROBE_SECONDS = 5.0
BUSY_SECONDS = 20
"""The timeout for a database that is in use although no gateway serves."""


@contextmanager
def door(loaded: Loaded, url: str | None, scrubber: Scrubber, language: str) -> Iterator[httpx.Client]:
    """Connect to the gateway at `url` or of the config, or to a private one. Raise OperatorError."""
    config = loaded.config
    store = None if url else free_store(config, BUSY_SECONDS)
    if store is None:
        headers = {"cookie": asyncio.run(_cookie(config.database))} if way_in(config) == "link" else {}
        if token := config.server.admin_token.get_secret_value():
            headers = {"authorization": f"Bearer {token}"}
        with _client(url or config.server.address, language, **headers) as client:
            yield client
        return
    with (
        _own(loaded, store, scrubber) as (url, token),
        _client(url, language, authorization=f"Bearer {token}") as client,
    ):
        yield client


def free_store(config: Config, seconds: int) -> Store | None:
    """Open the database unless a gateway serves it, waiting up to `seconds` for another command."""
    for second in range(seconds):
        try:
            return open_store(config.database)
        except DatabaseInUse:
            with suppress(httpx.TransportError), _client(config.server.address, "") as client:
                client.get("/healthz", timeout=PROBE_SECONDS)
                return None
            if second == 0 and sys.stderr.isatty():
                print_text(f"Another command has the database: waiting {seconds} seconds at most.", err=True)
            time.sleep(1.0)
    return None


def _client(url: str, language: str, **headers: str) -> httpx.Client:
    headers |= {PAGE_HEADER: "1", "accept-language": language}
    return httpx.Client(base_url=url, headers=headers, timeout=UPLOAD_SECONDS, trust_env=False)


async def _cookie(config: DatabaseConfig) -> str:
    # Whoever can write the database may create a sign-in link.
    sessions = DatabaseSessions(read=offline(config), write=offline(config))
    admission = Admission(token="", way="link", sessions=sessions)
    return f"{SECURE_COOKIE}={await admission.sign_in(admission.offer_link() or '', ())}"


@contextmanager
def _own(loaded: Loaded, store: Store, scrubber: Scrubber) -> Iterator[tuple[str, str]]:
    token = secrets.token_urlsafe(32)
    listener = listen("127.0.0.1", 0)
    harden()
    gateway = Gateway(_for_one(loaded.config, token), loaded.environment, store=store, scrubber=scrubber)
    started = threading.Event()
    stops: list[Callable[[], object]] = []

    def ready(stop: Callable[[], object]) -> None:
        stops.append(stop)
        started.set()

    with ThreadPoolExecutor(1, thread_name_prefix="gateway") as thread:
        serving = thread.submit(lambda: asyncio.run(serve_one(gateway, listener, ready)))
        serving.add_done_callback(lambda _: started.set())
        try:
            started.wait()
            if serving.done():
                serving.result()
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", token
        except StoreUnavailable as error:
            raise refused(error, loaded.config.database.shown) from None
        finally:
            for stop in stops:
                stop()


def _for_one(config: Config, token: str) -> Config:
    server = config.server.but(host="127.0.0.1", public_url=None, admin_token=SecretStr(token), api=ApiConfig())
    server = server.but(trusted_proxies=(), allowed_hosts=())
    web = (config.channels.web or WebConfig()).but(enabled=True)
    return config.but(server=server, channels=config.channels.but(web=web))


class Conversation:
    """A new conversation of the web chat. `agent` is None if the bindings decide."""

    def __init__(self, http: httpx.Client, database: DatabaseConfig, agent: str | None) -> None:
        self.chat = f"terminal-{uuid4().hex}"
        self._http = http
        self._database = database
        self._agent = agent
        self._after: int = self._asked("GET", "/api/chats")["after"]
        self._folder: Path | None = None

    def say(self, message: str, text: str, files: Sequence[str] = ()) -> None:
        """Send a message with this id. Raise OperatorError."""
        body = {"id": message, "chat": self.chat, "agent": self._agent, "text": text, "files": list(files)}
        self._asked("POST", "/webhooks/web/default", json=body)

    def upload(self, path: Path) -> str:
        """Upload a file and return its id. Raise OperatorError or OSError."""
        uploaded = self._asked("POST", "/api/files", params={"name": path.name}, content=path.read_bytes())
        return str(uploaded["id"])

    def save(self, file: dict[str, Any]) -> Path:
        """Save a file from the agent in a temporary folder of the conversation."""
        self._folder = self._folder or Path(tempfile.mkdtemp(prefix="clawgate-"))
        path = self._folder / Path(f"{file['id'][:8]}-{file['name']}".replace("/", "_")).name
        path.write_bytes(self._answered("GET", f"/api/files/{file['id']}", params={"download": ""}).content)
        return path

    def answer(self, message: str) -> tuple[str, str | None] | None:
        """Return the turn's outcome and its reply, if any; None until the turn has ended, on any replica."""
        with connected(self._database) as connection:
            found = answer(connection, f"web:default:{self.chat}:{message}")
        if found is None:
            return None
        words = "".join(payload_json.validate_json(it).part.text for it in found.payloads)
        return str(orjson.loads(found.final)["outcome"]), words if found.payloads else None

    def events(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the conversation's events until the stream is refused or the client is closed."""
        patience = httpx.Timeout(UPLOAD_SECONDS, read=SILENT_SECONDS)
        while not self._http.is_closed:
            with suppress(httpx.TransportError, RuntimeError):  # the latter if it is closed in this very moment
                params: dict[str, str | int] = {"after": self._after, "plain": ""}
                with self._http.stream("GET", "/api/events", params=params, timeout=patience) as response:
                    if response.status_code != 200:
                        return
                    for name, data in self._parsed(response.iter_lines()):
                        if data.get("chat") == self.chat:
                            yield name, data
            time.sleep(RECONNECT_SECONDS)

    def _parsed(self, lines: Iterator[str]) -> Iterator[tuple[str, dict[str, Any]]]:
        name = ""
        for line in lines:
            field, _, value = line.partition(": ")
            if field == "event":
                name = value
            elif field == "id":
                self._after = int(value)
            elif field == "data":
                yield name, orjson.loads(value)

    def close(self) -> None:
        """Sign out, if there was a sign-in."""
        with suppress(httpx.HTTPError):
            self._http.delete("/api/session")

    def _asked(self, method: str, path: str, **request: Any) -> Any:
        return orjson.loads(self._answered(method, path, **request).content)

    def _answered(self, method: str, path: str, **request: Any) -> httpx.Response:
        try:
            response = self._http.request(method, path, **request)
        except httpx.TransportError as error:
            raise OperatorError(
                f"no gateway answers at {self._http.base_url} ({type(error).__name__}), although its database is in use — "
                "end another `chat`, or say with --url where it listens"
            ) from None
        if response.is_success:
            return response
        try:
            answer = orjson.loads(response.content)
            reason, fault = str(answer["error"]), answer.get("cause")
        except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
            reason, fault = f"HTTP {response.status_code} from {self._http.base_url}", None
        if fault in FAULTS:
            raise refused(StoreUnavailable(reason, fault), self._database.shown)
        if response.status_code == 404:
            reason = f"{reason} — is channels.web.enabled false in the gateway that serves there?"
        raise OperatorError(reason)
