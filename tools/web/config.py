"""The config of the web tools: where `web_search` looks, and how far `web_fetch` may go."""

import ipaddress
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, Field, SecretStr

from channels.section import Listed, Section

SearchProvider: TypeAlias = Literal["brave", "tavily", "searxng"]
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network
Private: TypeAlias = tuple[str, int | None] | Network
"""A host, with its own port if one is named, or a network."""


def _sound(entries: tuple[str, ...]) -> tuple[str, ...]:
    for entry in entries:
        private(entry)
    return entries


PrivatePlaces = Annotated[tuple[str, ...], Listed, AfterValidator(_sound)]


class FetchConfig(Section):
    """Limits of `web_fetch`. Addresses that are not public are refused, however they are written or reached."""

    allow_private: PrivatePlaces = ()
    """Addresses that may be fetched although they are not public: hosts (`wiki.internal`), hosts with their own port
    (`wiki.internal:8080`) and networks (`10.1.0.0/16`). Everybody who writes to the agent can have it read what is
    there."""
    ports: Annotated[tuple[Annotated[int, Field(ge=1, le=65535)], ...], Listed] = (80, 443)
    """The ports that may be asked."""
    max_bytes: Annotated[int, Field(ge=1024, le=67_108_864)] = 2_097_152
    """The longest page, also once it is unpacked."""
    total_seconds: Annotated[float, Field(gt=0, le=120)] = 20
    """Seconds that one fetch may take, redirects included."""
    redirects: Annotated[int, Field(ge=0, le=10)] = 3
    """The number of redirects that are followed; each is judged like the first address."""


def private(entry: str) -> Private:
    """The host or network that an entry of `allowPrivate` names. Raises ValueError."""
    text = entry.strip().lower()
    try:
        return ipaddress.ip_network(text.strip("[]"))
    except ValueError:
        host, colon, port = text.rpartition(":")
    if "/" in text or not (host if colon else text) or (colon and not port.isdecimal()):
        raise ValueError("expected a host, host:port, or a network such as 10.1.0.0/16")
    return ((host if colon else text).strip("[]").rstrip("."), int(port) if colon else None)


class SearchConfig(Section):
    """The service that answers `web_search`. Without a provider there is no such tool."""

    provider: SearchProvider | None = None
    """`brave`, `tavily` (both want an `apiKey`), or `searxng` (an instance of your own at `baseUrl`)."""
    api_key: SecretStr = SecretStr("")
    """The key of Brave or Tavily."""
    base_url: str = ""
    """The server, without a path; the provider's own if empty. A SearXNG must have `json` among its `search.formats`."""


class WebToolsConfig(Section):
    """The tools that read the web."""

    search: SearchConfig = SearchConfig()
    fetch: FetchConfig = FetchConfig()
