"""A wire without an SDK: one JSON body goes out over httpx, server-sent events come back.

An SDK would add little more than names, and cost a second and tens of megabytes. What a vendor wants is one `Dialect`.
"""

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agents.messages import ModelError
from agents.providers.config import ProviderConfig
from agents.providers.errors import AttemptFailed, Refused
from agents.providers.http import END, LazyClient, drain, event_of, must_be_events, server_sent, settings
from agents.providers.network import Assembly
from agents.providers.provider import ModelRequest
from channels.transport import is_local

if TYPE_CHECKING:
    from httpx import AsyncClient


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """What is a vendor's own. `finishes`: the event ends the answer; `late` is what counts of an event behind that one,
    which is mostly the usage. `local_keyless`: a server on this machine needs no key."""

    api: str
    base_url: Callable[[ProviderConfig], str]
    path: Callable[[ModelRequest], str]
    body: Callable[[ModelRequest], dict[str, Any]]
    key_header: Callable[[str], tuple[str, str]]
    assembly: Callable[..., Assembly]
    finishes: Callable[[dict[str, Any]], bool]
    late: Callable[[dict[str, Any]], dict[str, Any]]
    from_status: Callable[[int, object, Mapping[str, str], float], ModelError]
    headers: Mapping[str, str] = field(default_factory=dict)
    local_keyless: bool = False


class JsonWire:
    def __init__(self, dialect: Dialect, config: ProviderConfig) -> None:
        self.api = dialect.api
        self.assembly = dialect.assembly
        self._dialect = dialect
        self._config = config
        self._base_url = dialect.base_url(config)
        self.client = LazyClient(self._build)
        self.keyless = dialect.local_keyless and is_local(self._base_url)

    async def events(self, request: ModelRequest, key: str) -> AsyncGenerator[dict[str, Any], None]:
        client: AsyncClient = await self.client.get()
        headers = dict([self._dialect.key_header(key)]) if key else {}
        url = self._base_url + self._dialect.path(request)
        async with client.stream("POST", url, json=self._dialect.body(request), headers=headers) as response:
            must_be_events(response.headers)
            raw = server_sent(response.aiter_bytes())
            async for data in raw:
                if data.strip() == END:
                    return
                event = event_of(data)
                yield event
                if event and self._dialect.finishes(event):
                    behind = (self._dialect.late(event_of(data)) async for data in raw)
                    for late in await drain(behind, idle_seconds=self._config.idle_seconds):
                        yield late
                    return

    def refusal(self, refused: Refused, now: float) -> AttemptFailed:
        return AttemptFailed(self._dialect.from_status(refused.status, refused.body, refused.headers, now))

    def _build(self) -> "AsyncClient":
        import httpx

        headers = {**self._dialect.headers, **self._config.headers}
        return httpx.AsyncClient(headers=headers, **settings(self._config, self._base_url, httpx))
