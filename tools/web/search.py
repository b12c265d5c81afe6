"""`web_search`: titles, addresses and snippets from the configured provider.

The operator chooses the server, not the model, so it may be anywhere. Redirects are not followed: that would leak the
key.
"""

import asyncio
import html
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from tools.config import SearchConfig, SearchProvider
from tools.tool import Arguments, Call, ToolError, ToolResult

RESULTS = 5
"""Default number of results."""
RESULTS_MAX = 10
SECONDS = 15.0
ANSWER_BYTES_MAX = 2_097_152
TITLE_CHARS = 200
URL_CHARS = 1_000
SNIPPET_CHARS = 600
_TAG = re.compile(r"</?[a-zA-Z][^<>]{0,100}>")


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """One provider. `request` makes the query parameters, the headers and the body from the key, the query and the
    count; `results` finds the list in an answer, and `snippet` is the key of a result's summary."""

    base_url: str
    path: str
    request: Callable[[str, str, int], tuple[Mapping[str, str], Mapping[str, str], Mapping[str, Any] | None]]
    results: Callable[[Any], Any]
    snippet: str


ENGINES: dict[SearchProvider, Engine] = {
    "brave": Engine(
        base_url="https://api.search.brave.com",
        path="/res/v1/web/search",
        request=lambda key, query, count: (
            {"q": query, "count": str(count), "text_decorations": "false"},
            {"X-Subscription-Token": key},
            None,
        ),
        results=lambda answer: answer.get("web", {}).get("results", []),
        snippet="description",
    ),
    "tavily": Engine(
        base_url="https://api.tavily.com",
        path="/search",
        request=lambda key, query, count: (
            {},
            {"Authorization": f"Bearer {key}"},
            {"query": query, "max_results": count},
        ),
        results=lambda answer: answer["results"],
        snippet="content",
    ),
    "searxng": Engine(
        base_url="",
        path="/search",
        request=lambda _, query, count: ({"q": query, "format": "json"}, {}, None),
        results=lambda answer: answer["results"],
        snippet="content",
    ),
}


class WebSearchArguments(Arguments):
    query: str = Field(description="What to look for, as one would type it.", min_length=1, max_length=400)
    count: int | None = Field(
        default=None, ge=1, le=RESULTS_MAX, description=f"How many results, {RESULTS} if left out."
    )


class WebSearch:
    spec = WebSearchArguments.spec(
        "web_search",
        summary="search the web",
        description=(
            "Search the web: a title, an address and a snippet for each result. `web_fetch`, if there is one, reads on."
        ),
        effect="safe",
    )
    parse = staticmethod(WebSearchArguments.parse)

    def __init__(self, config: SearchConfig) -> None:
        self._config = config

    async def run(self, arguments: WebSearchArguments, call: Call) -> ToolResult:
        query = " ".join(arguments.query.split())
        if not query:
            raise ToolError("INVALID_ARGUMENT", "'query' has no word to look for")
        assert self._config.provider is not None
        engine, count = ENGINES[self._config.provider], arguments.count or RESULTS
        answer = await self._ask(engine, query, count)
        try:
            hits = [_shown(number, it, engine.snippet) for number, it in enumerate(engine.results(answer)[:count], 1)]
        except (AttributeError, KeyError, TypeError):
            raise ToolError("SEARCH_FAILED", "the search provider's answer cannot be read", retryable=True) from None
        text = "\n\n".join(hits) or "(nothing found; try other words, or fewer)"
        return ToolResult(content=(text,), details={"url": f"search: {query}", "results": len(hits)}, external=True)

    async def _ask(self, engine: Engine, query: str, count: int) -> Any:
        import httpx

        from channels.transport import Transport, client_class

        config = self._config
        params, headers, body = engine.request(config.api_key.get_secret_value(), query, count)
        base = (config.base_url or engine.base_url).rstrip("/")
        url = base + engine.path.removeprefix(urlsplit(base).path)
        try:
            async with (
                asyncio.timeout(SECONDS),
                client_class(httpx)(transport=Transport(httpx, url), timeout=SECONDS) as client,
            ):
                request = client.build_request(
                    "GET" if body is None else "POST",
                    url,
                    params=params or None,
                    json=body,
                    headers={"Accept": "application/json", "Accept-Encoding": "identity", **headers},
                )
                response = await client.send(request, stream=True)
                try:
                    if response.status_code != 200:
                        raise refusal(response.status_code)
                    data = bytearray()
                    async for piece in response.aiter_raw():
                        data += piece
                        if len(data) > ANSWER_BYTES_MAX:
                            raise ToolError("SEARCH_FAILED", "the search provider's answer is too long")
                finally:
                    await response.aclose()
        except TimeoutError:
            raise ToolError("SEARCH_TIMEOUT", "the search provider did not answer in time", retryable=True) from None
        except httpx.HTTPError:
            raise ToolError("SEARCH_FAILED", "the search provider cannot be reached", retryable=True) from None
        try:
            return json.loads(data)
        except (ValueError, RecursionError):
            raise ToolError("SEARCH_FAILED", "the search provider's answer is no JSON", retryable=True) from None


def refusal(status: int) -> ToolError:
    """Return the error for a status. The provider's own text is left out: it may hold the key."""
    match status:
        case 429:
            what = "the search provider asks for a pause; go on without it"
            return ToolError("SEARCH_RATE_LIMITED", what, retryable=True)
        case 401 | 403 | 422:
            what = "the search provider refuses the key or the format (tools.web.search)"
            return ToolError("SEARCH_REFUSED", f"{what}; say that the operator must see to it")
        case 402 | 432 | 433:
            return ToolError("SEARCH_REFUSED", "the plan at the search provider is used up")
    return ToolError("SEARCH_FAILED", f"the search provider answered with status {status}", retryable=status >= 500)


def _shown(number: int, result: Mapping[str, Any], snippet: str) -> str:
    title = _line(result.get("title"), TITLE_CHARS) or "(no title)"
    url = "".join(str(result["url"]).split())[:URL_CHARS]
    return f"{number}. {title}\n   {url}\n   {_line(result.get(snippet), SNIPPET_CHARS)}".rstrip()


def _line(text: object, chars_max: int) -> str:
    words = " ".join(html.unescape(_TAG.sub("", text)).split()) if isinstance(text, str) else ""
    return words if len(words) <= chars_max else words[: chars_max - 1] + "…"
